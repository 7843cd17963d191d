"""Normalization for graph neural networks: drop-in layers with fused kernels, and a bench to choose between them."""

from graphnorm.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
