"""Swap the BatchNorm layers of an existing model for any of ours, without touching its code.

Most models call ``norm(h)`` and pass no batch. A converted layer then uses the batch of the innermost module around it
that was called with one. Hooks on the model's modules put what they find on a stack, one for each thread. Where no
batch is found, or more than one, the layer raises an error: it never guesses.
"""

from __future__ import annotations

import difflib
import fnmatch
import inspect
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._pytree import tree_leaves

from graphnorm.errors import listing, require
from graphnorm.layers.base import Norm
from graphnorm.layers.batch import BatchNorm, RunningBatchNorm
from graphnorm.layers.registry import find_norm
from graphnorm.segment_cache import as_segments
from graphnorm.segments import Segments

__all__ = ["ConvertedNorm", "convert_norms", "use_batch"]

_BATCH_NORMS = (nn.BatchNorm1d, nn.SyncBatchNorm)
_WRAPPERS = {"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule"}
"""Classes that note a model's parameters when they wrap it. By name, since torch may be built without them."""


class _Found:
    """The batch that a call was given; all rows are one graph where it is None."""

    def __init__(self, batch: Tensor | Segments | None, batch_size: int | None) -> None:
        self.batch, self.batch_size = batch, batch_size
        self._made: dict[bool, Segments | None] = {}
        self.grad_enabled = torch.is_grad_enabled()
        self.checkpointed = False

    def segments(self, counted: bool) -> Segments | None:
        """The batch as segments, made once for all layers that count graphs, and once for all others."""
        if counted not in self._made:
            self._made[counted] = as_segments(self.batch, self.batch_size, counted=counted)
        return self._made[counted]


_here = threading.local()
"""``_here.stack`` is (found, the stack below it), or None. Dynamo cannot trace a ContextVar, but it can trace this."""


def _push(found: _Found | None) -> None:
    _here.stack = (found, getattr(_here, "stack", None))


def _pop() -> None:
    _here.stack = _here.stack[1]


def _innermost() -> _Found | None:
    stack = getattr(_here, "stack", None)
    return None if stack is None else stack[0]


@contextmanager
def use_batch(batch: Tensor | Segments | None, batch_size: int | None = None) -> Iterator[None]:
    """Give converted layers their batch where :func:`convert_norms` cannot find it in the model's arguments.

    Args:
        batch: the graph id of every row, or ``Segments``. ``None``: all rows are one graph.
        batch_size: the number of graphs, with a tensor ``batch``.

    >>> model = convert_norms(nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8)))
    >>> with use_batch(torch.tensor([0, 0, 1])):
    ...     model(torch.randn(3, 3)).shape
    torch.Size([3, 8])
    """
    _push(_Found(batch, batch_size))
    try:
        yield
    finally:
        _pop()


