"""A training step of ten models, per model: a fleet against PyTorch Geometric's usual loop, in one run.

    GRAPHNORM_DATA=folder python -m benchmarks.tasks [--graphs FILE] [--out FILE.csv]

Two cases. ``tox21``: 12 targets with missing labels, a GIN that sees bonds, and a loss over what is there, as
``graphnorm compare tox21`` trains it. ``own``: PyTorch Geometric's GIN on NCI1, given to our side as a user's own
model, as ``--model FILE.py:Name`` does. Both sides are given the same weights first, and must give the same scores.
PyTorch Geometric's side is that of ``benchmarks/fleet.py``. On a CPU the numbers only show that everything runs.

``--graphs`` names a file that ``graphnorm.data.save_packed`` made of tox21, for a machine without RDKit.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.facts import announce, write_table
from benchmarks.fleet import PygGIN, as_pyg, check, pyg_loop, pyg_model, setting, step_seconds, step_seconds_of_loop
from graphnorm.data import PackedGraphs, load
from graphnorm.models import MolecularGIN, name_model
from graphnorm.models.molecules import MolecularConvolution
from graphnorm.study.folds import make_splits
from graphnorm.study.plan_from_settings import make_plan, settle
from graphnorm.training import Fleet, Trial, build_model

BARS = {"tox21": 80, "own": 10}
PEER_STEPS = 30


class PygBondGIN(nn.Module):
    """``molecular-gin``, made of PyTorch Geometric's parts: messages are an atom's values plus a bond's.

    The embeddings of an atom's nine categories are one table, with one lookup, as are those of a bond's three.
    """

    def __init__(self, graphs: PackedGraphs, num_outputs: int, *, hidden: int, layers: int, readout: str) -> None:
        from torch_geometric.nn import GraphNorm, MessagePassing, global_add_pool, global_mean_pool

        class Convolution(MessagePassing):  # type: ignore[misc]
            """(1+ξ)h_v + Σ_u (h_u + bond), and a perceptron of two layers."""

            def __init__(self) -> None:
                super().__init__(aggr="add")
                self.bonds = nn.Embedding(sum(graphs.edge_cardinalities), hidden)
                self.xi = nn.Parameter(torch.zeros(1))
                self.first, self.second = nn.Linear(hidden, 2 * hidden), nn.Linear(2 * hidden, hidden)
                self.first_norm, self.second_norm = GraphNorm(2 * hidden), GraphNorm(hidden)

            def forward(self, h: Tensor, edge_index: Tensor, bonds: Tensor, batch: Tensor, size: int) -> Tensor:
                z = (1 + self.xi) * h + self.propagate(edge_index, h=h, e=self.bonds(bonds).sum(1))
                z = self.first_norm(self.first(z), batch, size).relu()
                out: Tensor = self.second_norm(self.second(z), batch, size)
                return out

            def message(self, h_j: Tensor, e: Tensor) -> Tensor:
                return h_j + e

        super().__init__()
        self.atoms = nn.Embedding(sum(graphs.cardinalities), hidden)
        self.convolutions = nn.ModuleList(Convolution() for _ in range(layers - 1))
        self.pool: Any = global_add_pool if readout == "sum" else global_mean_pool
        self.head = nn.Linear(hidden, num_outputs)

    def forward(self, x: Tensor, edge_index: Tensor, bonds: Tensor, batch: Tensor, size: int) -> Tensor:
        """Scores of the batch's graphs; x and bonds are rows of the tables."""
        h = self.atoms(x).sum(1)
        for k, convolution in enumerate(self.convolutions):
            z = convolution(h, edge_index, bonds, batch, size)
            z = z.relu() if k + 1 < len(self.convolutions) else z
            h = nn.functional.dropout(z, 0.5, self.training) + h
        scores: Tensor = self.head(self.pool(h, batch, size))
        return scores

    def take(self, model: MolecularGIN) -> None:
        """Copy the weights of ours."""
        state = {"atoms.weight": model.atoms.weight.T, "head.weight": model.head.weight, "head.bias": model.head.bias}
        for k, layer in enumerate(model.convolutions):
            assert isinstance(layer, MolecularConvolution)
            assert layer.xi is not None
            assert layer.bonds is not None
            state |= {f"convolutions.{k}.bonds.weight": layer.bonds.weight.T, f"convolutions.{k}.xi": layer.xi[None]}
            for place, name in enumerate(("first", "second")):
                for parts, ending in ((layer.linears, ""), (layer.norms, "_norm")):
                    values = parts[place].state_dict()
                    state |= {f"convolutions.{k}.{name}{ending}.{key}": value for key, value in values.items()}
        self.load_state_dict(state)


def scores_with_bonds(model: nn.Module, batch: Any) -> Tensor:
    scores: Tensor = model(batch.x, batch.edge_index, batch.edge_attr, batch.batch, batch.num_graphs)
    return scores


