"""The paper's claims, one by one, against what was measured.

A claim is judged by the facts of its item, which ``graphnorm reproduce`` writes as JSON. One whose item is not there,
or lacks a rival that it names, is left out. Each is counted over cases (panels, cells, graphs). Folds are compared by
the corrected paired t-test of :mod:`graphnorm.study.significance`, seeds by Welch's test. The p-values of a case are
adjusted for the number of its rivals (Holm).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from graphnorm.analysis import readable_layer
from graphnorm.paper.figures import CONVERGED
from graphnorm.paper.noise import IMAGES
from graphnorm.paper.output import QUICK_NOTE
from graphnorm.study.protocol import find_protocol
from graphnorm.study.render import counted, listing, signed
from graphnorm.study.reported import dataset_table
from graphnorm.study.significance import ALPHA, holm, paired_test, welch_test

__all__ = ["RULES", "Claim", "Claimed", "Judged", "claims_markdown", "judge_claims"]

Facts = Mapping[str, Any]
Claimed = Literal["ahead", "behind", "not ahead"]
"""Of one normalization: ahead of all its rivals, behind all of them, or not ahead of all of them beyond noise."""
LEVEL = 0.005
"""Percentage points that are not shown, and are no difference."""
EXACT = 1e-9
"""Relative differences below this one are rounding."""
RULES = (
    "A claim *holds* if it is right in every case that was measured, and *in part* if in more than half of them (which "
    "is enough for a claim about most cases to hold).",
    "Normalizations are compared by the average of their training curves over all epochs, or by their scores. A case "
    "is right by the sign of the difference, however small, or where there is none. *Beyond noise* counts the cases "
    f"whose difference is significant, for the claim and against it: p < {ALPHA}, over folds by the corrected "
    "resampled paired t-test, over seeds by Welch's test, adjusted for the number of rivals (not of cases); p is that "
    "of the rival on which the case hangs. Where no case is beyond noise, the claim is *undecided*.",
    "A claim that one is *not* better is right where it is not ahead beyond noise.",
    "A case in which a rival is missing is not judged. Batch noise is that of one training each, and not tested.",
)


@dataclass(frozen=True)
class Judged:
    """In how many of how many cases a claim is right, and the numbers of each."""

    right: int
    cases: int
    words: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    beyond: tuple[int, int] | None = None
    """Cases beyond noise for the claim, and against it; None where chance has no part or is not known."""
    open_within_noise: bool = False
    """Whether cases within noise leave the claim open: not where it says that there is no difference."""

    def verdict(self, of_most: bool = False) -> str:
        """For people. of_most: whether the claim itself is about most cases only.

        >>> Judged(3, 4, "").verdict(), Judged(3, 4, "").verdict(of_most=True)
        ('holds in part', 'holds')
        """
        if self.open_within_noise and self.beyond == (0, 0):
            return "undecided"
        if self.right == self.cases:
            return "holds"
        if 2 * self.right > self.cases:
            return "holds" if of_most else "holds in part"
        return "does not hold here"


Judge = Callable[[Facts], Judged | None]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, or one of ours that the same numbers speak to."""

    text: str
    judge: Judge
    of_most: bool = False
    """Whether the sentence itself is about most cases only."""
    images_of: str = ""
    """The item whose images it is compared with, where its own has none."""
    remark: str = ""
    """How it is read, where that is not obvious."""

    def judged(self, facts: Facts, items: Mapping[str, Facts]) -> Judged | None:
        """By the facts of its item, and of the images where they are another item's."""
        if self.images_of:
            beside = items.get(self.images_of, {}).get("relative_deviation", ())
            images = [entry for entry in beside if IMAGES in entry["what"]]
            facts = {**facts, "relative_deviation": [*facts["relative_deviation"], *images]}
        return self.judge(facts)

    def notes(self, facts: Facts, items: Mapping[str, Facts]) -> list[str]:
        """What is unfinished or different in its item, or in its images where they are another item's."""
        of_images = [text for text in items.get(self.images_of, {}).get("remarks", ()) if IMAGES in text]
        return [*_notes(facts), *of_images]


