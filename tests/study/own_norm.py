"""A normalization of the user's own, in a module that is not installed."""

import torch
from torch import nn


class Half(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gain
