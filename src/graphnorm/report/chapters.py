"""The chapters of a page: one result each, from a folder or from the studies of a store.

Studies with the same graphs, model, protocol, folds and configurations ask one question, whichever normalizations each
has trained. They are joined before they are judged: all their normalizations are rows of one table, and all pairs are
one family of tests.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graphnorm.colours import COLOURS
from graphnorm.errors import GraphnormError, listing
from graphnorm.paper.item import is_quick
from graphnorm.paper.items import ITEMS
from graphnorm.settings import Grid, Hyperparameters, options_of
from graphnorm.study import Plan, Result, Score, Store, Study, load_result, read
from graphnorm.study.grouping import by_key
from graphnorm.study.plan import role
from graphnorm.study.render import by_value, counted

__all__ = ["Chapter", "by_dataset", "join_baselines", "read_folder", "read_studies", "tell_apart"]

OPTIONS = tuple(options_of(Hyperparameters))
SEARCHED, CURVES = ("table1",), ("fig2", "fig6")
"""Items that train the paper's grid, and those that train the one configuration of its training curves."""


@dataclass(frozen=True, eq=False)
class Chapter:
    """A result, and what the page adds to it."""

    result: Result
    studies: tuple[str, ...] = ()
    """The names of the studies that it joins; empty if it does not come from a store."""
    begun: str = ""
    trials: frozenset[str] = frozenset()
    """The keys of all trials of these studies."""
    told_apart: str = ""
    """An addition to the title, if another chapter has the same title."""
    notes: tuple[str, ...] = ()
    """In addition to those of the result."""
    unranked: Mapping[str, Score] = field(default_factory=dict)
    """More rows of the table, by label; they are neither ranked nor tested."""

    @property
    def title(self) -> str:
        title = f"{self.result.dataset}, {self.result.model}, {self.result.division}"
        return f"{title}: {self.told_apart}" if self.told_apart else title

    @property
    def is_quick(self) -> bool:
        """Whether it belongs to a quick pass of ``graphnorm reproduce``."""
        return is_quick(self.result.spec)

    @property
    def scored(self) -> dict[str, Score]:
        """The normalizations that have a score; the baselines if there are no normalizations."""
        scores = self.result.norms or self.result.baselines
        return {name: score for name, score in scores.items() if score.choices}

    @property
    def configurations(self) -> list[dict[str, Any]]:
        """Every planned combination of settings."""
        return Grid("", {option: tuple(self.result.values_of(option)) for option in OPTIONS}).configurations()

    @property
    def scope(self) -> str:
        """A sentence on how much was trained, and on which device."""
        spec, scored = self.result.spec, self.scored
        configurations = _describe(self)
        compared = {name: score.compared for name, score in scored.items()}
        if set(compared.values()) - {len(self.configurations)}:
            configurations += f", of these trained: {by_value(compared)}"
        parts = [configurations]
        seeds = {name: len({choice.seed for choice in score.choices}) for name, score in scored.items()}
        if self.result.protocol.unit == "fold":
            parts.append(counted(spec["folds"], "fold"))
        if len(set(seeds.values())) > 1:
            parts.append(f"seeds: {by_value(seeds)}")
        elif self.result.protocol.unit == "seed" or spec["seeds"] > 1:
            parts.append(counted(next(iter(seeds.values()), spec["seeds"]), "seed"))
        devices = {name: listing(score.devices) for name, score in scored.items() if score.devices}
        parts += [f"trained on {by_value(devices)}"] if devices else []
        text = "; ".join(parts)
        return f"{text[0].upper()}{text[1:]}."


def _describe(chapter: Chapter) -> str:
    """How many configurations were planned, and how many of them are the paper's."""
    tried = chapter.configurations
    count = counted(len(tried), "configuration")
    searched, curves = (_of_the_paper(items, chapter.result) for items in (SEARCHED, CURVES))
    if len(tried) == 1 and tried[0] in curves:
        return f"{count}, that of the paper's training curves"
    if all(one in searched for one in tried):
        share = "all" if len(tried) == len(searched) else f"{len(tried)} of the"
        return f"{share} {len(searched)} configurations of the paper's grid"
    varied = [option for option in OPTIONS if len(chapter.result.values_of(option)) > 1]
    if len(varied) != 1:
        return count
    values = ", ".join(map(str, sorted(chapter.result.values_of(varied[0]))))
    return f"{count} ({varied[0].replace('_', ' ')} {values})"


def _of_the_paper(items: Sequence[str], result: Result) -> list[dict[str, Any]]:
    """The configurations that the items train on the dataset and model of this result."""
    if not result.spec.get("catalogued", True):
        return []
    parts = [part for item in items for part in ITEMS[item].trained]
    parts = [part for part in parts if result.dataset in part.datasets and result.model in part.models]
    return [
        {option: getattr(settings, option) for option in OPTIONS} | configuration
        for part in parts
        for settings in [part.settings(result.dataset, result.model)]
        for configuration in part.grid.configurations()
    ]


