"""Ctrl-C while the command line is still importing torch, which takes seconds: one line and code 130, as later on.

The package imports this first. It does nothing where the package is imported by another program.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

__all__ = ["end_start", "runs_command_line"]

MODULES = ("graphnorm", "graphnorm.cli")
"""What ``python -m`` may name."""


def runs_command_line(arguments: Sequence[str], original: Sequence[str]) -> bool:
    """Whether this process is the command line.

    arguments: ``sys.argv``. original: ``sys.orig_argv``, which in a worker process has nothing of the command's.

    >>> runs_command_line(["-m", "compare"], ["python", "-m", "graphnorm", "compare"])
    True
    >>> runs_command_line(["/bin/graphnorm", "compare"], ["python", "/bin/graphnorm", "compare"])
    True
    >>> runs_command_line(["mine.py", "-m", "graphnorm"], ["python", "mine.py", "-m", "graphnorm"])
    False
    """
    program = arguments[0] if arguments else ""
    if program == "-m":  # Python is looking for the module
        return "-m" in original and original[original.index("-m") + 1] in MODULES
    return Path(program).stem == "graphnorm" and program in original


def end_start() -> None:
    """From here on Ctrl-C is a ``KeyboardInterrupt`` again, for the command to answer."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: an exception would come up in the middle of other packages' imports, and not all let it through."""
    os.write(2, b"graphnorm: stopped before anything was begun\n")
    os._exit(130)


if (
    runs_command_line(getattr(sys, "argv", ()), sys.orig_argv)
    and threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a background job ignores it
):
    signal.signal(signal.SIGINT, _leave)
