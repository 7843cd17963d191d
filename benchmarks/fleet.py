"""A training step of GIN + GraphNorm, per model: a fleet against PyTorch Geometric's usual loop, in one run.

``python -m benchmarks.fleet [--device cuda] [--own] [--out FILE.json]``. Both sides are given the same weights first
and must give the same scores. PyTorch Geometric's side is what its examples do: a shuffling ``DataLoader`` over a list
of graphs, ``GINConv``, ``GraphNorm``, ``global_add_pool``, ``torch.optim.Adam``. On a CPU whole epochs are compared,
evaluation of all graphs included; on a GPU the training step, loading included. With ``--own`` our side trains PyTorch
Geometric's model, too, as a user's own model: on a CPU one by one, on a GPU stacked.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphnorm._version import exact_version
from graphnorm.data import PackedGraphs, load
from graphnorm.data.catalog import find
from graphnorm.models import GIN, GINConvolution, name_model
from graphnorm.models.own import OwnModel
from graphnorm.settings import Running
from graphnorm.study.fleets import make_fleet
from graphnorm.study.local_engine import local_engine
from graphnorm.study.worker import Advance, Begin, Engine, Question, Step, pack_code
from graphnorm.training import Fleet, Split, Trial, build_model
from graphnorm.training.devices import device_name

GPU_CASES = [(name, 10) for name in ("MUTAG", "PTC", "PROTEINS", "NCI1", "IMDB-BINARY", "COLLAB", "REDDIT-BINARY")]
GPU_CASES += [("MUTAG", 60), ("NCI1", 60), ("MUTAG", 300), ("NCI1", 300)]
GPU_BARS = {("COLLAB", 10): 40, ("REDDIT-BINARY", 10): 25, ("MUTAG", 300): 300, ("NCI1", 300): 300}
CPU_CASES = [("MUTAG", 10), ("NCI1", 10)]
CPU_BAR = 3.5
OWN_BARS = {"cpu": 1, "cuda": 10}


class PygGIN(nn.Module):
    """The same model, made of PyTorch Geometric's parts."""

    def __init__(
        self, in_features: int, num_outputs: int, norm: Callable[[int], nn.Module], readout: str, hidden: int = 64
    ) -> None:
        from torch_geometric.nn import GINConv, global_add_pool, global_mean_pool

        super().__init__()
        self.convolutions = nn.ModuleList(GINConv(nn.Identity(), train_eps=True) for _ in range(4))
        widths = [in_features] + [hidden] * 3
        self.first = nn.ModuleList(nn.Linear(width, hidden) for width in widths)
        self.second = nn.ModuleList(nn.Linear(hidden, hidden) for _ in widths)
        self.first_norm = nn.ModuleList(norm(hidden) for _ in widths)
        self.second_norm = nn.ModuleList(norm(hidden) for _ in widths)
        self.pool: Any = global_add_pool if readout == "sum" else global_mean_pool
        self.head = nn.Linear(hidden, num_outputs)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int) -> Tensor:
        """Scores of the batch's graphs, dropout of the scores included."""
        h = x
        for k, convolution in enumerate(self.convolutions):
            z = self.first[k](convolution(h, edge_index))
            z = self.first_norm[k](z, batch, batch_size).relu()
            z = self.second_norm[k](self.second[k](z), batch, batch_size).relu()
            h = z if k == 0 else z + h
        scores: Tensor = self.head(self.pool(h, batch, batch_size))
        return nn.functional.dropout(scores, 0.5, self.training)

    def take(self, model: nn.Module) -> None:
        """Copy the weights of ours."""
        if isinstance(model, OwnModel):
            self.load_state_dict({name.replace(".norm.", "."): w for name, w in model.model.state_dict().items()})
            return
        assert isinstance(model, GIN)
        state: dict[str, Tensor] = {"head.weight": model.head.weight, "head.bias": model.head.bias}
        for k, layer in enumerate(model.convolutions):
            assert isinstance(layer, GINConvolution)
            assert layer.xi is not None
            state[f"convolutions.{k}.eps"] = layer.xi.detach()[None]
            for name in ("first", "second", "first_norm", "second_norm"):
                state |= {f"{name}.{k}.{key}": value for key, value in getattr(layer, name).state_dict().items()}
        self.load_state_dict(state)


def pyg_model(graphs: PackedGraphs, readout: str) -> PygGIN:
    """With PyTorch Geometric's GraphNorm."""
    from torch_geometric.nn import GraphNorm

    return PygGIN(graphs.num_features, graphs.num_classes, GraphNorm, readout)


def scores_of(model: nn.Module, batch: Any) -> Tensor:
    """The scores of one of PyTorch Geometric's batches."""
    scores: Tensor = model(batch.x, batch.edge_index, batch.batch, batch.num_graphs)
    return scores


def loss_of_classes(scores: Tensor, batch: Any) -> Tensor:
    return nn.functional.cross_entropy(scores, batch.y)


