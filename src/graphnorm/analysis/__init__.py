"""Why normalization works, measured: spectra, regularity, theory, batch noise, the learned α, curvature.

Every tool is a function with arrays in and arrays out; its plot is in :mod:`graphnorm.analysis.plots`.

>>> from graphnorm.analysis import interlacing, spectra
>>> from graphnorm.data import load
>>> bool(interlacing(spectra(load("synthetic:trees"))).holds.all())  # Theorem 1
True
"""

from graphnorm.analysis.advice import Advice, Facts, Statement, advise
from graphnorm.analysis.alpha import Alphas, alpha_along_training, learned_alpha
from graphnorm.analysis.batch_noise import (
    LayerNoise,
    Moments,
    along,
    batch_noise,
    brief_layer,
    graph_moments,
    layer_moments,
    noise_along_training,
    readable_layer,
)
from graphnorm.analysis.curvature import hessian_spectrum, module_loss
from graphnorm.analysis.lanczos import RitzValues, lanczos
from graphnorm.analysis.measured import Measured, measured_by_study
from graphnorm.analysis.measurement import Floats, Integers, Measurement
from graphnorm.analysis.regularity import MeanVersusSpread, Regularity, classify_from_mean, regularity, typical_graphs
from graphnorm.analysis.smoothness import Curvature, curvature_along_training
from graphnorm.analysis.spectrum import (
    Aggregation,
    Conditions,
    ExtremeSingularValues,
    Interlacing,
    Spectra,
    affordable,
    conditions,
    dense_q,
    extreme_singular_values,
    interlacing,
    sparse_q,
    spectra,
    tolerance,
)
from graphnorm.analysis.theory import (
    Assumptions,
    ClosestInstanceNorm,
    ConvergenceRates,
    GradientCheck,
    LinearTask,
    check_assumptions,
    check_weight_gradient,
    closest_instance_norm,
    convergence_rates,
    gradient_descent,
    linear_task,
    weight_gradient,
)

__all__ = [
    "Advice",
    "Aggregation",
    "Alphas",
    "Assumptions",
    "ClosestInstanceNorm",
    "Conditions",
    "ConvergenceRates",
    "Curvature",
    "ExtremeSingularValues",
    "Facts",
    "Floats",
    "GradientCheck",
    "Integers",
    "Interlacing",
    "LayerNoise",
    "LinearTask",
    "MeanVersusSpread",
    "Measured",
    "Measurement",
    "Moments",
    "Regularity",
    "RitzValues",
    "Spectra",
    "Statement",
    "advise",
    "affordable",
    "along",
    "alpha_along_training",
    "batch_noise",
    "brief_layer",
    "check_assumptions",
    "check_weight_gradient",
    "classify_from_mean",
    "closest_instance_norm",
    "conditions",
    "convergence_rates",
    "curvature_along_training",
    "dense_q",
    "extreme_singular_values",
    "gradient_descent",
    "graph_moments",
    "hessian_spectrum",
    "interlacing",
    "lanczos",
    "layer_moments",
    "learned_alpha",
    "linear_task",
    "measured_by_study",
    "module_loss",
    "noise_along_training",
    "readable_layer",
    "regularity",
    "sparse_q",
    "spectra",
    "tolerance",
    "typical_graphs",
    "weight_gradient",
]
