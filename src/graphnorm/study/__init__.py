"""Studies: plans of trials, run by one runner on one store, and their results."""

from graphnorm.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
