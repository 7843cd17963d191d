"""Reproducing items: train what they need, in one store, and make them of what is there.

Each dataset, model and protocol of an item is a study of the store. A trial that another item has trained, in this run
or an earlier one, is there already; the same command again goes on from where it was stopped.
"""

from __future__ import annotations

import datetime
import itertools
import os
import platform
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from graphnorm._version import exact_version
from graphnorm.data import PackedGraphs, find, load, load_cifar10
from graphnorm.data.loading import locate, obtain
from graphnorm.errors import DownloadError, StudyError
from graphnorm.models import MODELS
from graphnorm.paper.items import ITEMS, Item
from graphnorm.paper.noise import (
    IMAGES,
    AlphaRun,
    LeftOutError,
    NoiseRun,
    NothingThereError,
    alpha_plan,
    image_plan,
    noise_plan,
    read_alpha,
    read_noise,
)
from graphnorm.paper.output import Output
from graphnorm.settings import Running
from graphnorm.study.plan import Dataset, Plan, baseline_plan, make_plan
from graphnorm.study.progress import Display
from graphnorm.study.protocol import find_protocol
from graphnorm.study.render import counted, list_some
from graphnorm.study.result import Result, Score, read
from graphnorm.study.runner import run
from graphnorm.study.store import FINAL, Record, Store

__all__ = ["Measured", "NoGraphsError", "Planned", "Reproduction", "Work", "known_datasets"]


class NoGraphsError(LeftOutError):
    """An item needs graphs that are not on this machine."""

    def __init__(self, item: str, names: Sequence[str]) -> None:
        super().__init__(
            f"{item} is made of the graphs themselves, and these are not on this machine: {', '.join(names)}",
            remedy="name their folder with --data-root or GRAPHNORM_DATA, or allow downloads: leave out --no-train",
        )


class Planned(NamedTuple):
    """A study that an item needs."""

    dataset: str
    model: str
    protocol: str
    plan: Plan


@dataclass(frozen=True)
class Measured:
    """A study as far as it is trained."""

    dataset: str
    model: str
    protocol: str
    plan: Plan
    result: Result

    @property
    def is_baseline(self) -> bool:
        """Whether it is of a method beside the normalized models."""
        return not MODELS[self.model].normalized

    @property
    def scores(self) -> list[Score]:
        """Of its normalizations, or of the baseline that it is."""
        return [*self.result.norms.values(), *self.result.baselines.values()]

    @property
    def units(self) -> int:
        """Folds, or seeds, as planned."""
        return int(self.plan.spec[f"{find_protocol(self.protocol).unit}s"])


@dataclass(frozen=True)
class Work:
    """What an item is made of."""

    item: Item
    quick: bool
    studies: tuple[Measured, ...]
    probed: tuple[Planned, ...]
    """Trainings along which something was measured, by a probe."""
    absent: tuple[str, ...]
    """Studies of which there is no trial, in words."""
    store: Store
    graphs: Callable[[str], PackedGraphs]
    progress: bool = False
    """Whether to say on standard error how far it is."""

    @property
    def whole_item(self) -> Item:
        """The item itself, where this is a part of it that was asked for."""
        whole = ITEMS.get(self.item.name, self.item)
        return whole.quick() if self.quick else whole

    @property
    def about_absent(self) -> tuple[str, ...]:
        """A sentence on what is not trained at all."""
        return (f"Not trained: {list_some(self.absent)}.",) if self.absent else ()

    @property
    def about_quick(self) -> tuple[str, ...]:
        """A sentence that says that a quick pass decides nothing."""
        words = (
            "This is a quick pass: fewer datasets, folds, epochs and configurations. The differences say nothing yet."
        )
        return (words,) if self.quick else ()

    def noise_runs(self) -> Iterator[tuple[str, int, NoiseRun | None]]:
        """The trainings whose batches were looked at: dataset, batch size, and what there is of it."""
        for planned in self.probed:
            yield planned.dataset, planned.plan.trials[0].batch_size, read_noise(self.store, planned.plan)

    def alpha_runs(self) -> Iterator[tuple[str, AlphaRun | None]]:
        """The trainings whose α was read: dataset, and what there is of it."""
        for planned in self.probed:
            yield planned.dataset, read_alpha(self.store, planned.plan)

    def output(self, *, records: Sequence[Record] = (), **parts: Any) -> Output:
        """An output of this item; when, where and with what it was measured is added to its facts.

        records: trainings that were measured along the way.
        """
        narrow = None if self.item.narrow is None else dict(self.item.narrow)
        facts = {"narrowed": narrow} | parts.pop("facts", {}) | self._provenance(records)
        return Output(self.item.name, self.item.title, self.quick, facts=facts, **parts)

    def _provenance(self, more: Sequence[Record]) -> dict[str, Any]:
        records = [*more, *(record for study in self.studies for record in self.store.records(study.plan))]
        return {
            "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "graphnorm": exact_version(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "trained_with": sorted({record.code for record in records}),
            "trained_on": sorted({record.device for record in records if record.device}),
            "training_seconds": round(sum(record.seconds for record in records), 1),
            "studies": [
                {
                    "name": study.plan.name,
                    "trials": study.result.trials,
                    "finished": sum(study.result.counts.get(status, 0) for status in FINAL),
                    "spec": dict(study.plan.spec),
                }
                for study in self.studies
            ],
        }


