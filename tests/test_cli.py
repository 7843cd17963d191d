"""The command line as a program: help at once, and a user's mistake is one message and exit code 2."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import graphnorm.study  # before anything of it is replaced
from graphnorm import cli
from graphnorm.commands.parser import SECOND_COLUMN

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(graphnorm.__file__).parents[1]


def program(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        **options,  # type: ignore[call-overload]
    )


def test_help_comes_at_once_and_without_torch() -> None:
    code = (
        "import sys\n"
        "from graphnorm import cli\n"
        "for command in ([], *([name] for name in cli.COMMANDS)):\n"
        "    try:\n"
        "        cli.main([*command, '--help'])\n"
        "    except SystemExit as end:\n"
        "        assert end.code == 0\n"
        "heavy = {'torch', 'numpy', 'scipy', 'sklearn', 'pandas', 'matplotlib', 'rdkit'} & sys.modules.keys()\n"
        "print('LOADED', *heavy)\n"
    )
    done = program("-c", code)
    assert done.stdout.endswith("LOADED\n"), done.stderr
    for command in cli.COMMANDS:
        assert f"usage: graphnorm {command}" in done.stdout
    seconds = []  # of a processor, which a busy machine changes little
    for _ in range(3):
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert program("-m", "graphnorm", "compare", "--help").returncode == 0
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime)
    assert min(seconds) < 0.5  # about 0.2


def test_help_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    asked = [[name] for name in cli.COMMANDS] + [["runs", "export"], ["datasets", "draw"]]
    for words in ([], *asked):
        with pytest.raises(SystemExit):
            cli.main([*words, "--help"])
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if len(line) > 80] == []
        assert lines[0].startswith(f"usage: {' '.join(['graphnorm', *words])}")
    with pytest.raises(SystemExit):
        cli.main(["report", "--help"])
    lines = capsys.readouterr().out.splitlines()
    place = next(k for k, line in enumerate(lines) if "graphnorm report --store gpu.db" in line)
    assert lines[place + 1].startswith(" " * SECOND_COLUMN + "all studies")


@pytest.mark.parametrize("columns", ["1", "-3", "0", "x"])
def test_help_in_absurd_terminals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit):
        cli.main(["compare", "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) > 30


def test_the_version() -> None:
    for arguments in (["-m", "graphnorm"], ["-m", "graphnorm.cli"]):
        assert program(*arguments, "--version").stdout.strip() == f"graphnorm {graphnorm.__version__}"


def test_a_reader_who_has_seen_enough() -> None:
    """As in ``graphnorm runs | head``: no message, and nothing else goes on."""
    command = [sys.executable, "-m", "graphnorm", "datasets", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 141


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: COMMAND"),
        (["comprae"], "unknown command 'comprae'; did you mean 'compare'?"),
        (["runs", "shwo"], "unknown action 'shwo'; did you mean 'show'?"),
        (["compare", "--nonsense"], "unknown option --nonsense"),
        (["compare", "--foldz=2"], "unknown option --foldz; did you mean --folds?"),
        (["compare", "--epoch", "2"], "unknown option --epoch; did you mean --epochs?"),
        (["compare", "--learning-rate", "0.1"], "unknown option --learning-rate; did you mean --lr?"),
        (["compare", "trees", "mutag"], "unknown argument mutag"),
        (["runs", "show", "x", "--jsn"], "did you mean --json?"),
        (["datasets", "draw", "trees"], "required: --out"),
        (["datasets", "get"], "required"),
        (["search", "trees", "--budget", "soon"], "budget is 'soon'"),
        (["search", "trees", "--budget", "0"], "budget is 0"),
        (["search", "trees", "--trials", "many"], "'many' is not a whole number"),
        (["search", "trees", "--lr", "high"], "'high' is not a number"),
        (["compare", "trees", "--checkpoint", "5x"], "checkpoint is '5x'"),
        (["compare", "trees", "--engine", ""], "engine is empty"),
        (["compare", "trees", "--out", ""], "out is empty"),
        (["predict", "", "trees"], "model is empty"),
        (["compare", "\x1b[31m"], r"no dataset '\x1b[31m'"),
    ],
)
def test_wrong_usage(run: Run, arguments: list[str], words: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("graphnorm: ")
    assert words in err
    assert "Remedy: " in err


def test_a_bare_installation(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphnorm.data", None)
    code, _, err = run("datasets")
    assert code == 2
    assert "pip install 'graphnorm[all]'" in err


def test_other_warnings_are_shown_as_ever(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphnorm.data.load", lambda *_, **__: warnings.warn("of another kind", stacklevel=1))
    with pytest.warns(UserWarning, match="of another kind"), pytest.raises(AttributeError):
        run("datasets", "show", "trees")


def test_too_little_memory(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphnorm.data.load", lambda *_, **__: bytearray(1 << 62))
    code, out, err = run("datasets", "show", "trees")
    assert (code, out) == (2, "")
    assert err == "graphnorm: there is not enough memory. Remedy: give fewer or smaller graphs.\n"


@pytest.mark.parametrize(
    "arguments", [["datasets", "show", "trees"], ["train", "trees", "--out", "model.safetensors"], ["compare", "trees"]]
)
def test_interrupted_before_anything_was_begun(run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for function in ("graphnorm.study.api.as_graphs", "graphnorm.data.load"):
        monkeypatch.setattr(function, interrupt)
    code, out, err = run(*arguments)
    assert (code, out) == (130, "")
    assert err.startswith("graphnorm: stopped")
    assert len(err.splitlines()) == 1


# Ctrl-C

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
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
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


# Files


def refuse(path: Path, *_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", str(path))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("p.png", "p.png: this cannot be written: permission denied"),
        ("new/p.png", "new/p.png: this cannot be written: permission denied"),
        ("mine.csv/p.png", "mine.csv: this cannot be written: file exists"),
    ],
)
def test_places_that_cannot_be_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    (tmp_path / "mine.csv").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "touch", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    code, out, err = run("datasets", "draw", "trees", "--out", name)
    assert (code, out) == (2, "")
    assert err.startswith(f"graphnorm: {words}. Remedy: ")


def test_a_comparisons_folder_that_cannot_be_written(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphnorm.data.load("trees")  # its cache is written
    monkeypatch.setattr(Path, "mkdir", refuse)
    code, _, err = run("compare", "trees", "--out", tmp_path / "ro")
    assert code == 2
    assert err.startswith(f"graphnorm: {tmp_path / 'ro'}")
    assert ": this cannot be written: permission denied. Remedy: " in err


def test_a_file_that_is_gone(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphnorm.data.load", lambda *_, **__: (tmp_path / "gone").read_text())
    code, _, err = run("datasets", "show", "trees")
    assert code == 2
    assert err.startswith(f"graphnorm: {tmp_path / 'gone'}: this cannot be found")
    assert err.endswith("Remedy: check the path.\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("shell", "code", "said"),
    [
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        (">/dev/full", 2, "no space left on device"),
        ("2>/dev/full", 0, ""),
    ],
)
def test_output_that_cannot_be_written(shell: str, code: int, said: str) -> None:
    line = f"{sys.executable} -m graphnorm datasets {shell}"
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "80"}
    done = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert said in done.stderr.lower()
    assert len(done.stderr.splitlines()) == bool(said)
