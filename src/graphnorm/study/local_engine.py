"""The engine ``local``: workers on this machine.

A single worker runs in the driver's process, and so do workers that share a GPU, as threads. Otherwise each GPU, or
each CPU core, has a worker process. Worker processes end when the driver does, even if it is killed. On a CPU every
worker trains with one of torch's threads: on a busy machine more of them wait for each other.
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

from graphnorm.settings import Running
from graphnorm.study.fleets import AT_ONCE_ON_GPU, choose_devices
from graphnorm.study.worker import Answer, Failure, Question, Worker, one_thread, register_code

__all__ = ["InProcess", "WorkerProcesses", "WorkerThreads", "local_engine"]

_KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 30)}
"""glibc settings: keep freed memory for the next step instead of returning it to the system."""


def local_engine(
    data: Any, running: Running, fleets: int, code: bytes = b""
) -> InProcess | WorkerProcesses | WorkerThreads:
    """Choose how to train so many fleets: in this process, in threads that share a GPU, or in worker processes.

    code: see :func:`graphnorm.study.worker.pack_code`.
    """
    devices = choose_devices(running.device, running.workers)
    if running.workers is None and len(devices) == 1 and devices[0].startswith("cuda"):
        devices *= AT_ONCE_ON_GPU
    devices = devices[: max(fleets, 1)]
    if len(devices) == 1:
        return InProcess(data, devices[0])
    if len(set(devices)) == 1 and devices[0].startswith("cuda"):
        return WorkerThreads(data, devices[0], len(devices))
    return WorkerProcesses(data, devices, code)


class InProcess:
    """One worker in this process; it trains when its answer is asked for."""

    name, slots = "local", 1

    def __init__(self, data: Any, device: str) -> None:
        self._worker = Worker(data, device)
        self._question: Question | None = None

    def ask(self, slot: int, question: Question) -> None:
        self._question = question

    def answers(self, timeout: float) -> Iterable[tuple[int, Answer]]:
        question, self._question = self._question, None
        with one_thread():
            return [] if question is None else [(0, self._worker.answer(question))]

    def close(self) -> None:
        pass


class WorkerThreads:
    """Several workers that share a GPU, each a thread with its own stream.

    A fleet of small models leaves most of a GPU idle, and all of it while the fleet is set up; other fleets fill in.
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
            torch.cuda.synchronize(device)  # the copy is complete before other streams read it
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
        self._questions[slot].put(question)

    def answers(self, timeout: float) -> Iterable[tuple[int, Answer]]:
        found: list[tuple[int, Answer]] = []
        with contextlib.suppress(queue.Empty):
            found.append(self._answers.get(timeout=timeout))
            while True:
                found.append(self._answers.get_nowait())
        return found

    def close(self) -> None:
        """Let each thread finish its current question, and end."""
        for questions in self._questions:
            questions.put(None)
        for thread in self._threads:
            thread.join()


class WorkerProcesses:
    """Several workers, each a process with one thread.

    A worker is ``python -m graphnorm.study.local_engine`` with one end of a pipe. It imports neither the driver's main
    module nor anything from the current folder. It has its own session, so that Ctrl-C reaches only the driver.
    """

    name = "local"

    def __init__(self, data: Any, devices: Sequence[str], code: bytes = b"") -> None:
        self.slots = len(devices)
        self._data, self._devices, self._code = data.to("cpu"), devices, code
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection[Any, Any]] = []
        self._asked: set[int] = set()
        """Slots whose worker has not answered yet."""
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
        with theirs:  # closed here, so that a worker's death ends the pipe
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=_KEPT_MEMORY | os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        with contextlib.suppress(OSError):  # `answers` reports a dead worker
            _send(ours, (self._code, self._data, device))
        return process, ours

    def ask(self, slot: int, question: Question) -> None:
        self._asked.add(slot)
        try:
            _send(self._pipes[slot], question)
        except OSError:
            self._lost[slot] = self._replace(slot)

    def answers(self, timeout: float) -> Iterable[tuple[int, Answer]]:
        """Return one answer for each question; a worker that dies without a question is replaced silently."""
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
        """Replace a dead worker."""
        process = self._processes[slot]
        self._pipes[slot].close()
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        self._processes[slot], self._pipes[slot] = self._start(self._devices[slot])
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return Failure(f"the worker process {process.pid} {how}")

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for pipe in self._pipes:
            pipe.close()


def _send(pipe: Connection[Any, Any], message: Any) -> None:
    """Send a plain pickle; torch's own reducers would pass shared memory, which dies with its process."""
    pipe.send_bytes(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))


def _receive(pipe: Connection[Any, Any]) -> Any:
    return pickle.loads(pipe.recv_bytes())


def _serve(descriptor: int) -> None:
    """Answer questions until the driver is gone."""
    if sys.platform == "linux":  # end at once with the driver; elsewhere after the current question
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    torch.set_num_threads(1)
    sys.stdout = sys.stderr  # models of users may print
    with contextlib.suppress(EOFError, OSError), Connection(descriptor) as pipe:  # the driver is gone
        code, *arguments = _receive(pipe)
        register_code(code)
        worker = Worker(*arguments)
        while True:
            _send(pipe, worker.answer(_receive(pipe)))


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
