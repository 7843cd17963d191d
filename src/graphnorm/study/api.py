"""``compare`` and ``search``: from graphs and options to a result."""

from __future__ import annotations

import difflib
import inspect
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from graphnorm.data import PackedGraphs, load
from graphnorm.data.loading import describe_origin
from graphnorm.errors import PATH, GraphnormError, StudyError, require
from graphnorm.files import replacing
from graphnorm.settings import VARIABLE, Grid, Loading, Running, Settings, find_grid, options_of
from graphnorm.study.halving import adapt, estimate_seconds
from graphnorm.study.plan import Plan, make_plan, pack, settle
from graphnorm.study.progress import Callback, Display
from graphnorm.study.render import Table
from graphnorm.study.result import Result
from graphnorm.study.runner import Stopped, make_running, packing_device, run, slots, try_norms
from graphnorm.study.store import Store
from graphnorm.training import Outcome, Trial
from graphnorm.training.model_file import save_model

__all__ = ["STORE", "WRITTEN", "compare", "plan_search", "search", "train", "write_result"]

STORE = "graphnorm.db"
"""The store's file in a folder."""
WRITTEN = ("result.json", "result.csv", "scores.csv", "curves.csv", "curves.png", "curves.svg")
"""What :func:`compare` writes into its folder besides the store."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _takes_options(*classes: type) -> Callable[[_Function], _Function]:
    """Show the options of these classes in a function's signature and documentation."""

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        options = options_of(*classes)
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=about.kind)
            for name, about in options.items()
        ]
        function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        lines = "\n".join(f"        {name}: {about.help}." for name, about in options.items())
        function.__doc__ = (function.__doc__ or "").replace("        options: see below.", lines)
        return function

    return decorate


def _split_options(given: Mapping[str, Any]) -> tuple[dict[str, Any], Running, dict[str, Any]]:
    """Settings, running and loading options, from one dict of keywords."""
    classes = (Settings, Running, Loading)
    known = options_of(*classes)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise TypeError(f"there is no option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    settings, running, loading = (
        {name: given[name] for name in options_of(one) if given.get(name) is not None} for one in classes
    )
    return settings, make_running(**running), loading


def _open(data: Any, loading: dict[str, Any]) -> tuple[PackedGraphs, dict[str, Any] | None]:
    """The graphs, and where the user's own are."""
    if isinstance(data, PackedGraphs):
        if loading:
            raise GraphnormError("graphs that are loaded already take no options of loading", remedy="leave them out")
        return data, None
    require("data", data, PATH, "a dataset's name, a path or PackedGraphs (graphnorm.data.from_networkx makes them)")
    root = loading.pop("data_root", None)
    return load(data, root, **loading), describe_origin(data, **loading)


