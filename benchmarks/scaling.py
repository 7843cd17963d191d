"""The cost of the paper's whole grid on many GPUs, from measurements on one.

``python -m benchmarks.scaling measure [--out FOLDER]`` takes about three minutes on a GPU. It times epochs of fleets
with GraphNorm for every dataset, model and batch size; the other normalizations on one dataset, as ratios to GraphNorm
that are taken for all; fleets of several sizes on another; and the driver's own work. It needs nothing but PyTorch,
NumPy and SciPy, and writes ``scaling-DEVICE.json`` after every fleet, so that a run that is cut short is of use.
``python -m benchmarks.scaling page FILE`` prints the tables of ``docs/benchmarks.md`` from such a file; with
``--into docs/benchmarks.md`` it puts them in their place there.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import json
import pickle
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.facts import RESULTS, facts
from graphnorm.data import PackedGraphs, find, load
from graphnorm.errors import GraphnormError
from graphnorm.paper.items import ITEMS
from graphnorm.settings import Running
from graphnorm.study import Plan, Store
from graphnorm.study.checkpoints import CheckpointFolder
from graphnorm.study.fleets import make_fleet, members_that_fit
from graphnorm.study.worker import Advance, Begin, Failure, Step, Worker
from graphnorm.training import Fleet, Split, Trial

TABLE = ITEMS["table1"].trained[0]
BATCH_SIZES: tuple[int, ...] = TABLE.grid.axes["batch_size"]
(EPOCHS,) = TABLE.grid.axes["epochs"]
TRIALS_OF_A_SHAPE = len(TABLE.grid) // len(BATCH_SIZES) * TABLE.folds
RATIOS_ON = ("PROTEINS", "gin", 128)
SIZES_ON, SIZES = ("NCI1", "gin", 128), (10, 60, 300)
MEMBERS = {"REDDIT-BINARY": 60, "COLLAB": 60}
"""Of the fleets that are timed; 300 elsewhere. Here 60 fill the device, and an epoch of 300 takes long."""
GPUS = (1, 8, 64)
PARTS = (1, 2, 3, 4, 5, 6, 8, 10)
"""Into how many fleets the 300 trials of a shape may be cut."""
NEARLY = 1.03
"""Fewer fleets are preferred where more would not save more than this."""

BEGIN, END = "<!-- scaling:begin -->", "<!-- scaling:end -->"

Measured = Mapping[str, Any]


class Measurement:
    """Times fleets and saves each time to a file."""

    def __init__(self, device: str, seconds: float, members: int | None, folder: Path) -> None:
        self.device, self.seconds, self.members = torch.device(device), seconds, members
        self.found: dict[str, Any] = facts(device) | {"fleets": [], "norms": [], "sizes": []}
        self._weights: dict[tuple[str, str, str], float] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"scaling-{self.found['device'].replace(' ', '-')}.json"

    def run(self, datasets: Sequence[str]) -> None:
        """Measure everything; the times that all others are multiplied by come first."""
        began = time.perf_counter()
        for dataset in [RATIOS_ON[0], *(name for name in datasets if name != RATIOS_ON[0])]:
            try:
                graphs = load(dataset)
            except GraphnormError as error:
                print(f"{dataset}: {error}", flush=True)
                continue
            if dataset == RATIOS_ON[0]:
                self._keep(driver=driver_costs(graphs, dataset))
                for norm in ("graph", *(norm for norm in TABLE.norms if norm != "graph")):
                    self._add("norms", self._fleet(graphs, *RATIOS_ON, norm=norm))
            for model in TABLE.models:
                for batch_size in BATCH_SIZES:
                    if dataset in datasets:
                        self._add("fleets", self._fleet(graphs, dataset, model, batch_size))
            if dataset == SIZES_ON[0]:
                for members in SIZES:
                    self._add("sizes", self._fleet(graphs, *SIZES_ON, members=members))
        self._keep(seconds_of_the_measurement=round(time.perf_counter() - began, 1))

    def _add(self, part: str, row: dict[str, Any]) -> None:
        print(row, flush=True)
        self._keep(**{part: [*self.found[part], row]})

    def _keep(self, **parts: Any) -> None:
        self.found |= parts
        self.path.write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")

    def _fleet(
        self,
        graphs: PackedGraphs,
        dataset: str,
        model: str,
        batch_size: int,
        norm: str = "graph",
        members: int | None = None,
    ) -> dict[str, Any]:
        """Seconds for an epoch of one member, evaluation included, after an epoch to warm up."""
        asked = members or MEMBERS.get(dataset, TRIALS_OF_A_SHAPE)
        trials = make_trials(graphs, dataset, model, norm, batch_size, min(asked, self.members or asked))
        timed = self._time(graphs, trials[: self._room(graphs, trials[0])])
        return {
            "dataset": dataset,
            "model": model,
            "norm": norm,
            "batch_size": batch_size,
            **timed,
            "graph_bytes": sum(tensor.numel() * tensor.element_size() for _, tensor in graphs.tensors()),
            "checkpoint_bytes_of_a_member": self._weight(graphs, trials[:2]),
        }

    def _weight(self, graphs: PackedGraphs, trials: Sequence[Trial]) -> float:
        """Bytes of a checkpoint, for each member."""
        key = trials[0].dataset, trials[0].model, trials[0].norm
        if key not in self._weights:
            self._weights[key] = len(checkpoint(graphs, trials)) / len(trials)
        return self._weights[key]

    def _room(self, graphs: PackedGraphs, trial: Trial) -> int:
        """How many members fit on the device after the earlier fleets are freed."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            return members_that_fit(graphs, trial, str(self.device))
        return TRIALS_OF_A_SHAPE

    def _time(self, graphs: PackedGraphs, trials: Sequence[Trial]) -> dict[str, Any]:
        """Time a fleet; with half of the members if it runs out of memory, as the driver does."""
        worker = Worker(graphs, str(self.device))
        began = time.perf_counter()
        answer = worker.answer(begin(graphs, trials))
        if isinstance(answer, Step):
            answer = worker.answer(Advance(1e-9, EPOCHS))  # one epoch
        ready = time.perf_counter()
        if isinstance(answer, Step):
            answer = worker.answer(Advance(self.seconds, EPOCHS))  # at least one epoch; ends with a read of the device
        elapsed = time.perf_counter() - ready
        if isinstance(answer, Failure):
            if not answer.out_of_memory or len(trials) == 1:
                raise RuntimeError(answer.error + answer.details)
            del worker
            self._room(graphs, trials[0])
            return self._time(graphs, trials[: len(trials) // 2])
        epochs = len(answer.metrics["valid"])
        return {
            "members": len(trials),
            "epochs_timed": epochs,
            "seconds_to_begin": ready - began,
            "seconds_per_epoch_of_a_member": elapsed / epochs / len(trials),
        }


def make_trials(
    graphs: PackedGraphs, dataset: str, model: str, norm: str, batch_size: int, members: int
) -> list[Trial]:
    """Folds of configurations that differ in their learning rate."""
    settings = TABLE.settings(dataset, model)
    return [
        Trial(
            dataset=dataset,
            model=model,
            norm=norm,
            batch_size=batch_size,
            epochs=EPOCHS,
            fold=k % TABLE.folds,
            lr=1e-3 * (1 + k // TABLE.folds / 100),
            readout=settings.readout,
            self_loops=settings.self_loops,
            hidden=settings.hidden,
        )
        for k in range(members)
    ]


def random_splits(graphs: PackedGraphs, trials: Sequence[Trial]) -> list[Split]:
    """Random folds of the right size, without scikit-learn; which graphs they hold does not change the work."""
    folds = np.array_split(np.random.default_rng(0).permutation(graphs.num_graphs), TABLE.folds)
    rest = [np.concatenate([fold for j, fold in enumerate(folds) if j != k]) for k in range(TABLE.folds)]
    return [Split(rest[trial.fold], folds[trial.fold]) for trial in trials]


def begin(graphs: PackedGraphs, trials: Sequence[Trial]) -> Begin:
    """The message that starts a fleet."""
    keys = frozenset(trial.key for trial in trials)
    return Begin(tuple(trials), tuple(random_splits(graphs, trials)), keys, make_fleet)


def checkpoint(graphs: PackedGraphs, trials: Sequence[Trial]) -> bytes:
    """The checkpoint of a fleet before its first epoch."""
    worker = Worker(graphs, "cpu")
    worker.answer(begin(graphs, trials))
    step = worker.answer(Advance(0.0, EPOCHS, checkpoint=True))
    assert isinstance(step, Step) and step.checkpoint is not None, step
    return step.checkpoint


def driver_costs(graphs: PackedGraphs, dataset: str) -> dict[str, float]:
    """Bytes and seconds of what the driver saves."""
    random = np.random.default_rng(0)
    trials = make_trials(graphs, dataset, "gin", "graph", 128, 100)
    fleet = Fleet(graphs, trials, random_splits(graphs, trials), device="cpu")
    outcomes = fleet.outcomes()
    for outcome in outcomes:
        outcome.curves["loss"] = random.random((EPOCHS,), dtype=np.float32)
        for name, size in (("train", 1001), ("valid", 111)):
            outcome.curves[name] = (random.integers(size // 2, size, (EPOCHS,)) / size).astype(np.float32)
    data = checkpoint(graphs, trials)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "graphnorm.db") as store:
        study = store.add(Plan("scaling", {}, tuple(trials)), [range(len(trials))])
        session = store.begin_session(study, "local")
        began = time.perf_counter()
        store.save(session, outcomes)
        saved = time.perf_counter()
        CheckpointFolder(Path(folder)).write(0, data)
        written = time.perf_counter()
    return {
        "outcome_bytes_of_a_member": len(pickle.dumps(outcomes)) / len(trials),
        "seconds_to_save_a_trial": (saved - began) / len(trials),
        "checkpoint_bytes_per_second_to_disk": len(data) / (written - saved),
    }


def page(measured: Measured) -> str:
    """The tables of the cost page."""
    ratios = norm_ratios(measured["norms"])
    missing = [name for name in TABLE.datasets if name not in {fleet["dataset"] for fleet in measured["fleets"]}]
    lines = [f"Measured on one {measured['device']}, {measured['date']}, PyTorch {measured['torch']}."]
    lines += [f"Not measured, and not in the sums: {', '.join(missing)}."] if missing else []
    lines += ["", *_table_of_datasets(measured, ratios), "", *_table_of_norms(measured, ratios)]
    return "\n".join([*lines, "", *_table_of_sizes(measured), "", *_table_of_gpus(measured, ratios)])


def norm_ratios(fleets: Sequence[Measured]) -> dict[str, float]:
    """The time of an epoch with each normalization, relative to GraphNorm."""
    if missing := set(TABLE.norms) - {fleet["norm"] for fleet in fleets}:
        raise SystemExit(f"the measurement was cut before {', '.join(sorted(missing))} were timed; measure again")
    seconds = {fleet["norm"]: fleet["seconds_per_epoch_of_a_member"] for fleet in fleets}
    return {norm: seconds[norm] / seconds["graph"] for norm in TABLE.norms}


def jobs(measured: Measured, ratios: Mapping[str, float], parts: int) -> list[float]:
    """Seconds of each fleet of the whole grid, when the trials of a shape are cut into so many fleets."""
    dearer = small_fleet_factor(measured["sizes"], TRIALS_OF_A_SHAPE / parts)
    return [
        fleet["seconds_per_epoch_of_a_member"] * EPOCHS * ratio * dearer * TRIALS_OF_A_SHAPE / parts
        for fleet in measured["fleets"]
        for ratio in ratios.values()
        for _ in range(parts)
    ]


def small_fleet_factor(sizes: Sequence[Measured], members: float) -> float:
    """The time of a member in a smaller fleet relative to a full one, interpolated between measured sizes."""
    known = sorted((fleet["members"], fleet["seconds_per_epoch_of_a_member"]) for fleet in sizes)
    if not known:
        return 1.0
    counts, costs = zip(*known, strict=True)
    return float(np.interp(np.log(members), np.log(counts), costs) / costs[-1])


def makespan(seconds: Sequence[float], gpus: int) -> float:
    """The time until the last job is done, if each GPU takes the longest job that is left."""
    free = [0.0] * gpus
    for job in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + job)
    return max(free)


def _table_of_datasets(measured: Measured, ratios: Mapping[str, float]) -> list[str]:
    whole = jobs(measured, ratios, 1)
    hours: dict[tuple[str, str], float] = {}
    for k, fleet in enumerate(measured["fleets"]):
        key = fleet["dataset"], fleet["model"]
        hours[key] = hours.get(key, 0.0) + sum(whole[k * len(ratios) : (k + 1) * len(ratios)]) / 3600
    models = list(dict.fromkeys(model for _, model in hours))
    size = {f["dataset"]: f["graph_bytes"] for f in measured["fleets"]}
    kept = dict[str, float]()
    for f in measured["fleets"]:
        kept[f["dataset"]] = max(kept.get(f["dataset"], 0.0), f["checkpoint_bytes_of_a_member"])
    columns = [f"{model.upper()}, GPU hours" for model in models]
    lines = [f"| dataset | {' | '.join(columns)} | graphs, MB | checkpoint of a member, kB |"]
    lines += ["|---|" + "---:|" * (len(models) + 2)]
    for dataset in dict.fromkeys(name for name, _ in hours):
        cells = [f"{hours[dataset, model]:.2f}" if (dataset, model) in hours else "–" for model in models]
        lines.append(f"| {dataset} | {' | '.join(cells)} | {size[dataset] / 1e6:.1f} | {kept[dataset] / 1e3:.0f} |")
    sums = [f"{sum(value for (_, m), value in hours.items() if m == model):.2f}" for model in models]
    return [*lines, f"| all | {' | '.join(sums)} | {sum(size.values()) / 1e6:.1f} | |"]


def _table_of_norms(measured: Measured, ratios: Mapping[str, float]) -> list[str]:
    dataset, model, batch_size = RATIOS_ON
    return [
        f"| an epoch of {dataset}, {model.upper()}, batches of {batch_size} | {' | '.join(ratios)} |",
        "|---|" + "---:|" * len(ratios),
        f"| as a multiple of GraphNorm's | {' | '.join(f'{value:.2f}' for value in ratios.values())} |",
    ]


def _table_of_sizes(measured: Measured) -> list[str]:
    dataset, model, batch_size = SIZES_ON
    lines = [
        f"| members of a fleet ({dataset}, {model.upper()}, batches of {batch_size}) | ms for an epoch of a member |",
        "|---:|---:|",
    ]
    return lines + [f"| {f['members']} | {1e3 * f['seconds_per_epoch_of_a_member']:.2f} |" for f in measured["sizes"]]


def _table_of_gpus(measured: Measured, ratios: Mapping[str, float]) -> list[str]:
    driver = measured["driver"]
    heaviest = max(fleet["checkpoint_bytes_of_a_member"] for fleet in measured["fleets"])
    lines = [
        "| GPUs | fleets | hours | efficiency | checkpoints, MB/s | outcomes, kB/s | driver busy |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    work = sum(jobs(measured, ratios, 1))
    for gpus in GPUS:
        walls = {parts: makespan(jobs(measured, ratios, parts), gpus) for parts in PARTS}
        parts = next(parts for parts, wall in walls.items() if wall <= NEARLY * min(walls.values()))
        wall = walls[parts]
        fleets = len(measured["fleets"]) * len(ratios) * parts
        checkpoints = min(gpus, fleets) * TRIALS_OF_A_SHAPE / parts * heaviest / Running.checkpoint
        trials = fleets * TRIALS_OF_A_SHAPE / parts
        outcomes = trials * driver["outcome_bytes_of_a_member"] / wall
        busy = trials * driver["seconds_to_save_a_trial"] / wall
        busy += checkpoints / driver["checkpoint_bytes_per_second_to_disk"]
        lines.append(
            f"| {gpus} | {fleets} | {wall / 3600:.2f} | {100 * work / gpus / wall:.0f} % "
            f"| {checkpoints / 1e6:.1f} | {outcomes / 1e3:.1f} | {100 * busy:.1f} % |"
        )
    return lines


def replace_between_marks(path: Path, tables: str) -> None:
    """Replace the tables between the marks."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path} has no {BEGIN} … {END}; put them where the tables belong")
    path.write_text(f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    measuring = actions.add_parser("measure")
    measuring.add_argument("--datasets", default=",".join(TABLE.datasets))
    measuring.add_argument("--members", type=int, help="no fleet larger than this")
    measuring.add_argument("--seconds", type=float, default=0.7, help="of each fleet, but at least an epoch")
    measuring.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    measuring.add_argument("--out", type=Path, default=RESULTS)
    showing = actions.add_parser("page")
    showing.add_argument("file", type=Path)
    showing.add_argument("--into", type=Path, help="a page with a place for the tables")
    options = parser.parse_args()
    if options.action == "page":
        tables = page(json.loads(options.file.read_text(encoding="utf-8")))
        print(tables)
        if options.into is not None:
            replace_between_marks(options.into, tables)
        return
    measurement = Measurement(options.device, options.seconds, options.members, options.out)
    measurement.run([find(name).name for name in options.datasets.split(",")])
    print(f"written: {measurement.path}")


if __name__ == "__main__":
    main()
