"""Reproducing items: train what they lack into one store, and make them from what it has.

Each dataset, model and protocol of an item is a study of the store. A trial that another item has trained, in this run
or an earlier one, is not trained again; a stopped command continues when it is repeated.
"""

from __future__ import annotations

import datetime
import os
import platform
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from graphnorm._version import exact_version
from graphnorm.data import PackedGraphs, find, load, load_cifar10
from graphnorm.data.folders import locate, obtain
from graphnorm.errors import DownloadError, StudyError
from graphnorm.paper.image_fleet import IMAGES
from graphnorm.paper.item import Item, Trainings
from graphnorm.paper.noise_and_alpha import image_plan
from graphnorm.paper.output import LeftOutError, NothingThereError, Output
from graphnorm.settings import Running
from graphnorm.study.grouping import by_key
from graphnorm.study.plan import Plan
from graphnorm.study.plan_from_settings import Dataset
from graphnorm.study.progress import Display
from graphnorm.study.protocol import find_protocol
from graphnorm.study.reading import read
from graphnorm.study.render import counted, list_some
from graphnorm.study.result import Result
from graphnorm.study.runner import run
from graphnorm.study.store import FINAL, Record, Store
from graphnorm.training import find_metric

__all__ = ["Reproduction", "Work", "known_datasets"]

ABOUT_QUICK = (
    "This is a quick pass: fewer datasets, folds, epochs and configurations. Its differences mean nothing yet."
)


@dataclass(frozen=True)
class Work:
    """Everything that an item is made from."""

    item: Item
    quick: bool
    studies: tuple[tuple[Plan, Result], ...]
    """As far as they are trained."""
    probed: tuple[Plan, ...]
    """Trainings with a probe."""
    absent: tuple[str, ...]
    """Descriptions of studies without any trained trial."""
    store: Store
    graphs: Callable[[str], PackedGraphs]
    progress: bool = False
    """Whether to report progress on standard error."""

    def own_part(self, result: Result) -> Trainings | None:
        """The trainings of the whole item that a study belongs to; None for a baseline."""
        dataset, model, protocol = result.dataset, result.model, result.protocol.name
        for part in (self.item.whole or self.item).trained:
            if dataset in part.datasets and model in part.models and protocol in part.protocols:
                return part
        return None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences on what is not trained at all, and on a quick pass."""
        absent = [f"Not trained: {list_some(self.absent)}."] if self.absent else []
        return (*absent, *([ABOUT_QUICK] if self.quick else []))

    def output(self, *, records: Sequence[Record] = (), **parts: Any) -> Output:
        """An output of this item; its facts say when, where and with what it was measured.

        records: trainings with a probe.
        """
        narrow = None if self.item.narrow is None else dict(self.item.narrow)
        records = [*records, *(record for plan, _ in self.studies for record in self.store.records(plan))]
        provenance = {
            "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "graphnorm": exact_version(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "trained_with": sorted({record.code for record in records}),
            "trained_on": sorted({record.device for record in records if record.device}),
            "training_seconds": round(sum(record.seconds for record in records), 1),
            "studies": [
                {
                    "name": plan.name,
                    "trials": result.trials,
                    "finished": sum(result.counts.get(status, 0) for status in FINAL),
                    "spec": dict(plan.spec),
                }
                for plan, result in self.studies
            ],
        }
        facts = {"narrowed": narrow} | parts.pop("facts", {}) | provenance
        return Output(self.item.name, self.item.title, self.quick, facts=facts, **parts)


class Reproduction:
    """Trains and makes items.

    Args:
        store: the file of studies.
        data_root: folder of the datasets.
        running: where and how to train.
        progress: whether to report progress on standard error.
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        *,
        data_root: str | os.PathLike[str] | None = None,
        running: Running | None = None,
        progress: bool = True,
    ) -> None:
        self.store = Path(store)
        self._root, self._running, self._progress = data_root, running or Running(), progress
        self._held: tuple[str, PackedGraphs] | None = None

    def graphs(self, name: str) -> PackedGraphs:
        """A dataset; the last one is kept, since studies of one dataset follow each other."""
        if self._held is None or self._held[0] != name:
            self._held = None
            self._held = (name, load(name, self._root))
        return self._held[1]

    def check_data(self, items: Sequence[Item]) -> None:
        """Raise an error if a dataset is neither here nor can be downloaded."""
        missing = {}
        names = [name for item in items for name in item.datasets]
        for name in dict.fromkeys(names):
            try:
                if name == IMAGES:
                    obtain(find(name), self._root, progress=self._progress)
                else:
                    self.graphs(name)
            except DownloadError as error:
                missing[name] = error
        if missing:
            others = f", or leave them out: --datasets with the names of others than {', '.join(missing)}"
            first = next(iter(missing.values()))
            raise StudyError(first.problem, remedy=(first.remedy or "") + others)

    # Plans

    def plans(self, item: Item, *, train: bool = True) -> Iterator[Plan]:
        """The studies of an item, dataset by dataset, so that each is loaded once.

        train: if False, the graphs are those that the store has studies of; they need not be on this machine.
        """
        return item.plans(self._datasets(train))

    def _datasets(self, train: bool) -> Callable[[str], PackedGraphs | Dataset]:
        known = {} if train else known_datasets(self.store)

        def from_store(name: str) -> Dataset:
            """Prefer the version on this machine, then the one with most trials."""
            versions = known.get(name) or [Dataset(name, fingerprint="")]
            if len(versions) > 1 and self._is_here(name):
                here = self.graphs(name).fingerprint
                versions = sorted(versions, key=lambda version: version.fingerprint != here)
            return versions[0]

        return self.graphs if train else from_store

    def _is_here(self, name: str) -> bool:
        entry = find(name)
        return not entry.files or locate(entry, self._root) is not None

    def missing(self, plan: Plan) -> list[str]:
        """The keys of the trials that no study of the store has finished, or that a probe has not measured."""
        if not self.store.exists():
            return [trial.key for trial in plan.trials]
        with Store(self.store, writable=False) as store:
            done = store.finished_keys()
            if plan.probe is not None:
                done &= {trial.key for trial in plan.trials if store.seen(trial)}
        return [trial.key for trial in plan.trials if trial.key not in done]

    # Training and making

    def train(self, item: Item) -> None:
        """Train everything that an item needs and the store lacks."""
        for plan in self.plans(item):
            dataset = plan.spec["dataset"]
            if dataset == IMAGES:
                data: Any = load_cifar10(self._root)
                plan = image_plan(plan.spec["epochs"], data, plan.trials[0].seed)
            else:
                data = self.graphs(dataset)
            shown = [Display()] if self._progress and self.missing(plan) else []
            with Store(self.store) as store:
                result = run(plan, data, store, self._running, callbacks=shown)
            if result.errors:
                failed = f"{counted(result.counts['failed'], 'trial')} failed ({result.errors[0]})"
                print(f"{plan.name}: {failed}; --retry-failed trains again", file=sys.stderr)

    def make(self, item: Item, *, quick: bool = False, train: bool = True) -> Output:
        """Train what an item lacks, and make it; if ``train`` is False the store is only read."""
        if train:
            self.train(item)
        elif item.parts and not self.store.exists():
            raise NothingThereError(item.name, self.store)
        gone = [] if train else [name for name in item.graphs if not self._is_here(name)]
        if gone and not item.trained:
            raise LeftOutError(
                f"{item.name} needs graphs that are not on this machine: {', '.join(gone)}",
                remedy="name their folder with --data-root or GRAPHNORM_DATA, or allow downloads: leave out --no-train",
            )
        with self._reading() as store:
            plans = _as_entered(store, self.plans(item, train=train))
            studies = [plan for plan in plans if plan.probe is None]
            done = store.finished_keys()
            there = [plan for plan in studies if any(trial.key in done for trial in plan.trials)]
            absent = [plan for plan in studies if plan not in there]
            if absent and not there:
                raise NothingThereError(item.name, self.store)
            if self._progress:
                print(f"{item.name}: drawing and writing", file=sys.stderr, flush=True)
            output = item.make(
                Work(
                    item=replace(item, graphs=tuple(name for name in item.graphs if name not in gone)),
                    quick=quick,
                    studies=tuple((plan, read(store, plan, partial=True)) for plan in there),
                    probed=tuple(plan for plan in plans if plan.probe is not None),
                    absent=_describe(absent),
                    store=store,
                    graphs=self.graphs,
                    progress=self._progress,
                )
            )
        if not gone:
            return output
        lacking = f"Without drawings of {' and '.join(gone)}: these graphs are not on this machine."
        missing = [*output.facts.get("missing", ()), *(f"drawings of {name}" for name in gone)]
        return replace(output, sentences=(*output.sentences, lacking), facts={**output.facts, "missing": missing})

    @contextmanager
    def _reading(self) -> Iterator[Store]:
        """The store, or a temporary empty one if there is none."""
        if self.store.exists():
            with Store(self.store, writable=False) as store:
                yield store
        else:
            with TemporaryDirectory() as folder, Store(Path(folder) / "empty.db") as store:
                yield store


