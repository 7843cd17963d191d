"""The paper's claims, one by one, against what was measured.

A claim is judged by the JSON files that ``graphnorm reproduce`` writes. One whose item is not there, or lacks a rival
that it names, is left out. Each is counted over cases (panels, cells, graphs), and the page says by which rule.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphnorm.errors import GraphnormError
from graphnorm.paper import judging
from graphnorm.paper.contests import converges_within, scores_best, trains
from graphnorm.paper.judging import Facts, Judge, Judged
from graphnorm.paper.products import QUICK_NOTE
from graphnorm.paper.recipe import IMAGES, Beside, Recipe, Trainings
from graphnorm.paper.recipes import RECIPES
from graphnorm.study.protocol import find_protocol
from graphnorm.study.significance import ALPHA

__all__ = ["CLAIMS", "Claim", "claims_page", "read_items"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, or one of ours that the same numbers speak to."""

    item: str
    text: str
    judge: Judge
    of_most: bool = False
    """Whether the sentence itself is about most cases only."""
    images_of: str = ""
    """The item whose images it is compared with, where its own has none."""
    remark: str = ""
    """How it is read, where that is not obvious."""

    def judged(self, items: Mapping[str, Facts]) -> Judged | None:
        """By the numbers of its item, where that is there."""
        facts = items.get(self.item)
        if facts is not None and self.images_of:
            beside = items.get(self.images_of, {}).get("relative_deviation", ())
            images = [entry for entry in beside if IMAGES in entry["what"]]
            facts = {**facts, "relative_deviation": [*facts["relative_deviation"], *images]}
        return None if facts is None else self.judge(facts)

    def notes(self, items: Mapping[str, Facts]) -> list[str]:
        """What is unfinished or different in its item, or in its images where they are another item's."""
        of_images = [text for text in items.get(self.images_of, {}).get("remarks", ()) if IMAGES in text]
        return [*_notes(items[self.item]), *of_images]


_CHOSEN = "As in the paper, the folds that choose configuration and epoch are those that are reported."
_NO_ALPHA = "The authors' code for this dataset has no α: what it calls GraphNorm is `instance` here."

