"""Reports: results and studies as one page of HTML that needs nothing else."""

from graphnorm.report.chapters import *
from graphnorm.report.charts import *
from graphnorm.report.page import *
from graphnorm.report.reproduced import *
