"""Which kernels a call gets."""

from graphnorm.ops.dispatch import chooser
from graphnorm.ops.standardize import cpu, reference

kernels_for = chooser(cpu, reference)
