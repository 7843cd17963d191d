"""Files are written completely or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphnorm.files import _host, replacing, save_tensors


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def recording(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    with replacing(tmp_path / "a.txt") as fresh:
        fresh.write_text("done")
    assert synced == [fresh.name, tmp_path.name]
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from graphnorm.files import replacing\n"
        "with replacing(Path(sys.argv[1])):\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a.txt")], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    others = [f".a.txt.{_host()}-{os.getpid()}-{0:012}.txt", ".a.txt.swp", ".b.txt"]
    for name in others:  # one of a process that runs, and two that are not ours
        (tmp_path / name).touch()
    with replacing(tmp_path / "a.txt") as fresh:
        fresh.write_text("done")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, "a.txt"])


def test_a_full_disk_is_an_error_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors.torch

    def full(*_: object) -> None:
        raise safetensors.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(OSError, match="No space left") as error:
        save_tensors(tmp_path / "a.safetensors", {"a": torch.ones(1)}, {}, "this test")
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(tmp_path / "a.safetensors"))
    assert not list(tmp_path.iterdir())


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="this is no regular file"), replacing(tmp_path / "pipe"):
        raise AssertionError
    assert (tmp_path / "pipe").is_fifo()