def _as_entered(store: Store, plans: Iterable[Plan]) -> list[Plan]:
    """Plans with the specs of their studies in the store, which say more about the graphs or images."""
    specs = {study.name: study.spec for study in store.studies()}
    return [replace(plan, spec=specs.get(plan.name, plan.spec)) for plan in plans]


def known_datasets(path: Path) -> dict[str, list[Dataset]]:
    """The datasets that a store has studies of, by name; of several versions the one with most trials comes first.

    >>> known_datasets(Path("there is none.db"))
    {}
    """
    if not path.exists():
        return {}
    finished: dict[tuple[str, str], int] = defaultdict(int)
    chance: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    with Store(path, writable=False) as store:
        for study in store.studies():
            spec = study.spec
            if not {"dataset", "fingerprint", "protocol"} <= spec.keys():
                continue
            version = (spec["dataset"], spec["fingerprint"])
            finished[version] += study.finished
            if spec.get("chance") is not None:
                metric = find_metric(spec["protocol"], spec.get("task", ""), spec.get("metric", ""))
                chance[version][metric.key] = spec["chance"]
    found: dict[str, list[Dataset]] = defaultdict(list)
    for name, fingerprint in sorted(finished, key=finished.__getitem__, reverse=True):
        found[name].append(Dataset(name, fingerprint, chance[name, fingerprint]))
    return dict(found)


def _describe(absent: Sequence[Plan]) -> tuple[str, ...]:
    """Studies of one protocol and the same datasets, together."""
    asked = by_key(absent, lambda plan: (plan.spec["protocol"], plan.spec["model"]))
    datasets = {question: ", ".join(plan.spec["dataset"] for plan in plans) for question, plans in asked.items()}
    together = by_key(datasets, lambda question: (question[0], datasets[question]))
    return tuple(
        f"{', '.join(model for _, model in questions)} {find_protocol(protocol).under} on {names}"
        for (protocol, names), questions in together.items()
    )
