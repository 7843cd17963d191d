"""The paper's claims, one by one, against what was measured.

A claim is judged by the facts of its item, the JSON that ``graphnorm reproduce`` writes. It is counted over cases
(panels, cells, graphs), and a difference counts only if it is significant (:data:`RULES`). A claim whose item is
missing, or lacks a normalization that it compares, is not judged. Folds are compared by the corrected paired t-test of
:mod:`graphnorm.study.significance`, seeds by Welch's test. The p-values of a case are adjusted for the number of its
rivals (Holm).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from graphnorm.analysis import readable_layer
from graphnorm.errors import listing
from graphnorm.paper.figures import CONVERGED
from graphnorm.paper.image_fleet import IMAGES
from graphnorm.paper.output import QUICK_NOTE
from graphnorm.study.grouping import by_key
from graphnorm.study.paper_numbers import dataset_table
from graphnorm.study.protocol import find_protocol
from graphnorm.study.render import signed, span
from graphnorm.study.significance import ALPHA, holm, paired_test, welch_test

if TYPE_CHECKING:
    from graphnorm.paper.item import Item

__all__ = ["RULES", "Claim", "Claimed", "Judged", "claims_markdown", "judge_claims"]

Facts = Mapping[str, Any]
Claimed = Literal["ahead", "behind"]
"""A normalization is ahead of all rivals, or behind all of them."""
LEVEL = 0.005
"""A smaller difference, in percentage points, counts as none: it is not shown."""
EXACT = 1e-9
"""Relative differences below this one are rounding."""
RULES = (
    "A claim *holds* if most cases agree with it and none disagrees. If it is about most cases, some may disagree.",
    "It *does not hold here* if most cases disagree. It holds *in part* if fewer disagree and some agree. Otherwise it "
    "is *undecided*.",
    "It is *not tested* if one side was trained only once, or if it was trained in a quick pass.",
    f"A case agrees or disagrees if the difference is significant: p < {ALPHA} after Holm's adjustment for the number "
    "of rivals. Folds are compared by the corrected paired t-test, seeds by Welch's test. Any other case is a *tie*, "
    "which does not show that two are equal.",
    "What is compared: averages of training curves over all epochs, or scores among the configurations that all have.",
    "Theorems, counts and comparisons with the paper's numbers need no test: each case is right or wrong.",
)


@dataclass(frozen=True)
class Judged:
    """In how many cases a claim is right, and the numbers of each case."""

    agree: int
    """Cases that agree, beyond noise where there is noise."""
    disagree: int
    cases: int
    tally: str
    """The cases in a few words."""
    words: str = ""
    """What is compared."""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    tested: bool = True
    """False if no case has enough trainings to tell a difference from noise."""

    @classmethod
    def of_facts(cls, right: int, cases: int, words: str = "", **table: Any) -> Judged:
        """A claim whose cases are right or wrong, without noise."""
        return cls(right, cases - right, cases, f"{right:,} of {cases:,}", words, **table)

    @classmethod
    def of_outcomes(cls, outcomes: Sequence[str], claimed: Claimed, words: str, **table: Any) -> Judged:
        """A claim with noise, from the outcome of each case.

        >>> Judged.of_outcomes(["tied", "ahead", "tied"], "ahead", "").tally
        'ahead on 1, tied on 2'
        """
        agree, disagree = ("ahead", "behind") if claimed == "ahead" else ("behind", "ahead")
        count = Counter(outcomes)
        tally = [f"{name} on {count[name]}" for name in (agree, "tied", disagree) if count[name]]
        tally += [f"{count['not tested']} not tested"] if count["not tested"] else []
        tested = count["not tested"] < len(outcomes)
        return cls(count[agree], count[disagree], len(outcomes), ", ".join(tally), words, **table, tested=tested)

    def verdict(self, of_most: bool = False) -> str:
        """of_most: whether the claim is about most cases only.

        >>> Judged(5, 1, 8, "").verdict(), Judged(5, 1, 8, "").verdict(of_most=True), Judged(0, 1, 8, "").verdict()
        ('in part', 'holds', 'undecided')
        """
        if not self.tested:
            return "not tested"
        if 2 * self.agree > self.cases and (of_most or not self.disagree):
            return "holds"
        if 2 * self.disagree > self.cases:
            return "does not hold here"
        return "in part" if self.agree else "undecided"


Judge = Callable[[Facts], Judged | None]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, or one of ours about the same numbers."""

    text: str
    judge: Judge
    of_most: bool = False
    """Whether the sentence is about most cases only."""
    images_of: str = ""
    """The item whose images it is compared with, if its own has none."""
    remark: str = ""
    """How the sentence is read, where that is not obvious."""