def masked_loss(scores: Tensor, batch: Any) -> Tensor:
    """Over the labels that are there, as OGB's examples do it."""
    real = batch.y == batch.y
    return nn.functional.binary_cross_entropy_with_logits(scores[real], batch.y[real])


def rows_of_table(categories: Tensor, cardinalities: tuple[int, ...]) -> Tensor:
    """(n, K) categories to the rows of one table of all categories."""
    return categories.long() + torch.tensor((0, *cardinalities[:-1])).cumsum(0)


def as_pyg_molecules(graphs: PackedGraphs) -> list[Any]:
    """The graphs as a list of PyTorch Geometric's ``Data``."""
    from torch_geometric.data import Data

    found = []
    for k in range(graphs.num_graphs):
        batch = graphs.batch([k])
        assert batch.tags is not None
        assert batch.edge_tags is not None
        found.append(
            Data(
                x=rows_of_table(batch.tags, graphs.cardinalities),
                edge_index=batch.edge_index,
                edge_attr=rows_of_table(batch.edge_tags, graphs.edge_cardinalities),
                y=batch.targets,
            )
        )
    return found


def difference_of_scores(
    trial: Trial, graphs: PackedGraphs, theirs: PygBondGIN, data: list[Any], device: torch.device
) -> float:
    """The largest difference of scores of the first 64 graphs, relative to the largest score."""
    from torch_geometric.data import Batch

    ours = build_model(trial, graphs)
    assert isinstance(ours, MolecularGIN)
    theirs.take(ours)
    batch = graphs.batch(range(64))
    assert batch.tags is not None
    with torch.no_grad():
        mine = ours.eval()(batch.tags.long(), batch.edge_index, batch.batch, 64, edge_attr=batch.edge_tags)
        other = scores_with_bonds(theirs.eval(), Batch.from_data_list(data[:64]).to(device)).cpu()
    return float((mine - other).abs().max() / other.abs().max())


def tox21_case(source: str, members: int, device: torch.device) -> dict[str, Any]:
    """Seeds on the scaffold split, as ``compare`` trains them."""
    graphs = load(source)
    settings = settle(graphs, norms=("graph",), seeds=members, epochs=100)
    trials = make_plan(graphs, settings).trials
    splits = make_splits(graphs, trials)
    data = as_pyg_molecules(graphs)
    first = trials[0]
    shape: dict[str, Any] = {"hidden": first.hidden, "layers": first.layers, "readout": first.readout}
    theirs = PygBondGIN(graphs, len(graphs.target_names), **shape).to(device)
    difference = difference_of_scores(first, graphs, theirs, data, device)
    fleet = Fleet(graphs, trials, splits, device=device)
    of_tox21: dict[str, Any] = {"forward": scores_with_bonds, "loss_of": masked_loss}
    loop = pyg_loop(theirs, data, splits[0].train, device, False, PEER_STEPS, first.batch_size, **of_tox21)
    return measured("tox21", fleet, loop, difference)


def own_case(members: int, device: torch.device) -> dict[str, Any]:
    """Folds of NCI1."""
    graphs, trials, splits = setting("NCI1", members, 400, name_model(PygGIN))
    data = as_pyg(graphs)
    theirs = pyg_model(graphs, trials[0].readout).to(device)
    difference = check(build_model(trials[0], graphs), theirs, graphs, data, device)
    fleet = Fleet(graphs, trials, splits, device=device)
    return measured("own", fleet, pyg_loop(theirs, data, splits[0].train, device, False, PEER_STEPS), difference)


def measured(case: str, fleet: Fleet, loop: Any, difference: float) -> dict[str, Any]:
    """A row of the table."""
    assert difference < 1e-3, f"the scores differ by {difference:.1e}"
    fleet.advance(1)
    members, ours = len(fleet.trials), step_seconds(fleet)
    peer = step_seconds_of_loop(loop, fleet.device)
    how = "one by one" if fleet.stack.one_by_one else "stacked, CUDA graph" if fleet._captured else "stacked"
    return {
        "case": case,
        "dataset": fleet.graphs.name,
        "model": fleet.trials[0].model,
        "members": members,
        "trained": how,
        "difference": f"{difference:.1e}",
        "step_ms_per_model": round(1e3 * ours / members, 4),
        "pyg_step_ms": round(1e3 * peer, 4),
        "speedup": round(peer * members / ours, 2),
        "bar": BARS[case],
    }


def main() -> None:
    """Run the cases and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--graphs", default="tox21", help="the packed graphs of tox21 (default: its table)")
    parser.add_argument("--only", choices=BARS, help="one of the two cases")
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    made = announce(device, "torch-geometric")
    cases: dict[str, Any] = {"tox21": partial(tox21_case, options.graphs), "own": own_case}
    rows = []
    for name in [options.only] if options.only else cases:
        rows.append(cases[name](options.members, device))
        print(rows[-1], flush=True)
        write_table("tasks", rows, made, options.out)


if __name__ == "__main__":
    main()
