"""Studies of a store as parts of a report.

Studies of the same graphs, model, protocol, folds and grid ask one question, whichever normalizations each has trained.
They are joined before they are judged, so that all their normalizations stand in one table and all pairs are one family
of tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from graphnorm.comparison.result import about_tests
from graphnorm.comparison.verdict import judge, name_guessers
from graphnorm.errors import GraphnormError
from graphnorm.paper.recipe import is_quick
from graphnorm.paper.reported import unlike_the_paper
from graphnorm.report.questions import Question, Read, asked, folded, read
from graphnorm.report.scope import by_value, counted, scope_in_words
from graphnorm.report.sources import FindGraphs, NormScore, Source, as_baseline, pair_of
from graphnorm.study.baselines import BASELINES
from graphnorm.study.guessing import guessing_score
from graphnorm.study.significance import PairTest, compare_all
from graphnorm.study.store import FINAL, Store, Study
from graphnorm.wording import listing

__all__ = ["read_studies", "read_study"]


def read_study(store: Store, study: Study, find_graphs: FindGraphs | None = None) -> Source:
    """Read a study as far as it is trained; its curves are those of the chosen configurations.

    find_graphs: asked only for studies of older versions, which did not write down what guessing has.
    """
    return _judged(Question([read(store, study)]), find_graphs)


def read_studies(
    store: Store, studies: Sequence[Study], find_graphs: FindGraphs | None = None, *, fold: bool = False
) -> list[Source]:
    """Read several, joined by the question they ask, in the order of the first of each.

    fold: a study whose trials are all in a larger one is a note of that, and a study of one normalization alone a row
    beside a comparison that only differs in the grid.
    """
    groups: dict[str, list[Read]] = {}
    for study in studies:
        groups.setdefault(asked(study), []).append(read(store, study))
    questions = [Question(reads) for reads in groups.values()]
    return [_judged(question, find_graphs) for question in (folded(questions) if fold else questions)]


def _judged(question: Question, find_graphs: FindGraphs | None) -> Source:
    protocol, first = question.protocol, question.first
    spec, model = first.study.spec, first.example.model
    folds = int(spec.get("folds", 1))
    overlap = 1 / max(folds - 1, 1) if protocol.paired else 0.0
    units = {name: trained.units for name, trained in question.results.items()}
    tests = compare_all(units, overlap=overlap, paired=protocol.paired)
    scores = {name: trained.score for name, trained in question.norms.items()}
    means = {
        name: (score.mean, math.nan if score.std is None else score.std)
        for name, score in scores.items()
        if score.mean is not None
    }
    ranked = dict(sorted(means.items(), key=lambda item: -item[1][0]))
    best = next(iter(ranked), None)
    norms = [replace(score, against_best=pair_of(tests, best, name)) for name, score in scores.items()]
    baselines: list[NormScore] = []
    if model in BASELINES:
        norms, baselines, ranked = [], [as_baseline(model, score) for score in norms], {}
    guessing = _guessing([part.study for part in question.reads], protocol.name, find_graphs)
    notes = [*_training_notes(question), *name_guessers({name: mean for name, (mean, _) in ranked.items()}, guessing)]
    if protocol.name == "paper":
        notes.append("protocol paper: the folds that choose are those reported, so numbers are optimistic")
    if any(norm.paper for norm in norms) and protocol.unit == "fold":
        compared = max((trained.compared for trained in question.norms.values()), default=0)
        notes += unlike_the_paper(folds, first.example.epochs, compared)
    if any(test.p_adjusted is not None for test in tests):
        notes.append(about_tests(protocol, overlap))
    notes += [_told_inside(other) for other in question.inside]
    beside = [_beside(other) for other in question.alone]
    if beside:
        names = listing([score.name for score in beside])
        notes.append(f"{names}: another number of configurations to choose from, so neither ranked nor tested")
    where = f"on {spec['dataset']} with {spec['model']} and these settings"
    verdict = judge(ranked, lambda a, b: _known_pair(tests, a, b), protocol.metric, where, guessing)
    if baselines:
        verdict = f"{model} is a baseline: it has a number of its own, and says nothing of normalizations."
    return Source(
        title=f"{spec['dataset']}, {spec['model']}, {protocol.name}",
        dataset=spec["dataset"],
        fingerprint=spec["fingerprint"],
        model=spec["model"],
        protocol=protocol.name,
        verdict=verdict,
        notes=notes,
        norms=norms,
        config=_config(question),
        environment={
            "code": "; ".join(sorted({code for part in question.reads for code in part.codes})),
            "trained on": ", ".join(sorted({device for part in question.reads for device in part.devices})),
            "trials": len(question.trials),
            "training hours": round(sum(seconds for _, seconds in question.trials.values()) / 3600, 3),
            "begun": min(part.study.created for part in question.reads),
            "fingerprint": spec["fingerprint"][:16],
        },
        baselines=baselines,
        beside=beside,
        origin=spec.get("origin"),
        quick=is_quick(spec),
        scope=_scope(question, folds),
    )


def _config(question: Question) -> dict[str, Any]:
    names = [part.study.name for part in question.reads]
    spec = {name: value for name, value in question.first.study.spec.items() if name != "origin"}
    if len(names) > 1:
        spec["norms"] = list(question.norms)
        spec["seeds"] = by_value({name: trained.seeds for name, trained in question.results.items()})
    return {"study": names} | spec


def _scope(question: Question, folds: int) -> str:
    seeds = {name: trained.seeds for name, trained in question.results.items()}
    planned = int(question.first.study.spec.get("seeds", 1))
    by_fold = question.protocol.unit == "fold"
    members = [counted(folds, "fold")] if by_fold else []
    if len(set(seeds.values())) > 1:
        members.append(f"seeds: {by_value(seeds)}")
    elif not by_fold or planned > 1:
        members.append(counted(next(iter(seeds.values()), planned), "seed"))
    configurations = question.configurations
    compared = {name: trained.compared for name, trained in question.results.items()}
    if set(compared.values()) - {len(question.first.configurations)}:
        configurations += f", of these trained: {by_value(compared)}"
    devices = {name: trained.device for name, trained in question.results.items()}
    return scope_in_words(configurations, ", ".join(members), devices)


def _training_notes(question: Question) -> list[str]:
    """What is not as it was planned, or not the same for all; the chapter's first line has the numbers."""
    notes = []
    if len(question.reads) > 1:
        notes.append(f"joined from {len(question.reads)} studies with the same graphs, model, protocol and grid")
    if len({trained.seeds for trained in question.results.values()}) > 1:
        notes.append("numbers of seeds differ: the fewer there are, the less can be told from chance")
    if len({trained.compared for trained in question.results.values()}) > 1:
        notes.append("numbers of trained configurations differ: more of them to choose from is an advantage")
    if any(status is None or status == "failed" for status, _ in question.trials.values()):
        finished = sum(status in FINAL for status, _ in question.trials.values())
        notes.append(f"{finished:,} of {len(question.trials):,} trials are trained; the rest is missing or failed")
    return notes


