"""Training: trials, tasks, and fleets of models that take their steps together."""

from graphnorm.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
