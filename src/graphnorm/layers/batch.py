"""The layers whose statistics run over the whole batch, with running averages for evaluation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphnorm.layers.base import Norm
from graphnorm.ops.standardize import standardize
from graphnorm.ops.standardize.eager import standardize_graphs
from graphnorm.segments import Segments
from graphnorm.tracing import may_cache


def _of_module(name: str) -> Any:
    """An attribute of the ``torch.nn.BatchNorm1d`` inside."""

    def read(self: BatchNorm) -> Any:
        return getattr(self.module, name)

    def write(self: BatchNorm, value: Any) -> None:
        setattr(self.module, name, value)

    return property(read, write)


class BatchNorm(Norm):
    """BatchNorm: per channel over all nodes of the batch; running averages in evaluation.

    Parameters and averages are those of ``module``, a ``torch.nn.BatchNorm1d``, as in PyTorch Geometric. So state dicts
    load both ways, and ``torch.optim.swa_utils.update_bn`` and ``SyncBatchNorm.convert_sync_batchnorm`` work. State
    dicts of ``torch.nn.BatchNorm1d`` load too. A batch of one row is no error: its output is β.

    Args:
        in_channels: C, the number of features of a node.
        eps: ε, added to the second moment.
        momentum: the weight of the newest batch in the running averages; ``None``: all batches weigh the same.
        affine: whether there are a weight γ and a bias β.
        track_running_stats: keep running averages; if not, evaluation uses the batch as well.
        allow_single_element: use the running averages where a batch has one row, in training too.
        device: where parameters and averages live.
        act: ``"relu"`` to apply it in the same pass, or ``None``.
        dtype: what parameters are stored in. Averages are never narrower than torch's default type.

    >>> norm = BatchNorm(3)
    >>> y = norm(torch.randn(10, 3))
    >>> norm.eval()(torch.zeros(1, 3)).shape
    torch.Size([1, 3])
    """

    uses_graphs = False
    statistics_in_training = "live"

    def __init__(
        self,
        in_channels: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        allow_single_element: bool = False,
        device: torch.device | str | None = None,
        *,
        act: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if allow_single_element and not track_running_stats:
            raise ValueError("allow_single_element needs the running averages; leave track_running_stats on")
        super().__init__(in_channels, eps, affine=affine, act=act, device=device, dtype=dtype)
        self.allow_single_element = allow_single_element
        self.module = nn.BatchNorm1d(
            in_channels, eps, momentum, affine, track_running_stats, device=device, dtype=dtype
        )
        if track_running_stats and dtype is not torch.float64:
            for name in ("running_mean", "running_var"):
                setattr(self.module, name, getattr(self.module, name).to(torch.get_default_dtype()))

    def _register_affine(self, affine: bool, factory: dict[str, Any]) -> None:
        """They belong to ``module``."""

    weight = _of_module("weight")
    bias = _of_module("bias")
    running_mean = _of_module("running_mean")
    running_var = _of_module("running_var")
    num_batches_tracked = _of_module("num_batches_tracked")
    momentum = _of_module("momentum")
    track_running_stats = _of_module("track_running_stats")

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batch seen."""
        self.module.reset_running_stats()

    def reset_parameters(self) -> None:
        """Also reset the running averages: mean 0, variance 1, no batch seen."""
        super().reset_parameters()
        self.module.reset_parameters()

    def _affine(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        own = self.module._parameters
        try:
            return own["weight"], own["bias"], self._parameters["mean_scale"]
        except KeyError:  # one of them is parametrized
            return self.weight, self.bias, self.mean_scale

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        """Over all rows, or all rows that belong to a graph where the segments have padding."""
        module: nn.BatchNorm1d = self._modules["module"]  # type: ignore[assignment]
        if isinstance(module, nn.SyncBatchNorm):
            if type(self) is not BatchNorm:
                raise TypeError(f"{type(self).__name__} cannot be synchronised between processes; only BatchNorm can")
            return self._finish(module(x), residual)
        tracks = module.running_mean is not None
        if tracks and (not self.training or (self.allow_single_element and x.shape[0] <= 1)):
            return self._by_running_averages(x, segments, residual)
        if not torch.compiler.is_compiling() and (segments is None or not segments.may_pad):
            y = self._quickly(x, residual, module if tracks and self.training else None)
            if y is not None:
                return y
        statistics = self.statistics_in_training
        y, mean, var = self._standardize(x, segments, residual, scope="batch", statistics=statistics)
        if self.training and tracks:
            update_averages(module, mean[0].detach(), var[0].detach(), x.shape[0], segments)
        return y

    def _quickly(self, x: Tensor, residual: Tensor | None, averages: nn.BatchNorm1d | None) -> Tensor | None:
        """The output over all rows, and the update of running averages; ``None`` where the quick path cannot do it."""
        own: Any = None if averages is None else averages._buffers
        update = None
        if averages is not None:
            if averages.momentum is None:
                return None
            weight, unbias = _running_weights(x.shape[0], None, averages.momentum)
            update = own["running_mean"], own["running_var"], float(weight), float(unbias)
        y = standardize_graphs(
            x, None, *self._affine(), self.eps, self.act, residual, self.statistics_in_training, update
        )
        if y is not None and own is not None:
            own["num_batches_tracked"].add_(1)
        return y

    def _by_running_averages(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        return self._standardize(x, segments, residual, scope="batch", **averages_of(self.module))[0]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            if prefix + name in state_dict:  # torch.nn.BatchNorm1d's
                state_dict[f"{prefix}module.{name}"] = state_dict.pop(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class AlphaBatchNorm(BatchNorm):
    """α-BatchNorm of the paper's ablation: BatchNorm with a learned share α of the mean subtracted.

    In evaluation the second moment of the shifted value follows from the running averages: v + (1-α)²·mean².
    """

    mean_scale: nn.Parameter

    def __init__(self, in_channels: int, *args: Any, **options: Any) -> None:
        super().__init__(in_channels, *args, **options)
        factory = {name: options.get(name) for name in ("device", "dtype")}
        self.mean_scale = nn.Parameter(torch.ones(in_channels, **factory))


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
        super().__init__(in_channels, eps, momentum, affine, **kwargs)

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        if self.training:
            _, mean, var = standardize(x.detach(), segments, scope="batch")
            update_averages(self.module, mean[0], var[0], x.shape[0], segments)
        return self._by_running_averages(x, segments, residual)


def averages_of(module: nn.BatchNorm1d) -> dict[str, Any]:
    """The running averages as arguments of ``standardize``."""
    mean, var = module.running_mean, module.running_var
    assert mean is not None and var is not None
    if torch.is_grad_enabled():  # backward reads them, maybe after the next update
        mean, var = mean.clone(), var.clone()
    return {"statistics": "given", "mean": mean[None], "var": var[None]}


@torch.no_grad()
def update_averages(module: nn.BatchNorm1d, mean: Tensor, var: Tensor, rows: int, segments: Segments | None) -> None:
    """Update the running averages with a batch of n rows; as in torch, with the unbiased variance n/(n-1)·v."""
    running_mean, running_var, batches = module.running_mean, module.running_var, module.num_batches_tracked
    assert running_mean is not None and running_var is not None and batches is not None
    batches.add_(1)
    weight, unbias = _running_weights(rows, segments, module.momentum)
    if module.momentum is None:
        weight = weight / batches.to(mean.dtype)
    for running, value in ((running_mean, mean), (running_var, var * unbias)):
        share = weight.to(running.dtype) if isinstance(weight, Tensor) else weight
        running.copy_(torch.lerp(running, value.to(running.dtype), share))  # vmap has no rule for lerp_


def _running_weights(
    rows: int, segments: Segments | None, momentum: float | None
) -> tuple[Tensor | float, Tensor | float]:
    """The newest batch's weight in the running averages (0 without rows), and n/(n-1).

    Where all batches weigh the same (``momentum=None``), the weight is still to be divided by their number. What
    depends on the padding alone is computed once for all layers of a model.
    """
    share = 1.0 if momentum is None else momentum
    if segments is None or not segments.may_pad:
        # min(n, 1) and n / max(n - 1, 1): while compiling n may be a symbol that nothing can be asked of, or a number,
        # and torch.sym_max takes only one of these in torch 2.11
        return share * (1 - 1 // (rows + 1)), rows / (rows - 1 + 2 // (rows + 1))
    key = ("running averages", share)
    found: tuple[Tensor, Tensor] | None = segments.plans.get(key)
    if found is None:
        counted = segments.ptr[..., -1] - segments.ptr[..., 0]
        found = torch.where(counted > 0, share, 0.0), counted / (counted - 1).clamp(min=1)
        if may_cache(segments.ptr, counted):
            segments.plans[key] = found
    return found
