"""``compare``: from graphs and options to a verdict."""

from __future__ import annotations

import os
from pathlib import Path
from types import NoneType
from typing import Any, Literal

import torch

from graphnorm import training
from graphnorm.comparison.display import choose_display
from graphnorm.comparison.folder import Folder
from graphnorm.comparison.result import Comparison, NormResult
from graphnorm.comparison.settings import Settings, catalogued, settle
from graphnorm.comparison.tally import Tally
from graphnorm.data import PackedGraphs, load
from graphnorm.data.loading import describe_origin
from graphnorm.errors import PATH, GraphnormError, require
from graphnorm.layers import try_norm
from graphnorm.paper.reported import reported, reported_baseline
from graphnorm.study.baselines import train_baseline
from graphnorm.study.guessing import guessing_score
from graphnorm.study.protocol import make_splits, overlap
from graphnorm.training.fleet import default_device

__all__ = ["ComparisonInterrupted", "compare"]


class ComparisonInterrupted(KeyboardInterrupt):
    """A comparison that was stopped by Ctrl-C, with what it had finished."""

    def __init__(self, partial: Comparison | None, folder: Path | None) -> None:
        self.partial, self.folder = partial, folder
        kept = "nothing is finished yet" if partial is None else f"finished: {', '.join(partial.norms)}"
        if folder is None:
            advice = "nothing is kept; with --out DIR (out=...) a stopped comparison can go on"
        else:
            advice = f"kept in {folder}; the same command with --resume (resume=True) goes on"
        super().__init__(f"stopped; {kept}; {advice}")


def compare(
    data: str | os.PathLike[str] | PackedGraphs = "molecules",
    *,
    model: str | None = None,
    norms: tuple[str, ...] | list[str] | str | None = None,
    baselines: tuple[str, ...] | list[str] | str | None = None,
    protocol: str | None = None,
    folds: int | None = None,
    seeds: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    dropout: float | None = None,
    hidden: int | None = None,
    layers: int | None = None,
    self_loops: bool = False,
    readout: Literal["sum", "mean"] | None = None,
    device: str | torch.device | None = None,
    workers: int | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    data_root: str | os.PathLike[str] | None = None,
    **loading: Any,
) -> Comparison:
    """Train the same model with several normalizations on the same folds, and say which does best.

    Args:
        data: a dataset's name, the path of your own graphs, or graphs that are loaded already.
        model: ``"gin"`` (the default), ``"gcn"``, or for molecules ``"molecular-gin"``, ``"molhiv-gin"`` (the default
            for an official split) and the same with ``gcn``.
        norms: names of normalizations; by default the five of the paper's Figure 2.
        baselines: names of other methods to put beside them, see :data:`graphnorm.study.baselines.BASELINES`; they
            have the same folds and their own settings, and no part in the ranking.
        protocol: ``"paper"``, ``"fair"`` or ``"ogb"``, see :mod:`graphnorm.study.protocol`.
        folds: of the cross-validation.
        seeds: how often each fold is trained.
        epochs, batch_size, lr, weight_decay, dropout, hidden, layers: left out, those of the paper's training curves,
            with fewer epochs, or for an official split those of its Table 2.
        self_loops: give every node a self-loop besides its own term, as the authors' data has it.
        readout: ``"sum"`` or ``"mean"``; left out, the catalogue's for a known dataset, else the sum.
        device: left out, a GPU where there is one.
        workers: processes to train in, on the CPU.
        out: a folder for tables, curves and JSON, and for what is needed to go on after a stop.
        resume: go on with what the folder holds, with the same settings and data, and the same normalizations or more.
        overwrite: begin anew whatever the folder holds.
        progress: show how far it is, on standard error.
        data_root: a folder of archives, see :func:`graphnorm.data.load`.
        loading: what else :func:`graphnorm.data.load` takes: ``smiles``, ``label``, ``threshold`` ...

    Raises:
        ComparisonInterrupted: on Ctrl-C, when what is finished has been written.
    """
    if isinstance(data, PackedGraphs):
        if loading or data_root is not None:
            raise GraphnormError("graphs that are loaded already take no options of loading", remedy="leave them out")
        graphs, origin = data, None
    else:
        require(
            "data", data, PATH, "a dataset's name, a path or PackedGraphs (graphnorm.data.from_networkx makes them)"
        )
        graphs, origin = load(data, data_root, **loading), describe_origin(data, **loading)
    require("workers", workers, (int, NoneType), "a whole number")
    require("out", out, (*PATH, NoneType), "the path of a folder")
    if workers is not None and workers < 1:
        raise GraphnormError(f"workers is {workers}", remedy="give 1 or more")
    if resume and out is None:
        raise GraphnormError("there is nothing to resume without a folder", remedy="name it with --out")
    if resume and overwrite:
        raise GraphnormError(
            "to resume and to overwrite exclude each other", remedy="leave --resume or --overwrite out"
        )
    settings = settle(
        graphs,
        model=model,
        norms=norms,
        baselines=baselines,
        protocol=protocol,
        self_loops=self_loops,
        readout=readout,
        folds=folds,
        seeds=seeds,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        weight_decay=weight_decay,
        dropout=dropout,
        hidden=hidden,
        layers=layers,
    )
    return _run(graphs, origin, settings, default_device(device), workers, out, resume, overwrite, progress)


