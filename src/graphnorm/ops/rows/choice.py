"""Which kernels a call gets."""

from graphnorm.ops.choice import chooser
from graphnorm.ops.rows import cpu, reference

kernels_for = chooser(cpu, reference)
