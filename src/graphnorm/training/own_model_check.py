"""A model that others wrote is tried on two graphs, before anything is trained or written."""

from __future__ import annotations

import copy
import dataclasses
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import CodeWarning, GraphnormError
from graphnorm.layers import CustomNorm
from graphnorm.models.build import prepare
from graphnorm.models.graph import DropoutKey
from graphnorm.models.own import NormOfNodes, OwnModel
from graphnorm.models.registry import find_model
from graphnorm.own_code import line_of, parameters_of
from graphnorm.randomness import seeded
from graphnorm.training.inputs import ModelInputs, build_model
from graphnorm.training.stack import OneByOne, Stack
from graphnorm.training.trial import Trial

__all__ = ["try_model", "why_not_stacked", "why_one_by_one"]

_CORRECT = "correct it; its forward gets x, edge_index, batch"
_DEPEND = "in evaluation mode the scores of a graph depend on"
_MIXES = f"{_DEPEND} the other graphs of its batch"
_OF_OTHER_ROWS = (
    "; a layer made by norm(width) got rows that are not the nodes, without a batch, and took them as one graph"
)
SAME = 1e-3
"""The largest difference, relative to the largest value, of two ways to compute the same."""


def try_model(trial: Trial, graphs: PackedGraphs, device: torch.device) -> None:
    """Build the trial's model, and call it with two graphs; an error says what is wrong with it."""
    spec = find_model(trial.model)
    if spec.inputs != "edges":
        return
    files = spec.code.files if spec.code else frozenset()
    model = _make(trial, graphs, files).to(device)
    if wrong := [name for name, value in model.named_parameters() if value.dtype != torch.float32]:
        raise _wrong(trial, f"has parameters that are not float32 ({_own(wrong[0])})", "leave them float32")
    inputs, pair = ModelInputs(prepare(graphs, trial).to(device), trial), _two_graphs(graphs)
    called: list[bool] = []  # of each call of a norm, whether it was without a batch, on rows that are not the nodes
    for module in model.modules():
        if isinstance(module, NormOfNodes):
            module.norm.register_forward_hook(lambda _, given, *__: called.append(given[1] is None))
    action, remedy = _if_it_fails(model, graphs, pair)
    with _explained(trial.model, action, files, remedy):
        _check_step(model, trial, inputs(inputs.batch(pair), may_pad=False))
    action, remedy = _if_evaluation_fails(graphs, pair)
    with _explained(trial.model, action, files, remedy):
        doubts = _doubts(model, trial, inputs, pair)
    if not called:
        _warn(f"{trial.model} calls no layer made by norm(width): normalizations make no difference to it")
    for doubt in doubts:
        _warn(f"{trial.model}: {doubt}{_OF_OTHER_ROWS if doubt == _MIXES and any(called) else ''}")
    if device.type != "cpu" and (why := why_one_by_one(model, trial, graphs, device)):
        _warn(f"{trial.model}: trained one by one, {why}")


def _warn(text: str) -> None:
    warnings.warn(text, CodeWarning, stacklevel=3)


def _make(trial: Trial, graphs: PackedGraphs, files: frozenset[Path]) -> OwnModel:
    """The model; an error blames missing edge features if it could be made with some."""
    code = find_model(trial.model).code
    try:
        return _make_with(trial, graphs, files)
    except GraphnormError as error:
        if graphs.num_edge_features or not code or "edge_features" not in parameters_of(code.thing, trial.model):
            raise
        try:
            _make_with(trial, dataclasses.replace(graphs, edge_x=torch.zeros(graphs.num_edges, 1)), files)
        except GraphnormError:
            raise error from error.__cause__  # edge features would not help
        raise GraphnormError(
            f"{error.problem}; {graphs.name} has no edge features (edge_features=0)",
            where=error.where,
            line=error.line,
            remedy="let its constructor do without where edge_features is 0, or choose data with edge features",
        ) from error


def _make_with(trial: Trial, graphs: PackedGraphs, files: frozenset[Path]) -> OwnModel:
    with _explained(trial.model, "cannot be made", files):
        model = build_model(trial, graphs)
    assert isinstance(model, OwnModel)
    values = (*model.named_parameters(), *model.named_buffers())
    if lazy := [name for name, value in values if nn.parameter.is_lazy(value)]:
        problem = f"has parameters without a shape ({_own(lazy[0])})"
        raise _wrong(trial, problem, "give every layer its input width")
    return model


