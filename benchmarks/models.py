"""Measure what a layer gains in a whole model of PyTorch Geometric: a training step, eager and compiled.

Three networks are timed in turns: with PyTorch Geometric's layer, with ours, and with "normalization for free", which
only scales and shifts. That one is the limit, so each row also gives the share of the gap to it that our layer closes.
Every step sees a ``batch`` tensor that no layer has seen before. Times are medians, ratios medians over the turns; a
time counts only after the two layers gave the same loss. On a CPU with one thread it is the time that the process got,
so that others on the machine matter less. Writes ``benchmarks/results/models-DEVICE.csv``.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import random
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import graphnorm
from benchmarks.facts import announce, write_table

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch_geometric's own, at import
    import torch_geometric.nn as pyg

MODELS = {"GIN": pyg.GIN, "GraphSAGE": pyg.GraphSAGE, "GAT": pyg.GAT}
NORMS = ("GraphNorm", "InstanceNorm", "BatchNorm")
STEPS = 4
"""Different batches in one turn."""


@dataclass(frozen=True)
class Case:
    """Graphs of ``low`` to ``high - 1`` nodes with 2.2 edges a node, and the size of the model."""

    graphs: int
    low: int
    high: int
    features: int
    width: int
    layers: int

    def __str__(self) -> str:
        return f"{self.graphs} x {(self.low + self.high) // 2}, C={self.width}, {self.layers} layers"

    def batch(self, seed: int, device: torch.device) -> tuple[Tensor, ...]:
        """x, edge_index, batch and classes."""
        generator = torch.Generator().manual_seed(seed)
        sizes = torch.randint(self.low, self.high, (self.graphs,), generator=generator)
        ids = torch.repeat_interleave(torch.arange(self.graphs), sizes)
        of = torch.repeat_interleave(torch.arange(self.graphs), (1.1 * sizes).long())
        ends = (torch.rand(2, len(of), generator=generator) * sizes[of]).long() + (sizes.cumsum(0) - sizes)[of]
        x = torch.randn(len(ids), self.features, generator=generator)
        classes = torch.randint(0, 2, (self.graphs,), generator=generator)
        return tuple(t.to(device) for t in (x, torch.cat([ends, ends.flip(0)], 1), ids, classes))


CASES = [Case(128, 20, 40, 37, 64, 4), Case(512, 10, 40, 64, 256, 5), Case(4096, 10, 40, 64, 300, 5)]


class Free(nn.Module):
    """Normalization for free: the parameters of a layer without its statistics."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, batch: Any = None, batch_size: Any = None) -> Tensor:
        return x * self.weight + self.bias


class Network(nn.Module):
    """A model of PyTorch Geometric, sum readout and two classes."""

    def __init__(self, model: Any, norm: nn.Module, case: Case) -> None:
        super().__init__()
        self.model = model(case.features, case.width, case.layers, norm=norm)
        self.head, self.graphs = nn.Linear(case.width, 2), case.graphs

    def forward(self, x: Tensor, edges: Tensor, batch: Tensor, graphs: int) -> Tensor:
        h = self.model(x, edges, batch=batch, batch_size=graphs)
        return self.head(pyg.global_add_pool(h, batch, graphs))  # type: ignore[no-any-return]


def stepper(network: nn.Module, case: Case, data: list[tuple[Tensor, ...]]) -> Callable[[], Tensor]:
    """A function that trains for one step on each batch and gives the last loss."""
    optimizer = torch.optim.Adam(network.parameters(), 1e-3, fused=True)

    def turn() -> Tensor:
        for x, edges, batch, classes in data:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(x, edges, batch.detach(), case.graphs), classes)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return loss.detach()

    return turn


Turns = dict[str, Callable[[], Tensor]]


def prepare(case: Case, model: str, norm: str, *, compiled: bool, device: torch.device) -> Turns:
    """What is to be timed, run once: so it is compiled, and the two layers gave the same loss."""
    torch.compiler.reset()
    data = [case.batch(seed, device) for seed in range(STEPS)]
    options = {"affine": True} if norm == "InstanceNorm" else {}
    layers = {"pyg": getattr(pyg, norm), "ours": getattr(graphnorm, norm), "free": Free}
    turns: Turns = {}
    state: dict[str, Tensor] = {}
    for name, layer in layers.items():
        network: Any = Network(MODELS[model], layer(case.width, **(options if name != "free" else {})), case)
        state = state or {key: value.clone() for key, value in network.state_dict().items()}
        network.load_state_dict(state, strict=name != "free")
        network = network.to(device)
        program: Any = torch.compile(network, dynamic=True) if compiled else network
        turns[name] = stepper(program, case, data)
    losses = {name: float(turn()) for name, turn in turns.items()}
    if not abs(losses["ours"] - losses["pyg"]) <= 1e-2 * abs(losses["pyg"]):
        raise SystemExit(f"{model} with {norm}: the losses differ after {STEPS} steps: {losses}")
    return turns


