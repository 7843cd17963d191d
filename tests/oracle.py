"""The paper's equations, independent of the library: float64, graph by graph, gradients by torch.

Nothing here is quick or clever. Every kernel is compared with it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import graphnorm
from graphnorm import Segments

PARAMETERS = ("weight", "bias", "mean_scale")


def standardize(
    x: Tensor,
    ids: Tensor,
    *,
    scope: str = "graph",
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    mean_scale: Tensor | None = None,
    statistics: str = "live",
    mean: Tensor | None = None,
    var: Tensor | None = None,
    eps: float = 1e-5,
    act: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """Equation 10 with α, γ, β; rows whose id is negative belong to no graph and give zeros.

    Scope "node" takes each row by itself, across its channels, whatever its id.
    """

    def affine_and_activation(z: Tensor) -> Tensor:
        z = z if weight is None else z * weight
        z = z if bias is None else z + bias
        return torch.where(z >= 0, z, 0) if act == "relu" else z

    if scope == "node":
        centred = x - x.mean(1, keepdim=True)
        y = affine_and_activation(centred / torch.sqrt((centred**2).mean(1, keepdim=True) + eps))
        return y if residual is None else y + residual
    ids = torch.where(ids < 0, -1, 0) if scope == "batch" else ids
    alpha = 1.0 if mean_scale is None else mean_scale
    y = torch.zeros_like(x)
    for g in ids.unique().tolist():
        if g < 0:
            continue
        rows = (ids == g).nonzero()[:, 0]
        h = x[rows]
        if statistics == "given":
            assert mean is not None
            assert var is not None
            mu = mean[g]
            second = var[g] + (1 - alpha) ** 2 * mu**2
        else:
            measured = h.detach() if statistics == "detached" else h
            mu = measured.mean(0)
            second = ((measured - alpha * mu) ** 2).mean(0)
        z = (h - alpha * mu) / torch.sqrt(second + eps)
        y = y.index_copy(0, rows, affine_and_activation(z))
    return y if residual is None else y + residual


def error(found: Tensor | None, right: Tensor) -> float:
    """Relative Frobenius error against a float64 tensor; absolute where the right answer is zero."""
    assert found is not None
    difference = torch.linalg.vector_norm(found.detach().cpu().double() - right.detach())
    scale = torch.linalg.vector_norm(right.detach())
    return (difference / scale if scale > 0 else difference).item()


class Checked:
    """A case with inputs ``given`` to the library and, as the very same numbers in float64, to the oracle.

    A subclass says in ``_run`` how either gets from them to an output and the gradient of each input.
    """

    def __init__(self, made: dict[str, Tensor], per_row: tuple[str, ...], dtype: torch.dtype, device: Any) -> None:
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        narrow = {name: t.to(dtype if name in per_row else wide) for name, t in made.items()}
        self.given = {name: t.to(device) for name, t in narrow.items()}
        self.right = {name: t.double() for name, t in narrow.items()}

    def _run(self, tensors: dict[str, Tensor], oracle: bool, **options: Any) -> dict[str, Tensor]:
        raise NotImplementedError

    def results(self, **options: Any) -> dict[str, Tensor]:
        """Output and gradients by the library."""
        found = self._run(self.given, False, **options)
        assert all(t.dtype == self.given["x" if name == "y" else name].dtype for name, t in found.items())
        return found

    def errors(self, **options: Any) -> dict[str, float]:
        """The relative error of the output and of the gradient of each input."""
        found, right = self.results(**options), self._run(self.right, True, **options)
        return {name: error(found[name], right[name]) for name in right}

    def check(self, tolerance: float, **options: Any) -> None:
        """All errors within ``tolerance``."""
        errors = self.errors(**options)
        assert all(value <= tolerance for value in errors.values()), errors


class Case(Checked):
    """Inputs of one call of ``standardize``."""

    def __init__(
        self,
        sizes: list[int],
        channels: int = 5,
        *,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
        shuffled: bool = False,
        padding: int = 0,
        mean: float = 0.5,
        std: float = 1.0,
        parameters: tuple[str, ...] = PARAMETERS,
        residual: bool = False,
        seed: int = 0,
        **options: Any,
    ) -> None:
        draw = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=draw, dtype=torch.float64)

        rows = sum(sizes) + padding
        self.ids = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes, dtype=torch.int64))
        self.ids = torch.cat([self.ids, torch.full((padding,), -1)])
        if shuffled:
            self.ids = self.ids[torch.randperm(rows, generator=draw)]
            self.segments = Segments(batch=self.ids.to(device), batch_size=len(sizes))
        else:
            self.segments = Segments(sizes=sizes, num_rows=rows).to(device)
        made = {"x": mean + std * normal(rows, channels), "dy": normal(rows, channels)}
        start = {"weight": 1.0, "bias": 0.0, "mean_scale": 0.7}
        made |= {name: start[name] + 0.3 * normal(channels) for name in parameters}
        if residual:
            made["residual"] = normal(rows, channels)
        super().__init__(made, ("x", "dy", "residual"), dtype, device)
        self.options = options

    def _run(self, tensors: dict[str, Tensor], oracle: bool, **options: Any) -> dict[str, Tensor]:
        leaves = {name: t.detach().requires_grad_() for name, t in tensors.items() if name != "dy"}
        if oracle:
            y = standardize(ids=self.ids, **leaves, **self.options, **options)
        else:
            y = graphnorm.layers.functional.standardize(segments=self.segments, **leaves, **self.options, **options)[0]
        if oracle and not y.requires_grad:  # no row of any graph
            return {"y": y} | {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
        gradients = torch.autograd.grad(
            y, list(leaves.values()), tensors["dy"], allow_unused=oracle, materialize_grads=oracle
        )
        return {"y": y.detach()} | dict(zip(leaves, gradients, strict=True))


def laid_out(tensor: Tensor, layout: str) -> Tensor:
    """A tensor of the same shape and values elsewhere in memory; "expanded", all columns are the first one."""
    if not tensor.numel():
        return tensor
    if layout == "strided":
        return tensor.repeat_interleave(2, 1)[:, ::2]
    if layout == "transposed":
        return tensor.T.contiguous().T
    if layout == "expanded":
        return tensor[:, :1].expand_as(tensor)
    if layout == "offset":
        return torch.cat([tensor.flatten()[:1], tensor.flatten()])[1:].view_as(tensor)
    return tensor
