"""The user's mistakes, as one small family of exceptions.

Every error raised for something a user can put right is a :class:`GraphnormError`. Its message says what was
wrong, where, and what to do; the command line prints that message and nothing else, and leaves with code 2.
"""

from __future__ import annotations

from os import PathLike, fspath


class GraphnormError(ValueError):
    """Something the user can put right.

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
        super().__init__(f"{place}{problem.removesuffix('.')}.{advice}")


class DataError(GraphnormError):
    """A file, folder or list of graphs that does not hold what it should."""


class UnknownDatasetError(GraphnormError):
    """A name that is neither in the catalogue nor a path."""


class DownloadError(GraphnormError):
    """A file that could not be fetched, or that is not the one expected."""


class StoreError(GraphnormError):
    """A store of results that cannot be opened, read or written."""


class StudyError(GraphnormError):
    """A study that cannot be planned or run as asked."""


class MissingDependencyError(GraphnormError, ImportError):
    """An optional package that this task needs is not installed."""

    def __init__(self, package: str, task: str, extra: str) -> None:
        GraphnormError.__init__(self, f"{task} needs the package {package}", remedy=f"pip install 'graphnorm[{extra}]'")