def measure(turns: Turns, device: torch.device, seconds: float) -> dict[str, float]:
    """Milliseconds of a step, PyTorch Geometric's over ours and over the limit, and the share closed."""
    times: dict[str, list[float]] = {name: [] for name in turns}
    order, shuffle = list(turns), random.Random(0).shuffle
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(times["free"]) < 5:
        shuffle(order)  # so that none always runs in the caches and the heap that the same other one left behind
        for name in order:
            times[name].append(_seconds(turns[name], device) / STEPS)
    found = {name: statistics.median(values) for name, values in times.items()}
    speedup, limit = (
        statistics.median(theirs / ours for theirs, ours in zip(times["pyg"], times[name], strict=True))
        for name in ("ours", "free")
    )
    return {
        **{f"{name}_ms": round(1e3 * value, 3) for name, value in found.items()},
        "speedup": round(speedup, 3),
        "limit": round(limit, 3),
        "share": round((found["pyg"] - found["ours"]) / (found["pyg"] - found["free"]), 2),
    }


def measure_elsewhere(connection: Connection, seconds: float, device: torch.device, *what: Any) -> None:
    """In a process of its own: prepare, say so, wait for the word, and send what was measured."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    case, model, norm = what
    turns = prepare(case, model, norm, compiled=True, device=device)
    connection.send("ready")
    connection.recv()
    connection.send(measure(turns, device, seconds))


def _seconds(turn: Callable[[], Tensor], device: torch.device) -> float:
    on_gpu = device.type == "cuda"
    clock = time.process_time if not on_gpu and torch.get_num_threads() == 1 else time.perf_counter
    if on_gpu:
        torch.cuda.synchronize()
    start = clock()
    turn()
    if on_gpu:
        torch.cuda.synchronize()
    return clock() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, help="on a CPU (default: as many as torch takes)")
    parser.add_argument("--seconds", type=float, default=10.0, help="per row, for the clock alone (default 10)")
    parser.add_argument("--model", choices=MODELS, action="append", help="only this one; may be repeated")
    parser.add_argument("--norm", choices=NORMS, action="append", help="only this one; may be repeated")
    parser.add_argument("--out", type=Path, help="the CSV to write (default: benchmarks/results/models-DEVICE.csv)")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    made = announce(device, "torch_geometric")
    warnings.simplefilter("ignore")  # torch's own, about the machine
    cases = CASES if device.type == "cuda" else CASES[:1]
    wanted = list(itertools.product(cases, options.model or MODELS, options.norm or NORMS))
    compiling: dict[Any, Connection] = {}
    if device.type == "cuda":  # programs take long to compile and GPUs have memory for all: so side by side, first
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        context = multiprocessing.get_context("spawn")
        for what in wanted:
            compiling[what], theirs = context.Pipe()
            arguments = (theirs, options.seconds, device, *what)
            context.Process(target=measure_elsewhere, args=arguments, daemon=True).start()
            theirs.close()  # so that a process that ends early is noticed
        for done, connection in enumerate(compiling.values(), 1):
            connection.recv()
            print(f"{done} of {len(compiling)} models are compiled", flush=True)
    rows = []
    for (case, model, norm), compiled in itertools.product(wanted, (False, True)):
        if compiled and compiling:
            connection = compiling[case, model, norm]
            connection.send("go")
            found = connection.recv()
        else:
            found = measure(prepare(case, model, norm, compiled=compiled, device=device), device, options.seconds)
        mode = "compiled" if compiled else "eager"
        rows.append({"model": model, "norm": norm, "case": str(case), "mode": mode, **found})
        print(
            f"{case}  {model:9s} {norm:12s} {mode:8s} {found['speedup']:5.2f}x of at most {found['limit']:.2f}x, "
            f"{found['share']:.0%} of the gap",
            flush=True,
        )
    write_table("models", rows, made, options.out)


if __name__ == "__main__":
    main()
