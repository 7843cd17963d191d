"""The command line. Each command is a file of :mod:`graphnorm.commands`; list it in :data:`COMMANDS`.

A user's mistake is a ``GraphnormError``: its message is printed, and the exit code is 2.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from graphnorm._version import __version__
from graphnorm.commands import (
    advise,
    analyze,
    compare,
    datasets,
    predict,
    report,
    reproduce,
    runs,
    search,
    train,
)
from graphnorm.commands.options import Subparsers
from graphnorm.errors import DataWarning, GraphnormError, explain_os_error
from graphnorm.starting import end_start

__all__ = ["COMMANDS", "main"]

COMMANDS: tuple[Callable[[Subparsers], None], ...] = (
    compare.add,
    search.add,
    runs.add,
    train.add,
    predict.add,
    analyze.add,
    advise.add,
    reproduce.add,
    report.add,
    datasets.add,
)
"""Every command of the command line, in the order of the help text."""

STOPPED = "stopped; what was not finished is not saved"
"""What Ctrl-C is answered with, unless the command (``stopped`` of its options) or the exception says more."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    parser = argparse.ArgumentParser(prog="graphnorm", description="Normalization for graph neural networks.")
    parser.add_argument("--version", action="version", version=f"graphnorm {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in COMMANDS:
        add(subparsers)
    options = parser.parse_args(arguments)
    end_start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", DataWarning)
            warnings.showwarning = partial(_show_warning, warnings.showwarning)
            options.run(options)
        sys.stdout.flush()
    except GraphnormError as error:
        print(f"graphnorm: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            return 141  # as the shell has it of others
        print(f"graphnorm: {explain_os_error(error)}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"graphnorm: {error}. Remedy: pip install 'graphnorm[all]'.", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"graphnorm: {str(stop) or getattr(options, 'stopped', STOPPED)}", file=sys.stderr)
        return 130
    return 0


def _nobody_reads() -> bool:
    """Whether the reader of our output, ``head`` say, has gone; what is left of it is then let go."""
    output = sys.stdout.fileno()
    poll = select.poll()
    poll.register(output, select.POLLOUT)
    gone = any(event & select.POLLERR for _, event in poll.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return gone


def _show_warning(
    show: Callable[..., None], message: Warning | str, category: type[Warning], *where: Any, **more: Any
) -> None:
    """Print what was left out of the user's data as a note; show any other warning as before."""
    if issubclass(category, DataWarning):
        print(f"graphnorm: {message}", file=sys.stderr)
    else:
        show(message, category, *where, **more)


if __name__ == "__main__":
    sys.exit(main())
