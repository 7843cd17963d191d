"""A normalization of your own, registered by name and compared with those of the package.

Run it with ``python examples/custom_norm.py``; it needs ``pip install '.[study]'``.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

import graphnorm


class RootMeanSquare(nn.Module):
    """Divides each graph's features by their root mean square, and shifts nothing: GraphNorm with α = 0."""

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x: Tensor, batch: Tensor, batch_size: int) -> Tensor:
        """(nodes, channels) to the same."""
        count = torch.zeros(batch_size, device=x.device).index_add_(0, batch, torch.ones_like(x[:, 0]))
        square = x.new_zeros(batch_size, x.shape[1]).index_add_(0, batch, x * x) / count.clamp(min=1)[:, None]
        return self.weight * x / (square + self.eps).sqrt()[batch] + self.bias


def main() -> None:
    """Compare it on regular graphs, where the mean is all there is to tell classes apart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    graphnorm.register_norm("root-mean-square", RootMeanSquare)
    result = graphnorm.compare(
        "synthetic:regular",
        norms=["instance", "graph", "root-mean-square"],
        epochs=options.epochs,
        folds=3,
        hidden=16,
        layers=3,
        device="cpu",
    )
    print(result)


if __name__ == "__main__":
    main()
