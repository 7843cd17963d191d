"""Studies: how graphs are split, what is chosen and reported, and which differences are more than chance."""

from graphnorm.study.protocol import PROTOCOLS, Protocol, make_splits
from graphnorm.study.selection import Choice, Selection, select
from graphnorm.study.significance import PairTest, compare_all, paired_test, welch_test

__all__ = [
    "PROTOCOLS",
    "Choice",
    "PairTest",
    "Protocol",
    "Selection",
    "compare_all",
    "make_splits",
    "paired_test",
    "select",
    "welch_test",
]
