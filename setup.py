"""The one compiled part: a small C library, which needs no torch ABI.

It is optional: where it cannot be built, the package still installs and the layers run on plain torch.
"""

from pathlib import Path

from setuptools import Extension, setup

kernels = Extension(
    "graphnorm._kernels",
    sources=["src/graphnorm/csrc/kernels.c"],
    depends=sorted(map(str, Path("src/graphnorm/csrc").glob("*.h"))),
    # Contraction to fused multiply-add is fine; reassociation is not: it would undo the shifted sums.
    extra_compile_args=["-O2", "-g0", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"],
    py_limited_api=True,
    optional=True,
)

setup(ext_modules=[kernels], options={"bdist_wheel": {"py_limited_api": "cp311"}})
