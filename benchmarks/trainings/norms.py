"""The paper's normalizations with the ε of the authors' code, 1e-6, for ``--norm-module``."""

from functools import partial

from graphnorm import BatchNorm, GraphNorm, InstanceNorm

EPS = 1e-6
batch, graph = (partial(kind, eps=EPS) for kind in (BatchNorm, GraphNorm))
instance = partial(InstanceNorm, eps=EPS, affine=True)
