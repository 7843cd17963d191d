"""Layers with parameters for each type of node or edge, as in PyTorch Geometric."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphnorm.layers.base import RunningAverages
from graphnorm.ops.standardize import standardize
from graphnorm.segments import Segments

__all__ = ["HeteroBatchNorm", "HeteroLayerNorm"]


class _PerType(nn.Module):
    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self, in_channels: int, num_types: int, eps: float, affine: bool, device: torch.device | str | None
    ) -> None:
        super().__init__()
        self.in_channels, self.num_types, self.eps, self.affine = in_channels, num_types, eps, affine
        for name, make in (("weight", torch.ones), ("bias", torch.zeros)):
            value = nn.Parameter(make(num_types, in_channels, device=device)) if affine else None
            self.register_parameter(name, value)

    def reset_parameters(self) -> None:
        with torch.no_grad():
            if self.weight is not None and self.bias is not None:
                self.weight.fill_(1)
                self.bias.zero_()

    def _scale(self, y: Tensor, types: Tensor, dtype: torch.dtype) -> Tensor:
        if self.weight is not None and self.bias is not None:
            y = y * self.weight[types] + self.bias[types]
        return y.to(dtype)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, num_types={self.num_types}"


class HeteroBatchNorm(_PerType, RunningAverages):
    """BatchNorm for each type: its own statistics, running averages, weight and bias.

    As in PyTorch Geometric no gradient flows through the statistics, and ε is the least variance.

    >>> norm = HeteroBatchNorm(2, num_types=2)
    >>> norm(torch.randn(5, 2), torch.tensor([0, 0, 0, 1, 1])).shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        in_channels: int,
        num_types: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(in_channels, num_types, eps, affine, device)
        self.momentum, self.track_running_stats = momentum, track_running_stats
        self._register_averages(num_types, in_channels, track=track_running_stats, device=device)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.reset_running_stats()

    def forward(self, x: Tensor, type_vec: Tensor) -> Tensor:
        """Normalize the rows of x, shape (N, C), whose types are ``type_vec``, shape (N,)."""
        if not self.training and self.running_mean is not None and self.running_var is not None:
            mean, var = self.running_mean, self.running_var
        else:
            with torch.no_grad():
                types = Segments(batch=type_vec, batch_size=self.num_types)
                _, mean, var = standardize(x, types)
                self._update(mean, var, types.sizes)
        return self._scale((x - mean[type_vec]) / var.clamp(self.eps).sqrt()[type_vec], type_vec, x.dtype)

    def _update(self, mean: Tensor, var: Tensor, sizes: Tensor) -> None:
        if not self.training or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        if self.momentum is None:
            self.num_batches_tracked.add_(1)
        share = 1 / self.num_batches_tracked.double() if self.momentum is None else self.momentum
        weight = (sizes > 0).double()[:, None] * share  # types that the batch lacks keep their averages
        for running, value in ((self.running_mean, mean), (self.running_var, var)):
            running.lerp_(value.to(running.dtype), weight.to(running.dtype))


class HeteroLayerNorm(_PerType):
    """LayerNorm of each node by itself, with a weight and bias for each type.

    >>> norm = HeteroLayerNorm(2, num_types=2)
    >>> norm(torch.tensor([[1.0, 3.0]]), torch.tensor([1]))
    tensor([[-1.0000,  1.0000]], grad_fn=...)
    """

    def __init__(
        self,
        in_channels: int,
        num_types: int,
        eps: float = 1e-5,
        affine: bool = True,
        mode: str = "node",
        device: torch.device | str | None = None,
    ) -> None:
        if mode != "node":
            raise ValueError(f"mode is {mode!r}; it can be 'node' only")
        super().__init__(in_channels, num_types, eps, affine, device)

    def forward(
        self, x: Tensor, type_vec: Tensor | None = None, type_ptr: Tensor | Sequence[int] | None = None
    ) -> Tensor:
        """Normalize the rows of x, shape (N, C).

        Args:
            x: features.
            type_vec: the type of each row, shape (N,).
            type_ptr: in its place, the first row of each type and N, where rows are sorted by type.
        """
        y = standardize(x, scope="node", eps=self.eps)[0]
        if type_ptr is not None:
            sizes = torch.as_tensor(type_ptr, device=x.device).diff()
            type_vec = torch.repeat_interleave(torch.arange(len(sizes), device=x.device), sizes)
        if type_vec is None:
            raise ValueError("one of type_vec and type_ptr is needed")
        return self._scale(y, type_vec, x.dtype)
