"""``compare``, ``search`` and ``train``: from graphs and options to a result, or to one model."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from graphnorm.data import PackedGraphs, as_graphs
from graphnorm.data.loading import describe_origin
from graphnorm.errors import PATH, PLACE_REMEDIES, GraphnormError, StudyError, require
from graphnorm.files import refuse_overwriting, refuse_unwritable
from graphnorm.settings import VARIABLE, Grid, Loading, Option, Running, Settings, find_grid, nearest, options_of
from graphnorm.study.forecast import forecast
from graphnorm.study.halving import adapt
from graphnorm.study.plan import Plan
from graphnorm.study.plan_from_settings import make_plan, settle_grid
from graphnorm.study.progress import Callback, Display
from graphnorm.study.protocol import PROTOCOLS
from graphnorm.study.result import WRITTEN, Result, write_result
from graphnorm.study.runner import Stopped, make_running, train_missing, try_code
from graphnorm.study.store import Store, is_begun, locked, remove_store, work_folder
from graphnorm.training import Outcome, Trial
from graphnorm.training.model_file import save_model

__all__ = ["STORE", "compare", "plan_search", "search", "train"]

STORE = "graphnorm.db"
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _takes_options(*classes: type) -> Callable[[_Function], _Function]:
    """Add the options of these classes to a function's signature and docstring."""

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
    """Sort keywords into options of settings, running and loading."""
    classes = (Settings, Running, Loading)
    known = options_of(*classes)
    for name in given:
        if name not in known:
            near = nearest(name, known)
            raise TypeError(f"there is no option {name!r}" + (f"; did you mean {near!r}?" if near else ""))
    settings, running, loading = (
        {name: given[name] for name in options_of(one) if given.get(name) is not None} for one in classes
    )
    protocol = settings.get("protocol")
    if loading.get("split", "random") != "random" and protocol in PROTOCOLS and PROTOCOLS[protocol].unit == "fold":
        raise GraphnormError(
            f"the protocol {protocol} draws folds at random, so it cannot keep to a split that is given",
            remedy="name the protocol given, or leave it out: it selects on the split's validation part and reports "
            "its test part, which has no influence on any choice; or leave the split out",
        )
    return settings, make_running(**running), loading


def _load_and_plan(
    data: Any,
    given: Mapping[str, Any],
    loading: Mapping[str, Any],
    grid: Grid | None = None,
    name: str | None = None,
) -> tuple[PackedGraphs, Plan]:
    """The graphs, and the study that the options ask for."""
    how = {option: value for option, value in loading.items() if option != "data_root"}
    split = how.get("split")
    named = isinstance(data, PATH) and isinstance(split, (*PATH, NoneType))
    origin = describe_origin(data, **how) if named else None
    graphs = as_graphs(data, loading.get("data_root"), **how)
    settings, chosen = settle_grid(graphs, grid, **given)
    return graphs, make_plan(graphs, settings, chosen, name=name, origin=origin, split=split)


