"""The Triton kernels on a machine without a GPU, by Triton's interpreter.

The interpreter must be switched on before Triton is imported, so the tests that are marked for it run again in a
separate process.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphnorm.backends import triton_kernels


@pytest.mark.slow
@pytest.mark.timeout(900)  # two minutes of one core that does nothing else
@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="this is the separate process")
def test_marked_tests_pass_in_the_interpreter():
    pytest.importorskip("triton")
    assert triton_kernels("graphnorm.ops.standardize.gpu") is not None
    here = Path(__file__).parent
    of_standardize = ("standardize", "gpu_cuts", "transforms", "eager", "function", "memory_check")
    of_fleets = ("neighbour_sum", "dense_sum", "categories", "dropout", "linear", "layer_norm")
    names = (*of_standardize, "read_batch", "compiled_gpu", *of_fleets)
    files = [str(here / f"test_{name}.py") for name in names]
    options = ["-q", "-m", "interpreted", "-k", "triton", "-p", "no:cacheprovider", "-o", "addopts="]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *files, *options],
        env=environment, capture_output=True, text=True, check=False, cwd=here.parent.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
