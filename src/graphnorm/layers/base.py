"""What all layers share: the call, the parameters, the fused tail."""

from __future__ import annotations

from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn

from graphnorm.ops.standardize import standardize
from graphnorm.ops.standardize.api import ACTIVATIONS, check_eps, check_rows
from graphnorm.ops.standardize.eager import standardize_graphs
from graphnorm.segments import Segments, as_segments


def check_unused(x: Tensor, batch: Tensor | Segments | None) -> None:
    """Whether a batch that decides nothing in a layer has x's rows all the same, as other layers will want it."""
    if isinstance(batch, Segments):
        check_rows(x, batch.num_rows)
    elif batch is not None:
        if not isinstance(batch, Tensor):
            raise TypeError(f"batch must be a tensor of integers, got {type(batch).__name__}")
        check_rows(x, batch.numel())


class Norm(nn.Module):
    """What all layers share: the width, the parameters γ and β, the fused activation, and a readable ``repr``.

    Args:
        in_channels: C, the number of features of a node.
        eps: ε, added to the second moment.
        affine: whether there are a weight γ and a bias β.
        act: ``"relu"`` to apply it in the same pass, or ``None``.
        device: where the parameters live.
        dtype: what they are stored in.
    """

    in_channels: int
    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        eps: float = 1e-5,
        *,
        affine: bool = True,
        act: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(in_channels, SupportsIndex) or in_channels.__index__() < 1:
            raise ValueError(f"in_channels is {in_channels!r}; it is the number of features of a node, at least 1")
        check_eps(eps)
        if act not in ACTIVATIONS:
            raise ValueError(f"act is {act!r}; it can be 'relu' or None")
        in_channels = int(in_channels)
        self.in_channels, self.eps, self.act = in_channels, eps, act
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.ones(in_channels, **factory)) if affine else None
        self.bias = nn.Parameter(torch.zeros(in_channels, **factory)) if affine else None

    def reset_parameters(self) -> None:
        """Back to γ = 1, β = 0, and α = 1 where there is one."""
        with torch.no_grad():
            for name, parameter in self.named_parameters(recurse=False):
                parameter.fill_(0.0 if name == "bias" else 1.0)

    def extra_repr(self) -> str:
        """The arguments that matter."""
        act = f", act={self.act!r}" if self.act else ""
        return f"{self.in_channels}, eps={self.eps}{act}"

    def _check_width(self, x: Tensor) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"x must be a tensor of features, got {type(x).__name__}")
        if x.dim() != 2:
            raise ValueError(f"x must have shape (nodes, {self.in_channels}), got {tuple(x.shape)}")
        if x.shape[-1] != self.in_channels:
            raise ValueError(
                f"{type(self).__name__} was made for {self.in_channels} channels, but x has shape {tuple(x.shape)}; "
                f"make it with {type(self).__name__}({x.shape[-1]}, …) or check the layer before it"
            )

    def _tail(self, y: Tensor, residual: Tensor | None) -> Tensor:
        """Activation and residual, for layers that are not fused."""
        y = torch.relu(y) if self.act == "relu" else y
        if residual is None:
            return y
        if not isinstance(residual, Tensor):
            raise TypeError(f"residual must be a tensor, got {type(residual).__name__}")
        if residual.shape != y.shape:
            shapes = f"{tuple(residual.shape)}, x has shape {tuple(y.shape)}"
            raise ValueError(f"residual has shape {shapes}; expected the same shape as x")
        return y + residual

    def _parameter(self, name: str) -> Tensor | None:
        """``getattr(self, name)`` by a shorter way; a parametrization takes a parameter out of that way itself."""
        parameters = self._parameters
        return parameters[name] if name in parameters else getattr(self, name, None)

    def _by_graph(
        self, x: Tensor, batch: Tensor | Segments | None, batch_size: int | None, residual: Tensor | None
    ) -> Tensor:
        """y by the live statistics of each graph."""
        segments = batch if batch_size is None and type(batch) is Segments else as_segments(batch, batch_size)
        if not torch.compiler.is_compiling():
            weight, bias, mean_scale = self._parameter("weight"), self._parameter("bias"), self._parameter("mean_scale")
            if weight is None:  # whose width would be checked
                self._check_width(x)
            y = standardize_graphs(x, segments, weight, bias, mean_scale, self.eps, self.act, residual)
            if y is not None:
                return y
        return self._standardize(x, segments, residual, mean_scale=getattr(self, "mean_scale", None))[0]

    def _standardize(
        self, x: Tensor, segments: Segments | None, residual: Tensor | None, **row: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        self._check_width(x)
        return standardize(
            x, segments, weight=self.weight, bias=self.bias, eps=self.eps, act=self.act, residual=residual, **row
        )