@_takes_options(Settings, Running, Loading)
def compare(
    data: Any = "molecules",
    *,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> Result:
    """Train the same model with several normalizations on the same folds, and compare their scores.

    This is a study of one configuration. With ``out``, its store is kept in that folder: the same call again continues
    where it stopped, and trains nothing twice.

    Args:
        data: a dataset's name, the path of your own graphs, :class:`~graphnorm.data.PackedGraphs`, a DataFrame with a
            column of SMILES, a dataset or list of PyTorch Geometric's ``Data``, or a list of NetworkX graphs.
        out: a folder for the store, tables, curves and JSON.
        overwrite: delete the comparison that the folder holds.
        progress: show progress on standard error.
        callbacks: further trackers of the progress.
        options: see below.

    Raises:
        Stopped: on Ctrl-C or SIGTERM, with the result so far; finished trials are saved.

    >>> result = compare("synthetic:trees", norms="none,graph", epochs=1, folds=2, hidden=8, progress=False)
    >>> list(result.norms)
    ['none', 'graph']
    """
    given, running, loading = _split_options(options)
    require("out", out, (*PATH, type(None)), "the path of a folder")
    if out is not None:
        refuse_overwriting((data, loading.get("split")), *(Path(out) / file for file in (*WRITTEN, STORE)))
    graphs, plan = _load_and_plan(data, given, loading)
    try_code(plan, graphs, running)  # before anything is written
    shown = [*callbacks, *([Display()] if progress else [])]

    def trained(folder: Path, finish: Callable[[Result], Result]) -> Result:
        with Store(folder / STORE) as store:
            try:
                return finish(train_missing(plan, graphs, store, running, callbacks=shown))
            except Stopped as stop:
                stop.result = finish(stop.result)
                raise

    if out is None:
        with tempfile.TemporaryDirectory() as place:
            return trained(Path(place), lambda result: replace(result, store=""))
    with _folder_of(Path(out), plan, overwrite=overwrite, wait=running.wait) as folder:
        return trained(folder, lambda result: _write_trained(result, folder))


@contextmanager
def _folder_of(folder: Path, plan: Plan, *, overwrite: bool, wait: bool) -> Iterator[Path]:
    """Hold the folder of a comparison: it can be written, by nobody else meanwhile, and holds no other comparison."""
    refuse_unwritable(folder)

    def problem() -> GraphnormError:
        remedy = "wait for it (--wait), or name another folder (--out)"
        return GraphnormError("another comparison is being written to this folder", where=folder, remedy=remedy)

    with locked(work_folder(folder / STORE) / "lock", problem, wait=wait):
        _prepare(folder, plan, overwrite)
        yield folder


def _write_trained(result: Result, folder: Path) -> Result:
    try:
        write_result(result, folder)
        return result
    except OSError as error:
        remedy = PLACE_REMEDIES.get(error.errno or 0, "correct it")
        raise StudyError(
            f"what was trained is saved in {STORE}, but this cannot be written: {error.strerror}",
            where=error.filename or folder,
            remedy=f"{remedy}; then give the same command again, and nothing is trained twice",
        ) from error


def _prepare(folder: Path, plan: Plan, overwrite: bool) -> None:
    """Refuse a folder that holds another comparison; with ``overwrite``, delete that."""
    if overwrite:
        remove_store(folder / STORE)
        for name in WRITTEN:
            (folder / name).unlink(missing_ok=True)
    if not is_begun(folder / STORE):
        return
    with Store(folder / STORE, writable=False) as held:
        specs = [study.spec for study in held.studies()]
    differences = [_differences(spec, plan.spec) for spec in specs]
    if specs and all(differences):
        raise GraphnormError(
            f"this folder holds another comparison: {'; '.join(differences[-1])}",
            where=folder,
            remedy="use the same settings, replace it (--overwrite), or name another folder (--out)",
        )


def _differences(there: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """How the spec of a stored study differs from the request, apart from normalizations and baselines."""
    if there.get("fingerprint") != asked["fingerprint"]:
        return [f"its graphs ({there.get('dataset')}) differ"]
    names = ("model", "protocol", "metric", "folds", "seeds", "grid", *VARIABLE)
    values = {name: (there.get(name), asked.get(name)) for name in names}
    return [f"its {name} is {old}, not {new}" for name, (old, new) in values.items() if old != new]


@_takes_options(Settings, Running, Loading)
def search(
    data: Any,
    grid: str | os.PathLike[str] | Grid = "paper",
    *,
    store: str | os.PathLike[str] = STORE,
    name: str | None = None,
    trials: int | None = None,
    budget: float | str | None = None,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> Result:
    """Train every configuration of a grid with every normalization on every fold, and select by the protocol.

    The store saves each finished trial: the same call again trains only the missing ones.

    Args:
        data: a dataset's name, the path of your own graphs, :class:`~graphnorm.data.PackedGraphs`, a DataFrame with a
            column of SMILES, a dataset or list of PyTorch Geometric's ``Data``, or a list of NetworkX graphs.
        grid: ``"paper"``, ``"curves"``, ``"quick"``, a TOML file or a :class:`~graphnorm.settings.Grid`; an option that
            is given replaces the grid's values.
        store: the SQLite file.
        name: the name of the study (default: derived from its trials).
        trials: search by successive halving, with the work of at most this many full trainings.
        budget: search by successive halving, for about this time: seconds, or a text such as ``"10m"``.
        progress: show progress on standard error.
        callbacks: further trackers of the progress.
        options: see below.

    Raises:
        Stopped: on Ctrl-C or SIGTERM, with the result so far.
    """
    graphs, plan, running = plan_search(data, grid, store=store, name=name, trials=trials, budget=budget, **options)
    try_code(plan, graphs, running)  # before anything is written
    with Store(store) as opened:
        shown = [*callbacks, *([Display()] if progress else [])]
        return train_missing(plan, graphs, opened, running, callbacks=shown)


def plan_search(
    data: Any,
    grid: str | os.PathLike[str] | Grid,
    *,
    store: str | os.PathLike[str] = STORE,
    name: str | None = None,
    trials: int | None = None,
    budget: float | str | None = None,
    **options: Any,
) -> tuple[PackedGraphs, Plan, Running]:
    """The graphs, plan and running options of :func:`search`; an adaptive search in the store keeps its plan."""
    given, running, loading = _split_options(options)
    if trials is not None:
        trials = Option(int, None, "", low=1, high=1e9).check("trials", trials)
    if budget is not None:
        budget = float(Option(float, None, "", low=1, high=1e9, is_time=True).check("budget", budget))
    if budget and trials:
        raise StudyError("--budget and --trials exclude each other", remedy="give one of them")
    if budget and running.engine == "ray":
        raise StudyError("--budget needs a time measurement on this machine", remedy="give --trials instead")
    graphs, plan = _load_and_plan(data, given, loading, find_grid(grid), name)
    if not (budget or trials):
        return graphs, plan, running
    ending = f"{trials}trials" if trials else f"{budget:g}s"
    plan = replace(plan, name=name or f"{plan.name}-{ending}")
    if is_begun(store):
        with Store(store, writable=False) as known:
            for study in known.studies():
                if study.name == plan.name:
                    return graphs, known.plan(study), running
    if budget:
        full = forecast(graphs, plan, running).seconds
        assert full is not None, "the engine local trains on a device of this machine"
        return graphs, adapt(plan, budget * len(plan.trials) / full), running
    return graphs, adapt(plan, trials or 0), running


class _KeepOutcome(Callback):
    """Keeps the outcome of a single trial, with its weights."""

    outcome: Outcome | None = None

    def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        (self.outcome,) = outcomes


def train(
    graphs: PackedGraphs, trial: Trial, out: Path, running: Running, *, callbacks: Sequence[Callback] = ()
) -> Outcome:
    """Train one trial and save its model, unless it diverged.

    A temporary store next to the model lets a stopped training continue.
    """
    name = f"{trial.dataset}-{trial.norm}-{trial.key[:6]}"
    plan, keep = Plan(name, trial.to_dict(), (trial,)), _KeepOutcome()
    path = out.with_name(f".{out.name}.training.db")
    try_code(plan, graphs, running)  # before anything is written
    with Store(path) as store:
        if trial.key in store.finished_keys():  # killed before the model was written
            store.delete(store.study(plan.name))
        errors = train_missing(plan, graphs, store, running, callbacks=[keep, *callbacks], keep_state=True).errors
    if keep.outcome is not None and keep.outcome.status == "done":
        _save_somewhere(keep.outcome, graphs, out)
    remove_store(path)
    if keep.outcome is None:
        raise StudyError(f"the training failed: {errors[0]}", remedy="correct it, and train again")
    return keep.outcome


def _save_somewhere(outcome: Outcome, graphs: PackedGraphs, path: Path) -> None:
    """Save a model; if its place cannot be written any more, in a temporary folder that an error names."""
    try:
        save_model(outcome, graphs, path)
    except OSError as error:
        elsewhere = Path(tempfile.mkdtemp(prefix="graphnorm-")) / path.name
        save_model(outcome, graphs, elsewhere)
        problem = f"the model cannot be written here ({error.strerror}); it is saved as {elsewhere}"
        raise GraphnormError(problem, where=path, remedy="move it to a place of your own") from error
