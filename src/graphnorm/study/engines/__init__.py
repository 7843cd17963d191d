"""Engines: where the workers of a study are, and how questions and answers reach them.

An engine has so many ``slots``, each with one worker. It carries one question at a time to a slot, and hands back the
answers as they come. A worker that is lost is an answer too (:class:`~graphnorm.study.work.Failure` with
``worker_lost``), and the engine has a new one in its place by then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from graphnorm.study.work import Answer, Question

__all__ = ["Engine"]


class Engine(Protocol):
    """What the driver needs of an engine."""

    name: str
    slots: int

    def ask(self, slot: int, question: Question) -> None:
        """Send a question to a slot that has answered its last one."""

    def answers(self, timeout: float) -> Iterable[tuple[int, Answer]]:
        """Give the answers that have come; wait up to ``timeout`` seconds for the first."""

    def close(self) -> None:
        """End the workers, whatever they do."""