# All claims


def judge_claims(items: Mapping[str, Item], facts: Mapping[str, Facts]) -> dict[str, Any]:
    """All verdicts, for JSON.

    items: the whole items, by name.
    facts: the JSON of the items that were made, by name.
    """
    found: list[dict[str, Any]] = []
    unjudged: dict[str, int] = {}
    for name, item in items.items():
        for claim in item.claims:
            own, images = facts.get(name), facts.get(claim.images_of, {})
            judged = None if own is None else claim.judge(_with_images(own, images))
            if own is None or judged is None:
                unjudged[name] = unjudged.get(name, 0) + 1
                continue
            found.append(
                {
                    "item": name,
                    "title": own["title"],
                    "claim": claim.text,
                    "verdict": "not tested" if own["quick"] and own["trained_on"] else judged.verdict(claim.of_most),
                    "agree": judged.agree,
                    "disagree": judged.disagree,
                    "cases": judged.cases,
                    "tally": judged.tally,
                    "words": judged.words,
                    "remark": claim.remark,
                    "columns": list(judged.columns),
                    "rows": [list(row) for row in judged.rows],
                    "notes": [*_notes(own), *(text for text in images.get("remarks", ()) if IMAGES in text)],
                    "provenance": _provenance(name, own, item.planned),
                }
            )
    quick = any(own["quick"] for own in facts.values())
    return {"quick": quick, "rules": list(RULES), "unjudged": unjudged, "claims": found}


def _with_images(facts: Facts, images: Facts) -> Facts:
    """The batch noise of an item, and of the images of another."""
    if not images:
        return facts
    of_images = [entry for entry in images["relative_deviation"] if IMAGES in entry["what"]]
    return {**facts, "relative_deviation": [*facts["relative_deviation"], *of_images]}


def _notes(facts: Facts) -> list[str]:
    """The sentences of an item on what is unfinished or different from the paper."""
    if "remarks" in facts:
        return list(facts["remarks"])
    more = facts.get("sentences", ())[1:]  # the first sentence of a table counts its cells
    if "cells" in facts:
        return [text for text in more if text.startswith(("One standard deviation", "Rows ", "Not trained"))]
    return list(more) if "as_printed" in facts else []


def _provenance(item: str, facts: Facts, planned: int) -> str:
    text = f"From `{item}`, made on {facts['made'][:10]}"
    text += f", trained on {', '.join(facts['trained_on'])}" if facts["trained_on"] else "; nothing was trained"
    if planned:
        text += f", {sum(study['finished'] for study in facts['studies']):,} of {planned:,} trials"
    return f"{text}."


def claims_markdown(judged: Mapping[str, Any]) -> str:
    """The verdicts of :func:`judge_claims` as a page: a table of all, then each claim with its numbers."""
    lines = ["# The paper's claims, measured", ""]
    lines += [f"**{QUICK_NOTE}. So few folds and epochs decide nothing.**", ""] if judged["quick"] else []
    lines += [f"- {rule}" for rule in judged["rules"]]
    if judged["unjudged"]:
        counts = ", ".join(f"{count} of `{item}`" for item, count in judged["unjudged"].items())
        lines += ["", f"Not judged, because results are missing: {counts}."]
    lines += ["", "| claim | verdict | cases |", "|---|---|---|"]
    for one in judged["claims"]:
        mark = " \\*" if one["notes"] else ""
        lines.append(f"| {one['claim']} | {one['verdict']}{mark} | {one['tally']} |")
    if any(one["notes"] for one in judged["claims"]):
        lines += ["", "\\* Unfinished, or different from the paper; see the notes at the end of its section."]
    for item in dict.fromkeys(one["item"] for one in judged["claims"]):
        of_item = [one for one in judged["claims"] if one["item"] == item]
        lines += ["", f"## {of_item[0]['title']}"]
        for one in of_item:
            explained = " ".join(filter(None, [f"{one['words']}." if one["words"] else "", one["remark"]]))
            lines += ["", f"**{one['claim']}** {one['verdict'].capitalize()}: {one['tally']}. {explained}".rstrip()]
            if one["rows"]:
                rows = (one["columns"], ["---"] * len(one["columns"]), *one["rows"])
                lines += ["", *(f"| {' | '.join(row)} |" for row in rows)]
        lines += ["", of_item[0]["provenance"]]
        notes = dict.fromkeys(note for one in of_item for note in one["notes"])
        lines += ["", *(f"- {note}" for note in notes)] if notes else []
    return "\n".join(lines) + "\n"


