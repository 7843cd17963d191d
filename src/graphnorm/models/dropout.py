"""Dropout whose masks are a function of a key, so that a model in a fleet drops what it would drop alone."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from torch import Tensor, nn

from graphnorm.ops.dropout import drop

__all__ = ["Dropout", "DropoutKey"]


class DropoutKey(NamedTuple):
    """What decides every mask of one training step."""

    key: Tensor
    """() int64: another one for every step of every model."""
    rate: Tensor
    """() float: the share that is dropped. A tensor, since the members of a fleet may differ in it."""


class Dropout(nn.Module):
    """Sets a share of the entries to zero and scales the rest, so that the mean stays.

    Without a key it is ``torch.nn.Dropout``. With one, entry i of the site numbered ``site`` is dropped where
    uniform(key ⊕ site, i) < rate: nothing is drawn from a generator, and the mask does not depend on what else is
    trained beside it. Padded rows come last, so they do not move the masks of the others.

    >>> import torch
    >>> key = DropoutKey(torch.tensor(5), torch.tensor(0.5))
    >>> Dropout(0.5)(torch.ones(6), key)
    tensor([2., 0., 2., 2., 0., 2.])
    """

    def __init__(self, rate: float = 0.5, site: int = 0) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"dropout is {rate}; it is the share that is dropped, at least 0 and less than 1")
        self.rate, self.site = rate, site

    def extra_repr(self) -> str:
        """The rate, and the site where there are several."""
        return f"{self.rate}" + (f", site={self.site}" if self.site else "")

    def forward(self, x: Tensor, key: DropoutKey | None = None, residual: Tensor | None = None) -> Tensor:
        """Drop entries of x while training; add the residual, of which none is dropped."""
        if self.training and key is not None:
            return drop(x, *key, self.site, residual)
        y = nn.functional.dropout(x, self.rate) if self.training else x
        return y if residual is None else residual + y


def number_dropouts(model: nn.Module) -> None:
    """Give every dropout of a model a site of its own, in the order of the modules."""
    numbers = itertools.count()
    for module in model.modules():
        if isinstance(module, Dropout):
            module.site = next(numbers)
