"""Neighbour sums as products with adjacency matrices, for graphs that have many edges for their size."""

from graphnorm.ops.dense_sum.call import can_sum, sum_blocks

__all__ = ["can_sum", "sum_blocks"]
