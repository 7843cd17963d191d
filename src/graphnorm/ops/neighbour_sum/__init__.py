"""Sums (or means) over neighbours, with what models do around them: a self weight, degree scaling, edge features, relu.

:mod:`~graphnorm.ops.neighbour_sum.reference` holds the mathematics. The readout of whole graphs, :func:`pool`, is the
same operation where the rows of a graph take the place of edges.
"""

from __future__ import annotations

from graphnorm.ops.neighbour_sum.api import aggregate, pool

__all__ = ["aggregate", "pool"]
