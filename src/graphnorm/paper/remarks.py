"""Remarks under tables and figures: what was not trained, and what a quick pass is."""

from __future__ import annotations

from graphnorm.paper.material import Material
from graphnorm.paper.products import list_some

__all__ = ["about_absent", "about_quick"]


def about_absent(material: Material) -> tuple[str, ...]:
    """Studies of which there is no trial."""
    return (f"Not trained: {list_some(material.absent)}.",) if material.absent else ()


def about_quick(material: Material) -> tuple[str, ...]:
    """That a quick pass decides nothing."""
    if not material.quick:
        return ()
    return ("This is a quick pass: fewer datasets, folds, epochs and configurations. The differences say nothing yet.",)
