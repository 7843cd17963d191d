"""Why normalization works, measured: spectra, regularity, the paper's theory, curvature.

Every tool is a function with arrays in and arrays out; its plot is in :mod:`graphnorm.analysis.plots`.

>>> from graphnorm.analysis import interlacing, spectra
>>> from graphnorm.data import load
>>> bool(interlacing(spectra(load("synthetic:trees"))).holds.all())  # Theorem 1
True
"""

from graphnorm.analysis.aggregation import Aggregation, dense_q, sparse_q
from graphnorm.analysis.curvature import hessian_spectrum, module_loss
from graphnorm.analysis.extremes import Extremes, extremes
from graphnorm.analysis.lanczos import RitzValues, lanczos
from graphnorm.analysis.linear_gnn import (
    Assumptions,
    LinearTask,
    RateStudy,
    check_assumptions,
    descend,
    linear_task,
    rate_study,
)
from graphnorm.analysis.regularity import Regularity, regularity, typical_graphs
from graphnorm.analysis.spectrum import (
    Conditions,
    Interlacing,
    Spectra,
    affordable,
    conditions,
    interlacing,
    spectra,
    tolerance,
)
from graphnorm.analysis.theory import (
    GradientCheck,
    Witness,
    check_weight_gradient,
    instance_norm_witness,
    weight_gradient,
)

__all__ = [
    "Aggregation",
    "Assumptions",
    "Conditions",
    "Extremes",
    "GradientCheck",
    "Interlacing",
    "LinearTask",
    "RateStudy",
    "Regularity",
    "RitzValues",
    "Spectra",
    "Witness",
    "affordable",
    "check_assumptions",
    "check_weight_gradient",
    "conditions",
    "dense_q",
    "descend",
    "extremes",
    "hessian_spectrum",
    "instance_norm_witness",
    "interlacing",
    "lanczos",
    "linear_task",
    "module_loss",
    "rate_study",
    "regularity",
    "sparse_q",
    "spectra",
    "tolerance",
    "typical_graphs",
    "weight_gradient",
]
