"""Fleets in worker processes, for CPUs: one thread each, no thread of one waiting for another's.

A worker is a fresh Python that runs :func:`main` and talks pickles over its standard streams: first it is sent the
graphs, then one job after another; it answers each with the progress of every epoch and with the outcomes. Nothing of
the parent's main module is imported again, so a script needs no ``if __name__ == "__main__"``.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import torch

from graphnorm.data.packed import PackedGraphs
from graphnorm.training.fleet import Fleet, OnEpoch, Progress
from graphnorm.training.trial import Outcome, Split, Trial

__all__ = ["Job", "train_in_workers"]


_KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 30)}
"""For glibc: what a step frees is kept for the next one, whose arrays would otherwise be fresh pages, to be cleared."""


class Job(NamedTuple):
    """One fleet to train."""

    trials: Sequence[Trial]
    splits: Sequence[Split]
    keep_state: bool = False


def train_in_workers(
    graphs: PackedGraphs,
    jobs: Sequence[Job],
    workers: int,
    on_epoch: OnEpoch | None = None,
    on_done: Callable[[int, list[Outcome]], None] | None = None,
) -> list[list[Outcome]]:
    """The outcomes of every job, in order.

    ``on_epoch``, and ``on_done`` with the number of a job and its outcomes, are called in this process and thread.
    """
    crew: list[_Worker] = []
    inbox: queue.SimpleQueue[tuple[_Worker, str, Any]] = queue.SimpleQueue()
    outcomes: dict[int, list[Outcome]] = {}
    waiting = iter(enumerate(jobs))
    try:
        crew.extend(_Worker(graphs) for _ in range(min(workers, len(jobs))))
        for worker in crew:
            worker.listen(inbox)
            worker.take(*next(waiting))
        while len(outcomes) < len(jobs):
            worker, kind, content = inbox.get()
            if kind == "epoch" and on_epoch is not None:
                on_epoch(content)
            elif kind == "done":
                number = worker.job
                outcomes[number] = content
                if (following := next(waiting, None)) is not None:
                    worker.take(*following)
                if on_done is not None:
                    on_done(number, content)
            elif kind == "failed":
                raise RuntimeError(f"a training process failed:\n{content}")
    finally:
        for worker in crew:
            worker.stop()
    return [outcomes[k] for k in range(len(jobs))]


class _Worker:
    """The parent's end of a worker process."""

    def __init__(self, graphs: PackedGraphs) -> None:
        environment = _KEPT_MEMORY | os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with _interrupts_blocked():
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
        self.job = -1
        self._graphs: PackedGraphs | None = graphs

    def listen(self, inbox: queue.SimpleQueue[tuple[_Worker, str, Any]]) -> None:
        """Pass on what the worker says, until it says no more."""

        def forward() -> None:
            assert self._process.stdout is not None
            try:
                while True:
                    inbox.put((self, *pickle.load(self._process.stdout)))
            except (EOFError, pickle.UnpicklingError, OSError, ValueError):
                inbox.put((self, "failed", f"it ended with exit code {self._process.wait()} (killed?)"))

        threading.Thread(target=forward, daemon=True).start()

    def take(self, number: int, job: Job) -> None:
        """Hand over a job, with the graphs before the first."""
        self.job = number
        assert self._process.stdin is not None
        try:
            if self._graphs is not None:
                pickle.dump(self._graphs, self._process.stdin)
                self._graphs = None
            pickle.dump(job, self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the listener says how it ended

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # what was not yet written to it
                    stream.close()


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Hold Ctrl-C back in this thread; a process started meanwhile does so until it says what it makes of it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(incoming: IO[bytes], outgoing: IO[bytes]) -> None:
    """The worker's end: train what comes in until nothing more does."""

    def say(kind: str, content: Any) -> None:
        pickle.dump((kind, content), outgoing)
        outgoing.flush()

    def progress(step: Progress) -> None:
        say("epoch", step)

    graphs = None
    while True:
        try:
            graphs = pickle.load(incoming) if graphs is None else graphs
            job = pickle.load(incoming)
        except (EOFError, pickle.UnpicklingError):
            return  # the parent is gone, perhaps in the middle of a word
        try:
            fleet = Fleet(graphs, job.trials, job.splits, device="cpu")
            fleet.advance(on_epoch=progress)
            say("done", fleet.outcomes(job.keep_state))
        except BrokenPipeError:
            return  # the parent is gone
        except Exception:
            say("failed", traceback.format_exc())


def main() -> None:
    """What a worker process runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    torch.set_num_threads(1)
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing but pickles on the parent's pipe
    _work(incoming, outgoing)
