"""Comparisons: train the same model with several normalizations, and say which does best, and how sure that is."""

from graphnorm.comparison.job import ComparisonInterrupted, compare
from graphnorm.comparison.plots import plot_curves
from graphnorm.comparison.result import Comparison, NormResult
from graphnorm.comparison.settings import Settings

__all__ = ["Comparison", "ComparisonInterrupted", "NormResult", "Settings", "compare", "plot_curves"]
