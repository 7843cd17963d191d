"""Judging: from the facts of an item to the cases of a claim in which it is right, with the numbers of each.

Comparisons of normalizations are in :mod:`graphnorm.paper.contests`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphnorm.analysis import readable_layer
from graphnorm.paper.products import signed
from graphnorm.paper.recipe import IMAGES

__all__ = [
    "Facts",
    "Judge",
    "Judged",
    "counted",
    "dataset_statistics",
    "expressive",
    "gradient",
    "interlaces",
    "linear_example",
    "noisier_than_images",
    "tried_of",
    "within_reported",
]

Facts = Mapping[str, Any]


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


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "cell"), counted(2, "cell")
    ('1 cell', '2 cells')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def tried_of(cells: Sequence[Facts]) -> str:
    """How many configurations scores are the best of."""
    counts = [(cell.get("common") or {"configurations": cell.get("compared")})["configurations"] for cell in cells]
    if None in counts:
        return "–"
    few, many = min(counts), max(counts)
    return f"{few} of {cells[0]['planned']}" if few == many else f"{few} to {many} of {cells[0]['planned']}"


def within_reported(facts: Facts) -> Judged | None:
    """Cells within one reported standard deviation; a measurement counts once, baselines do not."""
    cells = [
        cell
        for cell in facts["cells"]
        if cell["norm"] != "baseline" and cell["within_one_sd"] is not None and not cell.get("repeats")
    ]
    if not cells:
        return None
    inside = sum(cell["within_one_sd"] for cell in cells)
    words = f"{inside} of {counted(len(cells), 'cell')} ({inside / len(cells):.0%})"
    whole = [cell for cell in cells if cell.get("compared") is not None and cell["compared"] == cell.get("planned")]
    if 0 < len(whole) < len(cells):
        words += f", {sum(cell['within_one_sd'] for cell in whole)} of the {len(whole)} with the whole grid"
    outside = [cell for cell in cells if not cell["within_one_sd"]]
    rows = tuple(
        (
            *(cell[name] for name in ("dataset", "model", "norm")),
            f"{cell['mean']:.2f}",
            f"{cell['reported']['mean']:.2f} ± {cell['reported']['std']:.2f}",
            signed(cell["difference"], 2),
            tried_of([{name: cell[name] for name in ("compared", "planned") if name in cell}]),
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
        if PARTS.keys() <= entry.keys():
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


EXACT = 1e-9
"""Relative differences below this one are rounding."""


def expressive(facts: Facts) -> Judged | None:
    """Fact 1: for α ≠ 1 the closest InstanceNorm is away from GraphNorm, on two graphs that show it."""
    found = facts["summary"].get("fact_1_distance")
    if not found:
        return None
    away = {alpha: distance for alpha, distance in found.items() if float(alpha) != 1}
    same = [distance for alpha, distance in found.items() if float(alpha) == 1]
    words = "distance of the closest InstanceNorm, on two graphs that differ by a constant: " + ", ".join(
        f"{distance:.2f} (α = {float(alpha):g})" for alpha, distance in away.items()
    )
    words += f"; for α = 1, where both are the same, {max(same):.0e}" if same else ""
    return Judged(sum(distance > EXACT for distance in away.values()), len(away), words)


def gradient(facts: Facts) -> Judged | None:
    """The formulas of Appendix A.5 against autograd."""
    found = facts["summary"].get("gradient")
    if not found:
        return None
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