@_takes_options(Settings, Running, Loading)
def compare(
    data: str | os.PathLike[str] | PackedGraphs = "molecules",
    *,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> Result:
    """Train the same model with several normalizations on the same folds, and say which does best.

    It is a study of one configuration. With ``out``, its store lies in that folder: the same call again goes on where
    it stopped, and trains nothing twice.

    Args:
        data: a dataset's name, the path of your own graphs, or graphs that are loaded already.
        out: a folder for the store, tables, curves and JSON.
        overwrite: begin again, whatever the folder holds.
        progress: show how far it is, on standard error.
        callbacks: what else learns of the progress.
        options: see below.

    Raises:
        Stopped: on Ctrl-C or SIGTERM, with the result so far; what is finished has been written.

    >>> result = compare("synthetic:trees", norms="none,graph", epochs=1, folds=2, hidden=8, progress=False)
    >>> list(result.norms)
    ['none', 'graph']
    """
    given, running, loading = _split_options(options)
    require("out", out, (*PATH, type(None)), "the path of a folder")
    graphs, origin = _open(data, loading)
    plan = make_plan(graphs, settle(graphs, **given), origin=origin)
    try_norms(plan, running)  # before anything is written
    with ExitStack() as stack:
        folder = None if out is None else Path(out)
        if folder is None:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / STORE
        else:
            path = folder / STORE
            _prepare(folder, plan, overwrite)
        store = stack.enter_context(Store(path))
        shown = [*callbacks, *([Display()] if progress else [])]
        try:
            result = run(plan, graphs, store, running, callbacks=shown)
        except Stopped as stop:
            if folder is not None:
                write_result(stop.result, folder)
            raise
        if folder is not None:
            write_result(result, folder)
        return result


def _prepare(folder: Path, plan: Plan, overwrite: bool) -> None:
    """Make the folder and see that it can be written; refuse one that holds another comparison."""
    if folder.exists() and not folder.is_dir():
        raise GraphnormError("this is a file, not a folder", where=folder, remedy="name a folder")
    try:
        with replacing(folder / "writable"):
            pass
    except OSError as error:
        error.filename = str(folder)
        raise
    (folder / "writable").unlink()
    store = folder / STORE
    if overwrite:
        for name in (STORE, f"{STORE}-wal", f"{STORE}-shm", *WRITTEN):
            (folder / name).unlink(missing_ok=True)
        shutil.rmtree(store.with_name(f"{store.name}-work"), ignore_errors=True)
    if not store.exists():
        return
    with Store(store, writable=False) as held:
        specs = [study.spec for study in held.studies()]
    differences = [_differences(spec, plan.spec) for spec in specs]
    if specs and all(differences):
        raise GraphnormError(
            f"the comparison here is another one: {'; '.join(differences[-1])}",
            where=folder,
            remedy="ask for the same, begin again (--overwrite), or name another folder (--out)",
        )


def _differences(there: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """In what a study differs from what is asked for now, normalizations and baselines apart."""
    if there.get("fingerprint") != asked["fingerprint"]:
        return [f"its graphs ({there.get('dataset')}) are others"]
    names = ("model", "protocol", "folds", "seeds", "grid", *VARIABLE)
    values = {name: (there.get(name), asked.get(name)) for name in names}
    return [f"its {name} is {old}, not {new}" for name, (old, new) in values.items() if old != new]


def write_result(result: Result, folder: Path) -> None:
    """Write the files of :data:`WRITTEN`, each wholly or not at all; the JSON, which has everything, last."""
    figure = result.plot()
    for name in ("curves.png", "curves.svg"):
        with replacing(folder / name) as fresh:
            figure.savefig(fresh, dpi=150)
    with replacing(folder / "result.csv") as fresh:
        result.to_frame().to_csv(fresh, float_format="%.4f")
    content = result.to_dict()
    scores = [
        [name, *(member[key] for key in ("fold", "seed", "status", "epoch", "score"))]
        for name, norm in content["norms"].items()
        for member in norm["members"]
    ]
    curves = [
        [name, curve, epoch, mean, std]
        for name, norm in content["norms"].items()
        for curve, values in norm["curves"].items()
        for epoch, (mean, std) in enumerate(zip(values["mean"], values["std"], strict=True), start=1)
    ]
    texts = {
        "scores.csv": Table(("norm", "fold", "seed", "status", "epoch", "score"), scores).to_csv(),
        "curves.csv": Table(("norm", "curve", "epoch", "mean", "std"), curves).to_csv(),
        "result.json": json.dumps(content, indent=1) + "\n",
    }
    for name, text in texts.items():
        with replacing(folder / name) as fresh:
            fresh.write_text(text, encoding="utf-8")


@_takes_options(Settings, Running, Loading)
def search(
    data: str | os.PathLike[str] | PackedGraphs,
    grid: str | os.PathLike[str] | Grid = "paper",
    *,
    store: str | os.PathLike[str] = STORE,
    name: str | None = None,
    trials: int | None = None,
    budget: float | None = None,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> Result:
    """Train every configuration of a grid with every normalization on every fold, and choose by the protocol.

    Results go into the store as they come: the same call again trains only what is missing.

    Args:
        data: a dataset's name, the path of your own graphs, or graphs that are loaded already.
        grid: ``"paper"``, ``"curves"``, ``"quick"``, a TOML file or a :class:`~graphnorm.settings.Grid`; a setting
            that is given takes the place of the grid's values of it.
        store: the file of studies.
        name: of the study; made of what it trains if left out.
        trials: search by successive halving, with no more work than so many full trainings.
        budget: the same, for about so many seconds.
        progress: show how far it is, on standard error.
        callbacks: what else learns of the progress.
        options: see below.

    Raises:
        Stopped: on Ctrl-C or SIGTERM, with the result so far.
    """
    graphs, plan, running = plan_search(data, grid, store=store, name=name, trials=trials, budget=budget, **options)
    try_norms(plan, running)  # before anything is written
    with Store(store) as opened:
        shown = [*callbacks, *([Display()] if progress else [])]
        return run(plan, graphs, opened, running, callbacks=shown)


def plan_search(
    data: str | os.PathLike[str] | PackedGraphs,
    grid: str | os.PathLike[str] | Grid,
    *,
    store: str | os.PathLike[str] = STORE,
    name: str | None = None,
    trials: int | None = None,
    budget: float | None = None,
    **options: Any,
) -> tuple[PackedGraphs, Plan, Running]:
    """What :func:`search` trains, on what, and how; of an adaptive search that is begun already, what it began with."""
    given, running, loading = _split_options(options)
    if trials is not None and trials < 1:
        raise StudyError(f"trials is {trials}", remedy="give a whole number of 1 or more")
    if budget and trials:
        raise StudyError("--budget and --trials say the same thing twice", remedy="give one of them")
    if budget and running.engine == "ray":
        raise StudyError("--budget is measured on this machine, not on a cluster", remedy="give --trials instead")
    graphs, origin = _open(data, loading)
    settings = settle(graphs, **given)
    fixed = {option: getattr(settings, option) for option in VARIABLE if given.get(option) is not None}
    plan = make_plan(graphs, settings, find_grid(grid).fixed(**fixed), name=name, origin=origin)
    if not (budget or trials):
        return graphs, plan, running
    ending = f"{trials}trials" if trials else f"{budget:g}s"
    plan = replace(plan, name=name or f"{plan.name}-{ending}")
    if Path(store).exists():
        with Store(store, writable=False) as known:
            for study in known.studies():
                if study.name == plan.name:
                    return graphs, known.plan(study), running
    return graphs, adapt(plan, trials or _trials_in(budget or 0.0, graphs, plan, running)), running


def _trials_in(seconds: float, graphs: PackedGraphs, plan: Plan, running: Running) -> float:
    """How many of a plan's trials can be trained to their end in so many seconds."""
    at_once = slots(running)
    fleets = [[plan.trials[k] for k in fleet] for fleet in pack(graphs, plan.trials, packing_device(running), at_once)]
    whole = estimate_seconds(graphs, fleets, device=running.device, threads=1 if at_once > 1 else None)
    return seconds * len(plan.trials) / (whole / min(at_once, len(fleets)))


class _KeepOutcome(Callback):
    """Keeps what was trained, with its weights."""

    outcome: Outcome | None = None

    def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        (self.outcome,) = outcomes


def train(
    graphs: PackedGraphs, trial: Trial, out: Path, running: Running, *, callbacks: Sequence[Callback] = ()
) -> Outcome:
    """Train one trial and save its model, unless it diverged; a training that was stopped goes on.

    Until the model is there, its store and checkpoints lie beside it.
    """
    plan, keep = Plan(trial.key, trial.to_dict(), (trial,)), _KeepOutcome()
    path = out.with_name(f".{out.name}.training.db")
    try_norms(plan, running)  # before anything is written
    with Store(path) as store:
        if trial.key in store.finished_keys():  # it was killed before the model was written
            store.delete(store.study(plan.name))
        errors = run(plan, graphs, store, running, callbacks=[keep, *callbacks], keep_state=True).errors
    if keep.outcome is not None and keep.outcome.status == "done":
        save_model(keep.outcome, graphs, out)
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    shutil.rmtree(path.with_name(f"{path.name}-work"), ignore_errors=True)
    if keep.outcome is None:
        raise StudyError(f"the training failed: {errors[0]}", remedy="correct what it says, and train again")
    return keep.outcome
