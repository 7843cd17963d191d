"""ResNet18 for images of 32 × 32, to compare its batch noise with that of graph networks."""

from __future__ import annotations

import itertools

from torch import Tensor, nn

__all__ = ["ResNet18"]

WIDTHS = (64, 128, 256, 512)


class ResidualBlock(nn.Module):
    """Two 3 × 3 convolutions, each with BatchNorm, and a shortcut around both.

    The shortcut is the identity, or a 1 × 1 convolution with BatchNorm where the shape changes.
    """

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != width:
            self.shortcut.extend([nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width)])

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) to (B, width, H / stride, W / stride)."""
        h = self.first_norm(self.first(x)).relu()
        out: Tensor = (self.second_norm(self.second(h)) + self.shortcut(x)).relu()
        return out


class ResNet18(nn.Module):
    """ResNet18 (He et al. 2016) as it is used on CIFAR-10: a 3 × 3 stem without pooling, four stages of two blocks.

    >>> import torch
    >>> ResNet18().eval()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(WIDTHS[0])
        blocks = []
        for before, width in itertools.pairwise((WIDTHS[0], *WIDTHS)):
            stride = 1 if width == before else 2
            blocks += [ResidualBlock(before, width, stride), ResidualBlock(width, width, 1)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(WIDTHS[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, 32, 32) images to (B, 10) scores."""
        h = self.blocks(self.stem_norm(self.stem(x)).relu())
        scores: Tensor = self.head(h.mean((2, 3)))
        return scores