# All claims


def judge_claims(
    claims: Mapping[str, Sequence[Claim]], facts: Mapping[str, Facts], planned: Mapping[str, int]
) -> dict[str, Any]:
    """All verdicts, as JSON has them.

    claims, planned: of each item its claims, and how many trials the whole of it has.
    facts: the items that were made, by name.
    """
    found: list[dict[str, Any]] = []
    unjudged: dict[str, int] = {}
    for item, of_item in claims.items():
        for claim in of_item:
            judged = claim.judged(facts[item], facts) if item in facts else None
            if judged is None:
                unjudged[item] = unjudged.get(item, 0) + 1
                continue
            found.append(
                {
                    "item": item,
                    "title": facts[item]["title"],
                    "claim": claim.text,
                    "verdict": judged.verdict(claim.of_most),
                    "right": judged.right,
                    "cases": judged.cases,
                    "beyond_noise": judged.beyond and list(judged.beyond),
                    "words": judged.words,
                    "remark": claim.remark,
                    "columns": list(judged.columns),
                    "rows": [list(row) for row in judged.rows],
                    "notes": claim.notes(facts[item], facts),
                    "provenance": _provenance(item, facts[item], planned[item]),
                }
            )
    quick = any(of_item["quick"] for of_item in facts.values())
    return {"quick": quick, "rules": list(RULES), "unjudged": unjudged, "claims": found}


def claims_markdown(judged: Mapping[str, Any]) -> str:
    """The same as a page: a table of verdicts, then each claim with its numbers, and their origin."""
    lines = ["# The paper's claims, measured", ""]
    lines += [f"**{QUICK_NOTE}. So few folds and epochs decide nothing.**", ""] if judged["quick"] else []
    lines += [
        "Made by `graphnorm reproduce` from the results beside it.",
        "",
        *(f"- {rule}" for rule in judged["rules"]),
    ]
    if judged["unjudged"]:
        counts = ", ".join(f"{count} of `{item}`" for item, count in judged["unjudged"].items())
        lines += ["", f"Not judged, since there are no numbers of them or of all their rivals: {counts}."]
    lines += ["", "| claim | here | right | beyond noise |", "|---|---|---|---|"]
    for one in judged["claims"]:
        sure = "–" if one["beyond_noise"] is None else "{} for, {} against".format(*one["beyond_noise"])
        mark = " \\*" if one["notes"] else ""
        lines.append(f"| {one['claim']} | {one['verdict']}{mark} | {one['right']:,} of {one['cases']:,} | {sure} |")
    if any(one["notes"] for one in judged["claims"]):
        lines += ["", "\\* Something of it is unfinished or different; see the notes at the end of its section."]
    for item in dict.fromkeys(one["item"] for one in judged["claims"]):
        of_item = [one for one in judged["claims"] if one["item"] == item]
        lines += ["", f"## {of_item[0]['title']}"]
        for one in of_item:
            remark = f" {one['remark']}" if one["remark"] else ""
            lines += ["", f"### {one['claim']}", "", f"**{one['verdict'].capitalize()}**: {one['words']}.{remark}"]
            if one["rows"]:
                rows = (one["columns"], ["---"] * len(one["columns"]), *one["rows"])
                lines += ["", *(f"| {' | '.join(row)} |" for row in rows)]
        lines += ["", of_item[0]["provenance"]]
        notes = dict.fromkeys(note for one in of_item for note in one["notes"])
        lines += ["", "Notes:", "", *(f"- {note}" for note in notes)] if notes else []
    return "\n".join(lines) + "\n"


def _notes(facts: Facts) -> list[str]:
    """What an item says of itself that is unfinished or different."""
    if "remarks" in facts:
        return list(facts["remarks"])
    of_table = "cells" in facts or "as_printed" in facts  # what a table says first is how many cells are as reported
    return list(facts["sentences"][1:]) if of_table else []