# Reading


def read_folder(folder: str | os.PathLike[str]) -> Chapter:
    """The chapter of a folder that ``graphnorm compare --out`` wrote."""
    chapter = Chapter(load_result(folder))
    try:
        _ = chapter.result.fingerprint, chapter.scope  # fails if something is missing
    except (KeyError, TypeError, ValueError) as error:
        where = Path(folder) / "result.json"
        raise GraphnormError(f"this is no result: {error!r}", where=where, remedy="compare again") from error
    return chapter


def read_studies(store: Store, studies: Sequence[Study], *, fold: bool = False) -> list[Chapter]:
    """The chapters of some studies, as far as they are trained, in the order of the first study of each.

    fold: whether a study becomes a note of a larger one that contains it, or that lacks its only configuration; and a
        study of one normalization a row of a comparison that differs only in the grid.
    """
    groups = by_key([(study, store.plan(study)) for study in studies], lambda pair: _question(pair[1]))
    chapters = [_read(store, *zip(*group, strict=True)) for group in groups.values()]
    return _fold(chapters) if fold else chapters


def _question(plan: Plan) -> Hashable:
    """Rungs, graphs, protocol, folds, metric and configurations: equal for studies of one question."""
    of_norms = [trial for trial in plan.trials if role(trial)[0] == "norms"]
    shared = ("fingerprint", "protocol", "folds", "task", "metric", *OPTIONS)
    return plan.rungs, frozenset(tuple(getattr(trial, name) for name in shared) for trial in of_norms or plan.trials)


def _read(store: Store, studies: Sequence[Study], plans: Sequence[Plan]) -> Chapter:
    """Join studies of one question; if several have a normalization, the one with most scores counts."""
    trials = {trial.key: trial for plan in plans for trial in plan.trials}
    result = read(store, replace(plans[0], trials=tuple(trials.values())))
    notes = []
    if len(plans) > 1:
        results = [read(store, plan) for plan in plans]
        norms, baselines = _most([one.norms for one in results]), _most([one.baselines for one in results])
        seeds = max(one.spec["seeds"] for one in results)
        known = [one.chance for one in results if one.chance is not None]
        spec = {**result.spec, "norms": list(norms), "seeds": seeds, "chance": next(iter(known), None)}
        result = replace(result, spec=spec, norms=norms, baselines=baselines)
        notes.append(f"joined from {len(plans)} studies with the same graphs, model, protocol and configurations")
        if len({len(score.choices) for score in norms.values() if score.choices}) > 1:
            notes.append("numbers of seeds differ: the fewer there are, the less can be told from chance")
    begun = min(study.created for study in studies)
    return Chapter(result, tuple(study.name for study in studies), begun, frozenset(trials), notes=tuple(notes))


def _most(several: Sequence[Mapping[str, Score]]) -> dict[str, Score]:
    """For each name the score with most trainings and configurations, in the order of the colours."""
    names = {name for scores in several for name in scores}
    order = [*COLOURS, *sorted(names - COLOURS.keys())]
    return {
        name: max(
            (scores[name] for scores in several if name in scores),
            key=lambda score: (len(score.choices), score.compared),
        )
        for name in sorted(names, key=order.index)
    }


# Chapters that are parts of others


def _fold(chapters: Sequence[Chapter]) -> list[Chapter]:
    """See :func:`read_studies`."""
    kept: list[Chapter] = []
    inside: dict[tuple[str, ...], list[Chapter]] = {}
    for chapter in sorted(chapters, key=lambda one: -len(one.trials)):
        host = next((one for one in kept if chapter.trials <= one.trials and _covers(one, chapter)), None)
        if host is None:
            kept.append(chapter)
        else:
            inside.setdefault(host.studies, []).append(chapter)
    for chapter in [one for one in kept if len(one.configurations) == 1 and len(one.scored) > 1]:
        hosts = [one for one in kept if len(one.configurations) > 1 and _covers(one, chapter)]
        if host := next((one for one in hosts if _same_but_grid(one, chapter)), None):
            inside.setdefault(host.studies, []).append(chapter)
            kept.remove(chapter)
    alone: dict[tuple[str, ...], list[Chapter]] = {}
    for chapter in [one for one in kept if len(one.scored) == 1 and one.studies not in inside]:
        hosts = [one for one in kept if len(one.scored) > 1 and _covers(one, chapter) and _same_but_grid(one, chapter)]
        if hosts:
            host = max(hosts, key=lambda one: len(one.configurations))
            alone.setdefault(host.studies, []).append(chapter)
            kept.remove(chapter)
    return [_add_parts(one, inside.get(one.studies, ()), alone.get(one.studies, ())) for one in chapters if one in kept]


