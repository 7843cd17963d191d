"""Plans: what a search trains, in which order, and which trials together."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from graphnorm.data import PackedGraphs
from graphnorm.study.grid import Grid
from graphnorm.study.guessing import guessing_score
from graphnorm.study.protocol import find_protocol
from graphnorm.training import Trial

__all__ = ["Plan", "Remembered", "group_candidates", "make_plan"]

_chosen_between = attrgetter(*(item.name for item in fields(Trial) if item.name not in ("fold", "seed")))


@dataclass(frozen=True)
class Plan:
    """A study before it is begun."""

    name: str
    spec: dict[str, Any]
    trials: tuple[Trial, ...]

    @property
    def epochs(self) -> int:
        """Of all trials together."""
        return sum(trial.epochs for trial in self.trials)


@dataclass(frozen=True)
class Remembered:
    """What a store says of graphs that may not be at hand: enough to name the trials on them."""

    name: str
    fingerprint: str
    guessing: Mapping[str, float] = field(default_factory=dict)
    """In percent, by the metric; where it is known."""

    def guessed(self, protocol: str) -> dict[str, float]:
        """For the spec of a study."""
        known = self.guessing.get(find_protocol(protocol).metric)
        return {} if known is None else {"guessing": known}


def make_plan(
    graphs: PackedGraphs | Remembered,
    grid: Grid,
    *,
    norms: Sequence[str],
    model: str = "gin",
    protocol: str = "paper",
    folds: int = 10,
    seeds: int = 1,
    name: str | None = None,
    **settings: Any,
) -> Plan:
    """Every configuration of the grid, for every normalization, fold and seed.

    A trial is named by its content, and the study by its trials: the same question makes the same study.

    settings: of all trials, where the grid does not say otherwise: ``readout``, ``self_loops``, ``hidden`` ...

    >>> from graphnorm.data import load
    >>> from graphnorm.study.grid import GRIDS
    >>> plan = make_plan(load("synthetic:trees"), GRIDS["paper"], norms=["graph", "batch"])
    >>> len(plan.trials), plan.name.rpartition("-")[0]
    (1200, 'synthetic:trees-gin-paper-paper')
    """
    units = 1 if find_protocol(protocol).unit == "seed" else folds
    trials = tuple(
        Trial(
            dataset=graphs.name,
            fingerprint=graphs.fingerprint,
            model=model,
            norm=norm,
            protocol=protocol,
            folds=units,
            fold=fold,
            seed=seed,
            **settings | configuration,
        )
        for norm in norms
        for configuration in grid.configurations()
        for fold in range(units)
        for seed in range(seeds)
    )
    digest = hashlib.sha256("".join(trial.key for trial in trials).encode()).hexdigest()
    spec = {
        "dataset": graphs.name,
        "fingerprint": graphs.fingerprint,
        **_guessed(graphs, protocol),
        "model": model,
        "norms": list(norms),
        "grid": {"name": grid.name, **{axis: list(values) for axis, values in grid.axes.items()}},
        "protocol": protocol,
        "folds": units,
        "seeds": seeds,
        **settings,
    }
    return Plan(name or f"{graphs.name}-{model}-{grid.name}-{protocol}-{digest[:6]}", spec, trials)


def _guessed(graphs: PackedGraphs | Remembered, protocol: str) -> dict[str, float]:
    if isinstance(graphs, Remembered):
        return graphs.guessed(protocol)
    return {"guessing": round(guessing_score(graphs, protocol), 4)}


def configuration(trial: Trial) -> tuple[Any, ...]:
    """Everything but fold and seed: what is chosen between."""
    return _chosen_between(trial)


def group_candidates(trials: Sequence[Trial]) -> dict[str, list[list[int]]]:
    """For each normalization its configurations, and for each of these the places of its trials."""
    groups: dict[str, dict[tuple[Any, ...], list[int]]] = {}
    for place, trial in enumerate(trials):
        groups.setdefault(trial.norm, {}).setdefault(configuration(trial), []).append(place)
    return {norm: list(configurations.values()) for norm, configurations in groups.items()}
