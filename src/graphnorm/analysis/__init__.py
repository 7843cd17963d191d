"""Why normalization works, measured: spectra, regularity, theory, batch noise, the learned α, curvature.

Every tool is a function with arrays in and arrays out; its plot is in :mod:`graphnorm.analysis.plots`.

>>> from graphnorm.analysis import interlacing, spectra
>>> from graphnorm.data import load
>>> bool(interlacing(spectra(load("synthetic:trees"))).holds.all())  # Theorem 1
True
"""

from graphnorm.analysis.advice import *
from graphnorm.analysis.aggregation import *
from graphnorm.analysis.along_training import *
from graphnorm.analysis.alpha import *
from graphnorm.analysis.curvature import *
from graphnorm.analysis.measurement import *
from graphnorm.analysis.noise import *
from graphnorm.analysis.regularity import *
from graphnorm.analysis.spectrum import *
from graphnorm.analysis.theory import *
