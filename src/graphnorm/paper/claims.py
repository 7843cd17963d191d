"""The paper's claims, one by one, against what was measured.

A claim is judged by the JSON files that ``graphnorm reproduce`` writes. One whose item is not there is left out. Each
is counted over cases (panels, cells, graphs): it *holds* if it does in all of them, *holds in part* in more than half.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from graphnorm.errors import GraphnormError
from graphnorm.paper.products import QUICK_NOTE, list_some, signed
from graphnorm.paper.recipes import IMAGES

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
    images_of: str = ""
    """The item whose images it is compared with, where its own has none."""

    def judged(self, items: Mapping[str, Facts]) -> Judged | None:
        """By the numbers of its item, where that is there."""
        facts = items.get(self.item)
        if facts is not None and self.images_of:
            beside = items.get(self.images_of, {}).get("relative_deviation", ())
            images = [entry for entry in beside if IMAGES in entry["what"]]
            facts = {**facts, "relative_deviation": [*facts["relative_deviation"], *images]}
        return None if facts is None else self.judge(facts)

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
        cases = []
        for (panel, variant), found in averages.items():
            rivals = {name: value for name, value in found.items() if name != norm and (not others or name in others)}
            if norm not in found or not rivals or not wanted <= rivals.keys():
                continue
            best = max(rivals, key=rivals.__getitem__)
            where = f"{panel}, {variant}" if variant else panel
            cases.append((found[norm] >= rivals[best], f"{where}: {_against(found[norm], rivals[best])} ({best})"))
        return _judged(cases, "average of the training curve")

    return judge


def _judged(cases: Sequence[tuple[bool, str]], about: str = "") -> Judged | None:
    """Cases in which a claim holds, then those in which it does not, each in words."""
    if not cases:
        return None
    holding, failing = ("; ".join(words for held, words in cases if held is wanted) for wanted in (True, False))
    both = f"it holds for {holding}. It does not for {failing}"
    words = both if holding and failing else holding or failing
    return Judged(sum(held for held, _ in cases), len(cases), f"{about}, {words}" if about else words)


def _against(ours: float, theirs: float) -> str:
    """Two numbers, with as many digits as tell them apart.

    >>> _against(95.75, 95.81), _against(93.2, 93.2)
    ('95.75 against 95.81', '93.2, as has the best other')
    """
    for digits in (1, 2, 3):
        if (one := f"{ours:.{digits}f}") != (other := f"{theirs:.{digits}f}"):
            return f"{one} against {other}"
    return f"{ours:.1f}, as has the best other"


def _best_cell(facts: Facts) -> Judged | None:
    """Whether GraphNorm has the highest score, by dataset and model.

    Who tries more configurations reports a higher score. So a case in which GraphNorm is ahead of one that tried fewer,
    or behind one that tried more, is not counted.
    """
    groups: dict[str, dict[str, tuple[float, int]]] = {}
    for cell in facts["cells"]:
        if cell["mean"] is not None:
            tried = int(str(cell.get("configurations", 1)).split()[0])
            groups.setdefault(f"{cell['dataset']}, {cell['model']}", {})[cell["norm"]] = cell["mean"], tried
    cases, unequal = [], []
    for where, scores in groups.items():
        if "graph" not in scores or len(scores) == 1:
            continue
        (mean, tried), rivals = scores["graph"], [score for norm, score in scores.items() if norm != "graph"]
        held = all(mean >= other for other, _ in rivals)
        fewer_behind = held and any(count < tried for _, count in rivals)
        beaten_by_equals = any(other > mean and count <= tried for other, count in rivals)
        if fewer_behind or not (held or beaten_by_equals):
            unequal.append(where)
        else:
            cases.append((held, f"{where}: {_against(mean, max(other for other, _ in rivals))}"))
    found = _judged(cases)
    if found is None or not unequal:
        return found
    apart = f"Not counted, since normalizations had different numbers of configurations: {'; '.join(unequal)}"
    return found._replace(words=f"{found.words}. {apart}")


def _within(facts: Facts) -> Judged | None:
    cells = [cell for cell in facts["cells"] if cell["norm"] != "baseline" and cell["within_one_sd"] is not None]
    if not cells:
        return None
    inside = sum(cell["within_one_sd"] for cell in cells)
    words = f"{inside} of {len(cells)} cells ({inside / len(cells):.0%})"
    whole = [cell for cell in cells if len(set(str(cell.get("configurations", "")).split(" of "))) == 1]
    if 0 < len(whole) < len(cells):
        words += f", {sum(cell['within_one_sd'] for cell in whole)} of {len(whole)} with the whole grid"
    if outside := [_off(cell) for cell in cells if not cell["within_one_sd"]]:
        words += f". Outside: {'; '.join(outside)}"
    return Judged(inside, len(cells), words)


def _off(cell: Facts) -> str:
    return f"{cell['dataset']}, {cell['model']}, {cell['norm']} ({signed(cell['difference'])})"


def _noisier(facts: Facts) -> Judged | None:
    """Depth by depth, in the order of the layers."""
    images: list[float] = []
    graphs: dict[str, list[tuple[str, float]]] = {}
    for entry in facts["relative_deviation"]:
        if IMAGES in entry["what"]:
            images.append(entry["at_the_end"])
        else:
            graphs.setdefault(entry["what"], []).append((entry["layer"], entry["at_the_end"]))
    cases = [
        (ours > theirs, f"{what}, {layer}: {ours:.3f} against {theirs:.3f}")
        for what, layers in graphs.items()
        for (layer, ours), theirs in zip(layers, images, strict=False)
    ]
    return _judged(cases, "relative deviation against that of images at the same depth")


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
    Claim("fig8", "Figure 8: so they are on four more datasets.", _noisier, images_of="fig4"),
    Claim("fig9", "Figure 9: so they are at every depth.", _noisier),
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
    found = [(claim, judged) for claim in CLAIMS if (judged := claim.judged(items))]
    lines = ["# The paper's claims, measured", ""]
    lines += [f"**{QUICK_NOTE}. So few folds and epochs decide nothing.**", ""] if quick else []
    lines += [
        "Made by `graphnorm reproduce` from the results beside it. A claim holds if it does in every case that was "
        "measured, and in part if in more than half (enough for a claim about most cases to hold)."
        + _unmeasured(found),
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


def _unmeasured(found: Sequence[tuple[Claim, Judged]]) -> str:
    listed = {claim.text for claim, _ in found}
    items = dict.fromkeys(claim.item for claim in CLAIMS if claim.text not in listed)
    return f" Claims about {', '.join(items)} are not listed: there are no numbers." if items else ""


def _origin(facts: Facts) -> str:
    if facts["trained_on"]:
        return f"trained on {', '.join(facts['trained_on'])} with {'; '.join(facts['trained_with'])}"
    return f"nothing was trained; graphnorm {facts['graphnorm']}, torch {facts['torch']}"


def _unfinished(facts: Facts) -> str:
    trials = sum(study["trials"] for study in facts["studies"])
    finished = sum(study["finished"] for study in facts["studies"])
    text = f" {finished:,} of {trials:,} trials of its studies are trained." if trials else ""
    return text + (f" Missing: {list_some(missing)}." if (missing := facts.get("missing")) else "")