# A normalization against its rivals


class _Scores(NamedTuple):
    mean: float
    members: Sequence[float | None]
    """A value for each fold or seed."""


class _Comparison(NamedTuple):
    """A normalization against the closest of its rivals, in one case."""

    where: str
    ours: float
    closest: str
    theirs: float
    p: float | None
    """If ours leads, the largest of the rivals' p-values; otherwise the smallest of those that lead. Adjusted for the
    number of rivals."""

    @property
    def lead(self) -> float:
        return self.ours - self.theirs

    @property
    def outcome(self) -> str:
        """How the case counts."""
        if self.p is None:
            return "not tested"
        return "tied" if self.p >= ALPHA else "ahead" if self.lead > 0 else "behind"


def _compare(where: str, norm: str, scores: Mapping[str, _Scores], claimed: Claimed, unit: str) -> _Comparison:
    sign = -1 if claimed == "behind" else 1
    ours, rivals = scores[norm], {name: theirs for name, theirs in scores.items() if name != norm}
    leads = {name: sign * (ours.mean - theirs.mean) for name, theirs in rivals.items()}
    raw = {name: _p_value(ours.members, theirs.members, unit) for name, theirs in rivals.items()}
    known = {name: p for name, p in raw.items() if p is not None}
    adjusted = dict(zip(known, holm(list(known.values())), strict=True))
    closest = min(leads, key=leads.__getitem__)
    if leads[closest] > -LEVEL:  # it is ahead of all
        decisive = max(adjusted.values()) if len(known) == len(rivals) else None
    else:
        decisive = min((p for name, p in adjusted.items() if leads[name] <= -LEVEL), default=None)
    return _Comparison(where, ours.mean, closest, rivals[closest].mean, decisive)


def _p_value(ours: Sequence[float | None], theirs: Sequence[float | None], unit: str) -> float | None:
    a, b = ({k: value for k, value in enumerate(side) if value is not None} for side in (ours, theirs))
    if unit == "fold":
        return paired_test(a, b, overlap=find_protocol("paper").overlap(len(ours))).p
    return welch_test([*a.values()], [*b.values()]).p


def _judge_comparisons(
    comparisons: Sequence[_Comparison], norm: str, others: Sequence[str], claimed: Claimed, **extra: Sequence[str]
) -> Judged | None:
    """extra: more columns, a value for each case."""
    if not comparisons:
        return None
    other = others[0] if len(others) == 1 else "lowest other" if claimed == "behind" else "best other"
    rows = []
    for k, one in enumerate(comparisons):
        named = f"{one.theirs:.2f}" if len(others) == 1 else f"{one.theirs:.2f} ({one.closest})"
        p = "–" if one.p is None else "< 0.001" if one.p < 1e-3 else f"{one.p:.3f}"
        row = (one.where, f"{one.ours:.2f}", named, signed(one.lead, 2), p, one.outcome)
        rows.append((*row, *(values[k] for values in extra.values())))
    columns = ("", norm, other, "difference", "p", "", *(name.replace("_", " ") for name in extra))
    outcomes = [one.outcome for one in comparisons]
    words = f"`{norm}` against {listing(others)}"
    return Judged.of_outcomes(outcomes, claimed, words, columns=columns, rows=tuple(rows))