CLAIMS: tuple[Claim, ...] = (
    Claim("theory", "Theorem 1: the singular values of QN interlace those of Q.", judging.interlaces),
    Claim(
        "theory",
        "Proposition of Section 3.2, Appendix A.2: in the linear example gradient descent is faster with the shift.",
        judging.linear_example,
    ),
    Claim("theory", "Fact 1: for α ≠ 1 no InstanceNorm equals GraphNorm.", judging.expressive),
    Claim("theory", "Appendix A.5: the gradient of W carries (HQN)ᵀ ⊗ S in place of (HQ)ᵀ ⊗ I.", judging.gradient),
    Claim("table3", "Appendix B: the dataset table.", judging.dataset_statistics),
    Claim(
        "fig2",
        "Section 5, Figure 2: GIN with GraphNorm has “the fastest convergence on all tasks”.",
        trains("graph", "ahead"),
    ),
    Claim(
        "fig2",
        "Section 5: GraphNorm converges in “roughly 5000/500 iterations on NCI1 and PTC”, BatchNorm “does not "
        "even converge in 10000/1000 iterations”.",
        converges_within({"NCI1": 5000, "PTC": 500}),
    ),
    Claim(
        "fig2",
        "Figure 2: the convergence speed of InstanceNorm “dominates BatchNorm and LayerNorm in most tasks”.",
        trains("instance", "ahead", ("batch", "layer")),
        of_most=True,
    ),
    Claim(
        "fig2",
        "Section 3.1: LayerNorm “hardly improves the training process in most tasks”.",
        trains("layer", "not ahead", ("none",)),
        of_most=True,
        remark="Read as: it is not ahead of no normalization, beyond noise.",
    ),
    Claim(
        "fig6",
        "Appendix D.3, Figure 6: GCN with GraphNorm has “the fastest convergence on all tasks”, too.",
        trains("graph", "ahead"),
    ),
    Claim(
        "fig6",
        "Appendix D.3: GCN with InstanceNorm “even underperforms GCNs with other normalizations”.",
        trains("instance", "behind", ("layer", "batch", "graph")),
        remark="Read as: it is behind each of them.",
    ),
    Claim(
        "fig5",
        "Section 4, Figure 5: a learnable α would “significantly boost the training on IMDB-BINARY” (regular graphs).",
        trains("graph", "ahead", ("instance",), panel="IMDB-BINARY"),
    ),
    Claim(
        "fig5",
        "Section 4, Figure 5: it “slightly improves the convergence on PROTEINS” (irregular graphs).",
        trains("graph", "ahead", ("instance",), panel="PROTEINS"),
        remark="The size of the difference is not judged.",
    ),
    Claim(
        "fig4",
        "Section 3.3, Figure 4: batch statistics of graphs are noisier than those of images.",
        judging.noisier_than_images,
    ),
    Claim(
        "fig8",
        "Appendix D.2, Figure 8: so they are on four more datasets.",
        judging.noisier_than_images,
        images_of="fig4",
    ),
    Claim("fig9", "Appendix D.2, Figure 9: so they are at every depth.", judging.noisier_than_images),
    Claim(
        "fig10",
        "Appendix D.2, Figure 10: they are noisy at batch sizes of 8, 16, 32 and 64.",
        judging.noisier_than_images,
        images_of="fig4",
        remark="The images are those of Figure 4, in batches of 128; smaller ones are noisier for that reason alone.",
    ),
    Claim(
        "fig11",
        "Appendix D.4, Figure 11: GraphNorm “consistently outperforms the BatchNorm” at batch sizes of 8 to 64.",
        trains("graph", "ahead", ("batch",)),
    ),
    Claim(
        "fig12",
        "Appendix D.4, Figure 12: α-BatchNorm “cannot outperform the BatchNorm”.",
        trains("batch-alpha", "not ahead", ("batch",)),
        remark="Read as: it is not ahead beyond noise.",
    ),
    Claim(
        "fig12",
        "Appendix D.4, Figure 12: BatchNorm with running statistics (MS-) underperforms BatchNorm “by a large margin”.",
        trains("batch-running", "behind", ("batch",)),
        remark="The size of the margin is not judged.",
    ),
    Claim(
        "fig12",
        "Appendix D.4, Figure 12: BatchNorm without gradients through its statistics (DT-) does, too.",
        trains("batch-detached", "behind", ("batch",)),
        remark="The size of the margin is not judged.",
    ),
    Claim("fig12", "Not in the paper: no variant of BatchNorm trains as well as GraphNorm.", trains("graph", "ahead")),
    Claim(
        "table1",
        "Section 5, Table 1: GraphNorm “improves the generalization on most benchmarks”: the highest accuracy of GIN.",
        scores_best("gin"),
        of_most=True,
        remark=_CHOSEN,
    ),
    Claim(
        "table1",
        "Not in the paper: the same of GCN, of which Table 1 has no numbers.",
        scores_best("gcn"),
        of_most=True,
        remark=_CHOSEN,
    ),
    Claim("table1", "Table 1: the numbers, within one reported standard deviation.", judging.within_reported),
    Claim(
        "table2",
        "Section 5, Table 2: GraphNorm has the highest test ROC-AUC of GIN on ogbg-molhiv.",
        scores_best("molhiv-gin"),
        remark=_NO_ALPHA,
    ),
    Claim("table2", "Section 5, Table 2: the same of GCN.", scores_best("molhiv-gcn"), remark=_NO_ALPHA),
    Claim("table2", "Table 2: the numbers, within one reported standard deviation.", judging.within_reported),
)
"""In the order of the page; those of one item follow each other."""

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
    """Give the page: a table of verdicts, then each claim with its numbers, and where those of an item come from."""
    quick = any(facts["quick"] for facts in items.values())
    found = [(claim, judged) for claim in CLAIMS if (judged := claim.judged(items))]
    lines = ["# The paper's claims, measured", ""]
    lines += [f"**{QUICK_NOTE}. So few folds and epochs decide nothing.**", ""] if quick else []
    lines += ["Made by `graphnorm reproduce` from the results beside it.", "", *(f"- {rule}" for rule in RULES), ""]
    lines += [*_unjudged(found), "| claim | here | right | beyond noise |", "|---|---|---|---|"]
    marked = False
    for claim, judged in found:
        sure = "–" if judged.beyond is None else "{} for, {} against".format(*judged.beyond)
        right = f"{judged.right:,} of {judged.cases:,}"
        mark = " \\*" if claim.notes(items) else ""
        marked |= bool(mark)
        lines.append(f"| {claim.text} | {judged.verdict(claim.of_most)}{mark} | {right} | {sure} |")
    lines += (
        ["", "\\* Something of it is unfinished or different; see the notes at the end of its section."]
        if marked
        else []
    )
    for item in dict.fromkeys(claim.item for claim, _ in found):
        of_item = [(claim, judged) for claim, judged in found if claim.item == item]
        lines += ["", f"## {items[item].get('title', item)}"]
        for claim, judged in of_item:
            lines += ["", f"### {claim.text}", "", *_section(claim, judged)]
        lines += ["", _provenance(item, items[item])]
        notes = dict.fromkeys(note for claim, _ in of_item for note in claim.notes(items))
        lines += ["", "Notes:", "", *(f"- {note}" for note in notes)] if notes else []
    return "\n".join(lines) + "\n"


