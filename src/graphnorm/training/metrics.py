"""How well each member of a fleet does, on sets of graphs of its own. Nothing here waits for the device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["accuracy", "binary_loss", "class_loss", "roc_auc", "select"]

Metric = Callable[[Tensor, Tensor], Tensor]
"""metric(scores (M, n, K), labels (M, n)) -> (M,); a label of -1 marks an empty place."""


def class_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of each member: (M, B, K) scores and (M, B) labels to (M,); 0 for a batch of none."""
    each = functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=-1)
    return each.view(labels.shape).sum(1) / (labels >= 0).sum(1).clamp(min=1)


def binary_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean binary cross-entropy of each member, (M, B, 1) scores being log-odds."""
    real = labels >= 0
    wanted = labels.clamp(min=0).to(scores.dtype)
    each = functional.binary_cross_entropy_with_logits(scores[..., 0], wanted, reduction="none")
    return (each * real).sum(1) / real.sum(1).clamp(min=1)


def accuracy(scores: Tensor, labels: Tensor) -> Tensor:
    """The share of graphs whose highest score is that of their class; NaN where a score is."""
    real = labels >= 0
    right = (scores.argmax(-1) == labels) & real
    share = right.sum(1) / real.sum(1)
    return torch.where(_broken(scores, real), torch.nan, share)


def roc_auc(scores: Tensor, labels: Tensor) -> Tensor:
    """The area under the ROC curve: the chance that a positive scores above a negative, ties counting half.

    With average ranks r in 1 … n, P positives and Q negatives it is (Σ r over positives - P(P+1)/2) / (P·Q).
    """
    value, real, positive = scores[..., 0], labels >= 0, labels == 1
    value = torch.where(real, value, torch.inf)  # empty places rank last, behind everyone who is asked for
    ordered = value.sort(dim=1).values
    below = torch.searchsorted(ordered, value.contiguous())
    upto = torch.searchsorted(ordered, value.contiguous(), right=True)
    rank = (below + upto + 1).to(torch.float64) / 2
    positives, negatives = positive.sum(1).to(torch.float64), (real & ~positive).sum(1).to(torch.float64)
    area = ((rank * positive).sum(1) - positives * (positives + 1) / 2) / (positives * negatives)
    return torch.where(_broken(scores, real), torch.nan, area).to(torch.float32)


def _broken(scores: Tensor, real: Tensor) -> Tensor:
    """(M,) bool: members of which some score is not a number."""
    return (scores.isnan().any(-1) & real).any(1)


def select(values: Tensor, ids: Tensor) -> Tensor:
    """values (M, G, ...) at ids (M, n), those of -1 being whatever."""
    index = ids.clamp(min=0)
    index = index.view(*index.shape, *(1,) * (values.ndim - 2)).expand(*ids.shape, *values.shape[2:])
    return values.gather(1, index)
