"""What a report is made of, in one form for comparisons and studies; comparisons are read from their folders."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graphnorm.comparison.result import ABOUT_BASELINES, FORMAT
from graphnorm.data import PackedGraphs, load
from graphnorm.errors import GraphnormError
from graphnorm.paper.reported import Reported
from graphnorm.report.scope import counted, scope_in_words
from graphnorm.study.baselines import BASELINES
from graphnorm.study.kernels import KERNELS, candidate_in_words
from graphnorm.study.protocol import find_protocol
from graphnorm.study.significance import PairTest

__all__ = ["Curve", "FindGraphs", "NormScore", "Source", "as_baseline", "join_baselines", "pair_of", "read_comparison"]

FindGraphs = Callable[[str, str, Mapping[str, Any] | None], PackedGraphs]
"""Gives the graphs of a name, fingerprint and origin, or raises a ``GraphnormError`` that says why not."""
Curve = tuple[list[float | None], list[float | None]]
"""Mean and standard deviation, for each epoch."""


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
    against_best: PairTest | None
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
    beside: Sequence[NormScore] = ()
    """Normalizations that were trained otherwise: rows of the table, with no part in the rest."""
    scope: str = ""
    """How much was trained, and on what: a sentence."""

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
            PairTest(**{name: value for name, value in pair.items() if name != "significant"})
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
                as_baseline(name, _from_json(name, values, None, ()))
                for name, values in content.get("baselines", {}).items()
            ],
            origin=_checked_origin(content.get("origin")),
            scope=_scope(content),
        )
    except FileNotFoundError as error:
        raise GraphnormError("there is no comparison in it", where=folder, remedy="give another folder") from error
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise GraphnormError(f"this is no comparison: {error}", where=file, remedy="compare again") from error


def _scope(content: Mapping[str, Any]) -> str:
    unit = find_protocol(content["protocol"]).unit
    members = counted(int(content["config"][f"{unit}s"]), unit)
    devices = {name: values["device"] for name, values in content["norms"].items()}
    return scope_in_words(counted(1, "configuration"), members, devices)


def _checked_origin(origin: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Refuse what someone else than ``compare`` wrote."""
    if origin is not None:
        inspect.signature(load).bind(**origin)
        Path(origin["name_or_path"])
    return origin


def _from_json(name: str, values: Mapping[str, Any], best: str | None, tests: Sequence[PairTest]) -> NormScore:
    paper = values["paper"]
    return NormScore(
        name,
        values["mean"],
        values["std"],
        values["epoch"],
        values["folds"],
        pair_of(tests, best, name),
        None if paper is None else Reported(**paper),
        values["seconds"],
        values["diverged"],
        "",
        {curve: (both["mean"], both["std"]) for curve, both in values["curves"].items() if curve != "loss"},
    )


def as_baseline(name: str, score: NormScore) -> NormScore:
    """A row beside normalizations, without curves; of a kernel the chosen candidate is told, not an epoch."""
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


def pair_of(tests: Sequence[PairTest], best: str | None, name: str) -> PairTest | None:
    """The test of a normalization seen from the best; None where there is none."""
    found = [test for test in tests if {test.first, test.second} == {best, name}]
    return found[0].seen_from(best) if found and best is not None else None
