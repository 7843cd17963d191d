"""Exceptions for users' mistakes.

Every error that a user can correct is a :class:`GraphnormError`. Its message says what is wrong, where, and what to do.
The command line prints only this message and exits with code 2.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import re
import reprlib
from collections.abc import Iterable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that no name may have: a terminal obeys them or turns text around, or files of UTF-8 cannot hold them."""


OTHER_WORDS = {
    "auc": "roc-auc", "auroc": "roc-auc", "ap": "average-precision", "auprc": "average-precision",
    "pr-auc": "average-precision", "prc-auc": "average-precision", "acc": "accuracy", "bacc": "balanced-accuracy",
    "f1-score": "f1", "mse": "rmse", "r^2": "r2", "r²": "r2", "regression": "values", "real": "values",
    "classification": "classes", "multiclass": "classes", "multilabel": "binary", "multi-label": "binary",
    "identity": "none",
}  # fmt: skip
"""Values of options by the names that they have elsewhere."""


class GraphnormError(ValueError):
    """An error that the user can correct.

    ``GraphnormError(problem, where=file, line=7, remedy=...)`` reads ``file:7: problem. Remedy: ...``.

    >>> print(GraphnormError("a node has no graph", where="X_A.txt", line=7, remedy="add the line"))
    X_A.txt:7: a node has no graph. Remedy: add the line.
    """

    def __init__(
        self,
        problem: str,
        *,
        where: str | PathLike[str] | None = None,
        line: int | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problem, self.where, self.line, self.remedy = problem, where, line, remedy
        place = "" if where is None else fspath(where) + ("" if line is None else f":{line}") + ": "
        advice = "" if remedy is None else f" Remedy: {remedy.removesuffix('.')}."
        end = "" if problem.endswith("?") else "."
        super().__init__(f"{place}{problem.removesuffix('.')}{end}{advice}")


class DataError(GraphnormError):
    """A file, folder or list of graphs with wrong content."""


class DataWarning(UserWarning):
    """What the user should know about how the data was read; the command line prints this as a note."""


class CodeWarning(UserWarning):
    """Something about the user's own code that does not stop it; the command line prints this as a note."""


class UnknownDatasetError(GraphnormError):
    """A name that is neither a known dataset nor a path."""


class DownloadError(GraphnormError):
    """A file that could not be downloaded, or has the wrong content."""


class StoreError(GraphnormError):
    """A store of results that cannot be opened, read or written."""


class StudyError(GraphnormError):
    """A study that cannot be planned or run as requested."""


class MissingDependencyError(GraphnormError, ImportError):
    """A task needs an optional package that is not installed."""

    def __init__(self, package: str, task: str, extra: str) -> None:
        GraphnormError.__init__(self, f"{task} needs the package {package}", remedy=f"pip install 'graphnorm[{extra}]'")


def need(module: str, task: str, extra: str) -> Any:
    """Import a module of an optional package; if it is missing, the error names the extra to install.

    >>> need("no_such_package.parts", "this task", "study")
    Traceback (most recent call last):
    graphnorm.errors.MissingDependencyError: this task needs the package no_such_package. Remedy: pip install ...
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(module.partition(".")[0], task, extra) from error


def unknown(
    what: str,
    name: str,
    known: Iterable[str],
    error: type[GraphnormError] = GraphnormError,
    *,
    where: str | PathLike[str] | None = None,
) -> GraphnormError:
    """The error for an unknown name, with the known one that others call so, or the most similar one.

    >>> print(unknown("model", "gim", ["gin", "gcn"]))
    unknown model 'gim'; did you mean 'gin'? Remedy: choose from gin, gcn.
    >>> print(unknown("metric", "AUROC", ["accuracy", "roc-auc"]))
    unknown metric 'AUROC'; did you mean 'roc-auc'? Remedy: choose from accuracy, roc-auc.
    """
    names = list(known)
    by_lower = {known_name.lower(): known_name for known_name in names}
    plain = name.lower()
    close = [OTHER_WORDS.get(plain.replace("_", "-"), ""), *difflib.get_close_matches(plain, by_lower, n=1)]
    near = next((by_lower[word] for word in close if word in by_lower), None)
    hint = f"; did you mean {near!r}?" if near else ""
    return error(f"unknown {what} {name!r}{hint}", where=where, remedy=f"choose from {', '.join(names)}")


def listing(names: Sequence[str], word: str = "and") -> str:
    """Join names for a sentence.

    >>> listing(["none", "layer", "batch"]), listing(["graph"]), listing(["a", "b"], "or"), listing([])
    ('none, layer and batch', 'graph', 'a or b', 'none')
    """
    if not names:
        return "none"
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last


PATH = (str, PathLike)
"""The types of a path."""


def require(argument: str, value: object, kinds: type | tuple[type, ...], wanted: str) -> None:
    """Raise a TypeError for an argument of the wrong type.

    >>> require("model", 42, str, "a torch module")
    Traceback (most recent call last):
    TypeError: model must be a torch module, got 42
    """
    if not isinstance(value, kinds):
        raise TypeError(f"{argument} must be {wanted}, got {reprlib.repr(value)}")


PLACE_REMEDIES = {
    errno.EACCES: "name another place, or change its permissions",
    errno.EPERM: "name another place, or change its permissions",
    errno.EROFS: "name a place that can be written",
    errno.ENOSPC: "make room there, or name another place",
    errno.EDQUOT: "make room there, or name another place",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "a part of this path is a file; name another path",
    errno.EISDIR: "name a file, not a folder",
    errno.EEXIST: "this name exists already; name another",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EINVAL: "remove what is there, or name another place",
    errno.EFBIG: "allow larger files (ulimit -f), or name another place",
    errno.EMFILE: "allow more open files: ulimit -n 1024",
    errno.EIO: "the disk or its connection fails; copy the file to another one",
}


def explain_os_error(error: OSError) -> str:
    """Say which path could not be read or written, why, and what to do.

    >>> print(explain_os_error(OSError(errno.ENOSPC, "No space left on device", "/mnt/model")))
    /mnt/model: this cannot be written: no space left on device. Remedy: make room there, or name another place.
    >>> print(explain_os_error(OSError("the line is dead")))
    the line is dead
    """
    if error.filename is None or error.errno is None:
        remedy = PLACE_REMEDIES.get(error.errno or 0)
        return (
            str(GraphnormError(f"a file cannot be written: {error.strerror}", remedy=remedy)) if remedy else str(error)
        )
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
    if error.errno == errno.ENOENT:
        action = "found"
    elif error.errno == errno.EIO:
        action = "read or written"
    elif error.errno in (errno.EACCES, errno.EPERM) and Path(path).is_file() and not os.access(path, os.R_OK):
        action = "read"
    else:
        action = "written"
    reason = (error.strerror or type(error).__name__).lower()
    problem = f"this cannot be {action}: {reason}"
    return str(GraphnormError(problem, where=path, remedy=PLACE_REMEDIES.get(error.errno, "name another place")))
