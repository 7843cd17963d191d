"""Neighbour sums as products with adjacency matrices, for graphs that have many edges for their size."""

from graphnorm.ops.blocks.call import can_sum, sum_blocks

__all__ = ["can_sum", "sum_blocks"]
