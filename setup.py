"""The one compiled part: a small C library, optional, free of any torch ABI.

Where it cannot be built the package installs all the same and the layers run on plain torch.
"""

from setuptools import Extension, setup

HEADERS = (
    "adam",
    "arguments",
    "assemble",
    "instructions",
    "jobs",
    "launch",
    "layer_norm",
    "linear",
    "neighbour_sum",
    "outputs",
    "pool",
    "scalars",
    "standardize",
)

kernels = Extension(
    "graphnorm._kernels",
    sources=["src/graphnorm/csrc/kernels.c"],
    depends=[f"src/graphnorm/csrc/{name}.h" for name in HEADERS],
    # Contraction to fused multiply-add is fine; reassociation is not: it would undo the shifted sums.
    extra_compile_args=["-O2", "-g0", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"],
    py_limited_api=True,
    optional=True,
)

setup(ext_modules=[kernels], options={"bdist_wheel": {"py_limited_api": "cp311"}})