def trains(norm: str, claimed: Claimed, others: Iterable[str], *, panel: str = "") -> Judge:
    """Whether the training curve of a normalization has a higher (or lower) average than those of its rivals.

    others: its rivals. A panel that lacks one of them is not judged.
    panel: judge only panels whose title contains this.
    """
    rivals = [name for name in others if name != norm]

    def judge(facts: Facts) -> Judged | None:
        cases: dict[str, dict[str, Facts]] = {}
        for curve in facts["convergence"]:
            if curve["train_average"] is not None and panel in curve["panel"]:
                where = f"{curve['panel']}, {curve['variant']}" if curve["variant"] else curve["panel"]
                cases.setdefault(where, {})[curve["norm"]] = curve
        comparisons = []
        for where, curves in cases.items():
            if {norm, *rivals} <= curves.keys():
                compared = {
                    name: _Scores(curves[name]["train_average"], curves[name]["train_averages"])
                    for name in (norm, *rivals)
                }
                comparisons.append(_compare(where, norm, compared, claimed, curves[norm]["unit"]))
        return _judge_comparisons(comparisons, norm, rivals, claimed)

    return judge


ROUGHLY = 1.5
"""The paper's 'roughly' allows for this many times as many iterations."""


def converges_within(iterations: Mapping[str, int]) -> Judge:
    """Whether GraphNorm converges within roughly so many iterations on a dataset, and BatchNorm not in twice as many.

    Converged: the average training curve first reaches :data:`CONVERGED` times the end of GraphNorm's (the fact
    ``epochs_to_converge``). An epoch has ⌈N(k−1)/k / B⌉ iterations: N graphs, k folds, batches of B.
    """

    def judge(facts: Facts) -> Judged | None:
        rows, right = [], []
        for dataset, limit in iterations.items():
            spec = next((one["spec"] for one in facts["studies"] if one["spec"]["dataset"] == dataset), None)
            epochs = {
                curve["norm"]: curve["epochs_to_converge"]
                for curve in facts["convergence"]
                if curve["panel"] == dataset and curve["train_average"] is not None
            }
            if spec is None or not {"graph", "batch"} <= epochs.keys():
                continue
            folds, size, most = spec["folds"], spec["grid"]["batch_size"][0], spec["grid"]["epochs"][0]
            each = math.ceil(dataset_table()[dataset].num_graphs * (folds - 1) / folds / size)
            for norm, claimed, bound in (
                ("graph", f"roughly {limit:,}", ROUGHLY * limit),
                ("batch", f"more than {2 * limit:,}", 2 * limit),
            ):
                needed = None if epochs[norm] is None else epochs[norm] * each
                within = needed is not None and needed <= bound
                right.append(within is (norm == "graph"))
                shown = f"not in {most * each:,}" if needed is None else f"{needed:,}"
                rows.append((dataset, norm, claimed, shown, "yes" if right[-1] else "no"))
        columns = ("", "", "iterations, as the paper says", "here", "right")
        words = (
            f"iterations until the average training accuracy is at {CONVERGED:.0%} of what GraphNorm's ends with (a "
            f"definition of ours; “roughly” is up to {ROUGHLY:g} times as many)"
        )
        if not right:
            return None
        return Judged.of_facts(sum(right), len(right), words, columns=columns, rows=tuple(rows))

    return judge


