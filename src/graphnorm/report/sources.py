"""What a report is made of: comparisons from their folders and studies from a store, in one form."""

from __future__ import annotations

import inspect
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphnorm.comparison.result import ABOUT_BASELINES, FORMAT, about_tests
from graphnorm.comparison.verdict import judge, name_guessers
from graphnorm.data import PackedGraphs, load
from graphnorm.errors import GraphnormError
from graphnorm.paper.recipes import is_quick
from graphnorm.paper.reported import Reported, reported, reported_baseline, unlike_the_paper
from graphnorm.study.baselines import BASELINES
from graphnorm.study.guessing import guessing_score
from graphnorm.study.kernels import KERNELS, candidate_in_words
from graphnorm.study.plan import group_candidates
from graphnorm.study.protocol import find_protocol
from graphnorm.study.results import NormResult, study_results
from graphnorm.study.selection import mean_and_std
from graphnorm.study.significance import PairedTest, compare_all
from graphnorm.study.store import Record, Store, Study

__all__ = ["NormScore", "Source", "join_baselines", "read_comparison", "read_study"]

FindGraphs = Callable[[str, str, Mapping[str, Any] | None], PackedGraphs]
"""Gives the graphs of a name, fingerprint and origin, or raises a ``GraphnormError`` that says why not."""
Curve = tuple[list[float | None], list[float | None]]


@dataclass(frozen=True)
class NormScore:
    """One normalization; metrics in percent, None for what is not known."""

    name: str
    mean: float | None
    std: float | None
    epoch: int | None
    """The chosen one, where all folds share it."""
    scores: Sequence[float | None]
    """Of each fold, or seed."""
    against_best: PairedTest | None
    """Seen from the best one; None for the best itself."""
    paper: Reported | None
    seconds: float
    diverged: int
    settings: str
    """The chosen configuration, where there were several."""
    curves: Mapping[str, Curve] = field(repr=False)
    """Mean and standard deviation for each epoch, by ``train``, ``valid`` and perhaps ``test``."""


@dataclass(frozen=True)
class Source:
    """A comparison or a study."""

    title: str
    dataset: str
    fingerprint: str
    model: str
    protocol: str
    verdict: str
    notes: Sequence[str]
    norms: Sequence[NormScore]
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    baselines: Sequence[NormScore] = ()
    """Other methods on the same folds. They have no part in the verdict, the tests or the charts."""
    origin: Mapping[str, Any] | None = None
    """Where the user's own graphs are, see :func:`graphnorm.data.loading.describe_origin`. Not shown on the page."""
    quick: bool = False
    """Whether it is of a quick pass."""

    @property
    def metric(self) -> str:
        """What is reported."""
        return find_protocol(self.protocol).metric

    @property
    def unit(self) -> str:
        """What is averaged over."""
        return find_protocol(self.protocol).unit


def read_comparison(folder: str | os.PathLike[str]) -> Source:
    """Read the folder that ``graphnorm compare --out`` wrote."""
    file = Path(folder) / "comparison.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content.get("format") != FORMAT:
            raise GraphnormError(
                f"the format is {content.get('format')!r}, not {FORMAT!r}", where=file, remedy="compare again"
            )
        tests = [
            PairedTest(**{name: value for name, value in pair.items() if name != "significant"})
            for pair in content["significance"]["pairs"]
        ]
        best = content["ranking"][0] if content["ranking"] else None
        norms = [_from_json(name, values, best, tests) for name, values in content["norms"].items()]
        return Source(
            title=f"{content['dataset']}, {content['model']}",
            dataset=content["dataset"],
            fingerprint=content["fingerprint"],
            model=content["model"],
            protocol=content["protocol"],
            verdict=content["verdict"],
            notes=content["notes"],
            norms=norms,
            config=content["config"],
            environment={
                "graphnorm": content["version"],
                "trained on": ", ".join(sorted({values["device"] for values in content["norms"].values()})),
                "graphs": content["graphs"],
                "fingerprint": content["fingerprint"][:16],
            },
            baselines=[
                _as_baseline(name, _from_json(name, values, None, ()))
                for name, values in content.get("baselines", {}).items()
            ],
            origin=_checked_origin(content.get("origin")),
        )
    except FileNotFoundError as error:
        raise GraphnormError("there is no comparison in it", where=folder, remedy="give another folder") from error
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise GraphnormError(f"this is no comparison: {error}", where=file, remedy="compare again") from error


