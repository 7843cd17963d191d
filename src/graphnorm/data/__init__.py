"""Datasets of graphs: the paper's benchmarks and your own, packed into flat arrays.

>>> from graphnorm.data import load
>>> graphs = load("synthetic:trees")
>>> graphs.batch([0, 1, 2]).num_graphs
3
"""

from graphnorm.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
