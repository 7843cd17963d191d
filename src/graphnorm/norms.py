"""The layers: each is a row of the table *scope × shift × statistics* over one operation.

============== ================ ======== ======================= ===================
name           scope            shift α  statistics in training  in evaluation
============== ================ ======== ======================= ===================
``none``       –                –        –                       –
``layer``      one node         1        live                    live
``batch``      the whole batch  1        live                    running averages
``instance``   one graph        1        live                    live
``graph``      one graph        learned  live                    live
``batch-alpha``    the whole batch  learned  live                running averages
``batch-running``  the whole batch  1        running averages    running averages
``batch-detached`` the whole batch  1        live, no gradient   running averages
============== ================ ======== ======================= ===================

All are called alike: ``norm(x, batch=None, batch_size=None)`` as in PyTorch Geometric, or ``norm(x, segments)``; ``x``
has shape (N, C), of nodes or of edges. ``act="relu"`` at construction and ``residual=`` at the call put the activation
and the skip connection into the same pass over memory.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphnorm.ops.standardize import standardize
from graphnorm.ops.standardize.call import ACTIVATIONS, check_segments
from graphnorm.segments import Segments


def as_segments(batch: Tensor | Segments | None, batch_size: int | None = None) -> Segments | None:
    """What a layer was given as its second argument, as segments; ``None`` stands for one graph."""
    if batch is None or isinstance(batch, Segments):
        return batch
    return Segments(batch=batch, batch_size=batch_size)


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
        if not isinstance(in_channels, int) or in_channels < 1:
            raise ValueError(f"in_channels is {in_channels!r}; it is the number of features of a node, at least 1")
        if act not in ACTIVATIONS:
            raise ValueError(f"act is {act!r}; it can be 'relu' or None")
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

    def _standardize(
        self, x: Tensor, segments: Segments | None, residual: Tensor | None, **row: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        self._check_width(x)
        return standardize(
            x, segments, weight=self.weight, bias=self.bias, eps=self.eps, act=self.act, residual=residual, **row
        )


class GraphNorm(Norm):
    r"""GraphNorm: per graph and channel, with a learned share α of the mean taken away.

    .. math:: y = \gamma\,\frac{x - \alpha\mu}{\sqrt{E[(x - \alpha\mu)^2] + \varepsilon}} + \beta

    The second moment is that of the shifted value; it is not centred again. Parameters ``weight`` (γ), ``bias`` (β)
    and ``mean_scale`` (α) are named as in PyTorch Geometric, whose state dicts load here and ours there.

    >>> norm = GraphNorm(4)
    >>> x, batch = torch.randn(5, 4), torch.tensor([0, 0, 0, 1, 1])
    >>> norm(x, batch).shape
    torch.Size([5, 4])
    >>> torch.equal(norm(x, batch), norm(x, Segments(sizes=[3, 2])))
    True
    """

    def __init__(
        self,
        in_channels: int,
        eps: float = 1e-5,
        device: torch.device | str | None = None,
        *,
        act: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, eps, act=act, device=device, dtype=dtype)
        self.mean_scale = nn.Parameter(torch.ones(in_channels, device=device, dtype=dtype))

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Standardize the rows of each graph of ``batch``."""
        segments = as_segments(batch, batch_size)
        return self._standardize(x, segments, residual, mean_scale=self.mean_scale)[0]


class InstanceNorm(Norm):
    r"""InstanceNorm: per graph and channel, with the whole mean taken away (α = 1).

    As in PyTorch Geometric there is no affine part unless asked for; ``make_norm("instance", …)`` asks for it, since
    the paper's has one.

    >>> InstanceNorm(2)(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    tensor([[-1.0000,  0.0000],
            [ 1.0000,  0.0000]])
    """

    def __init__(
        self,
        in_channels: int,
        eps: float = 1e-5,
        *,
        affine: bool = False,
        act: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, eps, affine=affine, act=act, device=device, dtype=dtype)

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Standardize the rows of each graph of ``batch``."""
        return self._standardize(x, as_segments(batch, batch_size), residual)[0]


class LayerNorm(Norm):
    """LayerNorm: every node by itself, across its channels. PyTorch Geometric's ``LayerNorm(mode="node")``.

    >>> LayerNorm(2)(torch.tensor([[1.0, 3.0]]))
    tensor([[-1.0000,  1.0000]], grad_fn=...)
    """

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Standardize each row; which graph it belongs to does not matter."""
        return self._standardize(x, None, residual, scope="node")[0]


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
        """Also the running averages: mean 0, variance 1, no batch seen."""
        super().reset_parameters()
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Standardize over all rows, or all rows that belong to a graph where ``batch`` is Segments with padding."""
        segments = batch if isinstance(batch, Segments) else None
        mean_scale = getattr(self, "mean_scale", None)
        if not self.training and self.running_mean is not None:
            return self._by_running_averages(x, segments, residual)
        y, mean, var = self._standardize(
            x, segments, residual, scope="batch", statistics=self.statistics_in_training, mean_scale=mean_scale
        )
        if self.training and self.running_mean is not None:
            self._update(mean[0].detach(), var[0].detach(), x, segments)
        return y

    def _by_running_averages(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        assert self.running_mean is not None and self.running_var is not None
        return self._standardize(
            x,
            segments,
            residual,
            scope="batch",
            statistics="given",
            mean=self.running_mean[None],
            var=self.running_var[None],
            mean_scale=getattr(self, "mean_scale", None),
        )[0]

    @torch.no_grad()
    def _update(self, mean: Tensor, var: Tensor, x: Tensor, segments: Segments | None) -> None:
        """Move the running averages towards a batch of n rows; as torch does, by the unbiased variance n/(n-1)·v."""
        assert self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = self.num_batches_tracked.reciprocal() if self.momentum is None else self.momentum
        if segments is None or not segments.may_pad:
            rows = x.shape[0]
            unbias: Tensor | float = rows / max(rows - 1, 1)
            momentum = momentum if rows else 0.0
        else:
            counted = segments.ptr[..., -1] - segments.ptr[..., 0]
            unbias = counted / (counted - 1).clamp(min=1)
            momentum = torch.where(counted > 0, momentum, 0.0)
        for running, value in ((self.running_mean, mean), (self.running_var, var * unbias)):
            running.add_(momentum * (value.to(running.dtype) - running))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for key in [key for key in state_dict if key.startswith(prefix + "module.")]:
            state_dict[prefix + key.removeprefix(prefix + "module.")] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class AlphaBatchNorm(BatchNorm):
    """α-BatchNorm of the paper's ablation: BatchNorm with a learned share α of the mean taken away.

    In evaluation the second moment of the shifted value follows from the running averages: v + (1-α)²·mean².
    """

    def __init__(self, in_channels: int, *args: Any, device: Any = None, dtype: Any = None, **kwargs: Any) -> None:
        super().__init__(in_channels, *args, device=device, dtype=dtype, **kwargs)
        self.mean_scale = nn.Parameter(torch.ones(in_channels, device=device, dtype=dtype))


class DetachedBatchNorm(BatchNorm):
    """DT-BatchNorm of the paper's ablation: no gradient flows through mean and standard deviation."""

    statistics_in_training = "detached"