def scores_best(model: str, protocol: str) -> Judge:
    """Whether GraphNorm has the highest score of the normalizations in the paper's table, dataset by dataset.

    Trying more configurations gives a higher score, so scores are compared among the configurations that all have
    trained (``common``). The score without a normalization is shown, and not compared.
    """
    norm, others = "graph", ("layer", "batch", "instance")

    def judge(facts: Facts) -> Judged | None:
        groups: dict[str, dict[str, Facts]] = {}
        for cell in facts["cells"]:
            if cell["model"] == model and cell["protocol"] == protocol and not cell["repeats"]:
                groups.setdefault(cell["dataset"], {})[cell["norm"]] = cell
        comparisons, tried, bare, in_part = [], [], [], []
        for dataset, cells in groups.items():
            equal = {name: cell["common"] or cell for name, cell in cells.items()}  # on equal terms
            known = {
                name: _Scores(cell["mean"], cell["scores"]) for name, cell in equal.items() if cell["mean"] is not None
            }
            if not {norm, *others} <= known.keys():
                continue
            compared = {name: known[name] for name in (norm, *others)}
            comparisons.append(_compare(dataset, norm, compared, "ahead", find_protocol(protocol).unit))
            counts = [equal[name].get("configurations", equal[name].get("compared")) for name in compared]
            tried.append(f"{span(counts)} of {cells[norm]['planned']}")
            bare.append(f"{known['none'].mean:.2f}" if "none" in known else "–")
            in_part += [
                f"{dataset}, {name} ({cell['members']} of {cell['members_planned']})"
                for name, cell in cells.items()
                if name in known and cell["members"] < cell["members_planned"]
            ]
        found = _judge_comparisons(
            comparisons, norm, others, "ahead", configurations=tried, without_a_normalization=bare
        )
        if found and in_part:
            found = replace(found, words=f"{found.words}; trained in part: {'; '.join(in_part)}")
        return found

    return judge


# Numbers against the paper's


def within_reported(facts: Facts) -> Judged | None:
    """Cells within one reported standard deviation; a measurement counts once, baselines do not."""
    cells = [
        cell
        for cell in facts["cells"]
        if cell["norm"] != "baseline" and cell["within_one_sd"] is not None and not cell["repeats"]
    ]
    if not cells:
        return None
    inside = sum(cell["within_one_sd"] for cell in cells)
    whole = [cell for cell in cells if cell["compared"] == cell["planned"]]
    words = ""
    if 0 < len(whole) < len(cells):
        words = f"Of the {len(whole)} with the whole grid {sum(cell['within_one_sd'] for cell in whole)}"
    outside = [cell for cell in cells if not cell["within_one_sd"]]
    rows = tuple(
        (
            *(cell[name] for name in ("dataset", "model", "norm")),
            f"{cell['mean']:.2f}",
            f"{cell['reported']['mean']:.2f} ± {cell['reported']['std']:.2f}",
            signed(cell["difference"], 2),
            f"{cell['compared']} of {cell['planned']}",
        )
        for cell in outside
    )
    columns = ("outside", "model", "normalization", "here", "the paper", "difference", "configurations")
    return Judged.of_facts(inside, len(cells), words, columns=columns if rows else (), rows=rows)


def noisier_than_images(facts: Facts) -> Judged | None:
    """Whether means and standard deviations of batches deviate more than those of images at the same depth.

    They are compared after the last epoch, the first layer with the first, and so on, over the seeds of both sides.
    Where batches of images are of another size, their deviation is multiplied by the root of the ratio.
    """
    found = by_key(facts["relative_deviation"], lambda entry: "" if IMAGES in entry["what"] else entry["what"])
    images = found.pop("", [])
    pairs = [pair for layers in found.values() for pair in zip(layers, images, strict=False)]
    if not pairs:
        return None
    outcomes, rows = [], []
    alone: set[str] = set()  # the sides with a single training
    for ours, theirs in pairs:
        factor = math.sqrt(theirs["batch_size"] / ours["batch_size"])
        shown = []
        for part in ("of_mean", "of_std"):
            sides = {"graphs": _percents(ours[part]), "images": _percents(theirs[part], factor)}
            one = _compare("", "graphs", sides, "ahead", "seed")
            side = "level" if abs(one.lead) < 0.05 else "above" if one.lead > 0 else "below"
            outcomes.append(one.outcome)
            alone |= {name for name, scores in sides.items() if len(scores.members) < 2}
            shown += [
                f"{_spread(sides['graphs'])} ({_spread(sides['images'])})",
                side if one.p is None else one.outcome,
            ]
        rows.append((ours["what"], readable_layer(ours["layer"]), *shown))
    words = (
        "Distance of a batch from the dataset after the last epoch, in percent of the dataset's standard deviation; "
        "images at the same depth in brackets"
    )
    if any(theirs["batch_size"] != ours["batch_size"] for ours, theirs in pairs):
        words += ", as of batches of the same size: those of 128 times √(128 / size)"
    columns = ("", "layer", "mean (images)", "", "standard deviation (images)", "")
    judged = Judged.of_outcomes(outcomes, "ahead", words, columns=columns, rows=tuple(rows))
    if "not tested" in outcomes:
        higher = sum(side == "above" for row in rows for side in row[3::2])
        which = "each" if len(alone) > 1 else f"of the {min(alone)}"
        judged = replace(judged, tally=f"noisier in {higher} of {len(outcomes)}, one training {which}")
    return judged


