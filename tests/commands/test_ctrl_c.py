"""Ctrl-C on the real program: it stops cleanly, and goes on from there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("rdkit")


def program(table: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    options = ("--norms", "none,graph", "--folds", "2", "--epochs", "60", "--hidden", "8", "--layers", "2",
               "--batch-size", "8", "--device", "cpu", "--workers", "1")  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "graphnorm.cli", "compare", str(table), "--out", str(out), *options, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a background job would pass on SIG_IGN
    )


@pytest.mark.slow
def test_stop_and_go_on(table: Path, tmp_path: Path) -> None:
    with program(table, tmp_path) as running:
        while not (tmp_path / "trained" / "none.safetensors").exists():
            assert running.poll() is None, running.communicate()
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=120)
    assert running.returncode == 130
    assert "Traceback" not in err
    assert "graphnorm: stopped; finished: none; kept in" in err
    assert "not trained: graph" in out
    assert json.loads((tmp_path / "comparison.json").read_text())["unfinished"] == ["graph"]
    with program(table, tmp_path, "--resume") as again:
        out, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert "(from an earlier run)" in err
    content = json.loads((tmp_path / "comparison.json").read_text())
    assert list(content["norms"]) == ["none", "graph"]
    assert content["unfinished"] == []
    assert not list(tmp_path.rglob(".*"))
