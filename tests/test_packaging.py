"""What a release says of itself agrees."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from graphnorm import __version__

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / "CITATION.cff").exists(), reason="this is no checkout")


def test_versions_agree() -> None:
    (cited,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    latest, *_ = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    base = __version__.partition(".dev")[0]
    assert latest == base
    assert cited == __version__ or ".dev" in __version__


def test_the_wheel_is_for_all_pythons_that_are_supported() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["project"]["requires-python"] == ">=3.11"
    assert {name.partition("-")[0] for name in settings["tool"]["cibuildwheel"]["build"]} == {"cp311"}
    assert '"py_limited_api": "cp311"' in (ROOT / "setup.py").read_text()
    assert "Py_LIMITED_API 0x030b0000" in (ROOT / "src/graphnorm/csrc/kernels.c").read_text()


def test_a_release_needs_all_three_files(tmp_path: Path) -> None:
    (tmp_path / "graphnorm-1-py3-none-any.whl").touch()
    command = [sys.executable, "packaging/try_wheels.py", str(tmp_path), sys.executable]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "one of each is needed" in done.stderr


def test_a_release_is_tried_with_torch(tmp_path: Path) -> None:
    for name in ("graphnorm-1.tar.gz", "graphnorm-1-py3-none-any.whl", "graphnorm-1-cp311-abi3-linux_x86_64.whl"):
        (tmp_path / name).touch()
    command = [sys.executable, "packaging/try_wheels.py", str(tmp_path), "python-that-is-not-there"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "make dist TORCH=" in done.stderr