def _provenance(item: str, facts: Facts, planned: int) -> str:
    """Where the numbers of an item come from."""
    if facts["trained_on"]:
        origin = f"trained on {', '.join(facts['trained_on'])} with {'; '.join(facts['trained_with'])}"
    else:
        origin = f"nothing was trained; graphnorm {facts['graphnorm']}, torch {facts['torch']}"
    text = f"From `{item}`, made on {facts['made'][:10]}: {origin}."
    if planned:
        text += f" {sum(study['finished'] for study in facts['studies']):,} of {planned:,} trials are trained."
    return text


# A normalization against its rivals


@dataclass(frozen=True)
class _Contest:
    """A normalization against its rivals, in one case."""

    where: str
    ours: float
    rivals: Mapping[str, float]
    p: Mapping[str, float | None]
    """Adjusted, by rival; None where chance cannot be measured."""
    claimed: Claimed

    @property
    def sign(self) -> int:
        return -1 if self.claimed == "behind" else 1

    @property
    def closest(self) -> str:
        """The rival that is most in the claim's way."""
        return max(self.rivals, key=lambda name: self.sign * self.rivals[name])

    @property
    def lead(self) -> float:
        return self.ours - self.rivals[self.closest]

    @property
    def won(self) -> bool:
        return self.sign * self.lead > -LEVEL

    @property
    def decisive(self) -> float | None:
        """The p-value on which it hangs: of the rival least surely beaten, or of the one that most surely wins."""
        if self.won:
            known = [value for value in self.p.values() if value is not None]
            return max(known) if len(known) == len(self.p) else None
        above = [self.p[name] for name, value in self.rivals.items() if self.sign * (self.ours - value) <= -LEVEL]
        return min((value for value in above if value is not None), default=None)

    @property
    def beyond(self) -> bool:
        return self.decisive is not None and self.decisive < ALPHA

    @property
    def right(self) -> bool:
        if self.claimed == "not ahead":
            return not (self.won and (self.beyond or self.decisive is None))
        return self.won

    @property
    def favours(self) -> bool:
        """Which way the difference goes, whatever its size."""
        return self.won is (self.claimed != "not ahead")

    @property
    def side(self) -> str:
        if abs(self.lead) < LEVEL:
            return "level"
        return "ahead" if self.lead > 0 else "behind"

    @property
    def outcome(self) -> str:
        side = self.side
        if self.decisive is None:
            return f"{side}, not tested"
        return side if self.beyond else f"{side}, within noise"

    @property
    def row(self) -> tuple[str, ...]:
        rival = self.rivals[self.closest]
        named = f"{rival:.2f}" if len(self.rivals) == 1 else f"{rival:.2f} ({self.closest})"
        p = "–" if self.decisive is None else "< 0.001" if self.decisive < 1e-3 else f"{self.decisive:.3f}"
        return (self.where, f"{self.ours:.2f}", named, signed(self.lead, 2), p, self.outcome)


def _contest(
    where: str,
    norm: str,
    means: Mapping[str, float],
    members: Mapping[str, Sequence[float | None]],
    *,
    unit: str,
    claimed: Claimed = "ahead",
) -> _Contest:
    """members: by normalization, a value for each fold or seed."""
    rivals = {name: value for name, value in means.items() if name != norm}
    p = {name: _p_value(members[norm], members[name], unit) for name in rivals}
    adjusted = iter(holm([value for value in p.values() if value is not None]))
    return _Contest(
        where, means[norm], rivals, {name: None if v is None else next(adjusted) for name, v in p.items()}, claimed
    )


def _p_value(ours: Sequence[float | None], theirs: Sequence[float | None], unit: str) -> float | None:
    a, b = ({k: value for k, value in enumerate(side) if value is not None} for side in (ours, theirs))
    if unit == "fold":
        return paired_test(a, b, overlap=find_protocol("paper").overlap(len(ours))).p
    return welch_test([*a.values()], [*b.values()]).p


