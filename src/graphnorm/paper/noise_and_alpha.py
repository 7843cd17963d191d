"""Trainings that are measured along the way: batch noise of graphs and of images, and the learned α.

Batch noise: GIN with BatchNorm on all graphs of a dataset, or ResNet18 on CIFAR-10. All four depths that Figure 9 shows
are measured, so that one training serves every figure. The learned α: GIN with GraphNorm on all graphs, three seeds.
Each is a plan with a probe, run and stored like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from graphnorm.analysis import AlphaProbe, Alphas, LayerNoise, NoiseProbe, log_spaced_epochs
from graphnorm.data import Images, PackedGraphs, find
from graphnorm.paper.image_fleet import BATCH_SIZE, IMAGE_LAYERS, IMAGES, ImageFleet, ImageNoiseProbe
from graphnorm.study.plan import Plan
from graphnorm.study.plan_from_settings import Dataset
from graphnorm.study.store import Record, Store
from graphnorm.training import Trial

__all__ = ["AlphaRun", "NoiseRun", "alpha_plan", "alpha_runs", "image_plan", "noise_plan", "noise_runs", "origin"]
__all__ += ["read_alpha", "read_noise"]

LOOKS = 20
"""How many times a model is measured along its training."""
ALPHA_SEEDS = 3


# Plans

GRAPH_LAYERS = tuple(f"convolutions.{k}.{'second' if k else 'first'}_norm" for k in range(4))
"""In the first convolution the norm after the first linear map, in the others the norm that ends the convolution."""


def noise_plan(graphs: PackedGraphs | Dataset, batch_size: int, epochs: int, seed: int = 0) -> Plan:
    """GIN with BatchNorm on all graphs; its batches are compared with the dataset."""
    probe = NoiseProbe(log_spaced_epochs(epochs, LOOKS), batch_size, GRAPH_LAYERS)
    return _plan("noise", probe, (seed,), **_gin(graphs), norm="batch", batch_size=batch_size, epochs=epochs)


def alpha_plan(graphs: PackedGraphs | Dataset, epochs: int) -> Plan:
    """GIN with GraphNorm on all graphs; its α is read along the way."""
    probe = AlphaProbe(log_spaced_epochs(epochs, LOOKS))
    return _plan("alpha", probe, range(ALPHA_SEEDS), **_gin(graphs), norm="graph", epochs=epochs)


def image_plan(epochs: int, images: Images | None = None, seed: int = 0) -> Plan:
    """ResNet18 on CIFAR-10; its batches are compared with the dataset.

    images: the spec then says how many there are, and whether they went through JPEG.
    """
    probe = ImageNoiseProbe(log_spaced_epochs(epochs, LOOKS), BATCH_SIZE, IMAGE_LAYERS)
    return _plan(
        "noise",
        probe,
        (seed,),
        fleet=ImageFleet,
        about={} if images is None else {"lossy": images.lossy, "images": len(images.train_images)},
        dataset=IMAGES,
        model="resnet18",
        norm="batch",
        epochs=epochs,
        batch_size=BATCH_SIZE,
        lr=0.1,
        weight_decay=5e-4,
        dropout=0.0,
    )


def _gin(graphs: PackedGraphs | Dataset) -> dict[str, Any]:
    """The graphs, with the paper's readout and the self-loops of the authors' data."""
    readout = find(graphs.name).readout
    return {"dataset": graphs.name, "fingerprint": graphs.fingerprint, "readout": readout, "self_loops": True}


def _plan(
    kind: str,
    probe: Any,
    seeds: Sequence[int],
    *,
    fleet: Any = None,
    about: dict[str, Any] | None = None,
    **settings: Any,
) -> Plan:
    trials = tuple(Trial(protocol="all", folds=1, seed=seed, **settings) for seed in seeds)
    first = trials[0]
    spec = {
        "kind": kind,
        "dataset": first.dataset,
        "fingerprint": first.fingerprint,
        "model": first.model,
        "norms": [first.norm],
        "protocol": first.protocol,
        "folds": first.folds,
        "seeds": len(seeds),
        "epochs": first.epochs,
        "batch_size": first.batch_size,
        **(about or {}),
    }
    name = f"{first.dataset}-{first.model}-{kind}-{first.batch_size}-{first.epochs}"
    name += f"-seed-{first.seed}" if first.seed else ""
    return Plan(name, spec, trials, probe, fleet)


# Reading from a store


class NoiseRun(NamedTuple):
    """Batch noise along one training."""

    record: Record
    layers: list[LayerNoise]
    """At four depths."""
    lossy: bool
    """Whether images went through JPEG."""

    @property
    def trial(self) -> Trial:
        return self.record.trial


class AlphaRun(NamedTuple):
    """The α that GraphNorm learned on a dataset, over three seeds."""

    records: list[Record]
    alphas: Alphas

    @property
    def trial(self) -> Trial:
        """That of the first seed."""
        return self.records[0].trial


def origin(records: Sequence[Record]) -> dict[str, Any]:
    """When, where and with which code a training ran, for JSON."""
    first = records[0]
    return {
        "finished": first.finished,
        "code": first.code,
        "device": first.device,
        "seconds": round(sum(record.seconds for record in records), 1),
        "fingerprint": first.trial.fingerprint,
    }


def read_noise(store: Store, plan: Plan) -> NoiseRun | None:
    """The training of :func:`noise_plan` or :func:`image_plan`.

    If the store lacks it, the longest one that differs in having fewer epochs; None if there is none.
    """
    wanted = plan.trials[0]
    if not store.seen(wanted):
        shorter = [
            other
            for other in _plans(store, "noise")
            if store.seen(other.trials[0])
            and other.trials[0].epochs < wanted.epochs
            and replace(other.trials[0], epochs=wanted.epochs) == wanted
        ]
        if not shorter:
            return None
        plan = max(shorter, key=lambda other: other.trials[0].epochs)
    trial = plan.trials[0]
    records, seen = store.records(plan), store.seen(trial)
    if not records or not seen:
        return None
    names = IMAGE_LAYERS if trial.dataset == IMAGES else GRAPH_LAYERS
    probe = NoiseProbe(tuple(seen["epochs"].tolist()), trial.batch_size, names)
    layers = [LayerNoise.from_looks(probe, name, seen[name].astype(np.float64)) for name in names]
    return NoiseRun(records[0], layers, bool(plan.spec.get("lossy")))


def read_alpha(store: Store, plan: Plan) -> AlphaRun | None:
    """The trainings of :func:`alpha_plan`; None if the store lacks one."""
    records = store.records(plan)
    looks = [store.seen(trial) for trial in plan.trials]
    if len(records) < len(plan.trials) or not all(looks):
        return None
    epochs = [tuple(look.pop("epochs").tolist()) for look in looks]
    seeds = [{name: values.astype(np.float64) for name, values in look.items()} for look in looks]
    return AlphaRun(records, Alphas.from_looks(AlphaProbe(epochs[0]), seeds))


def noise_runs(store: Store) -> list[NoiseRun]:
    """All trainings of a store that measured batch noise."""
    return [run for plan in _plans(store, "noise") if (run := read_noise(store, plan)) is not None]


def alpha_runs(store: Store) -> list[AlphaRun]:
    """All trainings of a store that measured α."""
    return [run for plan in _plans(store, "alpha") if (run := read_alpha(store, plan)) is not None]


def _plans(store: Store, kind: str) -> list[Plan]:
    return [store.plan(study) for study in store.studies() if study.spec.get("kind") == kind]
