from graphnorm.training.base_fleet import OnEpoch as OnEpoch, Progress as Progress
from graphnorm.training.devices import default_device as default_device, device_name as device_name
from graphnorm.training.fleet import Fleet as Fleet
from graphnorm.training.inputs import ModelInputs as ModelInputs, build_model as build_model
from graphnorm.training.kernel_fleet import KernelFleet as KernelFleet
from graphnorm.training.metrics import METRICS as METRICS, Metric as Metric, find_metric as find_metric
from graphnorm.training.task import TASKS as TASKS, Task as Task, find_task as find_task, task_of as task_of
from graphnorm.training.trial import Outcome as Outcome, Split as Split, Trial as Trial, metric_of as metric_of
