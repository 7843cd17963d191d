"""The version, in its one place."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

__version__ = "0.2.0"

GIT_SECONDS = 5.0
"""That git may take."""
_ABOUT_ANOTHER_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")


@cache
def exact_version() -> str:
    """The version that results are recorded with: in a git checkout with its commit, else the version alone.

    ``0.2.0+0123456789``, and ``-dirty`` after it where tracked files under ``src`` differ from the commit. Git is
    asked once, when this is first called; where it cannot tell, nothing is added.
    """
    source = Path(__file__).resolve().parents[1]
    if source.name != "src" or not (source.parent / ".git").exists():
        return __version__
    import subprocess

    status = ["status", "--porcelain=v2", "--branch", "--no-ahead-behind", "--untracked-files=no", "--", "."]
    try:
        lines = subprocess.run(
            ["git", "--no-optional-locks", *status],
            cwd=source,
            env={name: value for name, value in os.environ.items() if name not in _ABOUT_ANOTHER_REPOSITORY},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=GIT_SECONDS,
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return __version__
    commits = [line.split()[-1].decode() for line in lines if line.startswith(b"# branch.oid ")]
    if not commits or commits[0] == "(initial)":
        return __version__
    changed = any(not line.startswith(b"#") for line in lines)
    return f"{__version__}+{commits[0][:10]}{'-dirty' if changed else ''}"