def as_pyg(graphs: PackedGraphs) -> list[Any]:
    """The graphs as PyTorch Geometric keeps them: a list, features one-hot."""
    from torch_geometric.data import Data

    found = []
    for k in range(graphs.num_graphs):
        batch = graphs.batch([k])
        found.append(Data(x=graphs.features(batch), edge_index=batch.edge_index, y=batch.labels))
    return found


def setting(name: str, members: int, epochs: int, model: str = "gin") -> tuple[PackedGraphs, list[Trial], list[Split]]:
    """Trials and splits: the folds of a cross-validation, repeated until there are enough members."""
    from sklearn.model_selection import StratifiedKFold

    graphs, readout = load(name), find(name).readout
    labels = graphs.labels.numpy()
    parts = list(StratifiedKFold(10, shuffle=True, random_state=9).split(np.zeros(len(labels)), labels))
    same: dict[str, Any] = {"dataset": name, "model": model, "epochs": epochs, "readout": readout}
    trials = [Trial(**same, fold=k % 10, seed=k // 10) for k in range(members)]
    return graphs, trials, [Split(*parts[k % 10]) for k in range(members)]


def check(ours: nn.Module, theirs: PygGIN, graphs: PackedGraphs, data: list[Any], device: torch.device) -> float:
    """The largest difference of scores, relative to the largest score."""
    from torch_geometric.data import Batch

    theirs.take(ours)
    ids = np.random.default_rng(0).permutation(graphs.num_graphs)[:64]
    batch = graphs.batch(ids)
    with torch.no_grad():
        mine = ours.eval()(graphs.features(batch), batch.edge_index, batch.batch, len(ids))
        other = scores_of(theirs.eval(), Batch.from_data_list([data[k] for k in ids]).to(device)).cpu()
    return float((mine - other).abs().max() / other.abs().max())


def synchronise(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """The time of one call."""
    synchronise(device)
    began = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - began


def pyg_loop(
    model: nn.Module,
    data: list[Any],
    train_ids: Any,
    device: torch.device,
    evaluate: bool,
    most: int,
    batch_size: int = 128,
    *,
    forward: Callable[[Any, Any], Tensor] = scores_of,
    loss_of: Callable[[Tensor, Any], Tensor] = loss_of_classes,
) -> Callable[[], int]:
    """A function that trains for an epoch, or its first ``most`` steps, and gives the number of steps."""
    from torch_geometric.loader import DataLoader

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loader = DataLoader([data[k] for k in train_ids], batch_size=batch_size, shuffle=True)
    everything = DataLoader(data, batch_size=128)

    def epoch() -> int:
        model.train()
        steps = 0
        for batch in loader:
            batch = batch.to(device)
            optimizer.zero_grad()
            torch.autograd.backward(loss_of(forward(model, batch), batch))
            optimizer.step()
            steps += 1
            if steps == most:
                break
        if evaluate:
            model.eval()
            with torch.no_grad():
                for batch in everything:
                    batch = batch.to(device)
                    (scores_of(model, batch).argmax(1) == batch.y).sum()
        return steps

    return epoch


def step_seconds(fleet: Fleet) -> float:
    """The time of one training step of all members, batch assembly included: the best of three rounds."""
    steps = fleet._schedule.steps
    epochs = max(2, min(60, 60 // steps))
    batches, keys = fleet._schedule.batches(1, 1 + epochs), fleet._schedule.dropout_keys(1, 1 + epochs)

    def run() -> None:
        for k in range(epochs):
            fleet._train_epoch(1 + k, batches[k], keys[k])

    run()
    return min(seconds(run, fleet.device) for _ in range(3)) / (steps * epochs)


def step_seconds_of_loop(loop: Callable[[], int], device: torch.device) -> float:
    """The time of one training step of a loop, batch assembly included: the median of several rounds."""
    rounds = 12 if loop() <= 2 else 3
    times = []
    for _ in range(rounds):
        synchronise(device)
        began = time.perf_counter()
        count = loop()
        synchronise(device)
        times.append((time.perf_counter() - began) / count)
    return float(np.median(times))


def gpu_case(name: str, members: int, model: str, device: torch.device, peers: dict[str, float]) -> dict[str, Any]:
    """Milliseconds of a training step, per model."""
    graphs, trials, splits = setting(name, members, 400, model)
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    fleet = Fleet(graphs, trials, splits, device=device)
    fleet.advance(1)
    setup = time.perf_counter() - began
    ours = step_seconds(fleet)
    evaluation = min(seconds(fleet._evaluate_all, device) for _ in range(3))
    result: dict[str, Any] = {"dataset": name, "model": model, "members": members}
    result["steps_per_epoch"] = fleet._schedule.steps
    if name not in peers:
        data = as_pyg(graphs)
        theirs = pyg_model(graphs, trials[0].readout).to(device)
        result["difference"] = check(build_model(trials[0], graphs), theirs, graphs, data, device)
        loop = pyg_loop(theirs, data, splits[0].train, device, False, 30)
        peers[name] = step_seconds_of_loop(loop, device)
    return result | {
        "step_ms": 1e3 * ours,
        "step_ms_per_model": 1e3 * ours / members,
        "pyg_step_ms": 1e3 * peers[name],
        "speedup": peers[name] / (ours / members),
        "bar": GPU_BARS.get((name, members), 80 if members == 10 else None) if model == "gin" else OWN_BARS["cuda"],
        "evaluation_ms": 1e3 * evaluation,
        "setup_s": setup,
        "levels": [tuple(level) for level in fleet._captured.bounds] if fleet._captured else [],
        "peak_mib_per_member": torch.cuda.max_memory_allocated() / members / 2**20,
    }


def seconds_in_workers(graphs: PackedGraphs, trials: list[Trial], splits: list[Split], workers: int) -> float:
    """The time of an epoch in this many processes, after a first epoch in each that warms the caches."""
    engine = local_engine(graphs, Running(device="cpu", workers=workers), workers, pack_code(trials))
    shares = [range(k * len(trials) // workers, (k + 1) * len(trials) // workers) for k in range(workers)]
    begin = [
        Begin(
            tuple(trials[k] for k in share),
            tuple(splits[k] for k in share),
            frozenset(trials[k].key for k in share),
            make_fleet,
        )
        for share in shares
    ]
    try:
        ask_all(engine, begin)
        ask_all(engine, [Advance(1e-9, trials[0].epochs)] * workers)
        began = time.perf_counter()
        ask_all(engine, [Advance(1e9, trials[0].epochs)] * workers)
        return (time.perf_counter() - began) / (len(trials) * (trials[0].epochs - 1))
    finally:
        engine.close()


def ask_all(engine: Engine, questions: Sequence[Question]) -> None:
    """Ask each worker its question, and wait for all answers."""
    waiting = set(range(engine.slots))
    for slot, question in enumerate(questions):
        engine.ask(slot, question)
    while waiting:
        for slot, answer in engine.answers(timeout=1.0):
            assert isinstance(answer, Step), answer
            waiting.remove(slot)


def cpu_case(name: str, members: int, model: str, epochs: int) -> dict[str, Any]:
    """Seconds of a whole epoch with loading and evaluation, per model.

    Our package's models are trained on all cores, a user's own in one process, as PyTorch Geometric's loop is.
    """
    graphs, trials, splits = setting(name, members, epochs, model)
    device = torch.device("cpu")
    data = as_pyg(graphs)
    theirs = pyg_model(graphs, trials[0].readout)
    difference = check(build_model(trials[0], graphs), theirs, graphs, data, device)
    loop = pyg_loop(theirs, data, splits[0].train, device, True, 1 << 30)
    loop()
    rounds: list[tuple[float, dict[str, float]]] = []
    processes = (1, len(os.sched_getaffinity(0))) if model == "gin" else (1,)
    for _ in range(3):
        mine: dict[str, float] = {}
        for workers in processes:
            mine[f"{workers}_processes"] = seconds_in_workers(graphs, trials, splits, workers)
        rounds.append((seconds(loop, device), mine))
    best = {key: min(mine[key] for _, mine in rounds) for key in rounds[0][1]}
    chosen = f"{processes[-1]}_processes"
    ratios = sorted(peer / mine[chosen] for peer, mine in rounds)
    return {
        "dataset": name,
        "model": model,
        "members": members,
        "difference": difference,
        "epoch_s_per_model": best,
        "pyg_epoch_s": min(peer for peer, _ in rounds),
        "speedup": ratios[len(ratios) // 2],
        "speedups": ratios,
        "bar": CPU_BAR if model == "gin" else OWN_BARS["cpu"],
    }


def main() -> None:
    """Run the cases and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="*", help="names of datasets")
    parser.add_argument("--members", type=int, nargs="*")
    parser.add_argument("--own", action="store_true", help="train PyTorch Geometric's model as a user's own")
    parser.add_argument("--epochs", type=int, default=4, help="of ours, on a CPU (default: 4)")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    cases = GPU_CASES if device.type == "cuda" else CPU_CASES
    cases = [(n, m) for n, m in cases if not options.only or n in options.only]
    cases = [(n, m) for n, m in cases if not options.members or m in options.members]
    model = name_model(PygGIN) if options.own else "gin"
    rows: list[dict[str, Any]] = []
    peers: dict[str, float] = {}
    for name, members in cases:
        if device.type == "cuda":
            rows.append(gpu_case(name, members, model, device, peers))
        else:
            rows.append(cpu_case(name, members, model, options.epochs))
        print(json.dumps(rows[-1]), flush=True)
        if options.out:
            facts = {
                "device": device_name(device),
                "date": str(date.today()),
                "graphnorm": exact_version(),
                "torch": torch.__version__,
                "threads": torch.get_num_threads(),
            }
            options.out.write_text(json.dumps({**facts, "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
