"""From a store to a :class:`Result`: selection by the protocol, and the curves of the selected trainings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from graphnorm.settings import Hyperparameters, options_of
from graphnorm.study.paper_numbers import reported
from graphnorm.study.plan import Plan
from graphnorm.study.protocol import ALL_GRAPHS, find_protocol
from graphnorm.study.result import Result
from graphnorm.study.score import Curve, Score
from graphnorm.study.selection import Chosen, choose
from graphnorm.study.store import Record, Store
from graphnorm.training import Trial, metric_of

__all__ = ["CURVES", "average_curves", "read"]

CURVES = ("loss", "train", "valid", "test")


def read(store: Store, plan: Plan, *, partial: bool = False, among: Callable[[Trial], bool] | None = None) -> Result:
    """Read the result of a plan, as far as the store has its trials; it need not be a study of this store.

    partial: if no configuration is finished on all folds and seeds, use those of the configuration with the most.
    among: select only among configurations whose trials pass this filter.
    """
    records = {record.place: record for record in store.records(plan)}
    scores: dict[str, dict[str, Score]] = defaultdict(dict)
    for (kind, name), groups in plan.configurations().items():
        if groups := [group for group in groups if among is None or among(plan.trials[group[0]])]:
            scores[kind][name] = _read_score(store, plan, name, groups, records, partial)
    return Result(
        plan.name,
        plan.spec,
        scores["norms"],
        scores["baselines"],
        trials=len(plan.trials),
        counts=dict(Counter(record.status for record in records.values())),
        seconds=sum(record.seconds for record in records.values()),
        code=tuple(sorted({record.code for record in records.values()})),
        errors=tuple(sorted({record.error.splitlines()[0] for record in records.values() if record.error})),
        store=str(store.path),
    )


def _read_score(
    store: Store, plan: Plan, name: str, groups: list[list[int]], records: dict[int, Record], partial: bool
) -> Score:
    """groups: for each configuration, the places of its trials in the plan."""
    examples = [plan.trials[group[0]] for group in groups]
    trial, metric = examples[0], metric_of(examples[0])
    protocol = find_protocol(trial.protocol)
    varied = [
        option
        for option in options_of(Hyperparameters)
        if any(getattr(other, option) != getattr(trial, option) for other in examples)
    ]
    places = [place for group in groups for place in group]
    statuses = Counter(records[place].status for place in places if place in records)
    known = plan.spec.get("catalogued", True)  # whether these are the paper's graphs
    # Where all graphs train, nothing is held out to choose by.
    chosen = Chosen() if protocol is ALL_GRAPHS else choose(store, plan, groups, records, partial=partial)
    selected = [
        place
        for choice in chosen.choices
        for place in groups[choice.configuration]
        if (plan.trials[place].fold, plan.trials[place].seed) == (choice.fold, choice.seed)
    ]
    members = store.records(plan, curves=CURVES, places=selected)
    return Score(
        name,
        protocol,
        metric,
        trials=len(places),
        finished=statuses["done"] + statuses["diverged"],
        dropped=statuses["dropped"],
        configurations=tuple({option: getattr(other, option) for option in varied} for other in examples),
        **chosen._asdict(),
        curves=average_curves([record for record in members if record.status == "done"], metric.scale),
        seconds=sum((record.seconds for record in members), start=0.0),
        devices=tuple(sorted({record.device for record in members if record.device})),
        paper=reported(trial.dataset, trial.model, trial.norm, trial.protocol) if chosen.choices and known else None,
    )


def average_curves(members: Sequence[Record], scale: float) -> dict[str, tuple[Curve, Curve]]:
    """Mean and sample standard deviation by epoch of the curves that all members have."""
    curves = {}
    for name in CURVES:
        if members and all(name in record.curves for record in members):
            values = np.stack([record.curves[name] for record in members]).astype(np.float64)
            values = values * (1.0 if name == "loss" else scale)
            spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1], np.nan)
            curves[name] = values.mean(axis=0), spread
    return curves