class _Hooks:
    """Finds the batch among the arguments of a module, for the time of its call."""

    def __init__(self, module: nn.Module, argument: str) -> None:
        parameters = inspect.signature(module.forward).parameters.values()
        self.argument = argument
        self.names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.takes_batch = argument in [p.name for p in parameters]

    def enter(self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        candidates = self._candidates(arguments, keywords)
        batches = [found for found in candidates if found.batch is not None]
        outer = _innermost()
        if batches and all(found.batch is batches[0].batch for found in batches):
            _push(batches[0])
        elif outer is None and not batches and (candidates or self.takes_batch):
            _push(_Found(None, None))  # called without a batch: all rows are one graph
        else:
            _push(outer)

    def leave(self, module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        found = None if torch.compiler.is_compiling() else _innermost()
        _pop()
        if found is not None and found.checkpointed:
            _use_in_backward(found, output)

    def _candidates(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[_Found]:
        named = dict(zip(self.names, arguments, strict=False)) | keywords
        return _search({**named, "": arguments[len(self.names) :]}, self.argument)


def _search(value: Any, argument: str) -> list[_Found]:
    """Every batch in nested arguments: entries and attributes of that name, and ``Segments``."""
    if isinstance(value, Segments):
        return [_Found(value, None)]
    if isinstance(value, dict):
        batch, size = value.get(argument), value.get("batch_size")
        if isinstance(batch, Tensor | Segments):
            return [_Found(batch, size if isinstance(batch, Tensor) and isinstance(size, int) else None)]
        return [found for item in value.values() for found in _search(item, argument)]
    if isinstance(value, Tensor | str | bytes | nn.Module):
        return []
    for name in (argument, "batch"):
        if hasattr(value, name):  # a data object, or a named tuple
            batch, size = getattr(value, name), getattr(value, "num_graphs", None)
            if batch is None or isinstance(batch, Tensor | Segments):
                return [_Found(batch, size if isinstance(batch, Tensor) and isinstance(size, int) else None)]
            return _search(batch, argument)
    if isinstance(value, list | tuple):
        return [found for item in value for found in _search(item, argument)]
    return []


def _use_in_backward(found: _Found, output: Any) -> None:
    """Give checkpointed layers, which run again in backward, the batch of this forward pass.

    Every node of the pass's own graph restores it, so that passes with other batches may lie between.
    """

    def enter(*_: Any) -> None:
        _push(found)

    def leave(*_: Any) -> None:
        _pop()

    nodes = [leaf.grad_fn for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.grad_fn is not None]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        node.register_prehook(enter)
        node.register_hook(leave)
        following = {following for following, _ in node.next_functions if following is not None} - seen
        seen |= following
        nodes.extend(following)


class ConvertedNorm(nn.Module):
    """One of our layers in place of a BatchNorm, whose caller may not pass a batch."""

    def __init__(self, norm: Norm, path: str) -> None:
        super().__init__()
        self.norm, self.path = norm, path

    def forward(self, x: Tensor, batch: Tensor | Segments | None = None, batch_size: int | None = None) -> Tensor:
        if batch is None and self.norm.uses_graphs and not isinstance(self.norm, BatchNorm):
            batch = self._batch_of_the_call(x.shape[0])
        return self.norm(x, batch, batch_size)  # type: ignore[no-any-return]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Also take the state of the BatchNorm that stood here, which has no α: that keeps its value."""
        own, of_batch_norm = self.norm.state_dict(), False
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            for key in (prefix + name, f"{prefix}module.{name}"):  # torch's, PyTorch Geometric's
                if key in state_dict:
                    of_batch_norm, value = True, state_dict.pop(key)
                    if own.keys() & {name, f"module.{name}"}:
                        state_dict[f"{prefix}norm.{name}"] = value
        if of_batch_norm and "mean_scale" in own:
            state_dict.setdefault(f"{prefix}norm.mean_scale", own["mean_scale"])
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _batch_of_the_call(self, rows: int) -> Segments | None:
        found = _innermost()
        if found is None:
            raise ValueError(
                f"{self.path!r} cannot tell which rows form a graph: no batch was found in the model's arguments, or "
                "more than one. Call the model inside `with graphnorm.use_batch(batch):`, or name the argument with "
                "convert_norms(model, batch_argument=…)"
            )
        if not torch.compiler.is_compiling() and _is_checkpointed(found):
            found.checkpointed = True
        segments = found.segments(self.norm.counts_graphs)
        if segments is not None and segments.num_rows is not None and segments.num_rows != rows:
            raise ValueError(
                f"{self.path!r} got {rows} rows, but the batch of this forward pass has {segments.num_rows}: "
                "it seems to work on something else than nodes, perhaps on pooled graphs. "
                f"Leave it as it is with convert_norms(model, exclude=[{self.path!r}])"
            )
        return segments


def _is_checkpointed(found: _Found) -> bool:
    """Whether the layer may run again in backward: under reentrant checkpointing gradients are off, else tensors are
    saved by hooks."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return found.grad_enabled and (not torch.is_grad_enabled() or hooks is not None)


def convert_norms(
    model: nn.Module, to: str = "graph", *, exclude: Iterable[str] = (), batch_argument: str = "batch"
) -> nn.Module:
    """Replace every BatchNorm of a model, in place, and return the model.

    ``torch.nn.BatchNorm1d``, ``SyncBatchNorm`` and PyTorch Geometric's ``BatchNorm`` are found. The new layer holds the
    old one's weight and bias, the same parameters, and its ``eps``; running averages too if it has any.

    Convert before you make the optimizer or wrap the model: new parameters, such as GraphNorm's ``mean_scale``, are not
    in an optimizer made before. A model inside ``DistributedDataParallel`` or FSDP is refused.

    Where the model calls its norm without a batch, the new layer uses that of the innermost module around it that was
    called with one: the argument ``batch_argument``, or the ``batch`` of a data object, tuple or dict. A module that
    takes a batch and is called with none works on one graph. Otherwise the layer raises an error;
    :func:`graphnorm.use_batch` gives it one.

    Args:
        model: any module; converted in place.
        to: the name of the new normalization, as for :func:`graphnorm.make_norm`.
        exclude: paths of modules to leave alone with all that is in them, as in ``"head"``; ``*`` is a wildcard.
        batch_argument: the name of the argument that holds the batch vector or ``Segments``.

    >>> model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8))
    >>> convert_norms(model, to="graph")[1].norm
    GraphNorm(8, eps=1e-05)
    """
    require("model", model, nn.Module, "a torch module")
    _refuse_wrapped(model)
    make = find_norm(to)
    if isinstance(exclude, str) or not isinstance(exclude, Iterable):
        raise TypeError(f"exclude must be a list of paths, got {exclude!r}; write exclude=[…]")
    paths = dict(model.named_modules(remove_duplicate=False))
    excluded = {path for pattern in exclude for path in _matching(pattern, paths)}
    paths = {path: module for path, module in paths.items() if path not in excluded}
    found = {path: module for path, module in paths.items() if _is_batch_norm(module)}
    # PyTorch Geometric and our own BatchNorm wrap torch's layer
    inner = {f"{path}.module" for path, module in paths.items() if path in found or isinstance(module, BatchNorm)}
    found = {path: module for path, module in found.items() if path not in inner}
    if not found:
        besides = " besides those excluded" if excluded else ""
        if lazy := [path for path, module in paths.items() if isinstance(module, nn.LazyBatchNorm1d)]:
            remedy = f"{lazy[0]!r} is a LazyBatchNorm1d: run the model once before you convert it"
        elif any(isinstance(module, ConvertedNorm) for module in model.modules()):
            remedy = "the model was converted before; convert a copy made before that"
        else:
            remedy = "it is to have torch.nn.BatchNorm1d or PyTorch Geometric's BatchNorm"
        raise ValueError(f"no BatchNorm layer was found in the model{besides}; {remedy}")
    if "" in found:
        raise ValueError("the model is itself a BatchNorm layer; make the new one with graphnorm.make_norm(...)")
    _warn_of_others({path: module for path, module in paths.items() if path not in {*found, *inner}})
    converted: dict[nn.Module, ConvertedNorm] = {}  # a layer used in two places is replaced by one in both
    for path, module in found.items():
        if module not in converted:
            converted[module] = ConvertedNorm(_converted(module, make), path).train(module.training)
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, converted[module])
    norms = {inside for layer in converted.values() for inside in layer.modules()}
    for module in model.modules():
        if module is model or not (type(module).__module__.startswith("torch.nn.modules.") or module in norms):
            hooks = _Hooks(module, batch_argument)
            module.register_forward_pre_hook(hooks.enter, with_kwargs=True)
            module.register_forward_hook(hooks.leave, always_call=True)
    return model


def _refuse_wrapped(model: nn.Module) -> None:
    for path, module in model.named_modules():
        kinds = [kind.__name__ for kind in type(module).__mro__ if kind.__name__ in _WRAPPERS]
        if kinds:
            raise ValueError(
                f"{repr(path) if path else 'the model'} is inside {kinds[0]}, which would not learn of new parameters; "
                "convert the model first, then wrap it"
            )


def _matching(pattern: str, paths: Iterable[str]) -> list[str]:
    """The paths that a pattern of ``exclude`` names, and those inside them."""
    require("each path in exclude", pattern, str, "a text")
    found = [path for path in paths if any(fnmatch.fnmatchcase(path, p) for p in (pattern, f"{pattern}.*"))]
    if not found:
        near = difflib.get_close_matches(pattern.removesuffix(".*"), paths, n=3)
        hint = f"; did you mean {listing([repr(path) for path in near], 'or')}?" if near else "."
        raise ValueError(
            f"exclude has {pattern!r}, but the model has no module of that path{hint} "
            "Its paths are those of model.named_modules()"
        )
    return found


def _is_batch_norm(module: nn.Module) -> bool:
    wrapped = getattr(module, "module", None)
    is_pyg = type(module).__name__ == "BatchNorm" and isinstance(wrapped, _BATCH_NORMS)
    return isinstance(module, _BATCH_NORMS) or is_pyg


def _warn_of_others(others: dict[str, nn.Module]) -> None:
    """Name the batch normalizations that stay as they are."""
    left = []
    for path, module in others.items():
        kind = type(module).__name__
        if isinstance(module, nn.LazyBatchNorm1d):
            left.append(f"{path} ({kind}: run the model once before you convert it)")
        elif kind == "HeteroBatchNorm":
            left.append(f"{path} ({kind})")
        elif "batch_norm" in getattr(getattr(type(module).forward, "__code__", None), "co_names", ()):
            left.append(f"{path or kind} (its forward calls batch_norm)")
    if left:
        warnings.warn(f"convert_norms leaves these as they are: {', '.join(left)}", stacklevel=3)


def _converted(module: nn.Module, make: Callable[..., Norm]) -> Norm:
    old: Any = module if isinstance(module, _BATCH_NORMS) else module.module
    new = make(old.num_features, act=module.act) if isinstance(module, Norm) else make(old.num_features)
    if not old.affine:
        new.weight = new.bias = None
    if isinstance(new, BatchNorm):
        new.momentum = old.momentum
        if not old.track_running_stats and not isinstance(new, RunningBatchNorm):
            new.track_running_stats = False
            new.running_mean = new.running_var = new.num_batches_tracked = None
    if hasattr(new, "eps"):
        new.eps = old.eps
    reference = old.weight if old.weight is not None else old.running_mean
    if reference is not None:
        new.to(device=reference.device, dtype=reference.dtype)
    _hand_over(old, new.module if isinstance(new, BatchNorm) else new)
    return new.train(old.training)


def _hand_over(old: nn.Module, new: nn.Module) -> None:
    """Give the new layer the old one's own parameters and averages, which optimizers and tied layers may hold."""
    theirs = dict(old.named_parameters(recurse=False)) | dict(old.named_buffers(recurse=False))
    ours = [*new.named_parameters(recurse=False), *new.named_buffers(recurse=False)]
    for name, _ in ours:
        if name in theirs:
            setattr(new, name, theirs[name])
        elif parametrize.is_parametrized(old, name):
            parametrize.transfer_parametrizations_and_params(old, new, name)
