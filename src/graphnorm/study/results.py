"""Results: what a study chose for each normalization, and what that scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphnorm.study.plan import group_candidates
from graphnorm.study.protocol import find_protocol
from graphnorm.study.selection import Choice, Selection, select
from graphnorm.study.store import FINAL, Record, Store, Study
from graphnorm.training import Outcome

__all__ = ["NormResult", "study_results"]


@dataclass(frozen=True)
class NormResult:
    """What a study says of one normalization."""

    norm: str
    trials: int
    finished: int
    configurations: tuple[dict[str, Any], ...]
    """The settings that differ between configurations, for each of them."""
    selection: Selection | None
    """None while no configuration is finished on every fold."""
    compared: int = 0
    """Configurations that took part in it, in the fold with the fewest."""

    @property
    def members(self) -> int:
        """Folds and seeds of a configuration, as planned."""
        return self.trials // len(self.configurations)

    @property
    def chosen(self) -> dict[str, Any] | None:
        """The settings that all folds chose, or None where they differ."""
        if self.selection is None:
            return None
        places = {choice.configuration for choice in self.selection.choices}
        return self.configurations[places.pop()] if len(places) == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        found: dict[str, Any] = {"norm": self.norm, "trials": self.trials, "finished": self.finished}
        if self.selection is not None:
            found |= {
                "mean": self.selection.mean,
                "std": self.selection.std,
                "epoch": self.selection.epoch,
                "choices": [
                    choice._asdict() | {"configuration": self.configurations[choice.configuration]}
                    for choice in self.selection.choices
                ],
            }
        return found


def study_results(store: Store, study: Study, *, partial: bool = False) -> list[NormResult]:
    """Select by the study's protocol, for each normalization, from what is finished.

    A configuration takes part once it is finished on all its folds and seeds; under a nested protocol, where each fold
    chooses for itself, it takes part in a fold once it is finished there.

    partial: where none is finished on all, the folds and seeds of the one that has most count, and no others.
    """
    trials = store.trials(study)
    protocol = find_protocol(trials[0].protocol)
    names = {"valid", protocol.reported}
    records = {record.place: record for record in store.records(study, curves=sorted(names))}
    results = []
    for norm, places in group_candidates(trials).items():
        candidates = [[records.get(place) for place in group] for group in places]
        folds = [trials[place].fold for place in places[0]]
        units = [[k for k, f in enumerate(folds) if f == fold] for fold in dict.fromkeys(folds)]
        if partial:
            units = _reduced(candidates, units)
        chosen = _choose(candidates, units if protocol.nested else [[k for unit in units for k in unit]])
        settings = [trials[group[0]].to_dict() for group in places]
        varied = [name for name in settings[0] if any(s[name] != settings[0][name] for s in settings)]
        results.append(
            NormResult(
                norm,
                trials=sum(len(group) for group in places),
                finished=sum(_is_final(record) for group in candidates for record in group),
                configurations=tuple({name: values[name] for name in varied} for values in settings),
                selection=None if chosen is None else Selection(protocol, tuple(chosen[0])),
                compared=0 if chosen is None else chosen[1],
            )
        )
    return results


def _reduced(candidates: Sequence[Sequence[Record | None]], units: Sequence[Sequence[int]]) -> list[list[int]]:
    """The members of the units on which the configuration that has most of them is finished."""
    finished = [{k for k, record in enumerate(group) if _is_final(record)} for group in candidates]
    most = max(finished, key=len)
    return [kept for unit in units if (kept := [k for k in unit if k in most])]


def _choose(
    candidates: Sequence[Sequence[Record | None]], units: Sequence[Sequence[int]]
) -> tuple[list[Choice], int] | None:
    """What each unit chooses among the configurations that are finished on it, and how few these are.

    None where one has none, and where there is no unit.
    """
    choices: list[Choice] = []
    fewest = len(candidates)
    if not any(units):
        return None
    for unit in units:
        finished: dict[int, list[Outcome]] = {}
        for place, group in enumerate(candidates):
            found = [record for k in unit if (record := group[k]) is not None and _is_final(record)]
            if len(found) == len(unit):
                finished[place] = [_outcome(record) for record in found]
        if not finished:
            return None
        at = list(finished)
        fewest = min(fewest, len(at))
        choices += [c._replace(configuration=at[c.configuration]) for c in select(list(finished.values())).choices]
    return choices, fewest


def _is_final(record: Record | None) -> bool:
    return record is not None and record.status in FINAL


def _outcome(record: Record) -> Outcome:
    return Outcome(record.trial, dict(record.curves), "diverged" if record.status == "diverged" else "done")
