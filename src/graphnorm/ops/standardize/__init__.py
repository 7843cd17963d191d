"""The one operation behind every layer: shift by α·mean, divide by the root of the second moment, over a set of values.

The set is the *scope* (one node, one graph, the whole batch), α is the *shift*, and *statistics* says where mean and
variance come from. :mod:`~graphnorm.ops.standardize.reference` holds the mathematics.
"""

from __future__ import annotations

from graphnorm.ops.standardize.api import standardize

__all__ = ["standardize"]
