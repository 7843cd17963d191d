"""The examples run as they are, from a folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import graphnorm

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
NEEDS = {
    "pyg_drop_in": "torch_geometric",
    "own_smiles_table": "rdkit",
    "custom_norm": "sklearn",
    "own_model": "torch_geometric",
    "study_on_ray": "ray",
    "spectra_by_hand": "scipy",
    "demo": "torch",
}
SHORT = {
    "pyg_drop_in": (["--epochs", "2"], "epoch 2: accuracy"),
    "own_smiles_table": (["--epochs", "1"], "open smiles-example/report.html"),
    "custom_norm": (["--epochs", "1"], "root-mean-square"),
    "own_model": (["--epochs", "1"], "own_model.py:Net@"),
    "study_on_ray": (["--epochs", "1"], "kept in ray-example.db"),
    "spectra_by_hand": ([], "they interlace: True"),
}


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SHORT, "demo"} == set(NEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_example(name: str, tmp_path: Path) -> None:
    pytest.importorskip(NEEDS[name])
    if name == "own_smiles_table":
        pytest.importorskip("plotly")
    options, said = SHORT[name]
    environment = os.environ | {
        "PYTHONPATH": str(Path(graphnorm.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
        "GRAPHNORM_CACHE": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *options],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
