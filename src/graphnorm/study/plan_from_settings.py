"""From graphs and settings to a plan: defaults are filled in, what does not fit is refused, trials are listed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from graphnorm.data import CATALOG, Entry, PackedGraphs
from graphnorm.data.loading import split_option
from graphnorm.errors import PATH, GraphnormError, unknown
from graphnorm.layers import REGISTRY, norm_code
from graphnorm.models import BASELINES, MODELS, NORMALIZED, find_model, name_model
from graphnorm.models.registry import OFFERED
from graphnorm.settings import QUICK_EPOCHS, VARIABLE, Grid, Hyperparameters, Settings, options_of
from graphnorm.study.folds import make_splits
from graphnorm.study.plan import Plan
from graphnorm.study.protocol import find_protocol
from graphnorm.training import Trial, metric_of, task_of
from graphnorm.training.task import RARE, choose_metric, smaller_class, task_name

__all__ = ["Dataset", "baseline_plan", "catalogued", "make_plan", "settle", "settle_grid"]

SEEDS = 5
"""Seeds on one split, unless a model has its own number."""
_TRAINED_WITH = tuple(options_of(Hyperparameters))


class Dataset(NamedTuple):
    """Stands for graphs that are not on this machine: enough to compute the keys of their trials."""

    name: str
    fingerprint: str
    chance: Mapping[str, float] = {}
    """The score of guessing, by metric, if known."""


def catalogued(graphs: PackedGraphs) -> Entry | None:
    """The catalogue's entry for these graphs; None for other graphs, even of the same name."""
    entry = CATALOG.get(graphs.name)
    found = (graphs.num_graphs, graphs.num_nodes, graphs.num_edges)
    return entry if entry is not None and entry.counts in (None, found) else None


def name_split(graphs: PackedGraphs | Dataset, asked: str | os.PathLike[str] | None = None) -> str:
    """What kind of split the graphs have, in two or three words.

    asked: the option ``split`` that they were loaded with.

    >>> from graphnorm.data import load
    >>> [name_split(load("synthetic:trees"), asked) for asked in ("scaffold", "part", "mine.csv", None)]
    ['scaffold split', 'split by part', 'split of mine.csv', 'given split']
    """
    name, file = split_option(asked if isinstance(asked, PATH) else None)
    entry = CATALOG.get(graphs.name) if isinstance(graphs, Dataset) else catalogued(graphs)
    if name is None and entry is not None:
        name = entry.split or ("official" if entry.format == "ogb" else None)
    if file is not None:
        return f"split of {file.name}"
    return f"split by {name}" if name not in (None, "scaffold", "official") else f"{name or 'given'} split"


def settle_grid(graphs: PackedGraphs, grid: Grid | None = None, **given: Any) -> tuple[Settings, Grid]:
    """As :func:`settle`, and the grid with the settings that are given; several values of a setting are tuned.

    grid: without one, only settings with several values are part of it.
    """
    about = options_of(Hyperparameters)
    axes = {
        name: about[name].check_all(name, values)
        for name, values in given.items()
        if name in VARIABLE and isinstance(values, list | tuple)
    }
    settings = settle(graphs, **given | {name: values[0] for name, values in axes.items()})
    if grid is None:
        return settings, Grid("tuned" if axes else "single", axes)
    fixed = {name: getattr(settings, name) for name in VARIABLE if given.get(name) is not None}
    return settings, grid.fixed(**fixed | axes)


def settle(graphs: PackedGraphs, **given: Any) -> Settings:
    """Fill in defaults for settings that are not given (None), and refuse those that do not fit.

    For data with a split of their own, the default protocol is ``given``, with several seeds; for those of OGB, the
    model and settings are then those of the paper's Table 2. For other data the defaults are the settings of the
    paper's training curves with fewer epochs. Molecules are given to a GIN that sees their bonds, other graphs to a
    GIN. The readout is that of the catalogue, or the sum. For the metric see
    :func:`~graphnorm.training.task.choose_metric`.

    given: fields of :class:`Settings`.
    """
    options = options_of(Settings)
    if wrong := given.keys() - options.keys():
        raise TypeError(f"there is no option {', '.join(sorted(wrong))}")
    if given.get("model") is not None:
        given["model"] = name_model(given["model"])
    chosen = {name: options[name].check(name, value) for name, value in given.items() if value is not None}
    protocol = chosen.setdefault("protocol", "given" if graphs.splits else "paper")
    one_split = find_protocol(protocol).unit == "seed"
    entry = catalogued(graphs)
    ogb = entry is not None and entry.format == "ogb"
    bonds = graphs.x is None and bool(graphs.edge_cardinalities)
    model = chosen.setdefault("model", "gin" if not (one_split and bonds) else "molhiv-gin" if ogb else "molecular-gin")
    spec = find_model(model)
    _refuse_misfits(graphs, chosen, one_split)
    defaults: dict[str, Any] = {"epochs": QUICK_EPOCHS, "readout": entry.readout if entry else "sum"}
    defaults["last_batch"] = "keep" if protocol == "paper" else "even"
    if one_split:
        defaults |= {"folds": 1, "seeds": SEEDS}
    if one_split or spec.inputs == "edges":
        defaults |= spec.defaults
    chosen["metric"] = choose_metric(graphs, protocol, chosen.get("metric"), entry.metric if entry else "") or None
    return Settings(**defaults | chosen)


