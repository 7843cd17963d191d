"""Reports: results and studies as one page of HTML that needs nothing else."""

from graphnorm.report.chapters import Chapter, by_dataset, join_baselines, read_folder, read_studies, tell_apart
from graphnorm.report.charts import Chart, Section, model_sections, read_analysis
from graphnorm.report.page import build_page
from graphnorm.report.reproduced import Reproduced, read_reproduced

__all__ = [
    "Chapter",
    "Chart",
    "Reproduced",
    "Section",
    "build_page",
    "by_dataset",
    "join_baselines",
    "model_sections",
    "read_analysis",
    "read_folder",
    "read_reproduced",
    "read_studies",
    "tell_apart",
]
