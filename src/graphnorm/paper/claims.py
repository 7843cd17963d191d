"""The paper's claims, one by one, against what was measured.

A claim is judged by the JSON files that ``graphnorm reproduce`` writes. One whose item is not there is left out. Each
is counted over cases (panels, cells, graphs): it *holds* if it does in all of them, *holds in part* in more than half.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from graphnorm.errors import GraphnormError
from graphnorm.paper.products import QUICK_NOTE, list_some

__all__ = ["CLAIMS", "Claim", "Judged", "claims_page", "read_items"]

Facts = Mapping[str, Any]


class Judged(NamedTuple):
    """In how many of how many cases a claim holds, and the numbers in words."""

    right: int
    cases: int
    words: str

    @property
    def verdict(self) -> str:
        """For people.

        >>> Judged(3, 4, "").verdict
        'holds in part'
        """
        if self.right == self.cases:
            return "holds"
        return "holds in part" if 2 * self.right > self.cases else "does not hold here"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper."""

    item: str
    text: str
    judge: Callable[[Facts], Judged | None]
    of_most: bool = False
    """Whether the sentence itself is about most cases only."""

    def verdict(self, judged: Judged) -> str:
        """For people."""
        return "holds" if self.of_most and 2 * judged.right > judged.cases else judged.verdict


def _theorem(facts: Facts) -> Judged:
    found = facts["theorem_1"]
    return Judged(found["holds"], found["checked"], f"on {found['holds']:,} of {found['checked']:,} graphs")


def _linear(facts: Facts) -> Judged:
    found = facts["summary"]["linear_gnn"]
    words = (
        f"faster in {found['shift_faster']} of {found['runs']} runs, {found['median_speedup']:.2f} times in the median"
    )
    return Judged(found["shift_faster"], found["runs"], words)


def _printed(facts: Facts) -> Judged:
    found = facts["as_printed"]
    return Judged(found["equal"], found["statistics"], f"{found['equal']} of {found['statistics']} statistics")


def _faster(norm: str, others: Iterable[str] | None = None, panels: str = "") -> Callable[[Facts], Judged | None]:
    """Whether a normalization's training curve has the highest average, in each panel that has all of its rivals."""

    def judge(facts: Facts) -> Judged | None:
        planned = {name for study in facts.get("studies", ()) for name in study["spec"]["norms"]} - {norm}
        wanted = planned & set(others) if others else planned
        averages: dict[tuple[str, str], dict[str, float]] = {}
        for curve in facts["convergence"]:
            if curve["train_average"] is not None and panels in curve["panel"]:
                averages.setdefault((curve["panel"], curve["variant"]), {})[curve["norm"]] = curve["train_average"]
        right, words = 0, []
        for (panel, variant), found in averages.items():
            rivals = {name: value for name, value in found.items() if name != norm and (not others or name in others)}
            if norm not in found or not rivals or not wanted <= rivals.keys():
                continue
            best = max(rivals, key=rivals.__getitem__)
            right += found[norm] >= rivals[best]
            where = f"{panel}, {variant}" if variant else panel
            words.append(f"{where}: {found[norm]:.1f} against {rivals[best]:.1f} ({best})")
        return Judged(right, len(words), "average of the training curve, " + "; ".join(words)) if words else None

    return judge


def _best_cell(facts: Facts) -> Judged | None:
    """Whether GraphNorm has the highest score, by dataset and model."""
    groups: dict[tuple[str, str], dict[str, float]] = {}
    for cell in facts["cells"]:
        if cell["mean"] is not None:
            groups.setdefault((cell["dataset"], cell["model"]), {})[cell["norm"]] = cell["mean"]
    judged = {key: scores for key, scores in groups.items() if "graph" in scores and len(scores) > 1}
    if not judged:
        return None
    words = [
        f"{dataset}, {model}: {scores['graph']:.1f} against {max(v for k, v in scores.items() if k != 'graph'):.1f}"
        for (dataset, model), scores in judged.items()
    ]
    right = sum(scores["graph"] >= max(scores.values()) for scores in judged.values())
    return Judged(right, len(judged), "; ".join(words))


def _within(facts: Facts) -> Judged | None:
    cells = [cell for cell in facts["cells"] if cell["norm"] != "baseline"]
    judged = [cell["within_one_sd"] for cell in cells if cell["within_one_sd"] is not None]
    if not judged:
        return None
    return Judged(sum(judged), len(judged), f"{sum(judged)} of {len(judged)} cells ({sum(judged) / len(judged):.0%})")


def _noisier(facts: Facts) -> Judged | None:
    found = facts["relative_deviation"]
    images = [entry["at_the_end"] for entry in found if "CIFAR" in entry["what"]]
    graphs = [entry["at_the_end"] for entry in found if "CIFAR" not in entry["what"]]
    if not images or not graphs:
        return None
    shown = [", ".join(f"{value:.3f}" for value in values) for values in (graphs, images)]
    words = f"relative deviations {shown[0]} against {shown[1]}, where each is to exceed the largest of images"
    return Judged(sum(value > max(images) for value in graphs), len(graphs), words)


def _noisier_by_depth(facts: Facts) -> Judged | None:
    """Depth by depth, in the order of the layers."""
    found = facts["relative_deviation"]
    images = [entry["at_the_end"] for entry in found if "CIFAR" in entry["what"]]
    graphs = [entry["at_the_end"] for entry in found if "CIFAR" not in entry["what"]]
    pairs = list(zip(graphs, images, strict=False))
    if not pairs:
        return None
    words = "; ".join(f"{ours:.3f} against {theirs:.3f}" for ours, theirs in pairs)
    return Judged(sum(ours > theirs for ours, theirs in pairs), len(pairs), f"relative deviations by depth {words}")


