"""The operation that moves features along edges: a sum (or mean) over neighbours, with all that models put around it.

:mod:`~graphnorm.ops.neighbour_sum.reference` holds the mathematics. The readout of whole graphs, :func:`pool`, is the
same operation where the rows of a graph take the place of edges.
"""

from __future__ import annotations

from graphnorm.ops.neighbour_sum.call import aggregate, pool

__all__ = ["aggregate", "pool"]
