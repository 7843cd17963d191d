"""Cells of the tables of scores: what was measured, from how much, how it was chosen and where it was trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from graphnorm.paper.choices import AmongFewer, among_common, among_those_of, by_unit, score_of
from graphnorm.paper.material import Material, Measured
from graphnorm.paper.recipe import MOLHIV, Trainings
from graphnorm.paper.recipes import RECIPES
from graphnorm.paper.reported import Reported, reported, reported_baseline
from graphnorm.paper.tables import Score
from graphnorm.study.protocol import find_protocol
from graphnorm.study.results import NormResult
from graphnorm.study.selection import Selection

__all__ = [
    "BASELINE",
    "FAIR",
    "FULL_SHIFT",
    "SETTINGS",
    "Cell",
    "find_cells",
    "is_fair_alone",
]

BASELINE = "baseline"
"""What stands in the place of the normalization."""
FULL_SHIFT = "graph, α = 1"
"""GraphNorm as the authors' code has it for ogbg-molhiv, without α: what is called ``instance`` here."""
FAIR = "fair"
"""The protocol that stands beside the paper's."""
SETTINGS = ("lr", "batch_size", "dropout", "weight_decay")
"""Of a configuration, in the order in which they are shown; others follow."""
SHORT_NAMES = {"batch_size": "batch", "weight_decay": "wd"}
"""Of settings, for the width of a column."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A score, in percent, and what it is made of."""

    dataset: str
    model: str
    norm: str
    """As it is shown."""
    protocol: str
    score: Score
    planned: int
    """Configurations of the recipe's own grid, also where the study has a part of it."""
    members_planned: int
    compared: int = 0
    """Configurations that the chosen one was compared with, itself included."""
    members: int = 0
    """Folds, or seeds, of each."""
    scores: tuple[float | None, ...] = ()
    """By fold or seed, in order; None for one that is not trained, or diverged."""
    configuration: dict[str, Any] | None = None
    """The settings that were chosen; None where folds chose different ones or several, and of a baseline."""
    varied: tuple[str, ...] = ()
    """Those of which the grid has several values."""
    epochs: tuple[int, ...] = ()
    """That were chosen, by fold or seed, of those that did not diverge."""
    is_of_own_grid: bool = True
    """Whether all configurations are some of the recipe's own grid."""
    devices: tuple[str, ...] = ()
    common: AmongFewer | None = None
    """Among those configurations that all normalizations have; None where that is the same choice."""
    repeats: bool = False
    """Whether it shows the measurement of another cell a second time."""
    fair: Cell | None = None
    """The same cell under that protocol."""
    among_fair: AmongFewer | None = None
    """The score when the choice is among those configurations alone that ``fair`` chose from, where all are there."""

    @property
    def optimism(self) -> float | None:
        """In points, what choosing by the folds that are reported adds to ``fair``, with the same configurations."""
        higher, lower = self.among_fair, self.fair
        if higher is None or lower is None or higher.mean is None or lower.score.mean is None:
            return None
        return higher.mean - lower.score.mean

    @property
    def is_baseline(self) -> bool:
        """Whether it is of a method beside the normalized models."""
        return self.norm == BASELINE

    @property
    def epoch(self) -> int | None:
        """The epoch that all members share, or None where they do not."""
        return self.epochs[0] if len(set(self.epochs)) == 1 else None

    @property
    def chosen(self) -> str | None:
        """What was chosen of the settings that vary, for people."""
        if self.configuration is None:
            return "by fold" if self.compared > 1 and not self.is_baseline else None
        settings = [(name, self.configuration[name]) for name in self.varied if name in self.configuration]
        return ", ".join(f"{SHORT_NAMES.get(name, name)} {_short(value)}" for name, value in settings) or None

    @property
    def extent(self) -> str:
        """From how much of the grid it was chosen, in words; nothing where there is no choice."""
        if self.planned == 1:
            return ""
        if self.compared == 1:
            return "with one configuration"
        return "with the whole grid" if self.compared == self.planned else "with a part of the grid"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        said, fair = self.score.reported, self.fair
        return {
            "dataset": self.dataset,
            "model": self.model,
            "norm": self.norm,
            "protocol": self.protocol,
            "compared": self.compared,
            "planned": self.planned,
            "members": self.members,
            "members_planned": self.members_planned,
            **_plain(self.score),
            "reported": None if said is None else {"mean": said.mean, "std": said.std},
            "scores": list(self.scores),
            "chosen": None
            if self.configuration is None
            else {"configuration": self.configuration, "epoch": self.epoch},
            "common": _plain_fewer(self.common),
            "device": list(self.devices),
            "repeats": self.repeats,
            "fair": None if fair is None else fair.to_dict(),
            "among_fair": _plain_fewer(self.among_fair),
        }


def _short(value: Any) -> str:
    """A setting in as few characters as say it.

    >>> [_short(value) for value in (1e-3, 5e-5, 0.0, 0.5, 64)]
    ['1e-3', '5e-5', '0', '0.5', '64']
    """
    if isinstance(value, float) and 0 < abs(value) < 0.1:
        mantissa, _, exponent = f"{value:e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(score: Score) -> dict[str, Any]:
    return {
        "mean": score.mean,
        "std": score.std,
        "difference": score.difference,
        "within_one_sd": score.within,
        "within_one_se": score.within_error,
    }


def _plain_fewer(score: AmongFewer | None) -> dict[str, Any] | None:
    return None if score is None else {**score._asdict(), "scores": list(score.scores)}