class RunningBatchNorm(BatchNorm):
    """MS-BatchNorm of the paper's ablation: running averages take the place of the batch's statistics in training too.

    The averages are moved towards the batch first and used then, so the first batches are not standardized by the
    averages' arbitrary starting values alone. No gradient flows through them.
    """

    def __init__(
        self, in_channels: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(in_channels, eps, momentum, affine, True, **kwargs)

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Standardize by the running averages, after moving them when training."""
        segments = batch if isinstance(batch, Segments) else None
        if self.training:
            self._check_width(x)
            _, mean, var = standardize(x.detach(), segments, scope="batch")
            self._update(mean[0], var[0], x, segments)
        return self._by_running_averages(x, segments, residual)


class NoNorm(Norm):
    """No normalization, with the call of one: the activation and the residual are still applied."""

    def __init__(self, in_channels: int, *, act: str | None = None) -> None:
        super().__init__(in_channels, affine=False, act=act)

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Return x, activated, plus the residual."""
        self._check_width(x)
        y = torch.relu(x) if self.act == "relu" else x
        return y if residual is None else y + residual


class GraphSizeNorm(Norm):
    r"""Graph size normalization (the paper's footnote): each node's features over the root of its graph's size.

    .. math:: y = x / \sqrt{n}
    """

    def __init__(self, in_channels: int, *, act: str | None = None) -> None:
        super().__init__(in_channels, affine=False, act=act)

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Scale the rows of each graph by one over the root of their number."""
        self._check_width(x)
        y = size_norm(x, as_segments(batch, batch_size))
        y = torch.relu(y) if self.act == "relu" else y
        return y if residual is None else y + residual


def size_norm(x: Tensor, segments: Segments | None) -> Tensor:
    """x / √n, n being the number of rows of the row's graph; 0 for rows of no graph."""
    if segments is None:
        return x / max(x.shape[0], 1) ** 0.5
    check_segments(x, segments)
    ids, graphs = segments.ids(x.shape[0]), segments.num_graphs
    outside = (ids < 0) | (ids >= graphs)
    factor = torch.nn.functional.pad(segments.sizes.clamp(min=1).to(x.dtype).rsqrt(), (0, 1))
    return x * factor[torch.where(outside, graphs, ids)][:, None]


REGISTRY: dict[str, Callable[..., Norm]] = {
    "none": NoNorm,
    "layer": LayerNorm,
    "batch": BatchNorm,
    "instance": lambda channels, **options: InstanceNorm(channels, **{"affine": True, **options}),
    "graph": GraphNorm,
    "batch-alpha": AlphaBatchNorm,
    "batch-running": RunningBatchNorm,
    "batch-detached": DetachedBatchNorm,
    "size": GraphSizeNorm,
}
"""The layers by the names that the paper's experiments give them."""


def make_norm(name: str, channels: int, **options: Any) -> Norm:
    """A layer by name: ``"graph"``, ``"instance"``, ``"batch"``, ``"layer"``, ``"none"``, ``"batch-alpha"``,
    ``"batch-running"``, ``"batch-detached"`` or ``"size"``.

    >>> make_norm("graph", 64)
    GraphNorm(64, eps=1e-05)
    """
    if name not in REGISTRY:
        near = difflib.get_close_matches(str(name).lower(), REGISTRY, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown normalization {name!r}{hint} The known ones are {', '.join(REGISTRY)}.")
    return REGISTRY[name](channels, **options)
