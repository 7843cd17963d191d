"""The laboratory: trains what recipes need, in one store, and makes their products.

Each dataset, model and protocol of a recipe is a study of the store. A trial that another item has trained, in this run
or an earlier one, is there already; the same command again goes on from where it was stopped.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from graphnorm.data import Images, PackedGraphs, find, load, load_cifar10
from graphnorm.data.loading import locate, obtain
from graphnorm.errors import DownloadError, StudyError
from graphnorm.paper import makers
from graphnorm.paper.material import Material, Measured, NoGraphsError, NothingThereError, Planned, in_words
from graphnorm.paper.products import Product
from graphnorm.paper.recall import recall
from graphnorm.paper.recipe import IMAGES, Recipe, Trainings, Watching
from graphnorm.paper.watching import Learned, Notebook, Seen, learn_alpha, watch_graphs, watch_images
from graphnorm.study.baselines import baseline_plan
from graphnorm.study.display import Display
from graphnorm.study.engines.local import choose_devices, local_engine
from graphnorm.study.merge import merge
from graphnorm.study.plan import Plan, Remembered, make_plan
from graphnorm.study.results import study_results
from graphnorm.study.search import pack, run_plan
from graphnorm.study.store import Store
from graphnorm.training.fleet import default_device

__all__ = ["Interrupted", "Laboratory"]


class Interrupted(Exception):  # noqa: N818 - not a mistake
    """A signal stopped a study; what it had finished is in the store."""

    def __init__(self, signal: int) -> None:
        self.signal = signal
        super().__init__(f"stopped by signal {signal}")


class Laboratory:
    """Where recipes are carried out.

    Args:
        store: the file of studies.
        data_root: folder of the datasets.
        device: where to train.
        workers: processes on a CPU.
        progress: whether to say on standard error how far it is.
        noise: the file of batch noise; beside the store, with the ending ``.noise.json``, if left out.
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        *,
        data_root: str | os.PathLike[str] | None = None,
        device: str | None = None,
        workers: int | None = None,
        progress: bool = True,
        noise: str | os.PathLike[str] | None = None,
    ) -> None:
        self.store = Path(store)
        self.notebook = Notebook(self.store.with_suffix(".noise.json") if noise is None else Path(noise))
        self._root, self._device, self._workers, self._progress = data_root, device, workers, progress
        self._held: tuple[str, PackedGraphs] | None = None

    def graphs(self, name: str) -> PackedGraphs:
        """A dataset; the last one is held, since studies of one dataset follow each other."""
        if self._held is None or self._held[0] != name:
            self._held = None
            self._held = (name, load(name, self._root))
        return self._held[1]

    def images(self) -> Images:
        """CIFAR-10."""
        return load_cifar10(self._root)

    def watch(self, training: Watching, *, train: bool = True) -> Seen | None:
        """Watch a training, unless the file of batch noise has all of it; where none is allowed, what that has."""
        seen = self.notebook.find(training)
        if not train or (seen is not None and seen.trained == training.epochs):
            return seen
        self.say(f"{training.dataset}, batches of {training.batch_size}: batch noise along {training.epochs} epochs")
        if seen is not None:
            self.say(seen.cut_short)
        if training.dataset == IMAGES:
            seen = watch_images(self.images(), training, device=self.device, say=self.say)
        else:
            graphs = self.graphs(training.dataset)
            seen = watch_graphs(graphs, training, device=self.device, progress=self.progress)
        self.notebook.add(seen)
        return seen

    def apart(self, recipe: Recipe) -> Iterator[tuple[str, str, bool, str]]:
        """Trainings of a recipe that are no trials of the store.

        Dataset, model, whether they are done, and what there is to say of one that was cut short.
        """
        watched, learned = recipe.watched, recipe.learned
        for training in watched.trainings if watched else ():
            seen = self.notebook.find(training)
            model = "resnet18" if training.dataset == IMAGES else "gin"
            note = "" if seen is None else seen.cut_short
            yield training.dataset, model, seen is not None and not note, note
        if learned is not None:
            for dataset in learned.datasets:
                yield dataset, "gin", self.notebook.find_learned(dataset, learned.epochs) is not None, ""

    def learned(self, dataset: str, epochs: int, *, train: bool = True) -> Learned | None:
        """The α that GraphNorm learned on a dataset, from the same file where it is there."""
        found = self.notebook.find_learned(dataset, epochs)
        if found is None and train:
            self.say(f"{dataset}: α along {epochs} epochs")
            found = learn_alpha(self.graphs(dataset), epochs, device=self.device, progress=self.progress)
            self.notebook.add(found)
        return found

    @property
    def device(self) -> torch.device:
        """Where things are trained."""
        return default_device(self._device)

    @property
    def progress(self) -> bool:
        """Whether to say how far it is."""
        return self._progress

    def _obtain(self, name: str) -> None:
        if find(name).format == "images":
            obtain(find(name), self._root, progress=self._progress)
        else:
            self.graphs(name)

    def check_data(self, recipes: Sequence[Recipe]) -> None:
        """Refuse to begin where a dataset cannot be had."""
        missing = {}
        names = [name for recipe in recipes for name in recipe.datasets]
        names += [IMAGES for recipe in recipes if recipe.watched and recipe.watched.images]
        for name in dict.fromkeys(names):
            try:
                self._obtain(name)
            except DownloadError as error:
                missing[name] = error
        if missing:
            others = f", or leave them out: --datasets with the names of others than {', '.join(missing)}"
            first = next(iter(missing.values()))
            raise StudyError(first.problem, remedy=(first.remedy or "") + others)

    def plans(self, recipe: Recipe, *, train: bool = True) -> Iterator[Planned]:
        """The studies of a recipe, dataset by dataset; baselines come last.

        train: without it, of the graphs that the store has studies of; they need not be on this machine.
        """
        find_graphs = self.graphs if train else functools.partial(self._recalled, recall(self.store))
        for part in recipe.trained:
            for dataset in part.datasets:
                for model in part.models:
                    for protocol in part.protocols:
                        plan = self._plan(part, find_graphs(dataset), model, protocol)
                        yield Planned(dataset, model, protocol, plan)
        if (beside := recipe.beside) is not None:
            for dataset, name, protocol in itertools.product(beside.datasets, beside.baselines, beside.protocols):
                plan = baseline_plan(
                    find_graphs(dataset), name, protocol=protocol, folds=beside.folds, seeds=beside.seeds
                )
                yield Planned(dataset, name, protocol, plan)

    def _recalled(self, known: Mapping[str, Sequence[Remembered]], name: str) -> Remembered:
        """A dataset as the store has it; of several versions the one on this machine, else that with most trials."""
        versions = known.get(name) or [Remembered(name, fingerprint="")]
        if len(versions) > 1 and self._is_here(name):
            here = self.graphs(name).fingerprint
            versions = sorted(versions, key=lambda version: version.fingerprint != here)
        return versions[0]

    def _is_here(self, name: str) -> bool:
        """Whether a dataset can be had without a download."""
        entry = find(name)
        return not entry.files or locate(entry, self._root) is not None

    @staticmethod
    def _plan(part: Trainings, graphs: PackedGraphs | Remembered, model: str, protocol: str) -> Plan:
        return make_plan(
            graphs,
            part.grid,
            norms=part.norms,
            model=model,
            protocol=protocol,
            folds=part.folds,
            seeds=part.seeds,
            **part.settings(graphs.name, model),
        )

    def missing(self, plan: Plan) -> int:
        """How many trials of a plan no study of the store has finished."""
        return len(self.lacking(plan))

    def lacking(self, plan: Plan) -> list[str]:
        """The keys of these trials."""
        if not self.store.exists():
            return [trial.key for trial in plan.trials]
        done: set[str] = set()
        with Store(self.store, writable=False) as store:
            for study in store.studies():
                if study.spec.get("fingerprint") == plan.spec["fingerprint"]:
                    statuses = store.statuses(study)
                    done |= {key for key, status in statuses.items() if status in ("done", "diverged")}
        return [trial.key for trial in plan.trials if trial.key not in done]

    def measure(self, planned: Planned) -> Measured:
        """Train what the store lacks of a study."""
        graphs, plan = self.graphs(planned.dataset), planned.plan
        device = str(self.device)
        slots = len(choose_devices(device, self._workers))
        result = run_plan(
            self.store,
            plan,
            graphs,
            lambda count: local_engine(graphs, device=device, workers=self._workers, fleets=count),
            fleets=pack(graphs, plan.trials, device, slots),
            callbacks=[Display()] if self._progress and self.missing(plan) else [],
        )
        if result.stopped_by is not None:
            raise Interrupted(result.stopped_by)
        return Measured(planned.dataset, planned.model, planned.protocol, result.study, result.norms, self.store)

    def train(self, recipe: Recipe) -> None:
        """Train all that a recipe needs and that is not there; nothing is made of it."""
        for planned in self.plans(recipe):
            self.measure(planned)
        watched, learned = recipe.watched, recipe.learned
        for training in watched.trainings if watched else ():
            self.watch(training)
        if learned is not None:
            for dataset in learned.datasets:
                self.learned(dataset, learned.epochs)

    @staticmethod
    def _read(planned: Planned, copy: Path) -> Measured:
        """A study as far as it is trained, fewer folds and seeds included; it is entered into the copy of the store."""
        plan = planned.plan
        with Store(copy) as store:
            study = store.add_study(plan.name, plan.spec, plan.trials, [range(len(plan.trials))])
            results = tuple(study_results(store, study, partial=True))
        return Measured(planned.dataset, planned.model, planned.protocol, study, results, copy)

    def make(self, recipe: Recipe, *, quick: bool = False, train: bool = True) -> Product:
        """Carry out a recipe; without training, of what there is, and the store stays as it is."""
        if train:
            studies = tuple(self.measure(planned) for planned in self.plans(recipe))
            return self._finish(Material(recipe, quick, studies, self))
        gone = [name for name in recipe.looked_at if not self._is_here(name)]
        if gone and not recipe.trained:
            raise NoGraphsError(recipe.item, gone)
        there, absent = [], []
        for planned in self.plans(recipe, train=False):
            if self.missing(planned.plan) < len(planned.plan.trials):
                there.append(planned)
            else:
                absent.append(planned)
        if absent and not there:
            raise NothingThereError(recipe.item, self.store)
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy.db"
            if there:
                merge(copy, [self.store])
            studies = tuple(self._read(planned, copy) for planned in there)
            seen = replace(recipe, looked_at=tuple(name for name in recipe.looked_at if name not in gone))
            product = self._finish(Material(seen, quick, studies, self, train, in_words(absent)))
        if not gone:
            return product
        lacking = f"Without drawings of {' and '.join(gone)}: these graphs are not on this machine."
        facts = product.facts | {
            "missing": [*product.facts.get("missing", ()), *(f"drawings of {name}" for name in gone)]
        }
        return replace(product, sentences=(*product.sentences, lacking), facts=facts)

    def _finish(self, material: Material) -> Product:
        self.say(f"{material.recipe.item}: drawing and writing")
        product: Product = getattr(makers, material.recipe.maker)(material)
        return product

    def say(self, text: str) -> None:
        """A line of progress."""
        if self._progress:
            print(text, file=sys.stderr, flush=True)
