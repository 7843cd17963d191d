"""Ctrl-C on the real program: it stops cleanly, and goes on from there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import graphnorm
from graphnorm.errors import StoreError
from graphnorm.study import Store

pytest.importorskip("rdkit")


def program(table: Path, out: Path, **options: Any) -> subprocess.Popen[str]:
    settings = ("--norms", "none,graph", "--folds", "2", "--epochs", "12", "--hidden", "8", "--layers", "2",
               "--batch-size", "8", "--device", "cpu", "--workers", "1")  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "graphnorm.cli", "compare", str(table), "--out", str(out), *settings],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a background job would pass on SIG_IGN
    )


SLOW_TORCH = "import time; print('importing', flush=True); time.sleep(60)"
CONSOLE_SCRIPT = "import sys; from graphnorm.cli import main; sys.exit(main())"


@pytest.mark.parametrize(
    "arguments", [("-m", "graphnorm"), ("-m", "graphnorm.cli"), ("bin/graphnorm",)], ids=lambda a: a[-1]
)
@pytest.mark.parametrize("ignored", [False, True], ids=["in the foreground", "ignoring it"])
def test_while_torch_is_imported(arguments: tuple[str, ...], ignored: bool, tmp_path: Path) -> None:
    for name, text in (("torch/__init__.py", SLOW_TORCH), ("bin/graphnorm", CONSOLE_SCRIPT)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    with subprocess.Popen(
        [sys.executable, *arguments, "datasets"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(graphnorm.__file__).parents[1])])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL),
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "importing\n"
        running.send_signal(signal.SIGINT)
        if ignored:
            with pytest.raises(subprocess.TimeoutExpired):
                running.wait(timeout=0.5)
            running.kill()
        _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (
        (-signal.SIGKILL, "") if ignored else (130, "graphnorm: stopped before anything was started\n")
    )


def test_other_programs_keep_their_own_answer() -> None:
    code = "import signal, graphnorm; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run(
        [sys.executable, "-c", code, "-m", "graphnorm"],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    assert done.stdout == "True\n"


@pytest.mark.slow
def test_stop_and_go_on(table: Path, tmp_path: Path, slow_epochs: dict[str, str]) -> None:
    with program(table, tmp_path, env=slow_epochs) as running:
        while not trained(tmp_path):
            assert running.poll() is None, running.communicate()
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=120)
    assert running.returncode == 130
    assert "Traceback" not in err
    assert err.endswith("the same command goes on from here\n")
    assert "not trained: graph" in out
    assert json.loads((tmp_path / "result.json").read_text())["unfinished"] == ["graph"]
    with program(table, tmp_path) as again:
        out, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert "2 of them trained before" in err
    content = json.loads((tmp_path / "result.json").read_text())
    assert list(content["norms"]) == ["none", "graph"]
    assert content["unfinished"] == []
    assert not list(tmp_path.rglob(".*"))


def trained(folder: Path) -> bool:
    """Whether something is finished."""
    try:
        with Store(folder / "graphnorm.db", writable=False) as store:
            return bool(store.finished_keys())
    except StoreError:
        return False