def _refuse_misfits(graphs: PackedGraphs, chosen: Mapping[str, Any], one_split: bool) -> None:
    """Refuse names that there are not, and settings that fit neither the graphs, the model nor the protocol."""
    model, protocol = chosen["model"], chosen["protocol"]
    spec = find_model(model)
    if not spec.normalized:
        raise unknown("model", model, NORMALIZED)
    if ignored := [name for name in spec.ignores if chosen.get(name)]:
        own = f", or let the model take {ignored[0]}" if ignored[0] in OFFERED else ""
        raise GraphnormError(f"the model {model} does not take {ignored[0]}", remedy=f"leave it out{own}")
    for what, names, known in (
        ("normalization", chosen.get("norms", ()), REGISTRY),
        ("baseline", chosen.get("baselines", ()), BASELINES),
    ):
        for name in names:
            if name not in known:
                raise unknown(what, name, known)
    if twice := [name for name in chosen.get("norms", ()) if name in BASELINES]:
        remedy = f"register it by another name, such as my-{twice[0]}"
        raise GraphnormError(f"the normalization {twice[0]!r} has the name of a baseline", remedy=remedy)
    if chosen.get("norms") == ():
        raise GraphnormError("there is no normalization to train", remedy=f"name one of {', '.join(REGISTRY)}")
    kernels = [name for name in chosen.get("baselines", ()) if MODELS[name].kernel]
    if graphs.task != "classes" and kernels:
        raise GraphnormError(
            f"{', '.join(kernels)}: kernels are for one label of classes, not for targets",
            remedy="leave them out, or name a network: mlp",
        )
    if one_split and kernels:
        raise GraphnormError(
            f"{', '.join(kernels)}: kernels are for cross-validation, not for a given split",
            remedy="leave them out, or use the protocol paper or fair",
        )
    if one_split and chosen.get("folds", 1) != 1:
        raise GraphnormError(
            f"the protocol {protocol} is one given split, without folds",
            remedy="use --seeds in place of --folds, or --protocol fair",
        )
    if not one_split and chosen.get("folds", 2) < 2:
        raise GraphnormError(f"folds is {chosen['folds']}", remedy="give at least 2")


def make_plan(
    graphs: PackedGraphs | Dataset,
    settings: Settings,
    grid: Grid | None = None,
    *,
    name: str | None = None,
    origin: Mapping[str, Any] | None = None,
    split: str | os.PathLike[str] | None = None,
) -> Plan:
    """Plan every configuration of the grid for every normalization, fold and seed, and baselines on the same folds.

    The name of the study contains a hash of its trials, so the same request always gives the same study.

    grid: without a grid, the settings are the only configuration.
    origin: arguments of :func:`graphnorm.data.load` that load the same graphs again.
    split: the option of that name, if it was given, for titles.

    >>> from graphnorm.data import load
    >>> from graphnorm.settings import GRIDS
    >>> plan = make_plan(load("synthetic:trees"), Settings(norms=("graph", "batch")), GRIDS["paper"])
    >>> len(plan.trials), plan.name.rpartition("-")[0]
    (1200, 'synthetic:trees-gin-paper-paper')
    """
    grid = grid or Grid("single", {})
    trials = _list_trials(graphs, settings, grid)
    protocol = trials[0].protocol
    spec: dict[str, Any] = {
        "dataset": graphs.name,
        "fingerprint": graphs.fingerprint,
        **_describe(graphs, trials[0]),
        "origin": None if origin is None else dict(origin),
        "model": settings.model,
        "norms": list(settings.norms),
        "baselines": list(settings.baselines),
        "grid": grid.to_dict(),
        "protocol": protocol,
        **({"split": name_split(graphs, split)} if protocol == "given" else {}),
        "folds": trials[0].folds,
        "seeds": settings.seeds,
        **{option: getattr(settings, option) for option in VARIABLE if option not in grid.axes},
    }
    identity = hashlib.sha256("".join(trial.key for trial in trials).encode()).hexdigest()[:6]
    return Plan(name or f"{graphs.name}-{settings.model}-{grid.name}-{protocol}-{identity}", spec, tuple(trials))


