"""Contests: a normalization against its rivals, case by case, and whether a difference is more than chance.

Folds are compared by the corrected paired t-test of :mod:`graphnorm.study.significance`, seeds by Welch's test, since
seeds of two models have nothing in common. The p-values of a case are adjusted for the number of its rivals (Holm).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from graphnorm.paper.figures import CONVERGED
from graphnorm.paper.judging import Facts, Judge, Judged, counted, tried_of
from graphnorm.paper.products import signed
from graphnorm.paper.recipes import RECIPES
from graphnorm.paper.reported import dataset_table
from graphnorm.study.protocol import find_protocol
from graphnorm.study.significance import ALPHA, holm, paired_test, welch_test
from graphnorm.wording import listing

__all__ = ["Claimed", "converges_within", "scores_best", "trains"]

Claimed = Literal["ahead", "behind", "not ahead"]
"""Of one normalization: ahead of all its rivals, behind all of them, or not ahead of all of them beyond noise."""
LEVEL = 0.005
"""Percentage points that are not shown, and are no difference."""


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
    members: Mapping[str, Sequence[float | None] | None],
    *,
    unit: str,
    claimed: Claimed = "ahead",
) -> _Contest:
    """members: by normalization, a value for each fold or seed."""
    rivals = {name: value for name, value in means.items() if name != norm}
    p = {name: _p_value(members.get(norm), members.get(name), unit) for name in rivals}
    adjusted = iter(holm([value for value in p.values() if value is not None]))
    return _Contest(
        where, means[norm], rivals, {name: None if v is None else next(adjusted) for name, v in p.items()}, claimed
    )


def _p_value(ours: Sequence[float | None] | None, theirs: Sequence[float | None] | None, unit: str) -> float | None:
    if ours is None or theirs is None:
        return None
    a, b = ({k: value for k, value in enumerate(side) if value is not None} for side in (ours, theirs))
    if unit == "fold":
        return paired_test(a, b, overlap=1 / max(len(ours) - 1, 1)).p
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


def trains(norm: str, claimed: Claimed, others: Iterable[str] | None = None, *, panel: str = "") -> Judge:
    """Whether a normalization's training curve has a higher (or lower) average than those of its rivals.

    others: all other normalizations of the recipe if left out. A panel in which one of them is missing is not judged.
    panel: only panels with this in their title.
    """

    def judge(facts: Facts) -> Judged | None:
        planned = dict.fromkeys(name for part in RECIPES[facts["item"]].trained for name in part.norms)
        rivals = [name for name in (others or planned) if name != norm]
        if not rivals:
            return None
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
                        {name: curve.get("train_averages") for name, curve in of_case.items()},
                        unit=found[norm].get("unit", "fold"),
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
                if curve["panel"] == dataset and curve["train_average"] is not None and "epochs_to_converge" in curve
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
        words = f"iterations until the average training accuracy is at {CONVERGED:.0%} of what GraphNorm's ends with"
        words += f" (a definition of ours; “roughly” is up to {ROUGHLY:g} times as many)"
        return Judged(sum(right), len(right), words, columns, tuple(rows)) if right else None

    return judge


def scores_best(model: str, others: Sequence[str] = ("layer", "batch", "instance"), norm: str = "graph") -> Judge:
    """Whether a normalization has the highest score, dataset by dataset, of those that the paper's table has.

    Who tries more configurations reports a higher score, so scores are of the configurations that all have trained
    (``common``). What is without normalization stands beside.
    """

    def judge(facts: Facts) -> Judged | None:
        protocol = RECIPES[facts["item"]].trained[0].protocols[0]
        groups: dict[str, dict[str, Facts]] = {}
        for cell in facts["cells"]:
            if cell["model"] == model and cell.get("protocol", protocol) == protocol and not cell.get("repeats"):
                groups.setdefault(cell["dataset"], {})[cell["norm"]] = cell
        contests, tried, bare, in_part = [], [], [], []
        for dataset, cells in groups.items():
            known = {name: terms for name, cell in cells.items() if (terms := _on_equal_terms(cell))}
            if not {norm, *others} <= known.keys():
                continue
            means = {name: known[name][0] for name in (norm, *others)}
            members = {name: known[name][1] for name in (norm, *others)}
            contests.append(_contest(dataset, norm, means, members, unit=find_protocol(protocol).unit))
            tried.append(tried_of([cells[name] for name in (norm, *others)]))
            bare.append(f"{known['none'][0]:.2f}" if "none" in known else "–")
            in_part += [f"{dataset}, {name} ({some})" for name in known if (some := _members(cells[name]))]
        extra = {"configurations": tried, "without a normalization": bare}
        found = _of_contests(contests, norm, others, extra)
        if found and in_part:
            found = replace(found, words=f"{found.words}. Trained in part: {'; '.join(in_part)}")
        return found

    return judge


def _on_equal_terms(cell: Facts) -> tuple[float, Sequence[float | None] | None] | None:
    """The mean of the configurations that all normalizations have, and the scores behind it where they are known.

    ``common`` is None where these are the ones that the score was chosen from.
    """
    mean, scores = cell["mean"], cell.get("scores")
    if common := cell.get("common"):
        mean, scores = common["mean"], common.get("scores")
    return None if mean is None else (mean, scores)


def _members(cell: Facts) -> str:
    """How many of the folds or seeds are there, where not all are."""
    done, planned = cell.get("members"), cell.get("members_planned")
    return f"{done} of {planned}" if planned is not None and done != planned else ""
