"""The version that results are recorded with: the commit of a checkout, and never an error."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from graphnorm import __version__, _version

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def package(root: Path, place: str = "src") -> Callable[[], str]:
    """``exact_version`` of a copy of the package's file, and nothing else of the package."""
    file = root / place / "graphnorm" / "_version.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(_version.__file__, file)
    spec = importlib.util.spec_from_file_location("copied_version", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ask: Callable[[], str] = module.exact_version
    return ask


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    package(tmp_path)
    (tmp_path / "README").write_text("one\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_a_checkout_has_its_commit(checkout: Path) -> None:
    clean = f"{__version__}+{git(checkout, 'rev-parse', 'HEAD')[:10]}"
    assert package(checkout)() == clean
    (checkout / "README").write_text("two\n")
    (checkout / "src" / "notes.txt").write_text("not tracked\n")
    assert package(checkout)() == clean
    git(checkout, "add", "src")
    assert package(checkout)() == f"{clean}-dirty"


def test_another_checkout_of_the_same_repository_has_its_own(checkout: Path, tmp_path: Path) -> None:
    git(checkout, "worktree", "add", "-q", str(tmp_path / "other"))
    git(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "second")
    second = git(tmp_path / "other", "rev-parse", "HEAD")[:10]
    assert package(tmp_path / "other")() == f"{__version__}+{second}"
    assert not package(checkout)().endswith(second)


def test_the_environment_of_another_repository_is_not_taken(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = package(checkout)()
    monkeypatch.setenv("GIT_DIR", str(checkout / "nowhere"))
    assert package(checkout)() == right != __version__


def test_an_installed_package_has_none_even_inside_a_checkout(checkout: Path) -> None:
    assert package(checkout, ".venv/lib/site-packages")() == __version__


def test_sources_outside_of_a_checkout_have_none(tmp_path: Path) -> None:
    assert package(tmp_path)() == __version__


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert package(tmp_path)() == __version__


def test_a_damaged_repository(checkout: Path) -> None:
    (checkout / ".git" / "HEAD").write_text("nonsense")
    assert package(checkout)() == __version__


def test_without_git(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert package(checkout)() == __version__


def test_a_git_that_does_not_answer(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = checkout / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(slow.parent), prepend=os.pathsep)
    ask = package(checkout)
    monkeypatch.setitem(ask.__wrapped__.__globals__, "GIT_SECONDS", 0.2)  # type: ignore[attr-defined]
    assert ask() == __version__
