from graphnorm.study.api import compare as compare, search as search
from graphnorm.study.plan import Plan as Plan
from graphnorm.study.plan_from_settings import make_plan as make_plan, settle as settle
from graphnorm.study.progress import Callback as Callback
from graphnorm.study.protocol import PROTOCOLS as PROTOCOLS, Protocol as Protocol, find_protocol as find_protocol
from graphnorm.study.reading import read as read
from graphnorm.study.result import Result as Result, load_result as load_result
from graphnorm.study.runner import Stopped as Stopped, run as run
from graphnorm.study.score import Score as Score
from graphnorm.study.significance import PairTest as PairTest, paired_test as paired_test, welch_test as welch_test
from graphnorm.study.folds import make_splits as make_splits
from graphnorm.study.store import Store as Store, Study as Study
