"""The operations that take time: in plain torch, as their definition, and by fused kernels in C and Triton.

:func:`~graphnorm.ops.function.define` makes them differentiable.
"""