def _check_step(model: OwnModel, trial: Trial, given: dict[str, Any]) -> None:
    """Call the model as a step of training does: it may not change its inputs, nor what its buffers are."""
    device = given["x"].device
    key = DropoutKey(torch.tensor(1, device=device), torch.tensor(trial.dropout, device=device))
    before: dict[str, tuple[Tensor, Tensor]] = {}
    kinds = {name: (value.shape, value.dtype) for name, value in model.named_buffers()}

    def remember(_: nn.Module, __: Any, given: dict[str, Any]) -> None:
        before.update({name: (value, value.clone()) for name, value in given.items() if isinstance(value, Tensor)})

    with model.model.register_forward_pre_hook(remember, with_kwargs=True), seeded(trial.seed):
        scores = model.train()(**given, dropout_key=key)
        if scores.requires_grad:
            scores.square().sum().backward()
    for name, value in model.named_buffers():
        if value.requires_grad:
            buffer = f"self.{_own(name)}"
            raise _wrong(trial, f"keeps gradients in its buffer {_own(name)}", f"write {buffer} = (…).detach()")
        if (value.shape, value.dtype) != kinds.get(name):
            problem = f"changes the shape or the type of its buffer {_own(name)}"
            raise _wrong(trial, problem, "give the buffer its shape and type at first, and keep them")
    if changed := [name for name, (value, copied) in before.items() if not torch.equal(value, copied)]:
        raise _wrong(trial, f"changes its input {changed[0]} in place", f"write {changed[0]} = {changed[0]} + …")
    if not scores.requires_grad:
        raise _wrong(trial, "gives scores that depend on no parameter", "return what its layers compute")
    gradients = [value.grad for value in model.parameters() if value.grad is not None]
    if not all(bool(value.isfinite().all()) for value in (scores, *gradients)):
        what = "scores" if not bool(scores.isfinite().all()) else "gradients"
        raise _wrong(trial, f"gives {what} that are NaN or infinite on two graphs", "look for a log, root or division")


def _if_it_fails(model: OwnModel, graphs: PackedGraphs, pair: list[int]) -> tuple[str, str]:
    """What the model then fails at, and the remedy."""
    sizes, width = " and ".join(str(int(graphs.sizes[graph])) for graph in pair), graphs.num_edge_features
    action = f"fails on two graphs with {sizes} nodes"
    if not model.sees_edges:
        return action, _CORRECT
    if width:
        return action, f"{_CORRECT}, and edge_attr with {width} columns, the edge_features of its constructor"
    return (
        f"asks for edge_attr, and {graphs.name} has no edge features: given None, it {action}",
        "let its forward do without where edge_attr is None, or choose data with edge features",
    )


def _if_evaluation_fails(graphs: PackedGraphs, pair: list[int]) -> tuple[str, str]:
    sizes = " and ".join(str(int(graphs.sizes[graph])) for graph in pair)
    return (
        f"fails in evaluation mode on two graphs with {sizes} nodes, or on one of them",
        "correct it; it may keep nothing of one batch for the next, as layers with cached=True do",
    )


def _doubts(model: OwnModel, trial: Trial, inputs: ModelInputs, pair: list[int]) -> list[str]:
    """What is probably wrong with the scores in evaluation mode."""
    with torch.no_grad(), seeded(trial.seed):
        together = model.eval()(**inputs(inputs.batch(pair), may_pad=False))
        alone = torch.cat([model(**inputs(inputs.batch([graph]), may_pad=False)) for graph in pair])
        model.seed += 1
        again = model(**inputs(inputs.batch(pair), may_pad=False))
    doubts, sums = [], together.sum(1)
    if together.shape[1] > 1 and bool((together >= 0).all()) and _difference(sums, torch.ones_like(sums)) < SAME:
        doubts.append("its scores are probabilities; leave the softmax at its end out, since the loss takes logits")
    if _difference(together, again) > SAME:
        doubts.append(f"{_DEPEND} random numbers; draw them where self.training is true, unless that is meant")
    elif trial.norm != "batch" and _difference(together, alone) > SAME:
        doubts.append(_MIXES)
    return doubts


