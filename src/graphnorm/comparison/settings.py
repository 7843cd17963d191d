"""What a comparison trains: the options, their defaults, and the trials that they make."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from types import NoneType
from typing import Any, Literal

from graphnorm.data import CATALOG, Entry, PackedGraphs
from graphnorm.errors import GraphnormError, require
from graphnorm.layers import REGISTRY
from graphnorm.paper.recipe import FIVE, Trainings
from graphnorm.paper.recipes import RECIPES
from graphnorm.study.baselines import BASELINES, baseline_trials
from graphnorm.study.kernels import KERNELS
from graphnorm.study.protocol import find_protocol
from graphnorm.training.setup import MODELS
from graphnorm.training.trial import Trial

__all__ = ["DEFAULT_NORMS", "FIGURE_2", "MOLHIV", "Settings", "catalogued", "settle"]

DEFAULT_NORMS = FIVE
"""The five that the paper's Figure 2 compares."""


def _setting(part: Trainings) -> dict[str, Any]:
    """What one configuration is trained with."""
    (configuration,) = part.grid.configurations()
    return {"folds": part.folds, "seeds": part.seeds, "hidden": part.hidden, "layers": 5, **configuration}


FIGURE_2 = _setting(Trainings()) | {"epochs": 12}
"""The setting of the paper's training curves, with fewer epochs than its 400."""

MOLHIV = {
    model: _setting(part) | {"folds": 1}
    for part in RECIPES["table2"].trained
    for name in part.models
    for model in (name, name.replace("molhiv", "molecular"))
}
"""The setting of the paper's Table 2, by model; the molecular pair has that of the other."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that decides a comparison's result, besides the graphs."""

    model: str
    norms: tuple[str, ...]
    protocol: str
    folds: int
    seeds: int
    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    dropout: float
    hidden: int
    layers: int
    self_loops: bool
    readout: Literal["sum", "mean"]
    baselines: tuple[str, ...] = ()
    """What the normalizations are put beside."""

    def trials(self, graphs: PackedGraphs, norm: str) -> list[Trial]:
        """One trial for every fold and seed of a normalization."""
        shared = {k: v for k, v in asdict(self).items() if k not in ("norms", "seeds", "baselines")}
        return [
            Trial(dataset=graphs.name, fingerprint=graphs.fingerprint, norm=norm, fold=fold, seed=seed, **shared)
            for fold in range(self.folds)
            for seed in range(self.seeds)
        ]

    def baseline_trials(self, graphs: PackedGraphs, baseline: str) -> list[Trial]:
        """The trials of a baseline: the same protocol and folds, with its own shape."""
        left_out = ("model", "norms", "baselines", "folds", "seeds")
        shared = {k: v for k, v in asdict(self).items() if k not in left_out}
        return baseline_trials(graphs, baseline, folds=self.folds, seeds=self.seeds, **shared)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"norms": list(self.norms), "baselines": list(self.baselines)}


