"""Studies: plans of trials, run by one runner on one store, and their results.

Names are imported at their first use: `graphnorm runs` lists a store without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphnorm.study.api import compare, search
    from graphnorm.study.plan import Plan, make_plan, settle
    from graphnorm.study.progress import Callback
    from graphnorm.study.protocol import PROTOCOLS, Protocol, find_protocol, make_splits
    from graphnorm.study.result import Result, Score, load_result, read
    from graphnorm.study.runner import Stopped, run
    from graphnorm.study.significance import PairTest, paired_test, welch_test
    from graphnorm.study.store import Store, Study

_WHERE = {
    **dict.fromkeys(("compare", "search"), "api"),
    **dict.fromkeys(("Plan", "make_plan", "settle"), "plan"),
    "Callback": "progress",
    **dict.fromkeys(("PROTOCOLS", "Protocol", "find_protocol", "make_splits"), "protocol"),
    **dict.fromkeys(("Result", "Score", "load_result", "read"), "result"),
    **dict.fromkeys(("Stopped", "run"), "runner"),
    **dict.fromkeys(("PairTest", "paired_test", "welch_test"), "significance"),
    **dict.fromkeys(("Store", "Study"), "store"),
}
"""The module of each name."""

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


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = found  # not looked up again
    return found
