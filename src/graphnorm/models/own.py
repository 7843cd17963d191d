"""Models that others wrote: a user's own, and those of PyTorch Geometric. They are called with PyG's arguments.

:class:`OwnModel` makes such a model look like those of this package, so that fleets, checkpoints, probes and
predictions need not know the difference.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from graphnorm.adjacency import Adjacency
from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import GraphnormError
from graphnorm.layers import Norm, make_norm
from graphnorm.models.graph import DropoutKey, segments_of
from graphnorm.models.registry import OFFERED
from graphnorm.ops.dropout import drop
from graphnorm.own_code import parameters_of
from graphnorm.randomness import seeded
from graphnorm.segments import Segments
from graphnorm.settings import Hyperparameters
from graphnorm.tracing import can_read_values, is_abstract

__all__ = ["NormOfNodes", "OwnModel", "build_own", "norm_of_nodes"]

Factory = Callable[..., nn.Module]
"""(in_features, num_outputs, norm) -> module; it may also ask for the settings of :data:`OFFERED`, and for
``edge_features``, the width of ``edge_attr``."""

ARGUMENTS = ("x", "edge_index", "batch", "batch_size", "edge_attr")
"""What the ``forward`` of a model may ask for."""
_ALWAYS = ARGUMENTS[:3]
"""What goes into ``**kwargs``."""


class NormOfNodes(nn.Module):
    """A layer of the normalization under comparison, inside a user's model.

    It is called as ``norm(x, batch, batch_size)``. Without ``batch``, as in ``nn.Sequential``, the rows of x are the
    nodes of the model's input, each in its graph.
    """

    def __init__(self, norm: Norm) -> None:
        super().__init__()
        self.norm = norm
        self.ids: Tensor | None = None
        self.segments: Segments | None = None

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        of_nodes = batch is self.ids or (batch is None and self.ids is not None and len(x) == len(self.ids))
        y: Tensor
        if of_nodes and self.segments is not None:
            y = self.norm(x, self.segments, residual=residual)
        else:
            y = self.norm(x, batch, batch_size, residual=residual)
        return y


class _Stacked(TorchFunctionMode):
    """Draws the masks of ``torch.nn.functional.dropout`` from a key: under ``vmap`` torch's generator may not be used.

    ``batch.max()``, which PyG's poolings ask for without a ``batch_size``, is known: ``vmap`` could not read it.
    """

    def __init__(self, key: Tensor, ids: Tensor, last: int | None) -> None:
        super().__init__()
        self._key, self._site, self._ids, self._last = key, 0, ids, last

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.dropout:
            return self._dropout(*args, **kwargs or {})
        if func is Tensor.max and self._last is not None and len(args) == 1 and args[0] is self._ids and not kwargs:
            return torch.tensor(self._last)
        return func(*args, **kwargs or {})

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:  # noqa: A002
        if not training or p == 0:
            return input
        self._site += 1
        if p >= 1:
            return input * 0
        return drop(input, self._key, torch.full((), p, device=input.device), self._site)


class OwnModel(nn.Module):
    """Calls a model that takes PyG's arguments, as the models of this package are called.

    Padded rows become nodes of one more graph, which has at least one node, and padded edges link that node to itself.
    Its scores are left out.
    """

    def __init__(self, model: nn.Module, name: str, num_outputs: int, *, sees_edges: bool = True) -> None:
        super().__init__()
        self.model, self.name, self.num_outputs = model, name, num_outputs
        self._asked = [one for one in _asked(model, name) if sees_edges or one != "edge_attr"]
        self.sees_edges = "edge_attr" in self._asked
        """Whether edge features reach the model."""
        self.seed = 0
        """Of the random numbers in evaluation: without a key, they are the same in each call."""
        self.keyed = False
        """Whether dropout is drawn as under ``vmap`` everywhere, to compare both ways."""
        self._norms = [module for module in model.modules() if isinstance(module, NormOfNodes)]

    def forward(
        self,
        x: Tensor,
        edges: Tensor | Adjacency,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        edge_attr: Tensor | None = None,
        dropout_key: DropoutKey | None = None,
    ) -> Tensor:
        """(G, num_outputs): the scores. The arguments are those of :class:`~graphnorm.models.graph.GraphModel`.

        edge_attr: (E, D) float edge features, in the order of ``edges``.
        dropout_key: in training, the seed of all random numbers; without it, torch's, Python's and NumPy's generators
            are left as they are.
        """
        rows = x.shape[0]
        if not rows:
            return x.new_zeros(0, self.num_outputs)
        segments = segments_of(x, batch, batch_size)
        graphs = segments.num_graphs
        edge_index = edges if isinstance(edges, Tensor) else torch.stack([edges.col, edges.rows()])
        ids = segments.ids(rows)
        size = graphs
        if segments.may_pad:
            x = torch.cat([x, x.new_zeros(1, x.shape[1])])
            ids = torch.cat([segments.bounded_ids(rows), ids.new_full((1,), graphs)])
            padded = edge_index[1:] == rows
            edge_index = torch.where(padded, rows, edge_index)
            segments = Segments.trusted(segments.ptr, None, rows + 1, segments.max_size, True)
            size = graphs + 1
        for norm in self._norms:
            norm.ids, norm.segments = ids, segments
        offered = {"x": x, "edge_index": edge_index, "batch": ids, "batch_size": size, "edge_attr": edge_attr}
        arguments = {name: offered[name] for name in self._asked}
        with self._random_numbers(x, ids, graphs if segments.may_pad else None, dropout_key):
            scores = self.model(**arguments)
        if self.num_outputs == 1 and isinstance(scores, Tensor) and scores.ndim == 1:
            scores = scores[:, None]
        self._check_scores(scores, size)
        kept: Tensor = scores[:graphs]
        return kept

    def _random_numbers(
        self, x: Tensor, ids: Tensor, last: int | None, key: DropoutKey | None
    ) -> AbstractContextManager[Any]:
        """From the key in training, always the same in evaluation, and else from torch's generators as they are.

        last: the largest of ids, if it is known.
        """
        if key is not None and (self.keyed or is_abstract(x)):
            return _Stacked(key.key, ids, last)
        if key is None and (self.training or not can_read_values(next(self.parameters(), x))):
            return nullcontext()
        return seeded(self.seed if key is None else int(key.key), [x.device] if x.is_cuda else [])

    def _check_scores(self, scores: Any, graphs: int) -> None:
        wanted = (graphs, self.num_outputs)
        if isinstance(scores, Tensor) and scores.shape == wanted and scores.dtype == torch.float32:
            return
        scores_of = "one score" if self.num_outputs == 1 else f"{self.num_outputs} scores"
        remedy = f"return {scores_of} for each graph, as a tensor of shape (graphs, {self.num_outputs})"
        lacks = f"scores of shape {wanted}"
        if not isinstance(scores, Tensor):
            found = f"a {type(scores).__name__}"
        elif scores.shape == wanted:
            found, lacks, remedy = f"scores of type {scores.dtype}", "torch.float32", "return scores.float()"
        else:
            found = f"scores of shape {tuple(scores.shape)}"
            if scores.shape[1:] == wanted[1:]:
                remedy += "; pool the nodes with batch and batch_size, as in global_add_pool(x, batch, batch_size)"
        raise GraphnormError(f"the model {self.name} gave {found} for {graphs} graphs, not {lacks}", remedy=remedy)


def build_own(
    factory: Factory, name: str, settings: Hyperparameters, norm: str, graphs: PackedGraphs, outputs: int
) -> OwnModel:
    """Call a user's factory with what it asks for."""
    known = {option: getattr(settings, option) for option in OFFERED} | {"edge_features": graphs.num_edge_features}
    needed = {"in_features": graphs.num_features, "num_outputs": outputs, "norm": partial(norm_of_nodes, norm)}
    parameters = parameters_of(factory, name)
    positional = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p.name for p in parameters.values() if p.default is p.empty and p.kind not in _VARIADIC]
    by_name = all(one in parameters and parameters[one].kind is not inspect.Parameter.POSITIONAL_ONLY for one in needed)
    takes = by_name or len(positional) >= 3 or any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    given = list(needed) if by_name else [p.name for p in positional[:3]]
    if not takes or (lacking := [one for one in required if one not in given and one not in known]):
        asked = f"it asks for {', '.join(lacking)}" if takes else f"it takes ({', '.join(parameters)})"
        raise GraphnormError(
            f"the model {name} cannot be made: {asked}",
            remedy=f"write {name.partition('@')[0].rpartition(':')[2]}(in_features, num_outputs, norm); it may also "
            f"take {', '.join(known)}",
        )
    options = {option: value for option, value in known.items() if option in parameters}
    model = factory(**needed, **options) if by_name else factory(*needed.values(), **options)
    if not isinstance(model, nn.Module):
        raise GraphnormError(f"the model {name} gave a {type(model).__name__}", remedy="return a torch module")
    return OwnModel(model, name, outputs)


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def norm_of_nodes(name: str, width: int, **options: Any) -> NormOfNodes:
    return NormOfNodes(make_norm(name, width, **options))


def _asked(model: nn.Module, name: str) -> tuple[str, ...]:
    """The arguments that a model's ``forward`` takes, of those that can be given."""
    written = getattr(model, "_orig_mod", model)  # of what torch.compile gave, the module that it compiles
    parameters = parameters_of(written.forward, name)
    required = [p.name for p in parameters.values() if p.default is p.empty and p.kind not in _VARIADIC]
    unknown = [one for one in required if one not in ARGUMENTS]
    passed_on = _ALWAYS if any(p.kind is p.VAR_KEYWORD for p in parameters.values()) else ()
    asked = tuple(one for one in ARGUMENTS if one in parameters or one in passed_on)
    missing = [one for one in ("x", "edge_index") if one not in asked]
    if unknown or missing:
        problem = f"asks for {', '.join(unknown)}" if unknown else f"does not take {' and '.join(missing)}"
        raise GraphnormError(
            f"the forward of {name} {problem}",
            remedy="write forward(self, x, edge_index, batch); it may also take batch_size and edge_attr",
        )
    return asked
