"""The engine ``ray``: workers are actors of a Ray cluster, or of a local one that is started for the study.

The graphs are put into Ray's object store once, and each machine fetches them once. Only the driver keeps state: when
a worker dies, its fleet continues from the driver's checkpoint in a new worker, wherever Ray places it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import chdir
from pathlib import Path
from typing import Any

import torch

from graphnorm.errors import StudyError, need
from graphnorm.settings import Running
from graphnorm.study.worker import Answer, Failure, Question, Worker, register_code

__all__ = ["RayEngine"]

PACKAGES = Path(__file__).parents[2]
"""Ray's workers import from the folder where the driver connects: the one of this package, not the user's."""


class RayEngine:
    """Workers on a Ray cluster.

    Args:
        data: the graphs.
        running: the address of a cluster (default: start a local one); the number of workers (default: as many as the
            cluster has room for); the cores, and threads, of each, and its GPUs, where a fraction shares one.
        fleets: an upper limit on the number of workers.
        code: see :func:`graphnorm.study.worker.pack_code`.
    """

    name = "ray"

    def __init__(self, data: Any, running: Running, fleets: int, code: bytes = b"") -> None:
        workers, cpus = running.workers, 1.0 if running.cpus_per_worker is None else running.cpus_per_worker
        gpus = running.gpus_per_worker or 0.0
        self._ray = need("ray", "the engine ray", "ray")
        self._started = not self._ray.is_initialized()
        if self._started:
            self._connect(running.address, workers, cpus)
        try:
            room = self._room(cpus, gpus)
            if room < (workers or 1):
                raise StudyError(
                    f"the Ray cluster has room for {room} workers of {cpus:g} cores and "
                    f"{gpus:g} GPUs, not for {workers or 1}",
                    remedy="ask for fewer workers, or for smaller shares",
                )
            self.slots = max(1, min(workers or room, fleets))
            share = {"num_cpus": cpus, "num_gpus": gpus}
            self._make = self._ray.remote(**share, max_restarts=0, max_task_retries=0)(_Actor)
            self._arguments = (code, self._ray.put(data.to("cpu")), "cuda" if gpus else "cpu", max(1, int(cpus)))
            self._actors = [self._make.remote(*self._arguments) for _ in range(self.slots)]
            self._asked: dict[Any, int] = {}
        except BaseException:
            self.close()
            raise

    def _connect(self, address: str | None, workers: int | None, cpus: float) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if address is None:
            local = {"num_cpus": None if workers is None else max(1, round(workers * cpus))}
            with chdir(PACKAGES):
                self._ray.init(address="local", include_dashboard=False, **local, **options)
            return
        try:
            with chdir(PACKAGES):
                self._ray.init(address=address, **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            problem = f"there is no Ray cluster at {address} ({_first_line(error)})"
            raise StudyError(problem, remedy="check the address; leave it out for a local one") from error

    def _room(self, cpus: float, gpus: float) -> int:
        """How many workers the cluster can hold when nothing else runs there."""
        total = self._ray.cluster_resources()
        shares = (("CPU", cpus), ("GPU", gpus))
        return min((int(total.get(kind, 0.0) / share + 1e-9) for kind, share in shares if share > 0), default=1)

    def worker_pids(self) -> list[int]:
        """The process ids of the workers, once they have started."""
        found: list[int] = self._ray.get([actor.pid.remote() for actor in self._actors])
        return found

    def ask(self, slot: int, question: Question) -> None:
        self._asked[self._actors[slot].answer.remote(question)] = slot

    def answers(self, timeout: float) -> Iterable[tuple[int, Answer]]:
        if not self._asked:
            return []
        waiting = list(self._asked)
        ready, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)
        if not ready:
            ready, _ = self._ray.wait(waiting, num_returns=1, timeout=timeout)
        return [self._receive(reference) for reference in ready]

    def _receive(self, reference: Any) -> tuple[int, Answer]:
        slot = self._asked.pop(reference)
        try:
            return slot, self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._ray.kill(self._actors[slot])
            self._actors[slot] = self._make.remote(*self._arguments)
            return slot, Failure(f"a Ray worker was lost: {type(error).__name__}: {_first_line(error)}")

    def close(self) -> None:
        """End the workers, and the cluster if this engine started it."""
        for actor in getattr(self, "_actors", []):
            self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


class _Actor:
    """A worker inside Ray."""

    def __init__(self, code: bytes, data: Any, device: str, threads: int) -> None:
        torch.set_num_threads(threads)
        register_code(code)
        self._worker = Worker(data, device)

    def answer(self, question: Question) -> Answer:
        return self._worker.answer(question)

    def pid(self) -> int:
        return os.getpid()