def find_cells(material: Material) -> list[Cell]:
    """The cells of a table of scores, those under ``fair`` beside those of the other protocol.

    Where the recipe has no other protocol, they stand alone. Where there is nothing of the other, its score is None.
    """
    groups: dict[tuple[str, str], dict[bool, Measured]] = {}
    alone = is_fair_alone(material)
    for measured in material.studies:
        groups.setdefault((measured.dataset, measured.model), {})[alone or measured.protocol != FAIR] = measured
    found: list[Cell] = []
    for parts in groups.values():
        leads, follows = parts.get(True), parts.get(False)
        beside = {cell.norm: cell for cell in _cells(material, follows)} if follows else {}
        if leads is None:
            found += [replace(_unmeasured(cell, _other_protocol(material)), fair=cell) for cell in beside.values()]
            continue
        same = among_those_of(leads, follows) if follows and not leads.is_baseline else {}
        found += [
            replace(cell, fair=beside.get(cell.norm), among_fair=same.get(cell.norm))
            for cell in _cells(material, leads)
        ]
    return found


def is_fair_alone(material: Material) -> bool:
    """Whether ``fair`` is the only protocol that was asked for."""
    return set(_protocols(material)) == {FAIR}


def _protocols(material: Material) -> list[str]:
    beside = material.recipe.beside
    return [p for part in (*material.recipe.trained, *((beside,) if beside else ())) for p in part.protocols]


def _other_protocol(material: Material) -> str:
    return next(name for name in _protocols(material) if name != FAIR)


def _unmeasured(cell: Cell, protocol: str) -> Cell:
    """The same cell under another protocol, of which there is nothing."""
    return Cell(
        dataset=cell.dataset,
        model=cell.model,
        norm=cell.norm,
        protocol=protocol,
        score=Score(None, reported=_said(cell.dataset, cell.model, cell.norm, protocol)),
        planned=cell.planned,
        members_planned=cell.members_planned,
    )


def _said(dataset: str, model: str, norm: str, protocol: str) -> Reported | None:
    if norm == BASELINE:
        return reported_baseline(dataset, model, protocol)
    return reported(dataset, model, norm, protocol)


def _cells(material: Material, measured: Measured) -> Iterator[Cell]:
    devices: dict[str, set[str]] = {}
    for record in measured.records(curves=()):
        devices.setdefault(record.trial.norm, set()).add(record.device)
    common = among_common(measured)
    part = None if measured.is_baseline else _own_part(material, measured)
    for result in measured.results:
        norm = BASELINE if measured.is_baseline else result.norm
        said = _said(measured.dataset, measured.model, norm, measured.protocol)
        cell = Cell(
            dataset=measured.dataset,
            model=measured.model,
            norm=norm,
            protocol=measured.protocol,
            score=score_of(result.selection, said),
            planned=max(len(result.configurations), 0 if part is None else len(part.grid)),
            members_planned=max(result.members, 0 if part is None else _members(part, measured.protocol)),
            compared=result.compared,
            members=0 if result.selection is None else len(result.selection.choices),
            scores=by_unit(measured, result.selection),
            configuration=None if measured.is_baseline else _configuration(measured, result),
            varied=() if part is None else _varied(measured, part),
            epochs=_epochs(result.selection),
            is_of_own_grid=part is None or _is_part_of(measured.study.spec["grid"], part),
            devices=tuple(sorted(device for device in devices.get(result.norm, ()) if device)),
            common=common.get(result.norm),
        )
        yield cell
        if measured.dataset == MOLHIV and norm == "instance":
            said = _said(MOLHIV, measured.model, "graph", measured.protocol)
            score = Score(cell.score.mean, cell.score.std, said)
            yield replace(cell, norm=FULL_SHIFT, score=score, repeats=True)


def _epochs(selection: Selection | None) -> tuple[int, ...]:
    """Those that were chosen; none where scores are averages over several that are as good."""
    if selection is None or any(choice.ties > 1 for choice in selection.choices):
        return ()
    return tuple(choice.epoch for choice in selection.choices if choice.epoch is not None)


def _configuration(measured: Measured, result: NormResult) -> dict[str, Any] | None:
    """What all folds chose, and nothing as good besides; of settings that have one value in the whole study, that."""
    if result.chosen is None or (result.compared > 1 and not _epochs(result.selection)):
        return None
    axes = {name: values for name, values in measured.study.spec["grid"].items() if name not in ("name", "epochs")}
    return {name: result.chosen.get(name, axes[name][0]) for name in sorted(axes, key=_place)}


def _place(setting: str) -> int:
    return SETTINGS.index(setting) if setting in SETTINGS else len(SETTINGS)


def _varied(measured: Measured, part: Trainings) -> tuple[str, ...]:
    """Settings of which the recipe's own grid, or the study's, has several values."""
    axes = {**part.grid.axes, **measured.study.spec["grid"]}
    several = {name for grid in (part.grid.axes, measured.study.spec["grid"]) for name in grid if len(grid[name]) > 1}
    return tuple(name for name in sorted(axes, key=_place) if name in several - {"name"})


def _is_part_of(grid: Mapping[str, Any], part: Trainings) -> bool:
    return all(set(grid.get(axis, ())) <= set(values) for axis, values in part.grid.axes.items())


def _own_part(material: Material, measured: Measured) -> Trainings | None:
    """What the recipe itself, not a part of it that was asked for, trains there."""
    own = RECIPES.get(material.recipe.item, material.recipe)
    wanted = (measured.dataset, measured.model, measured.protocol)
    for part in (own.quick() if material.quick else own).trained:
        if all(name in names for name, names in zip(wanted, (part.datasets, part.models, part.protocols), strict=True)):
            return part
    return None


def _members(part: Trainings, protocol: str) -> int:
    return part.seeds if find_protocol(protocol).unit == "seed" else part.folds * part.seeds
