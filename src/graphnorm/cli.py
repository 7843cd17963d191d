"""The command line. Each command is a module of :mod:`graphnorm.commands`, imported only when it is called.

For a user's mistake (:class:`GraphnormError`) the message is printed without a traceback, and the exit code is 2.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from graphnorm._version import __version__
from graphnorm.commands.parser import Parser
from graphnorm.errors import CONTROL, CodeWarning, DataWarning, GraphnormError, explain_os_error

__all__ = ["COMMANDS", "main", "make_parser"]

COMMANDS = {
    "compare": "compare normalizations on a dataset",
    "search": "search the best configuration of each normalization",
    "runs": "list, show and export studies",
    "train": "train one model and save it",
    "predict": "predict with a saved model",
    "analyze": "analyze spectra, regularity and more of a dataset",
    "advise": "suggest which normalization to try first on a dataset, and why",
    "reproduce": "reproduce tables and figures of the paper",
    "report": "write studies and comparisons as an HTML page",
    "datasets": "list datasets with their statistics, fetch them, draw them",
}

WITHOUT_TORCH = ("runs",)
"""Commands that need no torch: importing it takes longer than they do."""

DESCRIPTION = "Which normalization suits your graphs and your model? Train with each, and test the differences."
BEGIN = """\
To begin, `graphnorm compare` tries five normalizations on 1,017 molecules, in two minutes.
`graphnorm COMMAND --help` lists what a command can do, with examples.
"""


def make_parser(command: str | None = None) -> Parser:
    """The parser of the command line; only the named command gets its options."""
    parser = Parser(prog="graphnorm", description=DESCRIPTION, epilog=BEGIN)
    parser.add_argument("--version", action="version", version=f"graphnorm {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name, about in COMMANDS.items():
        if name != command:
            subparsers.add_parser(name, help=about, add_help=False)
            continue
        module = import_module(f"graphnorm.commands.{name}")
        own = subparsers.add_parser(
            name,
            help=about,
            description=module.DESCRIPTION,
            epilog=getattr(module, "EXAMPLES", None),
        )
        module.add(own)
        own.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    _open_streams()
    try:
        return _exit_code(sys.argv[1:] if arguments is None else list(arguments))
    finally:
        _end_streams()


def _exit_code(given: list[str]) -> int:
    """Run a command; the message of an error is printed."""
    try:
        _run(given)
    except GraphnormError as error:
        _say(error)
        return 2
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            return 141  # the shell's code for a program ended by SIGPIPE
        _say(explain_os_error(error))
        return 2
    except MemoryError as error:
        problem = f"there is not enough memory ({error})" if str(error) else "there is not enough memory"
        _say(GraphnormError(problem, remedy="give fewer or smaller graphs"))
        return 2
    except ModuleNotFoundError as error:
        print(f"graphnorm: {error}. Remedy: pip install 'graphnorm[all]'.", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"graphnorm: {str(stop) or 'stopped; what was not finished is not saved'}", file=sys.stderr)
        return 128 + getattr(stop, "signal", signal.SIGINT)
    return 0


def _run(given: list[str]) -> None:
    command = next((text for text in given if text in COMMANDS), None)
    options = make_parser(command).parse_args(given, argparse.Namespace(words=["graphnorm", *given]))
    if command not in WITHOUT_TORCH:
        with _ending_at_once():
            import torch  # noqa: F401 - takes seconds
    with warnings.catch_warnings():
        warnings.simplefilter("always", DataWarning)
        warnings.simplefilter("always", CodeWarning)
        warnings.showwarning = partial(_show_warning, warnings.showwarning, set())
        try:
            options.run(options)
        except SystemExit as error:  # no command raises it
            problem = f"your own code ended Python (SystemExit: {error.code})"
            raise GraphnormError(problem, remedy="raise another error there") from error
    sys.stdout.flush()


def _open_streams() -> None:
    """Let output pass that is closed, or that cannot be written in the encoding of the terminal."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _end_streams() -> None:
    """Discard output that cannot be written, as on a full disk: otherwise Python fails again when it exits."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _say(message: object) -> None:
    """Print a message on standard error. It may quote a file: what a terminal would obey is shown, not sent."""
    shown = CONTROL.sub(lambda found: found[0] if found[0] in "\n\t" else ascii(found[0])[1:-1], str(message))
    print(f"graphnorm: {shown}", file=sys.stderr)


@contextmanager
def _ending_at_once() -> Iterator[None]:
    """Ctrl-C inside the block ends the process at once, with one line and code 130.

    It is for imports: a KeyboardInterrupt in the middle of an import is not always passed on.
    """

    def end(number: int, frame: FrameType | None) -> None:
        os.write(2, b"graphnorm: stopped before anything was started\n")
        os._exit(130)

    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # background jobs ignore it
        yield
        return
    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _nobody_reads() -> bool:
    """Whether the reader of our output (``head``, for example) has closed it; the rest is then discarded."""
    output = sys.stdout.fileno()
    poll = select.poll()
    poll.register(output, select.POLLOUT)
    gone = any(event & select.POLLERR for _, event in poll.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return gone


def _show_warning(
    show: Callable[..., None],
    said: set[str],
    message: Warning | str,
    category: type[Warning],
    *where: Any,
    **more: Any,
) -> None:
    """Print warnings about the user's data and code as notes, each once; show others as usual."""
    if issubclass(category, DataWarning | CodeWarning):
        if str(message) not in said:
            _say(message)
        said.add(str(message))
    else:
        show(message, category, *where, **more)


if __name__ == "__main__":
    sys.exit(main())
