"""The layers whose statistics run over the whole batch, with running averages for evaluation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphnorm.layers.base import Norm
from graphnorm.ops.standardize import standardize
from graphnorm.segments import Segments
from graphnorm.tracing import may_cache


class BatchNorm(Norm):
    """BatchNorm: per channel over all nodes of the batch; running averages in evaluation.

    State dicts are those of ``torch.nn.BatchNorm1d``; PyTorch Geometric's, with its ``module.`` prefix, load too.
    A batch of one row is no error: its output is β.

    Args:
        in_channels: C, the number of features of a node.
        eps: ε, added to the second moment.
        momentum: the weight of the newest batch in the running averages; ``None``: all batches weigh the same.
        affine: whether there are a weight γ and a bias β.
        track_running_stats: keep running averages; if not, evaluation uses the batch as well.
        act: ``"relu"`` to apply it in the same pass, or ``None``.
        device: where parameters and averages live.
        dtype: what parameters are stored in. Averages are never narrower than torch's default type.

    >>> norm = BatchNorm(3)
    >>> y = norm(torch.randn(10, 3))
    >>> norm.eval()(torch.zeros(1, 3)).shape
    torch.Size([1, 3])
    """

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    uses_graphs = False
    statistics_in_training = "live"

    def __init__(
        self,
        in_channels: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        act: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, eps, affine=affine, act=act, device=device, dtype=dtype)
        self.momentum, self.track_running_stats = momentum, track_running_stats
        wide = torch.float64 if dtype == torch.float64 else None
        running = [make(in_channels, device=device, dtype=wide) for make in (torch.zeros, torch.ones)]
        self.register_buffer("running_mean", running[0] if track_running_stats else None)
        self.register_buffer("running_var", running[1] if track_running_stats else None)
        count = torch.tensor(0, dtype=torch.long, device=device)
        self.register_buffer("num_batches_tracked", count if track_running_stats else None)

    def reset_parameters(self) -> None:
        """Also reset the running averages: mean 0, variance 1, no batch seen."""
        super().reset_parameters()
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        """Over all rows, or all rows that belong to a graph where the segments have padding."""
        if not self.training and self.running_mean is not None:
            return self._by_running_averages(x, segments, residual)
        statistics = self.statistics_in_training
        y, mean, var = self._standardize(x, segments, residual, scope="batch", statistics=statistics)
        if self.training:
            self._update(mean[0], var[0], x, segments)
        return y

    def _by_running_averages(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        mean, var = self.running_mean, self.running_var
        assert mean is not None and var is not None
        averages = {"mean": mean[None], "var": var[None]}
        return self._standardize(x, segments, residual, scope="batch", statistics="given", **averages)[0]

    @torch.no_grad()
    def _update(self, mean: Tensor, var: Tensor, x: Tensor, segments: Segments | None) -> None:
        """Add a batch of n rows to the running averages, if there are any; as in torch, with the variance n/(n-1)·v."""
        running_mean, running_var, batches = self.running_mean, self.running_var, self.num_batches_tracked
        if running_mean is None or running_var is None or batches is None:
            return
        batches.add_(1)
        weight, unbias = _running_weights(x.shape[0], segments, self.momentum)
        if self.momentum is None:
            weight = weight / batches.to(mean.dtype)
        for running, value in ((running_mean, mean), (running_var, var * unbias)):
            share = weight.to(running.dtype) if isinstance(weight, Tensor) else weight
            running.copy_(torch.lerp(running, value.to(running.dtype), share))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for key in [key for key in state_dict if key.startswith(prefix + "module.")]:
            state_dict[prefix + key.removeprefix(prefix + "module.")] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class AlphaBatchNorm(BatchNorm):
    """α-BatchNorm of the paper's ablation: BatchNorm with a learned share α of the mean subtracted.

    In evaluation the second moment of the shifted value follows from the running averages: v + (1-α)²·mean².
    """

    mean_scale: nn.Parameter

    def __init__(self, in_channels: int, *args: Any, device: Any = None, dtype: Any = None, **kwargs: Any) -> None:
        super().__init__(in_channels, *args, device=device, dtype=dtype, **kwargs)
        self.mean_scale = nn.Parameter(torch.ones(in_channels, device=device, dtype=dtype))


class DetachedBatchNorm(BatchNorm):
    """DT-BatchNorm of the paper's ablation: no gradient flows through mean and standard deviation."""

    statistics_in_training = "detached"


class RunningBatchNorm(BatchNorm):
    """MS-BatchNorm of the paper's ablation: running averages replace the batch's statistics in training too.

    The averages are updated with the batch before they are used, so the first batches are not standardized by the
    averages' arbitrary initial values alone. No gradient flows through them.
    """

    def __init__(
        self, in_channels: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(in_channels, eps, momentum, affine, True, **kwargs)

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        if self.training:
            _, mean, var = standardize(x.detach(), segments, scope="batch")
            self._update(mean[0], var[0], x, segments)
        return self._by_running_averages(x, segments, residual)


def _running_weights(
    rows: int, segments: Segments | None, momentum: float | None
) -> tuple[Tensor | float, Tensor | float]:
    """The newest batch's weight in the running averages (0 without rows), and n/(n-1).

    Where all batches weigh the same (``momentum=None``), the weight is still to be divided by their number. What
    depends on the padding alone is computed once for all layers of a model.
    """
    share = 1.0 if momentum is None else momentum
    if segments is None or not segments.may_pad:
        return (share if rows else 0.0), rows / max(rows - 1, 1)
    key = ("running averages", share)
    found: tuple[Tensor, Tensor] | None = segments.plans.get(key)
    if found is None:
        counted = segments.ptr[..., -1] - segments.ptr[..., 0]
        found = torch.where(counted > 0, share, 0.0), counted / (counted - 1).clamp(min=1)
        if may_cache(segments.ptr, counted):
            segments.plans[key] = found
    return found
