"""The split of every trial, made by its protocol.

Folds are stratified where graphs have one label, of classes or binary. Graphs of one group, as in
:attr:`PackedGraphs.groups`, are never in two parts. A split of the data without a validation part gets a tenth of its
training part.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError, need
from graphnorm.study.protocol import find_protocol
from graphnorm.training.task import find_task, task_name, task_of
from graphnorm.training.trial import Split, Trial, metric_of

__all__ = ["make_splits"]

FOLD_SEED = 9
"""The random state of the authors' folds."""
HELD_OUT = 10
"""Under ``fair`` one in ten training graphs is held out."""

Ids = npt.NDArray[np.int64]


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
            _refuse_undefined(graphs, trial, made[key])
        if not 0 <= trial.fold < len(made[key]):
            raise GraphnormError(f"there is no fold {trial.fold} of {len(made[key])}", remedy="folds count from 0")
    return [made[trial.protocol, trial.folds][trial.fold] for trial in trials]


def _splits(graphs: PackedGraphs, protocol: str, folds: int) -> list[Split]:
    if protocol == "all":
        everything = np.arange(graphs.num_graphs, dtype=np.int64)
        return [Split(everything, everything)]
    strata = _strata(graphs)
    if protocol == "given":
        return [_own_split(graphs, strata)]
    find_protocol(protocol)
    if folds < 2:
        raise GraphnormError(f"{folds} folds leave nothing to train on", remedy="use two folds or more")
    if strata is not None:
        _refuse_small_classes(graphs, strata, folds, protocol)
    _refuse_few_graphs(graphs, folds, protocol)
    everything = np.arange(graphs.num_graphs, dtype=np.int64)
    outer = _folds(graphs, everything, strata, folds)
    if protocol == "paper":
        return [Split(rest, fold) for rest, fold in outer]
    return [Split(*_folds(graphs, rest, strata, HELD_OUT)[0], fold) for rest, fold in outer]


def _strata(graphs: PackedGraphs) -> Ids | None:
    """(G,): the class of each graph, or its only binary target; None if there is nothing to stratify by."""
    if graphs.task == "classes":
        return graphs.labels.cpu().numpy()
    if graphs.task == "binary" and graphs.targets is not None and graphs.targets.shape[1] == 1:
        return graphs.targets[:, 0].nan_to_num().long().cpu().numpy()
    return None


def _folds(graphs: PackedGraphs, ids: Ids, strata: Ids | None, folds: int) -> list[tuple[Ids, Ids]]:
    """Divide these graphs: pairs of the rest and the fold."""
    selection = need("sklearn.model_selection", "cross-validation", "study")
    groups = None if graphs.groups is None else graphs.groups.cpu().numpy()[ids]
    kind = ("" if strata is None else "Stratified") + ("" if groups is None else "Group") + "KFold"
    maker = getattr(selection, kind)(folds, shuffle=True, random_state=FOLD_SEED)
    parts = maker.split(ids, None if strata is None else strata[ids], groups)
    return [(ids[rest], ids[fold]) for rest, fold in parts]


def _own_split(graphs: PackedGraphs, strata: Ids | None) -> Split:
    """The split that comes with the data, checked."""
    parts = {name: ids.cpu().numpy().astype(np.int64) for name, ids in graphs.splits.items()}
    if wrong := parts.keys() - set(Split._fields):
        raise GraphnormError(
            f"the split of {graphs.name} has a part {min(wrong)!r}", remedy="name the parts train, valid and test"
        )
    missing = [name for name in ("train", "test") if name not in parts]
    if missing:
        raise GraphnormError(
            f"{graphs.name} has no split of its own (no part {', '.join(missing)})",
            remedy="choose one (--split scaffold, a column or a file), or use the protocol fair, or paper",
        )
    if not len(parts["test"]):
        raise GraphnormError(
            f"the part 'test' of the split of {graphs.name} is empty",
            remedy="give it graphs, or leave the split out (--protocol fair)",
        )
    Split(parts["train"], parts.get("valid", parts["train"]), parts["test"]).check(
        graphs.num_graphs, graphs.name, validated="valid" in parts
    )
    if "valid" not in parts:
        units, what = _units(graphs, parts["train"])
        if units < HELD_OUT:
            raise GraphnormError(
                f"the split of {graphs.name} has no part 'valid', and no tenth of its {units} training {what} can be "
                "held out",
                remedy="add a part 'valid', which selects the epoch",
            )
        if strata is not None and np.unique(strata[parts["train"]], return_counts=True)[1].min() < HELD_OUT:
            strata = None
        parts["train"], parts["valid"] = _folds(graphs, parts["train"], strata, HELD_OUT)[0]
    return Split(parts["train"], parts["valid"], parts["test"])


