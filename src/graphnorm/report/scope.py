"""How much was trained, in words: which of the paper's configurations, how many folds or seeds, and on what."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from graphnorm.paper.recipes import RECIPES
from graphnorm.wording import listing

__all__ = ["by_value", "configurations_in_words", "counted", "scope_in_words"]

SEARCHES, CURVES = ("table1",), ("fig2", "fig6")
"""Items whose trainings are those of the paper's grid, and of its training curves; Table 2 has the latter's."""

Settings = Mapping[str, Any]


def scope_in_words(configurations: str, members: str, devices: Mapping[str, str]) -> str:
    """The first line of a chapter.

    devices: by normalization.

    >>> scope_in_words("one configuration", "10 folds", {"batch": "cpu", "graph": "cpu"})
    'One configuration; 10 folds; trained on cpu.'
    """
    known = {norm: device for norm, device in devices.items() if device}
    trained = [f"trained on {by_value(known)}"] if known else []
    text = "; ".join([configurations, members, *trained])
    return f"{text[0].upper()}{text[1:]}."


def configurations_in_words(configurations: Sequence[Settings], dataset: str, model: str) -> str:
    """How many settings were tried, and how many of the paper's these are, where it has this dataset and model.

    >>> curves = {"epochs": 400, "batch_size": 128, "dropout": 0.5, "weight_decay": 0.0, "lr": 0.01}
    >>> curves |= {"readout": "sum", "self_loops": True, "hidden": 64}
    >>> configurations_in_words([curves], "MUTAG", "gin")
    "one configuration, that of the paper's training curves"
    >>> configurations_in_words([curves, curves | {"lr": 0.001}], "MUTAG", "gin")
    "2 of the 60 configurations of the paper's grid"
    >>> configurations_in_words([curves | {"batch_size": 8}, curves], "MUTAG", "gin")
    '2 configurations (batch size 8, 128)'
    """
    count = counted(len(configurations), "configuration")
    grid = _of_items(SEARCHES, dataset, model)
    inside = sum(_has(grid, one) for one in configurations)
    if len(configurations) == 1 and _has(_of_items(CURVES, dataset, model), configurations[0]):
        return f"{count}, that of the paper's training curves"
    if inside and inside == len(configurations):
        if inside < len(grid):
            return f"{inside} of the {len(grid)} configurations of the paper's grid"
        return f"all {inside} configurations of the paper's grid"
    varied = [name for name in configurations[0] if len({one[name] for one in configurations}) > 1]
    if len(varied) != 1:
        return count
    values = sorted({one[varied[0]] for one in configurations})
    return f"{count} ({varied[0].replace('_', ' ')} {', '.join(map(str, values))})"


def by_value(values: Mapping[str, Hashable]) -> str:
    """Values with the names that have them; where all have the same one, that alone.

    >>> by_value({"none": 3, "layer": 3, "graph": 10}), by_value({"none": 3, "layer": 3})
    ('3 (none and layer), 10 (graph)', '3')
    """
    names: dict[Hashable, list[str]] = {}
    for name, value in values.items():
        names.setdefault(value, []).append(name)
    if len(names) == 1:
        return str(next(iter(names)))
    return ", ".join(f"{value} ({listing(of)})" for value, of in names.items())


def counted(count: int, what: str) -> str:
    """A number and what it is of.

    >>> counted(1, "configuration"), counted(12, "configuration")
    ('one configuration', '12 configurations')
    """
    return f"one {what}" if count == 1 else f"{count:,} {what}s"


def _of_items(items: Iterable[str], dataset: str, model: str) -> list[Settings]:
    parts = [part for item in items for part in RECIPES[item].trained]
    return [
        part.settings(dataset, model) | configuration
        for part in parts
        if dataset in part.datasets and model in part.models
        for configuration in part.grid.configurations()
    ]


def _has(known: Sequence[Settings], one: Settings) -> bool:
    return any(all(one.get(name) == value for name, value in settings.items()) for settings in known)
