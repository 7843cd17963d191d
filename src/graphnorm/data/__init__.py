"""Datasets of graphs: the benchmarks and the user's own, packed into flat arrays."""

from graphnorm.data.batching import Bounds, GraphBatch, one_hot
from graphnorm.data.packed import PackedGraphs, Statistics