def _checked_origin(origin: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Refuse what someone else than ``compare`` wrote."""
    if origin is not None:
        inspect.signature(load).bind(**origin)
        Path(origin["name_or_path"])
    return origin


def _from_json(name: str, values: Mapping[str, Any], best: str | None, tests: Sequence[PairedTest]) -> NormScore:
    paper = values["paper"]
    return NormScore(
        name,
        values["mean"],
        values["std"],
        values["epoch"],
        values["folds"],
        _pair(tests, best, name),
        None if paper is None else Reported(**paper),
        values["seconds"],
        values["diverged"],
        "",
        {curve: (both["mean"], both["std"]) for curve, both in values["curves"].items() if curve != "loss"},
    )


def _as_baseline(name: str, score: NormScore) -> NormScore:
    """A kernel's epochs are candidates, of which the chosen one is told; training curves are left out."""
    if name in KERNELS and score.mean is not None:
        words = "varies by fold"
        if score.epoch is not None:
            words = candidate_in_words(name, score.epoch)
        score = replace(score, epoch=None, settings=words)
    return replace(score, name=name, curves={})


def join_baselines(sources: Sequence[Source]) -> list[Source]:
    """Studies of baselines as rows of those of normalizations on the same folds; the others stay as they are."""

    def question(source: Source) -> tuple[Any, ...]:
        return source.fingerprint, source.protocol, source.config.get("folds")

    beside: dict[tuple[Any, ...], list[Source]] = {}
    for source in sources:
        if source.model in BASELINES:
            beside.setdefault(question(source), []).append(source)
    joined = []
    for source in sources:
        found = () if source.model in BASELINES else beside.get(question(source), ())
        if found:
            scores = [score for other in found for score in other.baselines]
            notes = list(dict.fromkeys([*source.notes, ABOUT_BASELINES]))
            source = replace(source, baselines=[*source.baselines, *scores], notes=notes)
        joined.append(source)
    placed = {question(source) for source in sources if source.model not in BASELINES}
    return [source for source in joined if source.model not in BASELINES or question(source) not in placed]


def _pair(tests: Sequence[PairedTest], best: str | None, name: str) -> PairedTest | None:
    found = [test for test in tests if {test.first, test.second} == {best, name}]
    return found[0].seen_from(best) if found and best is not None else None


def read_study(store: Store, study: Study, find_graphs: FindGraphs | None = None) -> Source:
    """Read a study as far as it is trained; its curves are those of the chosen configurations.

    find_graphs: asked only for studies of older versions, which did not write down what guessing has.
    """
    trials = store.trials(study)
    protocol = find_protocol(trials[0].protocol)
    results = {result.norm: result for result in study_results(store, study)}
    records = {record.place: record for record in store.records(study, curves=("train", "valid", "test"))}
    selected = {name: result.selection for name, result in results.items() if result.selection is not None}
    folds = int(study.spec.get("folds", 1))
    overlap = 0.0 if protocol.unit == "seed" else 1 / max(folds - 1, 1)
    tests = compare_all({name: selection.scores for name, selection in selected.items()}, overlap=overlap)
    means = {name: (100 * s.mean, 100 * s.std) for name, s in selected.items() if math.isfinite(s.mean)}
    ranked = dict(sorted(means.items(), key=lambda item: -item[1][0]))
    best = next(iter(ranked), None)
    places = group_candidates(trials)
    norms = [_from_study(result, places[name], records, _pair(tests, best, name)) for name, result in results.items()]
    baselines: list[NormScore] = []
    model = trials[0].model
    if model in BASELINES:
        norms, baselines, ranked = [], [_as_baseline(model, score) for score in norms], {}
    notes = []
    if study.missing or study.counts.get("failed"):
        notes.append(f"{study.finished:,} of {study.trials:,} trials are trained; the rest is missing or failed")
    guessing = _guessing(study, protocol.name, find_graphs)
    notes += name_guessers({name: mean for name, (mean, _) in ranked.items()}, guessing)
    if protocol.name == "paper":
        notes.append("protocol paper: the folds that choose are those reported, so numbers are optimistic")
    epochs = max(trial.epochs for trial in trials)
    if any(norm.paper for norm in norms) and protocol.unit == "fold":
        notes += unlike_the_paper(folds, epochs, max(result.compared for result in results.values()))
    if any(test.p_adjusted is not None for test in tests):
        notes.append(about_tests(protocol.unit, overlap))
    where = f"on {study.spec['dataset']} with {study.spec['model']} and these settings"
    verdict = judge(ranked, lambda a, b: _known_pair(tests, a, b), protocol.metric, where, guessing)
    if baselines:
        verdict = f"{model} is a baseline: it has a number of its own, and says nothing of normalizations."
    return Source(
        title=f"{study.spec['dataset']}, {study.spec['model']}, {protocol.name}",
        dataset=study.spec["dataset"],
        fingerprint=study.spec["fingerprint"],
        model=study.spec["model"],
        protocol=protocol.name,
        verdict=verdict,
        notes=notes,
        norms=norms,
        config={"study": study.name} | {name: value for name, value in study.spec.items() if name != "origin"},
        environment={
            "code": "; ".join(sorted({record.code for record in records.values()})),
            "trained on": ", ".join(sorted({record.device for record in records.values() if record.device})),
            "trials": study.trials,
            "training hours": round(study.seconds / 3600, 3),
            "begun": study.created,
            "fingerprint": study.spec["fingerprint"][:16],
        },
        baselines=baselines,
        origin=study.spec.get("origin"),
        quick=is_quick(study.spec),
    )


def _guessing(study: Study, protocol: str, find_graphs: FindGraphs | None) -> float | None:
    written = study.spec.get("guessing")
    if written is not None or find_graphs is None:
        return written
    try:
        return guessing_score(find_graphs(study.spec["dataset"], study.spec["fingerprint"], None), protocol)
    except GraphnormError:
        return None


def _known_pair(tests: Sequence[PairedTest], first: str, second: str) -> PairedTest:
    test = _pair(tests, first, second)
    assert test is not None, "every pair was tested"
    return test


def _from_study(
    result: NormResult, places: Sequence[Sequence[int]], records: Mapping[int, Record], test: PairedTest | None
) -> NormScore:
    selection = result.selection
    trial_of = {record.place: record.trial for record in records.values()}
    if selection is None:
        return NormScore(result.norm, None, None, None, [], None, None, 0.0, 0, "", {})
    members = []
    for choice in selection.choices:
        members += [
            records[place]
            for place in places[choice.configuration]
            if (trial_of[place].fold, trial_of[place].seed) == (choice.fold, choice.seed)
        ]
    trial = members[0].trial
    chosen = result.chosen
    return NormScore(
        result.norm,
        _finite(100 * selection.mean),
        _finite(100 * selection.std),
        selection.epoch,
        [_percent(score) for score in selection.scores.values()],
        test,
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


def _percent(value: float) -> float | None:
    return _number(100 * value)


def _number(value: float) -> float | None:
    return None if (found := _finite(value)) is None else round(found, 4)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