def _of_contests(
    contests: Sequence[_Contest], norm: str, others: Sequence[str], extra: Mapping[str, Sequence[str]] | None = None
) -> Judged | None:
    """extra: more columns, a value for each case."""
    if not contests:
        return None
    claimed = contests[0].claimed
    other = others[0] if len(others) == 1 else "lowest other" if claimed == "behind" else "best other"
    more = extra or {}
    sides = []
    for side in ("behind", "level", "ahead") if claimed == "behind" else ("ahead", "level", "behind"):
        if of_side := [one for one in contests if one.side == side]:
            sides.append(f"{side} in {len(of_side)}")
            if any(one.decisive is not None for one in of_side):
                sides[-1] += f" ({sum(one.beyond for one in of_side)} beyond noise)"
    tested = any(one.decisive is not None for one in contests)
    sure = [one for one in contests if one.beyond]
    return Judged(
        right=sum(one.right for one in contests),
        cases=len(contests),
        words=f"`{norm}` against {listing(others)}: of {counted(len(contests), 'case')}, {', '.join(sides)}",
        columns=("", norm, other, "difference", "p", "", *more),
        rows=tuple((*one.row, *(values[k] for values in more.values())) for k, one in enumerate(contests)),
        beyond=(sum(one.favours for one in sure), sum(not one.favours for one in sure)) if tested else None,
        open_within_noise=claimed != "not ahead",
    )


def trains(norm: str, claimed: Claimed, others: Iterable[str], *, panel: str = "") -> Judge:
    """Whether a normalization's training curve has a higher (or lower) average than those of its rivals.

    others: its rivals. A panel in which one of them is missing is not judged.
    panel: only panels with this in their title.
    """
    rivals = [name for name in others if name != norm]

    def judge(facts: Facts) -> Judged | None:
        curves: dict[tuple[str, str], dict[str, Facts]] = {}
        for curve in facts["convergence"]:
            if curve["train_average"] is not None and panel in curve["panel"]:
                curves.setdefault((curve["panel"], curve["variant"]), {})[curve["norm"]] = curve
        contests = []
        for (title, variant), found in curves.items():
            if {norm, *rivals} <= found.keys():
                of_case = {name: found[name] for name in (norm, *rivals)}
                contests.append(
                    _contest(
                        f"{title}, {variant}" if variant else title,
                        norm,
                        {name: curve["train_average"] for name, curve in of_case.items()},
                        {name: curve["train_averages"] for name, curve in of_case.items()},
                        unit=found[norm]["unit"],
                        claimed=claimed,
                    )
                )
        return _of_contests(contests, norm, rivals)

    return judge


ROUGHLY = 1.5
"""So many times as many iterations are still 'roughly' as many."""


