"""Ctrl-C on the real program: it stops cleanly, and goes on from there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import graphnorm

pytest.importorskip("rdkit")


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
