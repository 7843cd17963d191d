"""What studies have trained, put together by the question they ask, before anything is judged."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from graphnorm.paper.colours import COLOURS
from graphnorm.paper.reported import reported, reported_baseline
from graphnorm.report.scope import configurations_in_words
from graphnorm.report.sources import Curve, NormScore
from graphnorm.study.baselines import BASELINES
from graphnorm.study.plan import group_candidates
from graphnorm.study.protocol import Protocol, find_protocol
from graphnorm.study.results import NormResult, study_results
from graphnorm.study.selection import mean_and_std
from graphnorm.study.standings import circumstances
from graphnorm.study.store import STATUS, Record, Store, Study
from graphnorm.training import Trial
from graphnorm.wording import listing

__all__ = ["Question", "Read", "Trained", "asked", "folded", "read"]

TRIED = ("epochs", "batch_size", "dropout", "weight_decay", "lr", "readout", "self_loops", "hidden", "layers")
"""Settings of a trial that make a configuration."""
NOT_ASKED = ("dataset", "guessing", "norms", "origin", "seeds")
"""What studies of one question may differ in; their graphs are known by the fingerprint."""


class Trained(NamedTuple):
    """What one study has of one normalization, before anything is tested."""

    score: NormScore
    units: Mapping[int, float]
    """Scores by fold or seed, 0 to 1; empty while there is no result."""
    seeds: int
    compared: int
    """Configurations that were chosen between."""
    device: str


@dataclass(frozen=True, eq=False)
class Read:
    """A study, before anything is judged."""

    study: Study
    trials: Mapping[int, tuple[str | None, float]]
    """Status and seconds by the number in the store, which is the same in all studies."""
    example: Trial
    configurations: Sequence[Mapping[str, Any]]
    norms: Mapping[str, Trained]
    codes: Sequence[str]
    devices: Sequence[str]


@dataclass(frozen=True, eq=False)
class Question:
    """Studies that are judged together, and what is told beside them."""

    reads: Sequence[Read]
    inside: Sequence[Question] = ()
    """All their trials are of this one, too."""
    alone: Sequence[Question] = ()
    """Of one normalization, with another grid."""

    @property
    def first(self) -> Read:
        """What they have in common can be read off it."""
        return self.reads[0]

    @property
    def protocol(self) -> Protocol:
        """Of all trials."""
        return find_protocol(self.first.example.protocol)

    @cached_property
    def trials(self) -> dict[int, tuple[str | None, float]]:
        """Of all studies, each once."""
        return {number: of for read in self.reads for number, of in read.trials.items()}

    @cached_property
    def norms(self) -> dict[str, Trained]:
        """Of several studies' the one with most scores; in the order of the colours where studies are joined."""
        found: dict[str, Trained] = {}
        for name, trained in ((name, one) for read in self.reads for name, one in read.norms.items()):
            if name not in found or (_extent(trained) > _extent(found[name])):
                found[name] = trained
        if len(self.reads) == 1:
            return found
        order = list(COLOURS)
        return dict(sorted(found.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))

    @property
    def results(self) -> dict[str, Trained]:
        """Those that have a score."""
        return {name: trained for name, trained in self.norms.items() if trained.units}

    @property
    def configurations(self) -> str:
        """The grid in words."""
        return configurations_in_words(
            self.first.configurations, self.first.study.spec["dataset"], self.first.example.model
        )


def _extent(trained: Trained) -> tuple[int, int]:
    return len(trained.units) * trained.seeds, trained.compared


def asked(study: Study, *, grid: bool = True) -> str:
    """What studies of one question have in common."""
    spec = {name: value for name, value in study.spec.items() if name not in NOT_ASKED}
    axes = {name: sorted(values) for name, values in spec.pop("grid", {}).items() if name != "name"}
    return json.dumps([spec, axes if grid else {}], sort_keys=True)


