"""What one training is, and what came of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Outcome", "Split", "Trial"]

MEMBER_FIELDS = ("fold", "seed", "lr", "weight_decay", "dropout")
"""In what the members of one fleet may differ."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One model trained once: everything that decides the result, and nothing else.

    Its random streams (initialisation, order of the graphs, dropout) come from ``seed`` alone, so a trial gives the
    same result by itself or inside a fleet of hundreds.

    >>> trial = Trial(dataset="MUTAG", norm="graph", fold=3)
    >>> trial.key == Trial(dataset="MUTAG", norm="graph", fold=3).key
    True
    >>> trial.shape == Trial(dataset="MUTAG", norm="graph", fold=4, lr=1e-3).shape
    True
    """

    dataset: str
    fingerprint: str = ""
    """Of the graphs' content, :attr:`PackedGraphs.fingerprint`, so that two datasets of one name are told apart."""
    model: str = "gin"
    norm: str = "graph"
    readout: Literal["sum", "mean"] = "sum"
    self_loops: bool = False
    """Whether every node has a self-loop besides its own term, as in the authors' data: Q = A + (2+ξ)I."""
    hidden: int = 64
    layers: int = 5
    """The linear head included: 5 layers are 4 graph convolutions."""
    batch_size: int = 128
    epochs: int = 400
    protocol: str = "paper"
    """How ``fold`` splits the graphs; see the study package."""
    folds: int = 10
    fold: int = 0
    seed: int = 0
    lr: float = 1e-2
    weight_decay: float = 0.0
    dropout: float = 0.5

    @cached_property
    def key(self) -> str:
        """A name made of the content: 16 hexadecimal digits, the same in every process and version of Python."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def shape(self) -> tuple[Any, ...]:
        """What the members of one fleet share."""
        return tuple(getattr(self, item.name) for item in fields(self) if item.name not in MEMBER_FIELDS)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


class Split(NamedTuple):
    """Which graphs a trial trains on, chooses by and reports: arrays of graph ids, int64.

    ``test`` is empty where the protocol reports on the graphs it chooses by.
    """

    train: npt.NDArray[np.int64]
    valid: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a trial.

    ``curves`` has one value for every epoch (float32, shape (epochs,)):

    * ``loss``: the mean training loss of the epoch's steps, dropout included;
    * ``train``, ``valid`` and, where the protocol has a test part, ``test``: the metric on these graphs after the
      epoch, in evaluation mode, between 0 and 1 (accuracy; ROC-AUC under the protocol ``ogb``).

    A member whose loss became infinite or NaN is ``diverged``; its curves are NaN from that epoch on.
    """

    trial: Trial
    curves: dict[str, npt.NDArray[np.float32]]
    status: Literal["done", "diverged"] = "done"
    seconds: float = 0.0
    """The member's share of its fleet's time."""
    device: str = ""
    state: dict[str, Any] = field(default_factory=dict, repr=False)
    """The trained model's ``state_dict``, where it was asked for."""
