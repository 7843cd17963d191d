"""Protocols: how graphs are split for training, for the selection of epochs and configurations, and for the report.

==========  ==============================  =====================  =====================  ==============
protocol    split                           epoch selected         on                     reported
==========  ==============================  =====================  =====================  ==============
``paper``   k stratified folds              once for all folds     the fold itself        the fold
``fair``    k stratified folds; of each     for each fold          the held-out tenth     the fold
            training part, a tenth is held
            out
``ogb``     the official split              for each seed          its validation part    its test part
``all``     all graphs train                no: the last epoch     –                      nothing
==========  ==============================  =====================  =====================  ==============

``paper`` is the protocol of the paper and its baselines: the same graphs select and are reported, so its numbers are
optimistic. Under ``fair`` a reported graph has no influence on any selection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError, need
from graphnorm.training.task import Task, find_task
from graphnorm.training.trial import Split, Trial

__all__ = ["PROTOCOLS", "Protocol", "chance_score", "find_protocol", "has_learned", "make_splits"]

FOLD_SEED = 9
"""The random state of the authors' folds."""
HELD_OUT = 10
"""Under ``fair`` one in ten training graphs is held out."""
LEARNED = 1.0
"""A model has learned something if it is this many percentage points above chance."""

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How epochs and configurations are selected and scores reported: one row of the table above."""

    name: str
    reported: Literal["valid", "test"]
    """The curve that is reported."""
    one_epoch: bool
    """Whether all members share one epoch, or each has its own."""
    nested: bool
    """Whether each fold selects its own configuration."""
    unit: Literal["fold", "seed"]
    """Scores are averaged over folds or over seeds."""

    @property
    def task(self) -> Task:
        return find_task(self.name)

    @property
    def metric(self) -> str:
        return self.task.metric

    @property
    def paired(self) -> bool:
        """Whether tests pair units: equal folds have the same graphs, equal seeds have nothing in common."""
        return self.unit == "fold"

    def overlap(self, folds: int) -> float:
        """The ratio of reported graphs to all others, n₂/n₁; 0 if all trainings share one split.

        It corrects the t-test for overlapping training sets.

        >>> find_protocol("paper").overlap(5)
        0.25
        """
        return 1 / max(folds - 1, 1) if self.paired else 0.0


PROTOCOLS: dict[str, Protocol] = {
    "paper": Protocol(name="paper", reported="valid", one_epoch=True, nested=False, unit="fold"),
    "fair": Protocol(name="fair", reported="test", one_epoch=False, nested=True, unit="fold"),
    "ogb": Protocol(name="ogb", reported="test", one_epoch=False, nested=False, unit="seed"),
}
ALL_GRAPHS = Protocol(name="all", reported="valid", one_epoch=False, nested=False, unit="seed")


def find_protocol(name: str) -> Protocol:
    """Find a protocol by its name.

    >>> find_protocol("fair").reported
    'test'
    """
    if name == ALL_GRAPHS.name:
        return ALL_GRAPHS
    if name not in PROTOCOLS:
        raise GraphnormError(f"there is no protocol {name!r}; known: {', '.join(PROTOCOLS)}", remedy="choose one")
    return PROTOCOLS[name]


def make_splits(graphs: PackedGraphs, trials: Sequence[Trial]) -> list[Split]:
    """The split of every trial, by its ``protocol``, ``folds`` and ``fold``; seeds of a fold share its split.

    >>> from graphnorm.data import load
    >>> graphs = load("synthetic:trees")
    >>> split, = make_splits(graphs, [Trial(dataset="trees", protocol="fair", folds=10, fold=3)])
    >>> len(split.train), len(split.valid), len(split.test)
    (324, 36, 40)
    """
    made: dict[tuple[str, int], list[Split]] = {}
    for trial in trials:
        key = (trial.protocol, trial.folds)
        if key not in made:
            made[key] = _splits(graphs, trial.protocol, trial.folds)
        if not 0 <= trial.fold < len(made[key]):
            raise GraphnormError(f"there is no fold {trial.fold} of {len(made[key])}", remedy="folds count from 0")
    return [made[trial.protocol, trial.folds][trial.fold] for trial in trials]


def chance_score(graphs: PackedGraphs, protocol: str) -> float:
    """The score of guessing, in percent: the share of the largest class, or the ROC-AUC of random scores.

    >>> from graphnorm.data import load
    >>> trees = load("synthetic:trees")
    >>> chance_score(trees, "paper"), chance_score(trees, "ogb")
    (50.0, 50.0)
    """
    task = find_protocol(protocol).task
    return task.scale * task.chance(graphs)


def has_learned(score: float, chance: float | None) -> bool:
    """Whether a score is above chance; True if chance is unknown.

    >>> has_learned(50.9, 50.0), has_learned(51.0, 50.0), has_learned(50.9, None)
    (False, True, True)
    """
    return chance is None or score >= chance + LEARNED


def _splits(graphs: PackedGraphs, protocol: str, folds: int) -> list[Split]:
    labels: Ids = graphs.labels.cpu().numpy()
    if protocol == "all":
        everything = np.arange(len(labels), dtype=np.int64)
        return [Split(everything, everything)]
    if protocol == "ogb":
        return [_official(graphs)]
    find_protocol(protocol)
    _refuse_small_classes(graphs, labels, folds, protocol)
    outer = _stratified(labels, folds)
    if protocol == "paper":
        return [Split(train, fold) for train, fold in outer]
    splits = []
    for rest, fold in outer:
        inner_train, inner_held_out = _stratified(labels[rest], HELD_OUT)[0]
        splits.append(Split(rest[inner_train], rest[inner_held_out], fold))
    return splits


def _official(graphs: PackedGraphs) -> Split:
    missing = [part for part in ("train", "valid", "test") if part not in graphs.splits]
    if missing:
        raise GraphnormError(
            f"{graphs.name} has no official split (no part {', '.join(missing)})",
            remedy="use the protocol fair, or paper",
        )
    if graphs.num_classes != 2:
        raise GraphnormError(
            f"the protocol ogb reports ROC-AUC, which needs two classes; {graphs.name} has {graphs.num_classes}",
            remedy="use the protocol fair, or paper",
        )
    return Split(*(graphs.splits[part].cpu().numpy().astype(np.int64) for part in ("train", "valid", "test")))


def _refuse_small_classes(graphs: PackedGraphs, labels: Ids, folds: int, protocol: str) -> None:
    """Every class must occur in every part."""
    if folds < 2:
        raise GraphnormError(f"{folds} folds leave nothing to train on", remedy="use two folds or more")
    sizes = np.bincount(labels, minlength=graphs.num_classes)
    present = np.flatnonzero(sizes)
    if len(present) < 2:
        raise GraphnormError(
            f"all {len(labels)} graphs of {graphs.name} are of one class", remedy="give graphs of at least two classes"
        )
    smallest = int(present[sizes[present].argmin()])
    size, name = int(sizes[smallest]), graphs.classes[smallest]
    has = f"the class {name!r} has {size} graph{'s' if size > 1 else ''}"
    others = "leave that class out, or join it with another"
    if _are_measurements(graphs.classes, len(labels)):
        others = "split measurements into two classes with --threshold VALUE or --threshold median"
    if size < folds:
        remedy = f"use --folds {size} or fewer, or {others}" if size >= 2 else others
        raise GraphnormError(f"{has}, too few for {folds} folds", remedy=remedy)
    training = size - -(-size // folds)
    if protocol == "fair" and training < HELD_OUT:
        raise GraphnormError(
            f"{has}: with {folds} folds {training} of them train, and no tenth of that can be held out",
            remedy=f"use the protocol paper, or {others}",
        )


def _are_measurements(classes: Sequence[str], graphs: int) -> bool:
    """Whether classes look like measurements: numbers that are not all whole, or rarely occur twice.

    >>> _are_measurements(("6.6", "7.1"), 90), _are_measurements(("0", "1"), 90), _are_measurements(("a", "6.6"), 90)
    (True, False, False)
    """
    try:
        values = [float(name) for name in classes]
    except ValueError:
        return False
    return not all(value.is_integer() for value in values) or 2 * len(classes) > graphs


def _stratified(labels: Ids, folds: int) -> list[tuple[Ids, Ids]]:
    """Pairs of the rest and the fold."""
    selection = need("sklearn.model_selection", "cross-validation", "study")
    maker = selection.StratifiedKFold(folds, shuffle=True, random_state=FOLD_SEED)
    return [(rest.astype(np.int64), fold.astype(np.int64)) for rest, fold in maker.split(np.zeros(len(labels)), labels)]
