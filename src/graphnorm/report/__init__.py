"""Reports: comparisons and studies as one page of HTML that needs nothing else."""

from graphnorm.report.items import Items, read_items
from graphnorm.report.page import build_page
from graphnorm.report.sources import Source, join_baselines, read_comparison
from graphnorm.report.studies import read_studies, read_study
from graphnorm.report.trained import Insight, read_analysis, read_notebook

__all__ = [
    "Insight",
    "Items",
    "Source",
    "build_page",
    "join_baselines",
    "read_analysis",
    "read_comparison",
    "read_items",
    "read_notebook",
    "read_studies",
    "read_study",
]