def _covers(host: Chapter, chapter: Chapter) -> bool:
    return chapter.scored.keys() <= host.scored.keys()


def _same_but_grid(one: Chapter, other: Chapter) -> bool:
    """Whether two chapters differ only in the values of their grids, and in whose choices they make."""
    varied = {*one.result.spec.get("grid", ()), *other.result.spec.get("grid", ()), "as_authors"}
    fixed = [option for option in OPTIONS if option not in varied]
    return _folds(one) == _folds(other) and all(
        one.result.values_of(option) == other.result.values_of(option) for option in fixed
    )


def _folds(chapter: Chapter) -> tuple[Any, ...]:
    """Equal if the same graphs were trained on and held out, and the same metric was measured."""
    shared = (chapter.result.spec[name] for name in ("fingerprint", "protocol", "folds"))
    return (*shared, chapter.result.metric.key)


def _add_parts(chapter: Chapter, inside: Sequence[Chapter], alone: Sequence[Chapter]) -> Chapter:
    """Add a note for each chapter inside, and a row for each normalization that was trained alone."""
    notes = list(chapter.notes)
    for part in inside:
        scores = ", ".join(
            f"{name} {part.result.metric.text(part.result.norms[name].mean)}" for name in part.result.ranking
        )
        said = f"{listing(part.studies)} {_compared_with(chapter, part)}"
        notes.append(said + (f": {scores}" if scores else ""))
    unranked = {
        f"{name}, {counted(len(one.configurations), 'configuration')}": score
        for one in alone
        for name, score in one.scored.items()
    }
    if unranked:
        names = listing(list(unranked))
        notes.append(f"{names}: another number of configurations to choose from, so neither ranked nor tested")
    return replace(chapter, notes=tuple(notes), unranked=unranked)


def _compared_with(chapter: Chapter, part: Chapter) -> str:
    """What a chapter inside of another one has trained: a part of it, or a configuration of its own."""
    if part.trials <= chapter.trials:
        return f"is a part of this, {_describe(part)}"
    own = {option: set(part.result.values_of(option)) - set(chapter.result.values_of(option)) for option in OPTIONS}
    own = {option: values for option, values in own.items() if values}
    words = ["the authors' choices"] if own.pop("as_authors", None) else []
    words += [f"{option.replace('_', ' ')} {value}" for option, values in own.items() for value in values]
    return f"has one configuration, with {listing(words)}" if words else "has one configuration"


def join_baselines(chapters: Sequence[Chapter]) -> list[Chapter]:
    """Make baselines rows of the comparisons with the same graphs, protocol and folds; others keep their chapter."""
    found: dict[tuple[Any, ...], dict[str, Score]] = {}
    for chapter in chapters:
        if not chapter.result.norms:
            found.setdefault(_folds(chapter), {}).update(chapter.result.baselines)
    placed = {_folds(chapter) for chapter in chapters if chapter.result.norms}
    joined = []
    for chapter in chapters:
        own = chapter.result.baselines
        if chapter.result.norms:
            baselines = {**own, **found.get(_folds(chapter), {}), **own}  # its own come first, and win
            joined.append(replace(chapter, result=replace(chapter.result, baselines=baselines)))
        elif _folds(chapter) not in placed:
            joined.append(chapter)
    return joined


# Order and titles


def by_dataset(chapters: Sequence[Chapter], studies: Sequence[Study]) -> list[Chapter]:
    """Sort chapters by dataset, model and protocol, in the order of ``studies``, then by grid, the largest first."""
    order = {name: [study.spec.get(name) for study in studies] for name in ("dataset", "model", "protocol")}

    def place(chapter: Chapter) -> tuple[int, ...]:
        places = (values.index(chapter.result.spec[name]) for name, values in order.items())
        return (*places, -len(chapter.configurations))

    return sorted(chapters, key=place)


def tell_apart(chapters: Sequence[Chapter]) -> list[Chapter]:
    """Complete equal titles by the shortest description that differs."""
    descriptions = []
    for chapter in chapters:
        grid = counted(len(chapter.configurations), "configuration")
        norms = ", ".join(chapter.result.norms)
        studies = ", ".join(chapter.studies or [chapter.result.study])
        descriptions.append((grid, norms, f"{norms}; {grid}", studies))
    told = []
    for chapter, own in zip(chapters, descriptions, strict=True):
        same = [texts for other, texts in zip(chapters, descriptions, strict=True) if other.title == chapter.title]
        unique = [text for k, text in enumerate(own) if [texts[k] for texts in same].count(text) == 1]
        told.append(replace(chapter, told_apart=unique[0]) if len(same) > 1 and unique else chapter)
    return told
