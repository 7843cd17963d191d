"""The models of the paper and those it compares with, each written for one batch of graphs, and a table of them."""

from graphnorm.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