class Reproduction:
    """Trains and makes items.

    Args:
        store: the file of studies.
        data_root: folder of the datasets.
        running: where and how to train.
        progress: whether to say on standard error how far it is.
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
        """A dataset; the last one is held, since studies of one dataset follow each other."""
        if self._held is None or self._held[0] != name:
            self._held = None
            self._held = (name, load(name, self._root))
        return self._held[1]

    def check_data(self, items: Sequence[Item]) -> None:
        """Refuse to begin where a dataset cannot be had."""
        missing = {}
        names = [name for item in items for name in item.datasets]
        names += [IMAGES for item in items if item.noise and item.noise.images]
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

    def plans(self, item: Item, *, train: bool = True) -> Iterator[Planned]:
        """The studies of an item, dataset by dataset; baselines come last.

        train: without it, of the graphs that the store has studies of; they need not be on this machine.
        """
        dataset_of = self._datasets(train)
        for part in item.trained:
            for dataset, model, protocol in itertools.product(part.datasets, part.models, part.protocols):
                settings = part.settings(dataset, model, protocol)
                yield Planned(dataset, model, protocol, make_plan(dataset_of(dataset), settings, part.grid))
        beside = item.baselines
        for dataset, name, protocol in itertools.product(beside.datasets, beside.baselines, beside.protocols):
            plan = baseline_plan(dataset_of(dataset), name, protocol=protocol, folds=beside.folds, seeds=beside.seeds)
            yield Planned(dataset, name, protocol, plan)

    def probed_plans(self, item: Item, *, train: bool = True) -> Iterator[Planned]:
        """The trainings of an item along which something is measured; the images come last."""
        dataset_of = self._datasets(train)
        if (noise := item.noise) is not None:
            for name, size in itertools.product(noise.datasets, noise.batch_sizes):
                yield Planned(name, "gin", "all", noise_plan(dataset_of(name), size, noise.epochs))
            if noise.images:
                yield Planned(IMAGES, "resnet18", "all", image_plan(noise.epochs))
        if (alpha := item.alpha) is not None:
            for name in alpha.datasets:
                yield Planned(name, "gin", "all", alpha_plan(dataset_of(name), alpha.epochs))

    def _datasets(self, train: bool) -> Callable[[str], PackedGraphs | Dataset]:
        known = {} if train else known_datasets(self.store)

        def from_store(name: str) -> Dataset:
            """As the store has it; of several versions the one on this machine, else that with most trials."""
            versions = known.get(name) or [Dataset(name, fingerprint="")]
            if len(versions) > 1 and self._is_here(name):
                here = self.graphs(name).fingerprint
                versions = sorted(versions, key=lambda version: version.fingerprint != here)
            return versions[0]

        return self.graphs if train else from_store

    def _is_here(self, name: str) -> bool:
        """Whether a dataset can be had without a download."""
        entry = find(name)
        return not entry.files or locate(entry, self._root) is not None

    def missing(self, plan: Plan) -> list[str]:
        """The keys of a plan's trials that no study of the store has finished, or its probe has not looked at."""
        if not self.store.exists():
            return [trial.key for trial in plan.trials]
        with Store(self.store, writable=False) as store:
            done = store.finished_keys()
            if plan.probe is not None:
                done &= {trial.key for trial in plan.trials if store.seen(trial)}
        return [trial.key for trial in plan.trials if trial.key not in done]

    # Training and making

    def train(self, item: Item) -> None:
        """Train all that an item needs and that is not there; nothing is made of it."""
        for planned in (*self.plans(item), *self.probed_plans(item)):
            self._train(planned)

    def _train(self, planned: Planned) -> None:
        data: Any
        plan = planned.plan
        if planned.dataset == IMAGES:
            data = load_cifar10(self._root)
            plan = image_plan(plan.trials[0].epochs, data)
        else:
            data = self.graphs(planned.dataset)
        shown = [Display()] if self._progress and self.missing(plan) else []
        with Store(self.store) as store:
            result = run(plan, data, store, self._running, callbacks=shown)
        if result.errors:
            failed = counted(result.counts["failed"], "trial")
            print(f"{plan.name}: {failed} failed ({result.errors[0]}); --retry-failed trains again", file=sys.stderr)

    def make(self, item: Item, *, quick: bool = False, train: bool = True) -> Output:
        """Train what an item lacks, and make it of what there is; without training, the store stays as it is."""
        if train:
            self.train(item)
        elif item.trains and not self.store.exists():
            raise NothingThereError(item.name, self.store)
        gone = [] if train else [name for name in item.graphs if not self._is_here(name)]
        if gone and not item.trained:
            raise NoGraphsError(item.name, gone)
        with self._reading() as store:
            plans = _as_entered(store, self.plans(item, train=train))
            done = store.finished_keys()
            there = [planned for planned in plans if any(trial.key in done for trial in planned.plan.trials)]
            absent = [planned for planned in plans if planned not in there]
            if absent and not there:
                raise NothingThereError(item.name, self.store)
            if self._progress:
                print(f"{item.name}: drawing and writing", file=sys.stderr, flush=True)
            output = item.make(
                Work(
                    item=replace(item, graphs=tuple(name for name in item.graphs if name not in gone)),
                    quick=quick,
                    studies=tuple(Measured(*planned, read(store, planned.plan, partial=True)) for planned in there),
                    probed=tuple(_as_entered(store, self.probed_plans(item, train=train))),
                    absent=_in_words(absent),
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
        """The store; an empty one, of which nothing is left, where there is none."""
        if self.store.exists():
            with Store(self.store, writable=False) as store:
                yield store
        else:
            with TemporaryDirectory() as folder, Store(Path(folder) / "empty.db") as store:
                yield store


def _as_entered(store: Store, plans: Iterable[Planned]) -> list[Planned]:
    """Plans with the specs that their studies have in the store, which say more of the graphs or images."""
    specs = {study.name: study.spec for study in store.studies()}
    return [one._replace(plan=replace(one.plan, spec=specs.get(one.plan.name, one.plan.spec))) for one in plans]


def known_datasets(path: Path) -> dict[str, list[Dataset]]:
    """Every dataset that a store has studies of, by name; of several versions of one, that with most trials first.

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
                chance[version][find_protocol(spec["protocol"]).metric] = spec["chance"]
    found: dict[str, list[Dataset]] = defaultdict(list)
    for name, fingerprint in sorted(finished, key=finished.__getitem__, reverse=True):
        found[name].append(Dataset(name, fingerprint, chance[name, fingerprint]))
    return dict(found)


def _in_words(absent: Sequence[Planned]) -> tuple[str, ...]:
    """Studies, those of one protocol and the same datasets together."""
    datasets: dict[tuple[str, str], list[str]] = {}
    for planned in absent:
        datasets.setdefault((planned.protocol, planned.model), []).append(planned.dataset)
    models: dict[tuple[str, ...], list[str]] = {}
    for (protocol, model), names in datasets.items():
        models.setdefault((protocol, *names), []).append(model)
    return tuple(f"{', '.join(of)} under {protocol} on {', '.join(on)}" for (protocol, *on), of in models.items())
