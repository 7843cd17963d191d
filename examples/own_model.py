"""A model of your own, written with PyTorch Geometric's MessagePassing, with three normalizations on the same folds.

Run it with ``python examples/own_model.py``; it needs ``pip install '.[study,pyg]'``. On the command line the
same comparison is ``graphnorm compare synthetic:trees --model examples/own_model.py:Net --norms none,batch,graph``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing, global_add_pool

import graphnorm


class Convolution(MessagePassing):
    """Adds the neighbours to a node, each weighed by a gate that sees both ends of the edge."""

    def __init__(self, width: int, hidden: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__(aggr="add")
        self.gate = nn.Linear(2 * width, 1)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), norm(hidden), nn.ReLU(), nn.Linear(hidden, hidden))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """(nodes, width) to (nodes, hidden)."""
        return self.mlp(x + self.propagate(edge_index, x=x))

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return x_j * self.gate(torch.cat([x_i, x_j], dim=1)).sigmoid()


class Net(nn.Module):
    """Called with the data's widths and ``norm``: ``norm(width)`` is a layer of the normalization under comparison."""

    def __init__(self, in_features: int, num_outputs: int, norm: Callable[[int], nn.Module], hidden: int = 16) -> None:
        super().__init__()
        self.first, self.second = Convolution(in_features, hidden, norm), Convolution(hidden, hidden, norm)
        self.norm = norm(hidden)
        self.head = nn.Linear(hidden, num_outputs)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int) -> Tensor:
        """The scores, (graphs, num_outputs)."""
        x = self.second(self.first(x, edge_index).relu(), edge_index)
        return self.head(global_add_pool(self.norm(x, batch).relu(), batch, batch_size))


def main() -> None:
    """Compare three normalizations in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    result = graphnorm.compare(
        "synthetic:trees",
        model=Net,
        norms=["none", "batch", "graph"],
        epochs=options.epochs,
        folds=3,
        device="cpu",
    )
    print(result)


if __name__ == "__main__":
    main()
