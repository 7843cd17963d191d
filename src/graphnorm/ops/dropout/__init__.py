"""Dropout by a key: what is dropped is a function of the key and the place, whatever is trained beside it."""

from graphnorm.ops.dropout.call import drop

__all__ = ["drop"]
