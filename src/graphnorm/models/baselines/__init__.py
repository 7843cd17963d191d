"""The other rows of the paper's tables: graph kernels, and models that are compared with the normalized ones.

The kernels, :mod:`~graphnorm.models.baselines.wl` and :mod:`~graphnorm.models.baselines.awl`, need scipy.
"""

from graphnorm.models.baselines.dcnn import DCNN
from graphnorm.models.baselines.dgcnn import DGCNN
from graphnorm.models.baselines.mlp import MLP
from graphnorm.models.baselines.ogb import OGBGCN, OGBGIN, OGBClassifier

__all__ = ["DCNN", "DGCNN", "MLP", "OGBGCN", "OGBGIN", "OGBClassifier"]
