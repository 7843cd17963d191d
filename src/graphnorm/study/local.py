"""The engine ``local``: this process, or worker processes of this machine.

One worker runs in the driver's own process, and so do those that share a GPU, as threads. Several, one for each GPU or,
on a CPU, for each core with a thread each, are processes of their own; they end by themselves when the driver is gone,
however it went.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from graphnorm.errors import StudyError
from graphnorm.study.plan import AT_ONCE_ON_GPU
from graphnorm.study.worker import Answer, Failure, Question, Worker, register_custom_norms

__all__ = ["InProcess", "WorkerProcesses", "WorkerThreads", "available_cores", "choose_devices", "local_engine"]

_KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 30)}
"""For glibc: what a step frees is kept for the next one, whose arrays would otherwise be fresh pages, to be cleared."""


def local_engine(
    data: Any, *, device: str | None = None, workers: int | None = None, fleets: int, custom_norms: bytes = b""
) -> InProcess | WorkerProcesses | WorkerThreads:
    """The engine for so many fleets: this process for one worker or one GPU, processes for others."""
    devices = choose_devices(device, workers)
    if workers is None and len(devices) == 1 and devices[0].startswith("cuda"):
        devices *= AT_ONCE_ON_GPU
    devices = devices[: max(fleets, 1)]
    if len(devices) == 1:
        return InProcess(data, devices[0])
    if len(set(devices)) == 1 and devices[0].startswith("cuda"):
        return WorkerThreads(data, devices[0], len(devices))
    return WorkerProcesses(data, devices, custom_norms)


def available_cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_devices(device: str | None = None, workers: int | None = None) -> list[str]:
    """Where each worker trains: one on every GPU; without any, one on every core."""
    if workers is not None and workers < 1:
        raise StudyError(f"{workers} workers do nothing", remedy="give 1 or more")
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        return ["cpu"] * (workers or available_cores())
    gpus = [device] if device != "cuda" else [f"cuda:{k}" for k in range(torch.cuda.device_count())]
    return (gpus * (workers or len(gpus)))[: workers or len(gpus)] or [device]


class InProcess:
    """One worker, in this process; it answers when it is listened to."""

    name, slots = "local", 1

    def __init__(self, data: Any, device: str | None = None) -> None:
        self._worker = Worker(data, device)
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


class WorkerThreads:
    """Several workers that share a GPU, each a thread with a stream of its own.

    The kernels of a fleet of small models leave most of a GPU idle, and while one fleet is set up all of it: the others
    use it meanwhile.
    """

    name = "local"

    def __init__(self, data: Any, device: str, slots: int) -> None:
        self.slots = slots
        self._questions = [queue.SimpleQueue[Question | None]() for _ in range(slots)]
        self._answers = queue.SimpleQueue[tuple[int, Answer]]()
        there = data.to(device)
        streams: list[torch.cuda.Stream | None] = [None] * slots
        if device.startswith("cuda"):
            streams = [torch.cuda.Stream(device) for _ in range(slots)]  # type: ignore[no-untyped-call]
            torch.cuda.synchronize(device)  # the data is there before any other stream reads it
        self._threads = [
            threading.Thread(target=self._serve, args=(slot, Worker(there, device), stream), daemon=True)
            for slot, stream in enumerate(streams)
        ]
        for thread in self._threads:
            thread.start()

    def _serve(self, slot: int, worker: Worker, stream: torch.cuda.Stream | None) -> None:
        with contextlib.nullcontext() if stream is None else torch.cuda.stream(stream):
            while (question := self._questions[slot].get()) is not None:
                self._answers.put((slot, worker.answer(question)))

    def ask(self, slot: int, question: Question) -> None:
        """Hand a question to a thread."""
        self._questions[slot].put(question)

    def answers(self, timeout: float) -> Iterable[tuple[int, Answer]]:
        """Give the answers that have come."""
        found: list[tuple[int, Answer]] = []
        with contextlib.suppress(queue.Empty):
            found.append(self._answers.get(timeout=timeout))
            while True:
                found.append(self._answers.get_nowait())
        return found

    def close(self) -> None:
        """Let each thread finish what it does, and end."""
        for questions in self._questions:
            questions.put(None)
        for thread in self._threads:
            thread.join()


class WorkerProcesses:
    """Several workers, each a process with one thread.

    A worker is ``python -m graphnorm.study.local`` with one end of a pipe; nothing of the driver's main module is
    imported again, and nothing from the current folder. It is no member of the driver's group of processes: what
    Ctrl-C means is the driver's decision.
    """

    name = "local"

    def __init__(self, data: Any, devices: Sequence[str], custom_norms: bytes = b"") -> None:
        self.slots = len(devices)
        self._data, self._devices, self._custom_norms = data.to("cpu"), devices, custom_norms
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection[Any, Any]] = []
        self._asked: set[int] = set()
        """Slots whose worker owes an answer."""
        self._lost: dict[int, Answer] = {}
        try:
            for device in devices:
                process, pipe = self._start(device)
                self._processes.append(process)
                self._pipes.append(pipe)
        except BaseException:
            self.close()
            raise

    def _start(self, device: str) -> tuple[subprocess.Popen[bytes], Connection[Any, Any]]:
        ours, theirs = multiprocessing.Pipe()
        with theirs:  # so that a dead worker is an end of file here
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=_KEPT_MEMORY | os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        with contextlib.suppress(OSError):  # a worker found dead is told of later
            _send(ours, (self._custom_norms, self._data, device))
        return process, ours

    def ask(self, slot: int, question: Question) -> None:
        """Send a question; a worker found dead is told of by :meth:`answers`."""
        self._asked.add(slot)
        try:
            _send(self._pipes[slot], question)
        except OSError:
            self._lost[slot] = self._replace(slot)

    def answers(self, timeout: float) -> Iterable[tuple[int, Answer]]:
        """Give the answers that have come, one for each question; a worker that dies idle is only replaced."""
        found, self._lost = self._lost, {}
        for pipe in wait(self._pipes, 0 if found else timeout):
            slot = self._pipes.index(pipe)  # type: ignore[arg-type]
            try:
                answer: Answer = _receive(self._pipes[slot])
            except (EOFError, OSError):
                answer = self._replace(slot)
            if slot in self._asked:
                found.setdefault(slot, answer)
        self._asked -= found.keys()
        return found.items()

    def _replace(self, slot: int) -> Failure:
        """Put a new worker in the place of one that is gone."""
        process = self._processes[slot]
        self._pipes[slot].close()
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        self._processes[slot], self._pipes[slot] = self._start(self._devices[slot])
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return Failure(f"the worker process {process.pid} {how}", worker_lost=True)

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.wait()
        for pipe in self._pipes:
            pipe.close()


def _send(pipe: Connection[Any, Any], message: Any) -> None:
    """Send by plain pickles; torch's own for pipes hand over shared memory, which dies with its maker."""
    pipe.send_bytes(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))


def _receive(pipe: Connection[Any, Any]) -> Any:
    return pickle.loads(pipe.recv_bytes())


def _serve(descriptor: int) -> None:
    """A worker process: answer questions until the driver is gone."""
    if sys.platform == "linux":  # end at once when the driver does; elsewhere after the current step
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError), Connection(descriptor) as pipe:  # the driver is gone
        custom_norms, *arguments = _receive(pipe)
        register_custom_norms(custom_norms)
        worker = Worker(*arguments)
        while True:
            _send(pipe, worker.answer(_receive(pipe)))


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
