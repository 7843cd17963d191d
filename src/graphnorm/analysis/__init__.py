"""Why normalization works, measured: spectra, regularity, the paper's theory, curvature.

Every tool is a function with arrays in and arrays out; its plot is in :mod:`graphnorm.analysis.plots`.

>>> from graphnorm.analysis import interlacing, spectra
>>> from graphnorm.data import load
>>> bool(interlacing(spectra(load("synthetic:trees"))).holds.all())  # Theorem 1
True
"""

from graphnorm.analysis.aggregation import Aggregation, dense_q, sparse_q
from graphnorm.analysis.spectrum import (
    Conditions,
    Interlacing,
    Spectra,
    conditions,
    interlacing,
    spectra,
    tolerance,
)

__all__ = [
    "Aggregation",
    "Conditions",
    "Interlacing",
    "Spectra",
    "conditions",
    "dense_q",
    "interlacing",
    "sparse_q",
    "spectra",
    "tolerance",
]
