"""Replace the BatchNorm layers of an existing model, without changes to its code."""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from graphnorm.errors import require
from graphnorm.layers.base import Norm
from graphnorm.layers.batch import BatchNorm
from graphnorm.layers.registry import find_norm
from graphnorm.segments import Segments, as_segments

_BATCH_NORMS = (nn.BatchNorm1d, nn.SyncBatchNorm)


class _CurrentBatch:
    """The graphs of the current forward pass, shared by a model's hooks and its layers.

    The hooks are its methods, so that a copied or unpickled model gets a new one for its hooks and layers.
    """

    def __init__(self, argument: str) -> None:
        self.argument = argument
        self.segments: Segments | None = None

    def remember(self, model: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        try:
            bound = inspect.signature(model.forward).bind_partial(*arguments, **keywords).arguments
        except TypeError:  # the model itself will report the wrong call
            return
        batch, size = bound.get(self.argument), bound.get("batch_size")
        if batch is None:
            holder = next((v for v in bound.values() if not isinstance(v, Tensor) and hasattr(v, "batch")), None)
            batch, size = getattr(holder, "batch", None), getattr(holder, "num_graphs", size)
        if isinstance(batch, Tensor):
            batch = as_segments(batch, size if isinstance(size, int) else None)
        self.segments = batch if isinstance(batch, Segments) else None

    def forget(self, *_: Any) -> None:
        self.segments = None


class ConvertedNorm(nn.Module):
    """One of our layers in place of a BatchNorm, whose caller may not pass a batch.

    Without a batch it takes the one that the model itself was called with.
    """

    def __init__(self, norm: Norm, path: str, current: _CurrentBatch) -> None:
        super().__init__()
        self.norm, self.path = norm, path
        self._current = current

    def forward(self, x: Tensor, batch: Tensor | Segments | None = None, batch_size: int | None = None) -> Tensor:
        if batch is None and not isinstance(self.norm, BatchNorm):
            batch = self._current.segments
            if batch is not None and batch.num_rows is not None and batch.num_rows != x.shape[0]:
                raise ValueError(
                    f"{self.path!r} got {x.shape[0]} rows, but the batch of this forward pass has {batch.num_rows}: "
                    "its rows are not nodes, perhaps pooled graphs. "
                    f"Leave it as it is with convert_norms(model, exclude=[{self.path!r}])"
                )
        return self.norm(x, batch, batch_size)  # type: ignore[no-any-return]


def convert_norms(
    model: nn.Module, to: str = "graph", *, exclude: Iterable[str] = (), batch_argument: str = "batch"
) -> nn.Module:
    """Replace every BatchNorm of a model, in place, and return the model.

    Both ``torch.nn.BatchNorm1d`` and PyTorch Geometric's ``BatchNorm`` are found. Weight and bias carry over, and
    running averages if the new layer has them. Where the model calls its norm without a batch, the new layer uses the
    one the model was called with: the argument ``batch_argument``, or the ``batch`` attribute of a data object. Without
    either, all rows are one graph.

    Args:
        model: any module; converted in place.
        to: the name of the new normalization, as for :func:`graphnorm.make_norm`.
        exclude: paths of modules to leave alone, with ``*`` as a wildcard, as in ``"head.*"``.
        batch_argument: the name of the argument of ``model.forward`` that holds the batch vector or ``Segments``.

    >>> model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8))
    >>> convert_norms(model, to="graph")[1].norm
    GraphNorm(8, eps=1e-05)
    """
    require("model", model, nn.Module, "a torch module")
    make = find_norm(to)
    if isinstance(exclude, str) or not isinstance(exclude, Iterable):
        raise TypeError(f"exclude must be a list of paths, got {exclude!r}; write exclude=[…]")
    excluded = list(exclude)
    found = {
        path: module
        for path, module in model.named_modules(remove_duplicate=False)
        if _is_batch_norm(module) and not any(fnmatch.fnmatchcase(path, pattern) for pattern in excluded)
    }
    inner = {f"{path}.module" for path in found}  # PyTorch Geometric wraps torch's layer
    found = {path: module for path, module in found.items() if path not in inner}
    if not found:
        besides = " besides those excluded" if excluded else ""
        if any(isinstance(module, ConvertedNorm) for module in model.modules()):
            remedy = "the model was converted before; convert a copy made before that"
        else:
            remedy = "torch.nn.BatchNorm1d and PyTorch Geometric's BatchNorm are replaced"
        raise ValueError(f"no BatchNorm layer was found in the model{besides}; {remedy}")
    if "" in found:
        raise ValueError("the model is itself a BatchNorm layer; make the new one with graphnorm.make_norm(...)")
    current = _CurrentBatch(batch_argument)
    converted: dict[nn.Module, ConvertedNorm] = {}  # a layer used in two places is replaced by one in both
    for path, module in found.items():
        if module not in converted:
            converted[module] = ConvertedNorm(_converted(module, make), path, current).train(module.training)
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, converted[module])
    model.register_forward_pre_hook(current.remember, with_kwargs=True)
    model.register_forward_hook(current.forget, always_call=True)
    return model


def _is_batch_norm(module: nn.Module) -> bool:
    wrapped = getattr(module, "module", None)
    is_pyg = type(module).__name__ == "BatchNorm" and isinstance(wrapped, _BATCH_NORMS)
    return isinstance(module, _BATCH_NORMS) or is_pyg


def _converted(module: nn.Module, make: Callable[..., Norm]) -> Norm:
    old: Any = module if isinstance(module, _BATCH_NORMS) else module.module
    new = make(old.num_features)
    if hasattr(new, "eps"):
        new.eps = old.eps
    reference = old.weight if old.weight is not None else old.running_mean
    if reference is not None:
        new.to(device=reference.device, dtype=reference.dtype)
    ours, theirs = dict(new.named_parameters()) | dict(new.named_buffers()), old.state_dict()
    with torch.no_grad():
        for name, tensor in ours.items():
            if name in theirs:
                tensor.copy_(theirs[name])
    if isinstance(new, BatchNorm):
        new.momentum = old.momentum
    return new.train(old.training)
