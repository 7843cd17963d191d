"""How errors of BatchNorm's running averages grow from layer to layer: ``python -m benchmarks.running_averages``.

GIN with BatchNorm is trained with several seeds. Each model then classifies its training graphs, all in one batch,
three times: with the statistics of that very batch; with the running averages of training; and with *exact* averages,
set to the statistics of that batch. The last differ from the first only by the factor n/(n−1) of the running variance.
The distance of the outputs, layer by layer, shows whether so small an error grows. It does on regular graphs, whose
nodes are all alike; molecules are there for comparison. Writes ``benchmarks/results/running-averages.csv``.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.facts import RESULTS, announce, write_table
from graphnorm import BatchNorm
from graphnorm.data import PackedGraphs, load
from graphnorm.data.batching import GraphBatch
from graphnorm.models import Dropout
from graphnorm.study.folds import make_splits
from graphnorm.training import Fleet, Trial, build_model

DATASETS = ("synthetic:regular", "molecules")
CHANCE, SETTLED = 0.6, 10
"""Accuracy below which a model of two classes counts as guessing, and epochs after which it should not."""


def with_live_statistics(model: nn.Module) -> nn.Module:
    """A copy that normalizes by the batch at hand and drops nothing; its running averages become those of the batch."""
    live = copy.deepcopy(model).train()
    for module in live.modules():
        if isinstance(module, Dropout):
            module.eval()
        if isinstance(module, BatchNorm):
            module.momentum = 1.0
    return live


def look(model: nn.Module, graphs: PackedGraphs, batch: GraphBatch) -> tuple[float, list[Tensor]]:
    """The accuracy on the batch, and the output of every BatchNorm."""
    outputs: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
        outputs.append(output)

    norms = [module for module in model.modules() if isinstance(module, BatchNorm)]
    hooks: list[Any] = [module.register_forward_hook(keep) for module in norms]
    with torch.no_grad():
        scores = model(graphs.features(batch), batch.edge_index, batch.batch)
    for hook in hooks:
        hook.remove()
    return float((scores.argmax(1) == batch.labels).float().mean()), outputs


def measure(
    graphs: PackedGraphs, trial: Trial, state: dict[str, Tensor], curve: Any, batch: GraphBatch
) -> dict[str, Any]:
    """Train and measure one seed."""
    model = build_model(trial, graphs)
    model.load_state_dict(state)
    running, _ = look(model.eval(), graphs, batch)
    adapted = with_live_statistics(model)
    live, expected = look(adapted, graphs, batch)
    exact, found = look(adapted.eval(), graphs, batch)
    errors = [float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True)]
    return {
        "dataset": trial.dataset,
        "seed": trial.seed,
        "live": f"{live:.3f}",
        "running": f"{running:.3f}",
        "exact": f"{exact:.3f}",
        "epochs_at_chance": int((curve[SETTLED:] < CHANCE).sum()),
        **{f"error_layer_{place}": f"{error:.1e}" for place, error in enumerate(errors, 1)},
    }


def rows_of(dataset: str, seeds: int, epochs: int) -> list[dict[str, Any]]:
    """Train and look."""
    graphs = load(dataset)
    trials = [Trial(dataset=dataset, norm="batch", epochs=epochs, seed=seed) for seed in range(seeds)]
    splits = make_splits(graphs, trials)
    fleet = Fleet(graphs, trials, splits, device="cpu")
    fleet.advance(on_epoch=lambda progress: print(f"{dataset}: epoch {progress.epoch} of {epochs}", flush=True))
    batch = graphs.batch(splits[0].train)
    curves = [outcome.curves["train"] for outcome in fleet.outcomes()]
    return [measure(graphs, trial, fleet.model_state(k), curves[k], batch) for k, trial in enumerate(trials)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--out", type=Path, default=RESULTS / "running-averages.csv")
    options = parser.parse_args()
    made = announce(torch.device("cpu"))
    rows = [row for dataset in DATASETS for row in rows_of(dataset, options.seeds, options.epochs)]
    write_table("running-averages", rows, made, options.out)


if __name__ == "__main__":
    main()
