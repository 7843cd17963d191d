"""The one compiled part: a small C library, which needs no torch ABI.

It is optional: where it cannot be built, the package still installs and the layers run on plain torch. With
``GRAPHNORM_PURE=1`` it is left out, which makes a wheel for every system.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

# Contraction to fused multiply-add is fine; reassociation is not: it would undo the shifted sums.
FLAGS = "-O2 -g0 -std=gnu11 -fno-math-errno -fno-trapping-math -ffp-contract=fast -Wno-psabi"

kernels = Extension(
    "graphnorm._kernels",
    sources=["src/graphnorm/csrc/kernels.c"],
    depends=sorted(map(str, Path("src/graphnorm/csrc").glob("*.h"))),
    extra_compile_args=FLAGS.split(),
    py_limited_api=True,
    optional=True,
)

pure = os.environ.get("GRAPHNORM_PURE", "0") != "0"
setup(ext_modules=[] if pure else [kernels], options={} if pure else {"bdist_wheel": {"py_limited_api": "cp311"}})