def settle(
    graphs: PackedGraphs,
    *,
    model: str | None = None,
    norms: Sequence[str] | str | None = None,
    baselines: Sequence[str] | str | None = None,
    protocol: str | None = None,
    self_loops: bool = False,
    readout: Literal["sum", "mean"] | None = None,
    **numbers: float | None,
) -> Settings:
    """Fill in what was not given (None), and refuse what cannot be.

    Data with an official split of two classes is compared by the protocol ``ogb``, with the molecular model and the
    setting of the paper's Table 2; all other data by ``paper``, with GIN and the setting of its Figure 2. The readout
    is the catalogue's for a dataset it knows, else the sum.
    """
    for option, text in (("model", model), ("protocol", protocol), ("readout", readout)):
        require(option, text, (str, NoneType), f"the name of a {option}")
    official = {"train", "valid", "test"} <= graphs.splits.keys() and graphs.num_classes == 2
    protocol = protocol or ("ogb" if official else "paper")
    find_protocol(protocol)
    model = model or ("molhiv-gin" if protocol == "ogb" else "gin")
    _refuse_unknown("model", [model], MODELS)
    wanted = DEFAULT_NORMS if norms is None else _names("norms", norms)
    beside = () if baselines is None else _names("baselines", baselines)
    _refuse_unknown("baseline", beside, BASELINES)
    if protocol == "ogb" and (kernels := [name for name in beside if name in KERNELS]):
        raise GraphnormError(
            f"{', '.join(kernels)}: kernels are for cross-validation, not for an official split",
            remedy="leave them out, or use the protocol paper or fair",
        )
    _refuse_unknown("normalization", wanted, REGISTRY)
    if not wanted:
        raise GraphnormError("there is no normalization to train", remedy=f"name one of {', '.join(REGISTRY)}")
    entry = catalogued(graphs)
    readout = readout or (entry.readout if entry else "sum")
    _refuse_unknown("readout", [readout], ("sum", "mean"))
    defaults = MOLHIV.get(model, FIGURE_2) if protocol == "ogb" else FIGURE_2
    given = {name: value for name, value in numbers.items() if value is not None}
    if unknown := given.keys() - defaults.keys():
        raise TypeError(f"a comparison has no option {', '.join(sorted(unknown))}")
    if protocol == "ogb" and given.get("folds", 1) != 1:
        raise GraphnormError("the protocol ogb has one split, not folds", remedy="leave --folds out; use --seeds")
    if protocol == "ogb":
        defaults = defaults | {"folds": 1}
    values: dict[str, Any] = defaults | given
    _check_numbers(values, protocol)
    choice: dict[str, Any] = {"model": model, "norms": wanted, "protocol": protocol, "baselines": beside}
    return Settings(**choice, self_loops=self_loops, readout=readout, **values)


def _names(option: str, given: Sequence[str] | str) -> tuple[str, ...]:
    """Names that were given as a sequence, or in one text between commas."""
    require(option, given, Iterable, 'names, as in ["batch", "graph"] or "batch,graph"')
    if not isinstance(given, str):
        given = list(given)
        for name in given:
            require(f"each of {option}", name, str, "a name")
    return tuple(dict.fromkeys(name.strip() for name in (given.split(",") if isinstance(given, str) else given)))


def catalogued(graphs: PackedGraphs) -> Entry | None:
    """The catalogue's entry for these graphs; None for the user's own, whatever they are called."""
    entry = CATALOG.get(graphs.name)
    found = (graphs.num_graphs, graphs.num_nodes, graphs.num_edges)
    return entry if entry is not None and entry.counts in (None, found) else None


def _refuse_unknown(what: str, names: Sequence[str], known: Sequence[str] | dict[str, Any]) -> None:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), list(known), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise GraphnormError(f"unknown {what} {name!r}{hint}", remedy=f"choose from {', '.join(known)}")


def _check_numbers(values: dict[str, Any], protocol: str) -> None:
    least = {"folds": 1 if protocol == "ogb" else 2, "seeds": 1, "epochs": 1, "batch_size": 1, "hidden": 1, "layers": 2}
    for name, value in values.items():
        require(name, value, Real, "a number")
    for name, bound in least.items():
        if not math.isfinite(values[name]) or values[name] != int(values[name]) or values[name] < bound:
            raise GraphnormError(f"{name} is {values[name]}", remedy=f"give a whole number of {bound} or more")
    for name, test, remedy in (
        ("lr", 0 < values["lr"] < float("inf"), "give a learning rate above 0"),
        ("weight_decay", 0 <= values["weight_decay"] < float("inf"), "give 0 or more"),
        ("dropout", 0 <= values["dropout"] < 1, "give a share of 0 or more, below 1"),
    ):
        if not test:
            raise GraphnormError(f"{name} is {values[name]}", remedy=remedy)