def _section(claim: Claim, judged: Judged) -> list[str]:
    lines = [f"**{judged.verdict(claim.of_most).capitalize()}**: {judged.words}."]
    lines[0] += f" {claim.remark}" if claim.remark else ""
    if judged.rows:
        rows = (judged.columns, ("---",) * len(judged.columns), *judged.rows)
        lines += ["", *(f"| {' | '.join(row)} |" for row in rows)]
    return lines


def _unjudged(found: Sequence[tuple[Claim, Judged]]) -> list[str]:
    listed = {claim.text for claim, _ in found}
    items = [claim.item for claim in CLAIMS if claim.text not in listed]
    if not items:
        return []
    counts = [f"{items.count(item)} of `{item}`" for item in dict.fromkeys(items)]
    return [f"Not judged, since there are no numbers of them or of all their rivals: {', '.join(counts)}.", ""]


def _notes(facts: Facts) -> list[str]:
    """What an item says of itself that is unfinished or different."""
    if "remarks" in facts:
        return list(facts["remarks"])
    of_table = "cells" in facts or "as_printed" in facts  # what a table says first is how many cells are as reported
    return list(facts["sentences"][1:]) if of_table else []


def _provenance(item: str, facts: Facts) -> str:
    """Where the numbers of an item come from."""
    if facts["trained_on"]:
        origin = f"trained on {', '.join(facts['trained_on'])} with {'; '.join(facts['trained_with'])}"
    else:
        origin = f"nothing was trained; graphnorm {facts['graphnorm']}, torch {facts['torch']}"
    text = f"From `{item}`, made on {facts['made'][:10]}: {origin}."
    if planned := _planned(RECIPES[item].quick() if facts["quick"] else RECIPES[item]):
        text += f" {sum(study['finished'] for study in facts['studies']):,} of {planned:,} trials are trained."
    return text


def _planned(recipe: Recipe) -> int:
    """How many trials all of a recipe has."""

    def of_part(part: Trainings | Beside) -> int:
        members = [part.folds * part.seeds if find_protocol(p).unit == "fold" else part.seeds for p in part.protocols]
        if isinstance(part, Beside):
            return len(part.datasets) * len(part.baselines) * sum(members)
        return len(part.datasets) * len(part.models) * len(part.norms) * len(part.grid) * sum(members)

    return sum(map(of_part, (*recipe.trained, *((recipe.beside,) if recipe.beside else ()))))