def _told_inside(other: Question) -> str:
    """A study that needs no chapter, in a line."""
    scores = sorted(
        ((trained.score.mean, name) for name, trained in other.results.items() if trained.score.mean is not None),
        reverse=True,
    )
    said = ", ".join(f"{name} {mean:.1f}" for mean, name in scores)
    names = listing([part.study.name for part in other.reads])
    return f"{names} is a part of this, {other.configurations}" + (f": {said}" if said else "")


def _beside(other: Question) -> NormScore:
    (name, trained), *_ = other.results.items()
    count = counted(len(other.first.configurations), "configuration")
    return replace(trained.score, name=f"{name}, {count}", curves={}, against_best=None)


def _guessing(studies: Sequence[Study], protocol: str, find_graphs: FindGraphs | None) -> float | None:
    written = next((study.spec["guessing"] for study in studies if study.spec.get("guessing") is not None), None)
    if written is not None or find_graphs is None:
        return written
    spec = studies[0].spec
    try:
        return guessing_score(find_graphs(spec["dataset"], spec["fingerprint"], None), protocol)
    except GraphnormError:
        return None


def _known_pair(tests: Sequence[PairTest], first: str, second: str) -> PairTest:
    test = pair_of(tests, first, second)
    assert test is not None, "every pair was tested"
    return test
