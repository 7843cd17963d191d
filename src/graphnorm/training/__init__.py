"""Training: from trials of equal shape to fleets that are stepped as one."""

from graphnorm.training.fleet import Fleet, OnEpoch, Progress
from graphnorm.training.packing import plan_fleets
from graphnorm.training.run import train
from graphnorm.training.setup import MODELS, build_model
from graphnorm.training.trial import Outcome, Split, Trial

__all__ = ["MODELS", "Fleet", "OnEpoch", "Outcome", "Progress", "Split", "Trial", "build_model", "plan_fleets", "train"]