def _run(
    graphs: PackedGraphs,
    origin: dict[str, Any] | None,
    settings: Settings,
    device: torch.device,
    workers: int | None,
    out: str | os.PathLike[str] | None,
    resume: bool,
    overwrite: bool,
    progress: bool,
) -> Comparison:
    beside = {beside_name(name): name for name in settings.baselines}
    trials = {norm: settings.trials(graphs, norm) for norm in settings.norms}
    trials |= {shown: settings.baseline_trials(graphs, name) for shown, name in beside.items()}
    splits = make_splits(graphs, trials[settings.norms[0]])  # the normalization has no part in them
    for norm in settings.norms:
        try_norm(norm, settings.hidden, device)
    folder = None if out is None else Folder(Path(out), resume=resume, overwrite=overwrite)
    if folder is not None:
        folder.refuse_others(settings, trials)
    entry = catalogued(graphs)
    tally = Tally(trials)
    results: dict[str, NormResult] = {}
    found: list[str] = []

    def result(*, partly: bool = False) -> Comparison:
        comparison = Comparison(
            dataset=graphs.name,
            fingerprint=graphs.fingerprint,
            num_graphs=graphs.num_graphs,
            classes=graphs.classes,
            settings=settings,
            norms={norm: results[norm] for norm in settings.norms if norm in results},
            baselines={name: results[shown] for shown, name in beside.items() if shown in results},
            overlap=overlap(settings.protocol, splits),
            guessing=guessing_score(graphs, settings.protocol),
            training_sizes=tuple(len(split.train) for split in splits),
            resumed=tuple(found),
            origin=origin,
        )
        if folder is not None and (results or not partly):
            folder.write(comparison)
        return comparison

    try:
        with choose_display(tally, progress) as display:
            for name, wanted in trials.items():
                kept = None if folder is None else folder.find(name, wanted)
                if kept is None:
                    continue
                found.append(name)
                results[name] = _report(beside.get(name, name), kept, entry is not None, name in beside)
                tally.finish(name, _summary(results[name]), found=True)
                display.refresh(name)

            def finish(name: str, outcomes: list[training.Outcome]) -> None:
                if folder is not None:
                    folder.keep(name, outcomes)
                results[name] = _report(beside.get(name, name), outcomes, entry is not None, name in beside)
                tally.finish(name, _summary(results[name]))
                display.refresh(name)

            missing = [norm for norm in settings.norms if norm not in results]
            trained: dict[training.Trial, training.Outcome] = {}

            def on_epoch(report: training.Progress) -> None:
                tally.update(report)
                display.refresh(report.trials[0].norm)

            def on_outcomes(outcomes: list[training.Outcome]) -> None:
                trained.update((outcome.trial, outcome) for outcome in outcomes)
                norm = outcomes[0].trial.norm
                if all(trial in trained for trial in trials[norm]):  # else another fleet has the rest of it
                    finish(norm, [trained[trial] for trial in trials[norm]])

            training.train(
                graphs,
                [trial for norm in missing for trial in trials[norm]],
                list(splits) * len(missing),
                device=device,
                on_epoch=on_epoch,
                on_outcomes=on_outcomes,
                workers=workers,
            )
            for name in [name for name in beside if name not in results]:

                def on_step(report: training.Progress, name: str = name) -> None:
                    tally.update(report, name)
                    display.refresh(name)

                parts = make_splits(graphs, trials[name])
                finish(
                    name, train_baseline(graphs, trials[name], parts, device=device, on_epoch=on_step, workers=workers)
                )
        return result()
    except KeyboardInterrupt as stop:
        partial = result(partly=True) if results else None
        raise ComparisonInterrupted(partial, None if folder is None else folder.path) from stop


def beside_name(baseline: str) -> str:
    """What a baseline is called among normalizations.

    >>> beside_name("wl")
    'baseline wl'
    """
    return f"baseline {baseline}"


def _report(name: str, outcomes: list[training.Outcome], known: bool, baseline: bool) -> NormResult:
    """known: whether the graphs are those of the catalogue, which the paper's numbers are about."""
    trial = outcomes[0].trial
    number = None
    if known and baseline:
        number = reported_baseline(trial.dataset, name, trial.protocol)
    elif known:
        number = reported(trial.dataset, trial.model, name, trial.protocol)
    return NormResult(name, tuple(outcomes), number)


def _summary(result: NormResult) -> str:
    chosen = result.selection
    if not result.epochs:
        return "diverged"
    spread = "" if chosen.std != chosen.std else f" ± {result.std:.1f}"
    lost = f", {chosen.diverged} diverged" if chosen.diverged else ""
    return f"{result.mean:.1f}{spread} %{lost}, {result.seconds:.1f} s"