def read(store: Store, study: Study) -> Read:
    """Read a study as far as it is trained."""
    trials = store.trials(study)
    configurations = {tuple(getattr(trial, name) for name in TRIED): None for trial in trials}
    found = circumstances(store, study)
    statuses = store.rows(
        f"SELECT m.trial, {STATUS}, total(o.seconds) FROM members m LEFT JOIN outcomes o ON o.trial = m.trial "
        "WHERE m.study = ? GROUP BY m.trial",
        study.id,
    )
    return Read(
        study,
        {number: (status, seconds) for number, status, seconds in statuses},
        trials[0],
        [dict(zip(TRIED, values, strict=True)) for values in configurations],
        _read_norms(store, study, trials),
        found.codes,
        found.devices,
    )


def _read_norms(store: Store, study: Study, trials: Sequence[Trial]) -> dict[str, Trained]:
    places = group_candidates(trials)
    found = {}
    for result in study_results(store, study):
        choices = () if result.selection is None else result.selection.choices
        chosen = [
            place
            for choice in choices
            for place in places[result.norm][choice.configuration]
            if (trials[place].fold, trials[place].seed) == (choice.fold, choice.seed)
        ]
        records = store.records(study, curves=("train", "valid", "test"), places=chosen)
        found[result.norm] = Trained(
            _unjudged(result, records),
            {} if result.selection is None else result.selection.scores,
            len({choice.seed for choice in choices}),
            result.compared,
            listing(sorted({record.device for record in records if record.device}) or [""]),
        )
    return found


def _unjudged(result: NormResult, members: Sequence[Record]) -> NormScore:
    selection = result.selection
    if selection is None:
        return NormScore(result.norm, None, None, None, [], None, None, 0.0, 0, "", {})
    trial = members[0].trial
    chosen = result.chosen
    return NormScore(
        result.norm,
        _finite(100 * selection.mean),
        _finite(100 * selection.std),
        selection.epoch,
        [_number(100 * score) for score in selection.scores.values()],
        None,
        reported_baseline(trial.dataset, trial.model, trial.protocol)
        if trial.model in BASELINES
        else reported(trial.dataset, trial.model, trial.norm, trial.protocol),
        sum(record.seconds for record in members),
        selection.diverged,
        "varies by fold" if chosen is None else ", ".join(f"{name} {value}" for name, value in chosen.items()),
        _average([record for record in members if record.status == "done"]),
    )


def _average(members: Sequence[Record]) -> dict[str, Curve]:
    curves: dict[str, Curve] = {}
    for name in members[0].curves if members else ():
        values = 100 * np.stack([record.curves[name] for record in members]).astype(np.float64)
        pairs = [mean_and_std(column.tolist()) for column in values.T]
        curves[name] = ([_number(mean) for mean, _ in pairs], [_number(std) for _, std in pairs])
    return curves


def folded(questions: Sequence[Question]) -> list[Question]:
    """Only those that need a chapter of their own, with the others at their places in these."""
    kept: list[Question] = []
    inside: dict[int, list[Question]] = {}
    for question in sorted(questions, key=lambda one: -len(one.trials)):
        hosts = [host for host in kept if question.trials.keys() <= host.trials.keys() and _covers(host, question)]
        if hosts:
            inside.setdefault(id(hosts[0]), []).append(question)
        else:
            kept.append(question)
    alone: dict[int, list[Question]] = {}
    for question in [one for one in kept if len(one.results) == 1 and id(one) not in inside]:
        hosts = [
            host
            for host in kept
            if len(host.results) > 1
            and _covers(host, question)
            and asked(host.first.study, grid=False) == asked(question.first.study, grid=False)
        ]
        if hosts:
            alone.setdefault(id(max(hosts, key=lambda host: len(host.first.configurations))), []).append(question)
            kept.remove(question)
    return [Question(one.reads, inside.get(id(one), ()), alone.get(id(one), ())) for one in questions if one in kept]


def _covers(host: Question, question: Question) -> bool:
    return question.results.keys() <= host.results.keys()


def _number(value: float) -> float | None:
    return None if (found := _finite(value)) is None else round(found, 4)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
