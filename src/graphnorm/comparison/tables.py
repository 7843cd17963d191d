"""A comparison as text, as HTML and as a data frame: one set of columns for all of them."""

from __future__ import annotations

import html
import math
import statistics
from typing import TYPE_CHECKING

from graphnorm.errors import MissingDependencyError
from graphnorm.study.kernels import KERNELS, candidate_in_words

if TYPE_CHECKING:
    import pandas

    from graphnorm.comparison.result import Comparison, NormResult

__all__ = ["as_frame", "as_html", "as_text"]

NOTHING = "–"
FRAME = (
    *("norm", "mean", "std", "epoch", "epochs_to_target", "area", "seconds", "diverged", "paper_mean", "paper_std"),
    *("behind_best", "p_adjusted", "significantly_worse_than_best"),
)
"""The columns of a data frame."""


def as_text(comparison: Comparison) -> str:
    """Give a line for each normalization, in columns."""
    rows = [_columns(comparison), *_rows(comparison)]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *rest = (
            f"{cell:<{width}}" if place == 0 else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *rest]).rstrip())
    return "\n".join([_title(comparison), "", *lines])


def as_html(comparison: Comparison) -> str:
    """Give the table, the notes and the verdict, for a notebook."""
    best = comparison.ranking[0] if comparison.ranking else None

    def line(cells: list[str], tag: str, strong: bool = False) -> str:
        inner = (f"<b>{html.escape(cell)}</b>" if strong else html.escape(cell) for cell in cells)
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in inner) + "</tr>"

    names = [*comparison.norms, *(None for _ in comparison.baselines)]
    body = "".join(
        line(row, "td", strong=name is not None and name == best)
        for name, row in zip(names, _rows(comparison), strict=True)
    )
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in comparison.notes)
    return (
        f"<p>{html.escape(_title(comparison))}</p>"
        f"<table><thead>{line(_columns(comparison), 'th')}</thead><tbody>{body}</tbody></table>"
        f"<p><b>{html.escape(comparison.verdict)}</b></p>" + (f"<ul>{notes}</ul>" if notes else "")
    )


def as_frame(comparison: Comparison) -> pandas.DataFrame:
    """Give a row for each normalization and each baseline; what is not known is NaN."""
    try:
        import pandas
    except ImportError as error:
        raise MissingDependencyError("pandas", "a data frame", "study") from error
    best = comparison.ranking[0] if comparison.ranking else None
    rows = []
    for name, result in comparison.norms.items():
        test = None if best is None or name == best else comparison.pair(best, name)
        rows.append(
            {
                "norm": name,
                "mean": result.mean,
                "std": result.std,
                "epoch": statistics.median(result.epochs) if result.epochs else None,
                "epochs_to_target": comparison.convergence.epochs.get(name),
                "area": comparison.convergence.area.get(name),
                "seconds": result.seconds,
                "diverged": result.selection.diverged,
                "paper_mean": None if result.paper is None else result.paper.mean,
                "paper_std": None if result.paper is None else result.paper.std,
                "behind_best": 0.0 if name == best else None if test is None else test.difference,
                "p_adjusted": None if test is None else test.p_adjusted,
                "significantly_worse_than_best": test is not None and test.significant,
            }
        )
    for name, result in comparison.baselines.items():
        paper = (None, None) if result.paper is None else result.paper[:2]
        own = dict(zip(("mean", "std", "paper_mean", "paper_std"), (result.mean, result.std, *paper), strict=True))
        own |= {"norm": f"baseline {name}", "seconds": result.seconds, "diverged": result.selection.diverged}
        if name not in KERNELS and result.epochs:
            own["epoch"] = statistics.median(result.epochs)
        rows.append(dict.fromkeys(FRAME) | own | {"significantly_worse_than_best": False})
    frame = pandas.DataFrame(rows, columns=FRAME).set_index("norm")
    numbers = [column for column in frame.columns if column not in ("diverged", "significantly_worse_than_best")]
    return frame.astype(dict.fromkeys(numbers, "float64"))


def _title(comparison: Comparison) -> str:
    settings = comparison.settings
    parts = f"{settings.folds} folds" if comparison.protocol.unit == "fold" else "official split"
    seeds = f", {settings.seeds} seeds" if settings.seeds > 1 else ""
    return (
        f"{comparison.dataset} ({comparison.num_graphs:,} graphs), {settings.model}, "
        f"protocol {settings.protocol}, {parts}{seeds}, {settings.epochs} epoch{'' if settings.epochs == 1 else 's'}"
    )


def _columns(comparison: Comparison) -> list[str]:
    target = comparison.convergence.target
    reach = "epochs to target" if target is None else f"epochs to {target:.1f} %"
    columns = ["norm", f"{comparison.protocol.metric} %", "epoch", reach, "area %", "seconds", "p vs best"]
    return columns + (["paper"] if _has_paper(comparison) else [])


def _rows(comparison: Comparison) -> list[list[str]]:
    rows = [_row(comparison, result) for result in comparison.norms.values()]
    return rows + [_baseline_row(comparison, result) for result in comparison.baselines.values()]


def _baseline_row(comparison: Comparison, result: NormResult) -> list[str]:
    """Marked as a baseline; what compares normalizations among themselves is left out."""
    cells = [f"baseline {result.name}", _score(result), _chosen(result), *[NOTHING] * 2]
    cells += [f"{result.seconds:.1f}", NOTHING]
    return cells + _paper(comparison, result)


def _score(result: NormResult) -> str:
    if not math.isfinite(result.mean):
        return "diverged"
    score = f"{result.mean:.1f}" + (f" ± {result.std:.1f}" if math.isfinite(result.std) else "")
    return score + (f" ({result.selection.diverged} diverged)" if result.selection.diverged else "")


def _chosen(result: NormResult) -> str:
    """The epoch; for a kernel, whose epochs are its candidates, what tells the chosen one from the others."""
    epochs, epoch = result.epochs, result.selection.epoch
    if not epochs:
        return NOTHING
    if result.name in KERNELS:
        return NOTHING if epoch is None else candidate_in_words(result.name, epoch)
    return str(epoch) if epoch is not None else f"{min(epochs)}–{max(epochs)}"


def _paper(comparison: Comparison, result: NormResult) -> list[str]:
    """The cell of the paper's number, where there is such a column."""
    return [NOTHING if result.paper is None else str(result.paper)] if _has_paper(comparison) else []


def _row(comparison: Comparison, result: NormResult) -> list[str]:
    name, convergence = result.name, comparison.convergence
    cells = [
        name,
        _score(result),
        _chosen(result),
        str(convergence.epochs.get(name, NOTHING)),
        f"{convergence.area[name]:.1f}" if name in convergence.area else NOTHING,
        f"{result.seconds:.1f}",
        _against_best(comparison, result),
    ]
    return cells + _paper(comparison, result)


def _against_best(comparison: Comparison, result: NormResult) -> str:
    """The adjusted p-value; a star where the best is significantly better."""
    if not comparison.ranking or not math.isfinite(result.mean):
        return NOTHING
    best = comparison.ranking[0]
    if result.name == best:
        return "best"
    test = comparison.pair(best, result.name)
    if test.p_adjusted is None:
        return NOTHING
    number = "<0.001" if test.p_adjusted < 0.001 else f"{test.p_adjusted:.3f}"
    return number + (" *" if test.significant else "")


def _has_paper(comparison: Comparison) -> bool:
    return any(result.paper is not None for result in (*comparison.norms.values(), *comparison.baselines.values()))
