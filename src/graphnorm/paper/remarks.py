"""Remarks under tables and figures: what was not trained, what a quick pass is, and where models differ."""

from __future__ import annotations

from graphnorm.paper.material import Material
from graphnorm.paper.products import list_some
from graphnorm.wording import listing

__all__ = ["about_absent", "about_dropout", "about_quick"]

DROPPED_ELSEWHERE = ("molecular-gin", "molecular-gcn")
"""Models whose dropout acts elsewhere than in the authors' code for the same data."""


def about_absent(material: Material) -> tuple[str, ...]:
    """Studies of which there is no trial."""
    return (f"Not trained: {list_some(material.absent)}.",) if material.absent else ()


def about_dropout(material: Material) -> tuple[str, ...]:
    """That models are not quite the authors', where they are not."""
    found = [name for name in DROPPED_ELSEWHERE if any(measured.model == name for measured in material.studies)]
    if not found:
        return ()
    return (f"{listing(found)}: dropout acts after every convolution, in the authors' code on the scores alone.",)


def about_quick(material: Material) -> tuple[str, ...]:
    """That a quick pass decides nothing."""
    if not material.quick:
        return ()
    return ("This is a quick pass: fewer datasets, folds, epochs and configurations. The differences say nothing yet.",)
