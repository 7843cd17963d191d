"""Normalizations of other papers, with the arguments, results and state dicts of PyTorch Geometric's layers.

They are built on the operations of this package, so that a fleet can stack them and rows of no graph do not take part.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphnorm.layers.base import Norm, graph_means, zero_padding
from graphnorm.layers.batch import update_averages
from graphnorm.segments import Segments

__all__ = ["DiffGroupNorm", "MeanSubtractionNorm", "MessageNorm", "MessageNormOfResidual", "PairNorm"]

GROUPS = 10
"""Clusters of :class:`DiffGroupNorm`, as in its paper."""


class MeanSubtractionNorm(Norm):
    """Mean subtraction: the mean of each graph is subtracted, and nothing else is done (Yang et al., 2020).

    >>> MeanSubtractionNorm()(torch.tensor([[1.0], [3.0], [7.0]]), torch.tensor([0, 0, 1])).T
    tensor([[-1.,  1.,  0.]])
    """

    any_width = True

    def __init__(self, *, act: str | None = None) -> None:
        super().__init__(None, affine=False, act=act)

    def forward(  # type: ignore[override]  # PyTorch Geometric calls the number of graphs dim_size here
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        dim_size: int | None = None,
        *,
        batch_size: int | None = None,
        residual: Tensor | None = None,
    ) -> Tensor:
        """As :meth:`Norm.forward`; ``dim_size`` is another name of ``batch_size``."""
        return super().forward(x, batch, dim_size if batch_size is None else batch_size, residual=residual)

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        return self._finish(zero_padding(x - graph_means(x, segments), segments), residual)


class PairNorm(Norm):
    r"""PairNorm: each graph centred, and scaled to rows of a mean square length of 1 (Zhao and Akoglu, 2020).

    .. math:: x^c = x - \mu, \qquad y = s\,\frac{x^c}{\sqrt{E\,\lVert x^c \rVert^2 + \varepsilon}}

    The scale is one for all channels, and keeps the total distance between pairs of nodes from layer to layer. With
    ``scale_individually`` every row is scaled to length s instead, :math:`y = s\,x^c / (\lVert x^c \rVert +
    \varepsilon)`.
    """

    any_width = True

    def __init__(
        self, scale: float = 1.0, scale_individually: bool = False, eps: float = 1e-5, *, act: str | None = None
    ) -> None:
        super().__init__(None, eps, affine=False, act=act)
        self.scale, self.scale_individually = scale, scale_individually

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        centred = zero_padding(x - graph_means(x, segments), segments)
        if self.scale_individually:
            y = self.scale * centred / (self.eps + centred.norm(dim=-1, keepdim=True))
        else:
            square = graph_means(centred.square().sum(-1, keepdim=True), segments)
            y = self.scale * centred * (square + self.eps).rsqrt()
        return self._finish(y, residual)


class MessageNorm(nn.Module):
    r"""MessageNorm: the message m to a node is scaled to the length of the node's own state x (Li et al., 2020).

    .. math:: y = s\,\lVert x \rVert\,\frac{m}{\lVert m \rVert}

    >>> MessageNorm()(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 2.0]]))
    tensor([[0., 5.]])
    """

    def __init__(self, learn_scale: bool = False, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, device=device), requires_grad=learn_scale)

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.scale.fill_(1.0)

    def forward(self, x: Tensor, msg: Tensor, p: float = 2.0) -> Tensor:
        """The messages ``msg``, shape (N, C), scaled by the lengths of x in the ``p``-norm."""
        direction: Tensor = nn.functional.normalize(msg, p=p, dim=-1)
        length: Tensor = torch.linalg.vector_norm(x, p, dim=-1, keepdim=True)
        return direction * length * self.scale.to(x.dtype)

    def extra_repr(self) -> str:
        return f"learn_scale={self.scale.requires_grad}"


class MessageNormOfResidual(Norm):
    """MessageNorm where only one input is at hand, as in our models: ``make_norm("message", …)``.

    The node's own state is the ``residual``, the input of the convolution. Where there is none, as inside a perceptron
    or in a first convolution that changes the width, it is x itself, and y = s·x. The scale s is learned, from 1.
    """

    uses_graphs = False

    def __init__(self, in_channels: int, *, act: str | None = None) -> None:
        super().__init__(in_channels, affine=False, act=act)
        self.scale = nn.Parameter(torch.ones(1))

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        y = x
        if isinstance(residual, Tensor) and residual.shape == x.shape:
            y = nn.functional.normalize(x, dim=-1) * residual.norm(dim=-1, keepdim=True)
        return self._finish(y * self.scale.to(x.dtype), residual)


class DiffGroupNorm(Norm):
    r"""DiffGroupNorm: a BatchNorm for each of K learned clusters of nodes (Zhou et al., 2020).

    .. math:: s = \mathrm{softmax}(W x), \qquad y = x + \lambda \sum_k \mathrm{BatchNorm}_k(s_k x)

    Their sum is computed from products of matrices, without the K·C columns that the formula speaks of.
    """

    uses_graphs = False

    def __init__(
        self,
        in_channels: int,
        groups: int = GROUPS,
        lamda: float = 0.01,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | None = None,
        *,
        act: str | None = None,
    ) -> None:
        super().__init__(in_channels, eps, affine=False, act=act)
        self.groups, self.lamda = groups, lamda
        self.lin = nn.Linear(in_channels, groups, bias=False, device=device)
        self.norm = nn.BatchNorm1d(groups * in_channels, eps, momentum, affine, track_running_stats, device=device)

    def reset_parameters(self) -> None:
        """Draw new clusters, and reset the running averages."""
        self.lin.reset_parameters()
        self.norm.reset_parameters()

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        wide = x.to(self.lin.weight.dtype)
        shares = self.lin(wide).softmax(dim=-1).to(wide.dtype)
        with torch.autocast("cpu" if x.is_meta else x.device.type, enabled=False):
            normed = self._sum_of_batch_norms(wide, shares, segments)
        return self._finish(torch.add(wide, normed, alpha=self.lamda).to(x.dtype), residual)

    def _sum_of_batch_norms(self, x: Tensor, s: Tensor, segments: Segments | None) -> Tensor:
        r"""Without the K·C columns :math:`z = s_k x_c`, of which only mean, variance and sum matter.

        For any m and p, with :math:`x' = x - m` and :math:`s' = s - p`, it is
        :math:`z - \mu = s' x' + p x' + m s' + (p m - \mu)`, so products of two matrices give the moments. In training m
        and p are the means. In evaluation m is :math:`\sum_k \mu_{kc}`, the running mean of x, and p = 0.
        """
        norm, groups = self.norm, self.groups
        weight, bias, mean, var = (
            None if t is None else t.to(x.dtype).reshape(groups, -1)
            for t in (norm.weight, norm.bias, norm.running_mean, norm.running_var)
        )
        if mean is not None and var is not None and not self.training:
            m = mean.sum(0)
            x, rest, shares = x - m, -mean, s
        else:
            rows: Tensor | int = max(x.shape[0], 1)
            inside = None
            if segments is not None and segments.may_pad:
                inside = zero_padding(torch.ones_like(x[:, :1]), segments)
                x, s, rows = x * inside, s * inside, inside.sum().clamp(min=1)
            m, p = x.sum(0) / rows, s.sum(0) / rows
            x, shares = x - m, s
            s = s - p
            if inside is not None:
                x, s = x * inside, s * inside
            xx, ss, p = x.square(), s.square(), p[:, None]
            q, pm = s.mT @ x / rows, p * m
            var = ss.mT @ xx + p.square() * xx.sum(0) + m.square() * ss.sum(0)[:, None]
            var = (var + 2 * (p * (s.mT @ xx) + m * (ss.mT @ x))) / rows + (2 * pm - q) * q
            var, rest = var.clamp(min=0), -q
            if mean is not None:
                update_averages(norm, (q + pm).detach().flatten(), var.detach().flatten(), x.shape[0], segments)
        slope = (var + norm.eps).rsqrt()
        slope = slope if weight is None else slope * weight
        shift = (slope * rest if bias is None else slope * rest + bias).sum(0)
        y = torch.addcmul(torch.addmm(shift, s, m * slope), x, shares @ slope)
        return zero_padding(y, segments)

    @staticmethod
    def group_distance_ratio(x: Tensor, y: Tensor, eps: float = 1e-5) -> float:
        """How much farther apart rows of different classes are than rows of one class, on average.

        Args:
            x: features, shape (N, C).
            y: classes, shape (N,), at least two of them.
            eps: added to the distance within classes.
        """
        classes = [y == label for label in range(int(y.max()) + 1)]
        between = sum(float(torch.cdist(x[own], x[~own]).mean()) for own in classes) / (len(classes) - 1) ** 2
        within = sum(float(torch.cdist(x[own], x[own]).mean()) for own in classes) / len(classes)
        return between / (within + eps)
