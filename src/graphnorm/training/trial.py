"""A trial (one model trained once), its split of the graphs, and its outcome."""

from __future__ import annotations

import hashlib
import json
import reprlib
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import combinations
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm.errors import GraphnormError
from graphnorm.models.registry import find_model
from graphnorm.settings import Hyperparameters, options_of
from graphnorm.training.metrics import Metric, find_metric

__all__ = ["Outcome", "Split", "Trial", "metric_of"]


@dataclass(frozen=True, kw_only=True)
class Trial(Hyperparameters):
    """Everything that decides the result of one training, and nothing else.

    Its random streams (initialisation, order of the graphs, dropout) come from ``seed`` alone, so a trial gives the
    same result by itself or inside a fleet of hundreds.

    >>> trial = Trial(dataset="MUTAG", norm="graph", fold=3)
    >>> trial.key == Trial(dataset="MUTAG", norm="graph", fold=3, weight_decay=0).key
    True
    >>> trial.shape == Trial(dataset="MUTAG", norm="graph", fold=4, lr=1e-3).shape
    True
    """

    dataset: str
    fingerprint: str = ""
    """:attr:`PackedGraphs.fingerprint`. It distinguishes two datasets with the same name."""
    norm: str = "graph"
    protocol: str = "paper"
    """How ``fold`` splits the graphs; see :mod:`graphnorm.study.protocol`."""
    task: str = field(default="", metadata={"later": True})
    """A key of :data:`~graphnorm.training.TASKS`; empty for what the protocol implies: classes, or under ``given`` two
    of them as one binary target."""
    metric: str = field(default="", metadata={"later": True})
    """A key of :data:`~graphnorm.training.METRICS`; empty for the default of the task. It selects and is reported."""
    folds: int = 10
    fold: int = 0
    seed: int = 0
    norm_digest: str = field(default="", metadata={"later": True})
    """Of a user's own normalization, the digest of its source, so that edited code is trained again."""

    @cached_property
    def key(self) -> str:
        """16 hexadecimal digits made from the content. They are the same in every process and version.

        Numbers are cast to the type of their field. A field that was added later is part of the key only if it is not
        at its default.
        """
        identity = {
            name: kind(value) or kind()  # not -0.0
            for name, kind, default, later in _IDENTITY
            if (value := getattr(self, name)) != default or not later
        }
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def shape(self) -> tuple[Any, ...]:
        """The values that all members of a fleet share."""
        varied = ("fold", "seed", *find_model(self.model).varied)
        return tuple(getattr(self, name) for name, *_ in _IDENTITY if name not in varied)

    @property
    def configuration(self) -> tuple[Any, ...]:
        """All values but fold and seed. A search chooses among configurations."""
        values: tuple[Any, ...] = _CHOSEN(self)
        return values

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name, *_ in _IDENTITY}

    @classmethod
    def from_dict(cls, given: Any) -> Trial:
        """Undo :meth:`to_dict`, and check the types and bounds of values that a file may hold.

        >>> Trial.from_dict(Trial(dataset="MUTAG").to_dict() | {"hidden": 10**9})
        Traceback (most recent call last):
        graphnorm.errors.GraphnormError: hidden is 1000000000. Remedy: give a whole number of 1 or more, up to 65,536.
        """
        kinds = {name: kind for name, kind, *_ in _IDENTITY}
        if not isinstance(given, dict) or not given.keys() <= kinds.keys() or "dataset" not in given:
            raise GraphnormError("this does not describe a trial", remedy="create it again")
        bounds = options_of(Hyperparameters)
        for name, value in given.items():
            if name in bounds:
                bounds[name].check(name, value)
            elif type(value) is not kinds[name]:
                raise GraphnormError(f"{name} is {reprlib.repr(value)}", remedy="create it again")
        return cls(**given)


_IDENTITY: tuple[tuple[str, Any, Any, bool], ...] = tuple(
    (item.name, str if item.name == "dataset" else type(item.default), item.default, item.metadata.get("later", False))
    for item in fields(Trial)
)
KINDS: dict[str, type] = {name: kind for name, kind, *_ in _IDENTITY}
"""The types of all values of a trial."""
_CHOSEN = attrgetter(*(name for name in KINDS if name not in ("fold", "seed")))


def metric_of(trial: Trial) -> Metric:
    """The metric that selects the trial's epoch and is reported."""
    return find_metric(trial.protocol, trial.task, trial.metric)


class Split(NamedTuple):
    """The ids of the graphs that a trial trains on, chooses the epoch by, and reports: int64 arrays.

    ``test`` is empty if the protocol reports on the graphs it chooses by.
    """

    train: npt.NDArray[np.int64]
    valid: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def check(self, num_graphs: int, where: str, *, validated: bool = True) -> None:
        """Raise an error if a part has graphs that are not there, or twice, or that another part has.

        where: what the split belongs to, for the message.
        validated: whether the validation part must be apart from the training part.
        """
        remedy = "give every graph to one part, or leave the split out (--protocol fair)"
        for name, ids in zip(self._fields, self, strict=True):
            part = f"the part {name!r} of the split of {where}"
            if not len(ids) and name != "test":
                raise GraphnormError(f"{part} is empty", remedy=remedy)
            if len(ids) and (ids.min() < 0 or ids.max() >= num_graphs):
                wrong = int(ids.min() if ids.min() < 0 else ids.max())
                raise GraphnormError(f"{part} has the graph {wrong}", remedy=f"graphs count from 0 to {num_graphs - 1}")
            if len(np.unique(ids)) < len(ids):
                raise GraphnormError(f"{part} has a graph twice", remedy=remedy)
        for first, second in combinations(self._fields, 2):
            one, other = getattr(self, first), getattr(self, second)
            common = np.intersect1d(one, other)
            if not len(common) or (second == "valid" and not validated):
                continue
            what = f"{len(common)} graphs, such as {common[0]}, are in the parts {first!r} and {second!r} of the split"
            if len(common) == len(one) == len(other):
                what = f"the parts {first!r} and {second!r} are the same graphs in the split"
            raise GraphnormError(f"{what} of {where}: a score on graphs that were seen says nothing", remedy=remedy)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a trial.

    ``curves`` has one value for each epoch (float32, shape (epochs,)):

    * ``loss``: the mean training loss of the epoch's steps, dropout included;
    * ``train``, ``valid`` and, if the protocol has a test part, ``test``: the metric on these graphs after the epoch,
      in evaluation mode (accuracy and ROC-AUC lie between 0 and 1, errors are in the unit of the targets).

    A member whose loss became infinite or NaN is ``diverged``. Its curves are NaN from that epoch on.
    """

    trial: Trial
    curves: dict[str, npt.NDArray[np.float32]]
    status: Literal["done", "diverged"] = "done"
    seconds: float = 0.0
    """The member's share of its fleet's time."""
    device: str = ""
    targets: npt.NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32), repr=False)
    """(epochs, T): of several targets, the metric of each on the part that is reported; NaN where it is not defined."""
    seen: dict[str, npt.NDArray[Any]] = field(default_factory=dict, repr=False)
    """The measurements of a probe: an array for each name, with a row for each look."""
    state: dict[str, Any] = field(default_factory=dict, repr=False)
    """The model's ``state_dict``, if it was asked for. For real values it also holds ``targets.mean`` and
    ``targets.std``, which convert scores back to the unit of the targets."""