def converges_within(iterations: Mapping[str, int], fast: str = "graph", slow: str = "batch") -> Judge:
    """Whether one has converged within roughly so many iterations on each dataset, and the other not within twice that.

    Converged: the average training curve is at a share of what GraphNorm's ends with, :data:`CONVERGED`, for the first
    time (``epochs_to_converge`` of the facts). An epoch has ⌈N(k−1)/k / B⌉ iterations: N graphs, k folds, batches
    of B.
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
            if spec is None or not {fast, slow} <= epochs.keys():
                continue
            folds, size, most = spec["folds"], spec["grid"]["batch_size"][0], spec["grid"]["epochs"][0]
            each = math.ceil(dataset_table()[dataset].num_graphs * (folds - 1) / folds / size)
            for norm, said, bound in ((fast, f"roughly {limit:,}", ROUGHLY * limit), (slow, "", 2 * limit)):
                needed = None if epochs[norm] is None else epochs[norm] * each
                within = needed is not None and needed <= bound
                right.append(within if norm == fast else not within)
                shown = f"not in {most * each:,}" if needed is None else f"{needed:,}"
                rows.append((dataset, norm, said or f"more than {2 * limit:,}", shown, "yes" if right[-1] else "no"))
        columns = ("", "", "iterations, as the paper says", "here", "right")
        words = (
            f"iterations until the average training accuracy is at {CONVERGED:.0%} of what GraphNorm's ends with (a "
            f"definition of ours; “roughly” is up to {ROUGHLY:g} times as many)"
        )
        return Judged(sum(right), len(right), words, columns, tuple(rows)) if right else None

    return judge


def scores_best(
    model: str, protocol: str, others: Sequence[str] = ("layer", "batch", "instance"), norm: str = "graph"
) -> Judge:
    """Whether a normalization has the highest score, dataset by dataset, of those that the paper's table has.

    Who tries more configurations reports a higher score, so scores are of the configurations that all have trained
    (``common``). What is without normalization stands beside.
    """

    def judge(facts: Facts) -> Judged | None:
        groups: dict[str, dict[str, Facts]] = {}
        for cell in facts["cells"]:
            if cell["model"] == model and cell["protocol"] == protocol and not cell["repeats"]:
                groups.setdefault(cell["dataset"], {})[cell["norm"]] = cell
        contests, tried, bare, in_part = [], [], [], []
        for dataset, cells in groups.items():
            known = {name: terms for name, cell in cells.items() if (terms := _on_equal_terms(cell))}
            if not {norm, *others} <= known.keys():
                continue
            means = {name: known[name][0] for name in (norm, *others)}
            members = {name: known[name][1] for name in (norm, *others)}
            contests.append(_contest(dataset, norm, means, members, unit=find_protocol(protocol).unit))
            tried.append(_configurations([cells[name] for name in (norm, *others)]))
            bare.append(f"{known['none'][0]:.2f}" if "none" in known else "–")
            in_part += [
                f"{dataset}, {name} ({cell['members']} of {cell['members_planned']})"
                for name, cell in cells.items()
                if name in known and cell["members"] < cell["members_planned"]
            ]
        extra = {"configurations": tried, "without a normalization": bare}
        found = _of_contests(contests, norm, others, extra)
        if found and in_part:
            found = replace(found, words=f"{found.words}. Trained in part: {'; '.join(in_part)}")
        return found

    return judge


def _on_equal_terms(cell: Facts) -> tuple[float, Sequence[float | None]] | None:
    """The mean of the configurations that all normalizations have, and the scores behind it.

    ``common`` is None where these are the ones that the score was chosen from.
    """
    found = cell["common"] or cell
    return None if found["mean"] is None else (found["mean"], found["scores"])


def _configurations(cells: Sequence[Facts]) -> str:
    """How many configurations scores are the best of."""
    counts = [cell["common"]["configurations"] if cell["common"] else cell["compared"] for cell in cells]
    few, many = min(counts), max(counts)
    return f"{few} of {cells[0]['planned']}" if few == many else f"{few} to {many} of {cells[0]['planned']}"


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
    words = f"{inside} of {counted(len(cells), 'cell')} ({inside / len(cells):.0%})"
    whole = [cell for cell in cells if cell["compared"] == cell["planned"]]
    if 0 < len(whole) < len(cells):
        words += f", {sum(cell['within_one_sd'] for cell in whole)} of the {len(whole)} with the whole grid"
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
    return Judged(inside, len(cells), words, columns if rows else (), rows)


PARTS = {"of_mean": "mean", "of_std": "standard deviation"}
"""The two statistics of a batch that the paper shows."""


def noisier_than_images(facts: Facts) -> Judged | None:
    """Whether batches' means and standard deviations deviate more than those of images at the same depth.

    Depth by depth, in the order of the layers; after the last epoch.
    """
    images: list[Facts] = []
    graphs: dict[str, list[Facts]] = {}
    for entry in facts["relative_deviation"]:
        (images if IMAGES in entry["what"] else graphs.setdefault(entry["what"], [])).append(entry)
    pairs = [pair for layers in graphs.values() for pair in zip(layers, images, strict=False)]
    if not pairs:
        return None
    noisier = {part: [ours[part] > theirs[part] for ours, theirs in pairs] for part in PARTS}
    rows = tuple(
        (
            ours["what"],
            readable_layer(ours["layer"]),
            *(f"{ours[part]:.3f} ({theirs[part]:.3f})" for part in PARTS),
            ", ".join(PARTS[part] for part in PARTS if noisier[part][k]) or "neither",
        )
        for k, (ours, theirs) in enumerate(pairs)
    )
    larger = sum(ours["of_mean"] > ours["of_std"] for ours, _ in pairs)
    words = (
        f"graphs are noisier in {sum(noisier['of_mean'])} of {counted(len(pairs), 'mean')} and in "
        f"{sum(noisier['of_std'])} of {counted(len(pairs), 'standard deviation')}. Of the two, the standard deviation "
        f"of graphs is the noisier one in {len(pairs) - larger} of {counted(len(pairs), 'layer')}. The numbers are "
        "distances of a batch from the dataset after the last epoch, in standard deviations of the dataset, those of "
        "images at the same depth in brackets"
    )
    columns = ("", "layer", *(f"{name} (images)" for name in PARTS.values()), "noisier than images")
    return Judged(sum(map(sum, noisier.values())), len(PARTS) * len(pairs), words, columns, rows)


def interlaces(facts: Facts) -> Judged:
    """Theorem 1, graph by graph."""
    found = facts["theorem_1"]
    return Judged(found["holds"], found["checked"], f"on {found['holds']:,} of {found['checked']:,} graphs")


def linear_example(facts: Facts) -> Judged:
    """The linear GNN of Appendix A.2, run by run."""
    found = facts["summary"]["linear_gnn"]
    words = (
        f"faster in {found['shift_faster']} of {found['runs']} runs, {found['median_speedup']:.2f} times in the median"
    )
    return Judged(found["shift_faster"], found["runs"], words)


def expressive(facts: Facts) -> Judged:
    """Fact 1: for α ≠ 1 the closest InstanceNorm is away from GraphNorm, on two graphs that show it."""
    found = facts["summary"]["fact_1_distance"]
    away = {alpha: distance for alpha, distance in found.items() if float(alpha) != 1}
    same = [distance for alpha, distance in found.items() if float(alpha) == 1]
    words = "distance of the closest InstanceNorm, on two graphs that differ by a constant: " + ", ".join(
        f"{distance:.2f} (α = {float(alpha):g})" for alpha, distance in away.items()
    )
    words += f"; for α = 1, where both are the same, {max(same):.0e}" if same else ""
    return Judged(sum(distance > EXACT for distance in away.values()), len(away), words)


def gradient(facts: Facts) -> Judged:
    """The formulas of Appendix A.5 against autograd."""
    found = facts["summary"]["gradient"]
    cases = (
        ("without a normalization: (HQ)ᵀ ⊗ I", found["without_norm"]),
        ("with it, the scale S held fixed: (HQN)ᵀ ⊗ S", found["fixed_scale"]),
        ("the same, the scale depending on W as it does in training", found["part_through_scale"]),
    )
    rows = tuple((name, f"{error:.2g}", "yes" if error < EXACT else "no") for name, error in cases)
    words = "the formula is right with the scale held fixed; the part of the gradient through the scale is left out"
    columns = ("formula", "relative difference from autograd", "right")
    return Judged(sum(error < EXACT for _, error in cases), len(cases), words, columns, rows)


def dataset_statistics(facts: Facts) -> Judged:
    """The dataset table, number by number."""
    found = facts["as_printed"]
    return Judged(
        found["equal"], found["statistics"], f"{found['equal']} of {found['statistics']} statistics are as printed"
    )
