"""The engine ``local``: this process, or worker processes of this machine.

One worker runs in the driver's own process. Several, which on a CPU train several fleets at a time with a thread each,
are processes of their own; they end by themselves when the driver is gone, however it went.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from graphnorm.data import PackedGraphs
from graphnorm.study.work import Answer, Failure, Question, Worker

__all__ = ["InProcess", "WorkerProcesses", "local_engine"]


def local_engine(
    graphs: PackedGraphs, *, device: str | None = None, workers: int | None = None, fleets: int
) -> InProcess | WorkerProcesses:
    """Give the engine for so many fleets: on a CPU one worker for each core, on a GPU this process."""
    on_gpu = device != "cpu" and (device is not None or torch.cuda.is_available())
    if workers is None:
        workers = 1 if on_gpu else available_cores()
    workers = max(1, min(workers, fleets))
    return InProcess(graphs, device) if workers == 1 else WorkerProcesses(graphs, device, workers)


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class InProcess:
    """One worker, in this process; it answers when it is listened to."""

    name, slots = "local", 1

    def __init__(self, graphs: PackedGraphs, device: str | None = None) -> None:
        self._worker = Worker(graphs, device)
        self._question: Question | None = None

    def ask(self, slot: int, question: Question) -> None:
        """Keep the question until :meth:`answers`."""
        self._question = question

    def answers(self, timeout: float) -> Iterable[tuple[int, Answer]]:
        """Do what was asked, now."""
        question, self._question = self._question, None
        return [] if question is None else [(0, self._worker.answer(question))]

    def close(self) -> None:
        """Nothing to end."""


class WorkerProcesses:
    """Several workers, each a process with one thread."""

    name = "local"

    def __init__(self, graphs: PackedGraphs, device: str | None, workers: int) -> None:
        self.slots = workers
        self._graphs, self._device = graphs.to("cpu"), device
        self._context = multiprocessing.get_context("spawn")
        self._processes: list[Any] = [None] * workers
        self._pipes: list[Connection[Any, Any]] = []
        self._lost: dict[int, Failure] = {}
        try:
            self._pipes = [self._start(slot) for slot in range(workers)]
        except BaseException:
            self.close()
            raise

    def _start(self, slot: int) -> Connection[Any, Any]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_serve, args=(theirs, self._graphs, self._device), name=f"graphnorm worker {slot}", daemon=True
        )
        with _ignoring_interrupts():  # from its first moment on
            process.start()
        theirs.close()  # so that a dead worker is an end of file here
        self._processes[slot] = process
        return ours

    def ask(self, slot: int, question: Question) -> None:
        """Send a question; a worker found dead is told of by :meth:`answers`."""
        try:
            self._pipes[slot].send(question)
        except OSError:
            self._lost[slot] = self._replace(slot)

    def answers(self, timeout: float) -> Iterable[tuple[int, Answer]]:
        """Give the answers that have come."""
        found: list[tuple[int, Answer]] = list(self._lost.items())
        self._lost.clear()
        for pipe in wait(self._pipes, 0 if found else timeout):
            slot = self._pipes.index(pipe)  # type: ignore[arg-type]
            try:
                found.append((slot, self._pipes[slot].recv()))
            except (EOFError, OSError):
                found.append((slot, self._replace(slot)))
        return found

    def _replace(self, slot: int) -> Failure:
        """Put a new worker in the place of one that is gone."""
        process = self._processes[slot]
        self._pipes[slot].close()
        process.join()
        self._pipes[slot] = self._start(slot)
        code = process.exitcode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return Failure(f"the worker process {process.pid} {how}", worker_lost=True)

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            if process is not None:
                process.kill()
                process.join()
        for pipe in self._pipes:
            pipe.close()


def _serve(pipe: Connection[Any, Any], graphs: PackedGraphs, device: str | None) -> None:
    """A worker process: answer questions until the driver is gone."""
    _end_with_the_driver()
    torch.set_num_threads(1)
    worker = Worker(graphs, device)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            pipe.send(worker.answer(pipe.recv()))


@contextlib.contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Ctrl-C reaches the whole group of processes; what it means is the driver's decision, so workers ignore it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals can only be set there
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_with_the_driver() -> None:
    """Where the system can, end at once when the driver does; elsewhere after the current step."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