def why_one_by_one(model: nn.Module, trial: Trial, graphs: PackedGraphs, device: torch.device) -> str:
    """Why a fleet calls models like this one after another, and not under ``vmap``; empty if it does not."""
    if any(isinstance(module, CustomNorm) for module in model.modules()):
        return "since the normalization is not of this package"
    if not isinstance(model, OwnModel):
        return ""
    if device.type == "cpu":
        return "since that is faster on a CPU"
    return why_not_stacked(trial, graphs, device)


def why_not_stacked(trial: Trial, graphs: PackedGraphs, device: torch.device) -> str:
    """Why ``vmap`` cannot take the trial's model; empty if it can.

    Two members train a step on padded batches, under ``vmap`` and without: their gradients and buffers must agree.
    """
    graphs = prepare(graphs, trial).to(device)
    inputs, model = ModelInputs(graphs, trial), build_model(trial, graphs)
    assert isinstance(model, OwnModel)
    model.keyed = True
    pair = _two_graphs(graphs)
    batch = inputs.batch(torch.tensor([pair, [pair[-1], -1]]))
    keys, rates = torch.tensor([1, 2], device=device), torch.full((2,), trial.dropout, device=device)
    found, buffers = [], []
    with seeded(trial.seed):
        undrawn = _draw()
    with seeded(trial.seed):
        for kind in (OneByOne, Stack):
            stack = kind([copy.deepcopy(model), copy.deepcopy(model)], device)
            of_step = partial(inputs.of_step, padded=not kind.one_by_one)
            try:
                losses, gradient = stack.gradients(of_step, _sum_of_squares, batch.ids >= 0, batch, keys, rates)
                with torch.no_grad():
                    stack.forward(partial(inputs, may_pad=False), inputs.batch(pair), training=False, stacked=False)
            except (Exception, SystemExit) as error:
                words = f"{type(error).__name__}: {error}".splitlines()[0]
                return f"since torch.func.vmap cannot take it ({words[:160]})"
            found.append(torch.cat([losses, gradient]))
            states = [stack.member(k).values() for k in range(stack.members)]
            buffers.append(torch.cat([value.double().flatten() for state in states for value in state]))
        drew = _draw() != undrawn
    if drew:
        return "since its forward draws from random or numpy.random, which would give all models of a stack one number"
    if not _difference(*found) < SAME:
        return "since padded rows would change its result"
    if not _difference(*buffers) < SAME:
        return (
            "since its buffers would differ under torch.func.vmap: it replaces a buffer, as in self.mean = …, or "
            "padded rows reach one"
        )
    return ""


def _draw() -> tuple[float, float]:
    """The next number of Python's generator, and of NumPy's."""
    return random.random(), float(np.random.random())  # noqa: NPY002


def _sum_of_squares(scores: Tensor, real: Tensor) -> Tensor:
    return (scores * real[..., None]).square().sum((1, 2))


def _difference(first: Tensor, second: Tensor) -> float:
    return float((first - second).abs().max() / second.abs().max().clamp(min=1e-12)) if second.numel() else 0.0


def _two_graphs(graphs: PackedGraphs) -> list[int]:
    """Two graphs of different sizes with edges, if there are such."""
    sizes = graphs.sizes.cpu()
    usable = (graphs.edge_ptr.diff().cpu() > 0).nonzero()[:, 0].tolist() or list(range(min(2, graphs.num_graphs)))
    first = usable[0]
    second = next((graph for graph in usable if sizes[graph] != sizes[first]), usable[-1])
    return [first, second]


def _own(parameter: str) -> str:
    return parameter.removeprefix("model.")


def _wrong(trial: Trial, problem: str, remedy: str) -> GraphnormError:
    return GraphnormError(f"the model {trial.model} {problem}", remedy=remedy)


@contextmanager
def _explained(name: str, action: str, files: frozenset[Path], remedy: str = _CORRECT) -> Iterator[None]:
    """Turn an error of a user's model into a message with its line."""
    try:
        yield
    except GraphnormError:
        raise
    except (Exception, SystemExit) as error:
        where, line = line_of(error, files)
        problem = f"the model {name} {action}: {' '.join(f'{type(error).__name__}: {error}'.split())}"
        raise GraphnormError(problem, where=where, line=line, remedy=remedy) from error
