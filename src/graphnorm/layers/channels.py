"""Layers whose statistics run over channels too, and those that divide by the root mean square."""

from __future__ import annotations

import torch
from torch import Tensor

from graphnorm.layers.base import Norm, graph_means, zero_padding
from graphnorm.ops.standardize import standardize
from graphnorm.segments import Segments

__all__ = ["GroupNorm", "LayerNorm", "RMSNorm"]


class GroupNorm(Norm):
    """GroupNorm over graphs: the statistics of each graph and group of channels.

    With one group it is ``LayerNorm(mode="graph")``, with as many groups as channels ``InstanceNorm``.

    Args:
        num_groups: how many groups the channels form; it divides their number.
        in_channels: C, the number of features of a node.
        eps: ε, added to the variance.
        affine: whether there are a weight γ and a bias β.
        device: where the parameters live.
        act: ``"relu"`` to apply it, or ``None``.
        dtype: what parameters are stored in.

    >>> x, batch = torch.randn(5, 6), torch.tensor([0, 0, 0, 1, 1])
    >>> y = GroupNorm(2, 6)(x, batch)
    >>> y[:3, :3].mean().abs() < 1e-6, y[3:, 3:].std(unbiased=False).round()
    (tensor(True), tensor(1., grad_fn=...))
    """

    def __init__(
        self,
        num_groups: int,
        in_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: torch.device | str | None = None,
        *,
        act: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, eps, affine=affine, act=act, device=device, dtype=dtype)
        if not isinstance(num_groups, int) or num_groups < 1 or in_channels % num_groups:
            raise ValueError(f"num_groups is {num_groups!r}; it must divide the {in_channels} channels")
        self.num_groups = num_groups

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        parts = _widened(x).reshape(x.shape[0], self.num_groups, x.shape[1] // self.num_groups)
        centred = parts - graph_means(parts.mean(2), segments)[:, :, None]
        variance = graph_means(centred.square().mean(2), segments)[:, :, None]
        y = (centred * (variance + self.eps).rsqrt()).flatten(1)
        if self.weight is not None and self.bias is not None:
            y = y * self.weight + self.bias
        return self._finish(zero_padding(y, segments).to(x.dtype), residual)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {super().extra_repr()}"


class LayerNorm(GroupNorm):
    """LayerNorm over whole graphs (``mode="graph"``, as in PyTorch Geometric) or each node by itself (``"node"``).

    The paper's LayerNorm is that of nodes; ``make_norm("layer", …)`` gives it. Without a batch PyTorch Geometric's
    graph mode divides by σ + ε instead of √(σ² + ε); here one graph gives the same with and without a batch.

    Args:
        in_channels: C, the number of features of a node.
        eps: ε, added to the variance.
        affine: whether there are a weight γ and a bias β.
        mode: ``"graph"``: over all channels of all nodes of a graph; ``"node"``: over the channels of one node.
        device: where the parameters live.
        act: ``"relu"`` to apply it, or ``None``.
        dtype: what parameters are stored in.

    >>> LayerNorm(2, mode="node")(torch.tensor([[1.0, 3.0]]))
    tensor([[-1.0000,  1.0000]], grad_fn=...)
    """

    def __init__(
        self,
        in_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        mode: str = "graph",
        device: torch.device | str | None = None,
        *,
        act: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(1, in_channels, eps, affine, device, act=act, dtype=dtype)
        if mode not in ("graph", "node"):
            raise ValueError(f"mode is {mode!r}; it can be 'graph' or 'node'")
        self.mode, self.uses_graphs = mode, mode == "graph"

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        if self.mode == "graph":
            return super()._normalize(x, segments, residual)
        return self._standardize(x, None, residual, scope="node")[0]

    def extra_repr(self) -> str:
        return f"{Norm.extra_repr(self)}, mode={self.mode!r}"


class RMSNorm(Norm):
    r"""RMSNorm: divide by the root mean square; nothing is subtracted (α = 0).

    .. math:: y = \gamma\,\frac{x}{\sqrt{E[x^2] + \varepsilon}}

    Args:
        in_channels: C, the number of features of a node.
        eps: ε, added to the mean square.
        scope: the values of the mean: ``"node"``, all channels of a node; ``"graph"``, a channel of a graph's nodes;
            ``"batch"``, a channel of all nodes.
        affine: whether there is a weight γ.
        device: where the parameter lives.
        act: ``"relu"`` to apply it, or ``None``.
        dtype: what the parameter is stored in.

    >>> RMSNorm(1, scope="batch")(torch.tensor([[3.0], [4.0]])).T
    tensor([[0.8485, 1.1314]], grad_fn=...)
    """

    _no_shift: Tensor

    def __init__(
        self,
        in_channels: int,
        eps: float = 1e-5,
        scope: str = "node",
        affine: bool = True,
        device: torch.device | str | None = None,
        *,
        act: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, eps, affine=affine, act=act, device=device, dtype=dtype)
        if scope not in ("node", "graph", "batch"):
            raise ValueError(f"scope is {scope!r}; it can be 'node', 'graph' or 'batch'")
        self.bias = None
        self.scope, self.uses_graphs = scope, scope == "graph"
        self.register_buffer("_no_shift", torch.zeros(in_channels, device=device, dtype=dtype), persistent=False)

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        if self.scope == "node":
            y = torch.nn.functional.rms_norm(_widened(x), x.shape[1:], eps=self.eps)
            y = y if self.weight is None else y * self.weight
            return self._finish(y.to(x.dtype), residual)
        return standardize(
            x, segments, scope=self.scope, weight=self.weight, mean_scale=self._no_shift, eps=self.eps, act=self.act,
            residual=residual,
        )[0]  # fmt: skip


def _widened(x: Tensor) -> Tensor:
    """x in at least float32."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
