"""Training: from trials of equal shape to fleets that are stepped as one."""

from graphnorm.training.trial import Outcome, Split, Trial

__all__ = ["Outcome", "Split", "Trial"]
