"""Which kernels a call gets."""

from graphnorm.ops.aggregate import cpu, reference
from graphnorm.ops.choice import chooser

kernels_for = chooser(cpu, reference)
