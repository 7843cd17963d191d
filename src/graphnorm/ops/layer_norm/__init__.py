"""Standardization of every row by itself, across its channels: LayerNorm with its tail, in one pass each way.

:mod:`~graphnorm.ops.layer_norm.reference` holds the mathematics. :func:`~graphnorm.ops.standardize.standardize` comes
here with scope ``"node"``.
"""

from __future__ import annotations

from graphnorm.ops.layer_norm.call import standardize_rows

__all__ = ["standardize_rows"]