def _percents(values: Sequence[float | None], factor: float = 1.0) -> _Scores:
    """A deviation for each seed, without those of seeds that diverged."""
    scaled = [100 * factor * value for value in values if value is not None]
    return _Scores(statistics.fmean(scaled) if scaled else math.nan, scaled)


def _spread(scores: _Scores) -> str:
    """Mean and standard deviation over the seeds; of one seed its value."""
    found = [value for value in scores.members if value is not None]
    return f"{scores.mean:.1f}" + (f" ± {statistics.stdev(found):.1f}" if len(found) > 1 else "")


def counts(fact: str, right: str, cases: str, words: str = "") -> Judge:
    """Whether something is right, case by case, without noise.

    fact: the fact that counts it; ``a/b`` is b in a.
    right, cases: the names of its two counts.
    words: what is counted; values of the fact stand in braces.
    """

    def judge(facts: Facts) -> Judged | None:
        found: Any = facts
        for name in fact.split("/"):
            found = found.get(name, {})
        if not found.get(cases):
            return None
        return Judged.of_facts(found[right], found[cases], words.format(**found))

    return judge


def improves_condition(facts: Facts) -> Judged | None:
    """Section 3.2: whether the condition number improves, by dataset and aggregation; a case is most of its graphs."""
    found = facts.get("condition")
    if found is None:
        return None
    better = [row["better"] > row["worse"] + row["equal"] for row in found]
    rows = tuple(
        (
            row["dataset"],
            row["aggregation"],
            *(f"{row[name]:,}" for name in ("better", "equal", "worse")),
            f"{row['worse'] / max(1, row['better'] + row['equal'] + row['worse']):.0%}",
            f"{row['median_improvement']:.2f}",
        )
        for row in found
    )
    columns = ("", "Q", "better", "equal", "worse", "share worse", "median of κ(Q) / κ(QN)")
    words = "Datasets on most of whose graphs κ improves, over nonzero singular values"
    return Judged.of_facts(sum(better), len(better), words, columns=columns, rows=rows)


def expressive(facts: Facts) -> Judged:
    """Fact 1: for α ≠ 1 no InstanceNorm equals GraphNorm, on two graphs that differ by a constant."""
    found = facts["summary"]["fact_1_distance"]
    away = {alpha: distance for alpha, distance in found.items() if float(alpha) != 1}
    same = [distance for alpha, distance in found.items() if float(alpha) == 1]
    words = "Distance of the closest InstanceNorm, on two graphs that differ by a constant: " + ", ".join(
        f"{distance:.2f} (α = {float(alpha):g})" for alpha, distance in away.items()
    )
    words += f"; for α = 1, where both are the same, {max(same):.0e}" if same else ""
    return Judged.of_facts(sum(distance > EXACT for distance in away.values()), len(away), words)


def gradient(facts: Facts) -> Judged:
    """The formulas of Appendix A.5 against autograd."""
    found = facts["summary"]["gradient"]
    cases = (
        ("without a normalization: (HQ)ᵀ ⊗ I", found["without_norm"]),
        ("with it, the scale S held fixed: (HQN)ᵀ ⊗ S", found["fixed_scale"]),
        ("the same, the scale depending on W as it does in training", found["part_through_scale"]),
    )
    rows = tuple((name, f"{error:.2g}", "yes" if error < EXACT else "no") for name, error in cases)
    words = "The part of the gradient through the scale is left out"
    columns = ("formula", "relative difference from autograd", "right")
    return Judged.of_facts(sum(error < EXACT for _, error in cases), len(cases), words, columns=columns, rows=rows)
