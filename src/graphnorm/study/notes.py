"""Notes on a result: reasons to doubt its numbers, and how its table is read."""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from graphnorm.errors import listing
from graphnorm.study.paper_numbers import unlike_the_paper
from graphnorm.study.render import counted
from graphnorm.study.significance import ALPHA

if TYPE_CHECKING:
    from graphnorm.study.result import Result

__all__ = ["ABOUT_BASELINES", "cautions", "explanations", "guessing", "note_on_last_batch"]

ABOUT_BASELINES = "baselines have the same folds and their own settings; they are neither ranked nor tested"
SMALL_LAST_BATCH = 8
"""A last batch is small if it has less than an eighth of a full one. A sixteenth was seen to slow training."""
MOST_OF_THE_MEAN = 0.8
"""Of several errors one decides if it is this share of their sum."""


def guessing(result: Result) -> list[str]:
    """The norms that are no better than chance."""
    return [name for name in result.ranking if not result.metric.learned(result.norms[name].mean, result.chance)]


def cautions(result: Result) -> list[str]:
    """Reasons to doubt the numbers."""
    protocol, spec = result.protocol, result.spec
    found = [
        f"{name}: {score.diverged} of {len(score.choices)} trainings diverged and are left out"
        for name, score in result.norms.items()
        if score.diverged
    ]
    if (low := guessing(result)) and result.chance is not None:
        found.append(f"{listing(low)}: no better than chance ({result.metric.with_unit(result.chance)})")
    found += [
        f"{name}: only {score.finished:,} of {counted(planned, 'training')} finished"
        for name, score in result.norms.items()
        if score.choices and score.finished < (planned := score.trials - score.dropped)
    ]
    if result.unfinished:
        found.append(f"not trained: {', '.join(result.unfinished)}")
    if failed := result.counts.get("failed"):
        found.append(f"{counted(failed, 'trial')} failed: {_reasons(result)}")
    if result.norms and protocol.name == "paper":
        found.append("protocol paper: the same folds choose the epoch and are reported, so numbers are optimistic")
    if result.values_of("last_batch") == ["keep"] and len(sizes := result.values_of("batch_size")) == 1:
        found += note_on_last_batch(spec.get("train_sizes") or (), sizes[0])
    compared = [score.compared for score in result.norms.values() if score.choices]
    if len(set(compared)) > 1:
        found.append("the numbers of trained configurations differ: a larger choice is an advantage")
    if protocol.unit == "fold" and any(score.paper for score in result.norms.values()):
        found += unlike_the_paper(spec["folds"], max(result.values_of("epochs")), max(compared, default=0))
    found += _one_target_decides(result)
    if protocol.unit == "seed" and result.norms:
        found.append("significance is over seeds on one split and does not extend to other splits")
    return found


def _one_target_decides(result: Result) -> list[str]:
    """Of errors in units of their own, the largest can be nearly all of the mean."""
    means = {name: of[result.best].mean for name, of in result.targets.items() if result.best in of}
    if result.metric.higher_is_better or not means or not all(map(math.isfinite, means.values())):
        return []
    largest = max(means, key=lambda name: means[name])
    share = means[largest] / (sum(means.values()) or 1.0)
    if share < MOST_OF_THE_MEAN:
        return []
    return [f"{largest} is {share:.0%} of the mean {result.metric.name}; --metric r2 weighs the targets alike"]


def _reasons(result: Result) -> str:
    """Why trials failed, and the command that shows all reasons."""
    first, *others = (textwrap.shorten(error, 160, placeholder=" …") for error in result.errors or ("for no reason",))
    more = f"; and {counted(len(others), 'other reason')}" if others else ""
    if not result.store:
        return first + more
    command = shlex.join(["graphnorm", "runs", "show", "--store", result.store, result.study])
    return f"{first}{more}; `{command}` shows all reasons, --retry-failed tries again"


def explanations(result: Result) -> list[str]:
    """How to read the table."""
    found = _about_metric(result) + ([ABOUT_BASELINES] if result.baselines and result.norms else [])
    if result.spec.get("unused_split"):
        found.append(f"folds are drawn at random; the split of {result.dataset} is for runs without --protocol")
    if result.spec.get("unused_edge_features"):
        found.append(f"{result.model} ignores the edge features (bonds); molecular-gin and pyg:GAT use them")
    if dropped := result.counts.get("dropped"):
        found.append(f"the search dropped {dropped:,} of {result.trials:,} trainings early, by their validation scores")
    if any(test.p_adjusted is not None for test in result.tests):
        found.append(_about_tests(result))
    return found


def _about_metric(result: Result) -> list[str]:
    """Why the metric was chosen, and the unit of an error."""
    metric, spec = result.metric, result.spec
    names, found = spec.get("target_names", ()), []
    if spec.get("smaller_class") and metric.key == "roc-auc":
        share = f"{100 * spec['smaller_class']:.0f} %"
        found.append(f"metric ROC-AUC, because only {share} of the graphs are in the smaller class")
    if len(names) > 1:
        alike = "" if metric.higher_is_better else ", each in its own unit; --metric r2 weighs them alike"
        found.append(f"{metric.name} is the mean over {len(names)} targets{alike}{_left_out(result, names)}")
    elif names and not metric.higher_is_better:
        found.append(f"{metric.name} is in the unit of {names[0]}")
    return found


def _left_out(result: Result, names: Sequence[str]) -> str:
    """Which targets have no metric in some folds or seeds, since all that is known of them there is alike."""
    values = [choice.targets for name in result.ranking[:1] for choice in result.norms[name].choices]
    if not values or any(len(row) != len(names) for row in values):
        return ""
    counts = {name: sum(map(math.isnan, column)) for name, *column in zip(names, *values, strict=True)}
    where = [f"{name} in {count} of {len(values)} {result.protocol.unit}s" for name, count in counts.items() if count]
    few = f"{listing(where[:4])}{' and others' if len(where) > 4 else ''}"
    return f", but where all graphs have the same value: without {few}" if where else ""


def _about_tests(result: Result) -> str:
    protocol = result.protocol
    test = f"paired over {protocol.unit}s" if protocol.paired else f"Welch's test of unpaired {protocol.unit}s"
    correction = " for overlapping training sets and" if protocol.paired and result.overlap else ""
    return (
        f"[95 %]: interval of a difference by itself; p: {test}, corrected{correction} for the number of pairs; "
        f"* below {ALPHA}"
    )


def note_on_last_batch(train_sizes: Collection[int], batch_size: int) -> list[str]:
    """Warn if the last mini-batch of an epoch is small.

    train_sizes: numbers of training graphs.

    >>> print(*note_on_last_batch([3329], 128))
    the last mini-batch has 1 graph (others 128), which can slow training; --last-batch even makes all about equal
    >>> note_on_last_batch([3699], 128)
    []
    """
    smallest = min(((graphs - 1) % batch_size + 1 for graphs in train_sizes), default=batch_size)
    if max(train_sizes, default=0) <= batch_size or smallest * SMALL_LAST_BATCH >= batch_size:
        return []
    few = f"the last mini-batch has {counted(smallest, 'graph')} (others {batch_size})"
    return [f"{few}, which can slow training; --last-batch even makes all about equal"]
