"""Files are written completely or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphnorm.data.download import sha256_of
from graphnorm.errors import GraphnormError, explain_os_error
from graphnorm.files import _host, read_text, refuse_overwriting, replacing, save_tensors


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
        "with replacing(Path(sys.argv[1])) as fresh:\n    Path(f'{fresh}-copy-wal').touch()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a.txt")], check=False)
    assert len(list(tmp_path.iterdir())) == 2
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


def test_what_is_read_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "data.csv").touch()
    (tmp_path / "link.csv").symlink_to("data.csv")
    for output in ("data.csv", "link.csv"):
        with pytest.raises(GraphnormError, match="would overwrite this input"):
            refuse_overwriting(("MUTAG", tmp_path / "data.csv"), tmp_path / "new.csv", tmp_path / output)
    refuse_overwriting(("MUTAG", tmp_path / "data.csv", None), tmp_path / "new.csv")


def test_a_mark_at_the_begin_of_a_text_is_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbflr = 0.1\n")
    assert read_text(tmp_path / "a.toml") == "lr = 0.1\n"


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file here fails when it is read")
def test_a_disk_that_fails_is_named() -> None:
    with pytest.raises(OSError, match="Input/output") as caught:
        sha256_of(Path("/proc/self/mem"))
    assert explain_os_error(caught.value).startswith("/proc/self/mem: this cannot be read or written: ")
