"""Training: trials, tasks, and fleets of models that take their steps together."""

from graphnorm.training.fleet import Fleet, OnEpoch, Progress, default_device, device_name
from graphnorm.training.inputs import ModelInputs, build_model
from graphnorm.training.kernel_fleet import KernelFleet
from graphnorm.training.metrics import METRICS, Metric
from graphnorm.training.task import TASKS, Task, find_metric, find_task, metric_of, task_of
from graphnorm.training.trial import Outcome, Split, Trial

__all__ = [
    "METRICS",
    "TASKS",
    "Fleet",
    "KernelFleet",
    "Metric",
    "ModelInputs",
    "OnEpoch",
    "Outcome",
    "Progress",
    "Split",
    "Task",
    "Trial",
    "build_model",
    "default_device",
    "device_name",
    "find_metric",
    "find_task",
    "metric_of",
    "task_of",
]