def _noisier_when_smaller(facts: Facts) -> Judged | None:
    """Layer by layer, from the smallest batches to the largest."""
    layers: dict[str, list[tuple[int, float]]] = {}
    for entry in facts["relative_deviation"]:
        layers.setdefault(entry["layer"], []).append((entry["batch_size"], entry["at_the_end"]))
    chains = {layer: sorted(values) for layer, values in layers.items() if len(values) > 1}
    if not chains:
        return None
    pairs = [(a, b) for values in chains.values() for (_, a), (_, b) in pairwise(values)]
    words = "; ".join(f"{layer} {', '.join(f'{v:.3f} ({size})' for size, v in vs)}" for layer, vs in chains.items())
    return Judged(sum(a > b for a, b in pairs), len(pairs), f"relative deviation (batch size): {words}")


CLAIMS: tuple[Claim, ...] = (
    Claim("theory", "Theorem 1: the singular values of QN interlace those of Q.", _theorem),
    Claim("theory", "Appendix A.2: in the linear example gradient descent is faster with the shift.", _linear),
    Claim("table3", "The dataset table.", _printed),
    Claim("fig2", "Figure 2: GIN converges faster with GraphNorm than with any other one.", _faster("graph")),
    Claim(
        "fig2",
        "Section 3: InstanceNorm, adapted to graphs, converges faster than BatchNorm and LayerNorm in most tasks.",
        _faster("instance", ("batch", "layer")),
        of_most=True,
    ),
    Claim("fig6", "Figure 6: the same of GCN with GraphNorm.", _faster("graph")),
    Claim("fig4", "Figure 4: batch statistics of graphs are noisier than those of images.", _noisier),
    Claim("fig9", "Figure 9: so they are at every depth.", _noisier_by_depth),
    Claim("fig10", "Figure 10: the smaller the batches, the noisier.", _noisier_when_smaller),
    Claim(
        "fig5",
        "Figure 5: on regular graphs (IMDB-BINARY) GraphNorm trains better than InstanceNorm.",
        _faster("graph", ("instance",), "IMDB"),
    ),
    Claim(
        "fig11", "Figure 11: GraphNorm trains better than BatchNorm at all batch sizes.", _faster("graph", ("batch",))
    ),
    Claim("fig12", "Figure 12: no variant of BatchNorm trains as well as GraphNorm.", _faster("graph")),
    Claim("table1", "Table 1: GraphNorm has the highest accuracy.", _best_cell),
    Claim("table1", "Table 1: the numbers, within one reported standard deviation.", _within),
    Claim("table2", "Table 2: GraphNorm has the highest test ROC-AUC on ogbg-molhiv.", _best_cell),
    Claim("table2", "Table 2: the numbers, within one reported standard deviation.", _within),
)
"""In the order of the page."""


def read_items(folder: Path, *, quick: bool = False) -> dict[str, Facts]:
    """The items that a folder holds, by name."""
    items: dict[str, Facts] = {}
    for file in sorted(folder.glob("*-quick.json" if quick else "*.json")):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            if content["quick"] is quick:
                items[content["item"]] = content
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError):
            continue  # not one of ours
    if not items:
        raise GraphnormError("there is no item in it", where=folder, remedy="run `graphnorm reproduce` first")
    return items


def claims_page(items: Mapping[str, Facts]) -> str:
    """Give the page: a table of verdicts, then each claim with its numbers and where they come from."""
    quick = any(facts["quick"] for facts in items.values())
    found = [(claim, judged) for claim in CLAIMS if claim.item in items and (judged := claim.judge(items[claim.item]))]
    lines = ["# The paper's claims, measured", ""]
    lines += [f"**{QUICK_NOTE}. So few folds and epochs decide nothing.**", ""] if quick else []
    lines += [
        "Made by `graphnorm reproduce` from the results beside it. A claim holds if it does in every case that was "
        "measured, and in part if in more than half (enough for a claim about most cases to hold); claims without "
        "measured numbers are not listed.",
        "",
        "| claim | here | cases |",
        "|---|---|---|",
        *(
            f"| {claim.text} | {claim.verdict(judged)} | {judged.right:,} of {judged.cases:,} |"
            for claim, judged in found
        ),
    ]
    for claim, judged in found:
        facts = items[claim.item]
        lines += [
            "",
            f"## {claim.text}",
            "",
            f"**{claim.verdict(judged).capitalize()}**: {judged.words}.",
            "",
            f"From `{claim.item}`, made on {facts['made'][:10]}: {_origin(facts)}.{_unfinished(facts)}",
        ]
    return "\n".join(lines) + "\n"


def _origin(facts: Facts) -> str:
    if facts["trained_on"]:
        return f"trained on {', '.join(facts['trained_on'])} with {'; '.join(facts['trained_with'])}"
    return f"nothing was trained; graphnorm {facts['graphnorm']}, torch {facts['torch']}"


def _unfinished(facts: Facts) -> str:
    trials = sum(study["trials"] for study in facts["studies"])
    finished = sum(study["finished"] for study in facts["studies"])
    text = f" {finished:,} of {trials:,} trials of its studies are trained." if trials else ""
    return text + (f" Missing: {list_some(missing)}." if (missing := facts.get("missing")) else "")