def _list_trials(graphs: PackedGraphs | Dataset, settings: Settings, grid: Grid) -> list[Trial]:
    """Those of the normalizations, configuration by configuration, then those of the baselines."""
    protocol = find_protocol(settings.protocol)
    folds = 1 if protocol.unit == "seed" else settings.folds
    shared: dict[str, Any] = {
        "dataset": graphs.name,
        "fingerprint": graphs.fingerprint,
        "protocol": protocol.name,
        "folds": folds,
        "task": "" if isinstance(graphs, Dataset) else task_name(graphs, protocol.name),
        "metric": settings.metric or "",
        **{option: getattr(settings, option) for option in _TRAINED_WITH},
    }

    def members(seeds: int, **own: Any) -> list[Trial]:
        first = Trial(**shared | own)
        return [replace(first, fold=fold, seed=seed) for fold in range(folds) for seed in range(seeds)]

    trials = []
    for norm in settings.norms:
        digest = code.digest if (code := norm_code(norm)) else ""
        for configuration in grid.configurations():
            trials += members(settings.seeds, norm=norm, norm_digest=digest, **configuration)
    for baseline in settings.baselines:
        seeds = 1 if MODELS[baseline].kernel else settings.seeds  # a kernel has nothing random
        own = {option: value for option, value in MODELS[baseline].defaults.items() if option in _TRAINED_WITH}
        trials += members(seeds, **own | {"model": baseline, "norm": "none", "as_authors": False})
    return trials


def _describe(graphs: PackedGraphs | Dataset, trial: Trial) -> dict[str, Any]:
    """The part of the spec that describes the graphs, as one of the trials splits them."""
    if isinstance(graphs, Dataset):
        return {"chance": graphs.chance.get(metric_of(trial).key)}
    splits = make_splits(graphs, [replace(trial, fold=fold) for fold in range(trial.folds)])
    task, metric = task_of(trial), metric_of(trial)
    targets = {"target_names": list(graphs.target_names)} if graphs.target_names else {}
    reported = np.unique(np.concatenate([getattr(split, find_protocol(trial.protocol).reported) for split in splits]))
    chance = metric.scale * task.chance(metric.key, task.wanted(graphs).cpu()[torch.from_numpy(reported)])
    rare = smaller_class(graphs)
    return {
        "graphs": graphs.num_graphs,
        "classes": [] if graphs.target_names else list(graphs.classes),
        "task": task.name,
        "metric": metric.key,
        **targets,
        **({"smaller_class": round(rare, 4)} if rare < RARE else {}),
        **({"unused_split": True} if graphs.splits and find_protocol(trial.protocol).unit == "fold" else {}),
        "chance": round(chance, 4) if abs(chance) >= 1 else float(f"{chance:.5g}"),
        "train_sizes": sorted({len(split.train) for split in splits}),
        "catalogued": catalogued(graphs) is not None,
        "unused_edge_features": 0 if find_model(trial.model).sees_edges else graphs.num_edge_features,
    }


BASELINE_SETTING: dict[str, Any] = {"epochs": 100, "batch_size": 50, "dropout": 0.5, "weight_decay": 0.0, "lr": 1e-2}
"""Settings of baseline networks in the paper's tables; each network's own settings take precedence."""


def baseline_plan(
    graphs: PackedGraphs | Dataset,
    name: str,
    *,
    protocol: str,
    folds: int = 10,
    seeds: int = 1,
) -> Plan:
    """Plan a study of one baseline, with :data:`BASELINE_SETTING` and its own settings.

    >>> from graphnorm.data import load
    >>> plan = baseline_plan(load("synthetic:trees"), "wl", protocol="fair", folds=5)
    >>> len(plan.trials), plan.trials[0].epochs
    (5, 42)
    """
    kernel = MODELS[name].kernel
    chosen = {**({} if kernel else BASELINE_SETTING), **MODELS[name].defaults}
    grid = Grid("own", {axis: (chosen[axis],) for axis in BASELINE_SETTING if axis in chosen})
    rest = {option: value for option, value in chosen.items() if option not in grid.axes}
    shared: dict[str, Any] = {"model": name, "norms": ("none",), "protocol": protocol, "folds": folds}
    return make_plan(graphs, Settings(**shared, seeds=1 if kernel else seeds, **rest), grid)
