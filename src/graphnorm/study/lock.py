"""One writer for a study: a lock that the system takes back from a process that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphnorm.errors import MissingDependencyError, StudyError
from graphnorm.study.store import Store, Study

__all__ = ["study_lock", "work_folder"]


def work_folder(store: Store, study: Study) -> Path:
    """Where a study keeps its lock and its checkpoints: beside the store."""
    return store.path.with_name(f"{store.path.name}-work") / str(study.id)


@contextmanager
def study_lock(store: Store, study: Study, *, wait: bool = False) -> Iterator[None]:
    """Be the only writer of a study; wait until the other one is done, or say who it is."""
    try:
        from filelock import FileLock, Timeout
    except ImportError as error:
        raise MissingDependencyError("filelock", "running a study", "data") from error
    folder = work_folder(store, study)
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        holders = store.sessions(study)[-1:]
        who = "".join(f": process {holder.pid} on {holder.host}, since {holder.started}" for holder in holders)
        raise StudyError(
            f"the study {study.name} is being written{who}",
            where=store.path,
            remedy="wait for it (--wait), or end it; what it has finished is kept",
        ) from None
    try:
        yield
    finally:
        lock.release()
