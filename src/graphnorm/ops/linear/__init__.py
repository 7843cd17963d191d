"""x·Wᵀ + b, and many of them at once."""

from graphnorm.ops.linear.call import linear

__all__ = ["linear"]