def _refuse_undefined(graphs: PackedGraphs, trial: Trial, splits: Sequence[Split]) -> None:
    """Every part must have graphs for which the metric is defined, and the training part something to learn."""
    task, metric = task_of(trial), metric_of(trial)
    fitting = find_task(trial.protocol, task_name(graphs, trial.protocol))
    if task is not fitting:
        raise GraphnormError(
            f"a trial with the task {task.name} does not fit {graphs.name}, whose task is {fitting.name}",
            remedy=f"make it with task={task_name(graphs, trial.protocol)!r}",
        )
    wanted = task.wanted(graphs).cpu()

    def varied(ids: Ids) -> bool:
        part = wanted[torch.from_numpy(ids)]
        if task.name == "classes":
            return len(torch.unique(part)) > 1
        if task.name == "binary":
            return bool(((part == 1).any(0) & (part == 0).any(0)).any())
        real = part[(~part.isnan()).any(1)]
        if metric.key == "r2" and len(real):
            return bool((real.nan_to_num(-torch.inf).amax(0) > real.nan_to_num(torch.inf).amin(0)).any())
        return len(real) > 0

    for split in splits:
        for name, ids in zip(Split._fields, split, strict=True):
            if len(ids) and (name == "train" or metric.key != "accuracy") and not varied(ids):
                what = "graphs of one class only"
                if task.name == "values":
                    what = "no two different values" if metric.key == "r2" else "no target"
                protocol = find_protocol(trial.protocol)
                remedy = "use fewer folds" if protocol.unit == "fold" else "choose another split"
                remedy += ", or --protocol paper" if protocol.nested else ""
                raise GraphnormError(
                    f"the part {name!r} of a split of {graphs.name} has {what}, so {metric.name} is not defined on it",
                    remedy=f"{remedy}, or --metric accuracy" if task.name == "classes" and name != "train" else remedy,
                )


def _units(graphs: PackedGraphs, ids: Ids) -> tuple[int, str]:
    """How many graphs, or groups of them, can be divided."""
    if graphs.groups is None:
        return len(ids), "graphs"
    return len(torch.unique(graphs.groups[torch.from_numpy(ids)])), "groups of graphs"


def _refuse_few_graphs(graphs: PackedGraphs, folds: int, protocol: str) -> None:
    units, what = _units(graphs, np.arange(graphs.num_graphs))
    if units < folds or (protocol == "fair" and units - -(-units // folds) < HELD_OUT):
        raise GraphnormError(
            f"{units} {what} are too few for {folds} folds", remedy="use fewer folds, or --protocol paper"
        )


def _refuse_small_classes(graphs: PackedGraphs, strata: Ids, folds: int, protocol: str) -> None:
    """Every class must occur in every part."""
    names = graphs.classes if graphs.task == "classes" else ("0", "1")
    sizes = np.bincount(strata, minlength=len(names))[: len(names)]
    present = np.flatnonzero(sizes)
    if len(present) < 2:
        raise GraphnormError(
            f"all {sizes.sum()} graphs of {graphs.name} are of one class", remedy="give graphs of at least two classes"
        )
    smallest = int(present[sizes[present].argmin()])
    size, name = int(sizes[smallest]), names[smallest]
    has = f"the class {name!r} has {size} graph{'s' if size > 1 else ''}"
    others = "leave that class out, or join it with another"
    if _are_measurements(graphs.classes, len(strata)):
        others = "predict measurements as real values (--task values)"
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
