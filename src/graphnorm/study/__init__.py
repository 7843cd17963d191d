"""Studies: plans of trials, run by one runner on one store, and their results."""

from graphnorm.study.api import compare, search
from graphnorm.study.plan import Plan, make_plan, settle
from graphnorm.study.progress import Callback
from graphnorm.study.protocol import PROTOCOLS, Protocol, find_protocol, make_splits
from graphnorm.study.result import Result, Score, load_result, read
from graphnorm.study.runner import Stopped, run
from graphnorm.study.significance import PairTest, paired_test, welch_test
from graphnorm.study.store import Store, Study

__all__ = [
    "PROTOCOLS",
    "Callback",
    "PairTest",
    "Plan",
    "Protocol",
    "Result",
    "Score",
    "Stopped",
    "Store",
    "Study",
    "compare",
    "find_protocol",
    "load_result",
    "make_plan",
    "make_splits",
    "paired_test",
    "read",
    "run",
    "search",
    "settle",
    "welch_test",
]
