"""The GCN and GIN of the Open Graph Benchmark for molecules, with and without a virtual node.

They differ from :mod:`graphnorm.models.molecules` in three ways: messages are ReLU(h_u + bond_e), BatchNorm is always
used, also after the perceptron, and there is no residual.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphnorm.adjacency import Adjacency
from graphnorm.layers import BatchNorm
from graphnorm.models.graph import Dropout, DropoutKey, Linear
from graphnorm.models.molecules import Encoder, MolecularModel
from graphnorm.ops.neighbour_sum import aggregate, pool
from graphnorm.segments import Segments

__all__ = ["OGBGCN", "OGBGIN", "OGBClassifier"]


class OGBConvolution(nn.Module):
    """Base of both convolutions: the sum of ReLU(h_u + bond_e) over the neighbours."""

    def __init__(self, hidden: int, bonds: tuple[int, ...]) -> None:
        super().__init__()
        self.bonds = Encoder(bonds, hidden) if bonds else None

    def receive(self, h: Tensor, adjacency: Adjacency, kinds: Tensor | None, scale: Tensor | None = None) -> Tensor:
        """(N, hidden). kinds: (E, values), the one-hot bonds; scale: as in ``aggregate``."""
        if self.bonds is None or kinds is None:
            return aggregate(h.relu(), adjacency, scale=scale)
        return aggregate(h, adjacency, edge_x=self.bonds(kinds), relu=True, scale=scale)


class OGBGINConvolution(OGBConvolution):
    """A perceptron with BatchNorm inside on (1+ξ)h + Σ ReLU(h_u + bond_e)."""

    def __init__(self, hidden: int, bonds: tuple[int, ...]) -> None:
        super().__init__(hidden, bonds)
        self.xi = nn.Parameter(torch.zeros(()))
        self.first, self.norm = Linear(hidden, 2 * hidden), BatchNorm(2 * hidden, act="relu")
        self.second = Linear(2 * hidden, hidden)

    def forward(self, h: Tensor, adjacency: Adjacency, segments: Segments, kinds: Tensor | None) -> Tensor:
        z = (self.xi + 1) * h + self.receive(h, adjacency, kinds)
        out: Tensor = self.second(self.norm(self.first(z), segments))
        return out


class OGBGCNConvolution(OGBConvolution):
    r"""With z = W h and d one more than the degree,

    .. math:: h'_v = \sum_u \frac{\mathrm{ReLU}(z_u + b_e)}{\sqrt{d_u d_v}} + \frac{\mathrm{ReLU}(z_v + r)}{d_v}

    where r is learned and stands for the bond of an atom with itself.
    """

    def __init__(self, hidden: int, bonds: tuple[int, ...]) -> None:
        super().__init__(hidden, bonds)
        self.linear = Linear(hidden, hidden)
        self.root = nn.Parameter(torch.empty(hidden).normal_())

    def forward(self, h: Tensor, adjacency: Adjacency, segments: Segments, kinds: Tensor | None) -> Tensor:
        z: Tensor = self.linear(h)
        degree = (adjacency.rowptr.diff() + 1).to(z.dtype)
        return self.receive(z, adjacency, kinds, degree.rsqrt()) + (z + self.root).relu() / degree[:, None]


class VirtualNode(nn.Module):
    """A node joined to every atom of a molecule. A perceptron with BatchNorm updates it from the sum over the atoms."""

    def __init__(self, hidden: int, dropout: float) -> None:
        super().__init__()
        self.first, self.first_norm = Linear(hidden, 2 * hidden), BatchNorm(2 * hidden, act="relu")
        self.second, self.second_norm = Linear(2 * hidden, hidden), BatchNorm(hidden, act="relu")
        self.dropout = Dropout(dropout)

    def forward(self, state: Tensor, h: Tensor, segments: Segments, key: DropoutKey | None) -> Tensor:
        """The next state, (G, hidden), from the state, (G, hidden), and the atoms, (N, hidden)."""
        molecules = (segments.sizes > 0).sum()  # a batch may have empty places, which come last
        there = Segments.trusted(torch.stack([molecules * 0, molecules]), None, state.shape[0], state.shape[0])
        z = self.first_norm(self.first(state + pool(h, segments)), there)
        out: Tensor = self.dropout(self.second_norm(self.second(z), there), key)
        return out


class OGBClassifier(MolecularModel):
    """Convolutions, each followed by BatchNorm, ReLU (except the last) and dropout.

    Args:
        layers: the head counts, so 6 layers are OGB's five convolutions.
        virtual: whether to add a virtual node.
    """

    convolution: type[OGBGINConvolution | OGBGCNConvolution]

    def __init__(
        self,
        atoms: tuple[int, ...],
        bonds: tuple[int, ...],
        num_outputs: int,
        *,
        hidden: int = 300,
        layers: int = 6,
        readout: str = "mean",
        dropout: float = 0.5,
        virtual: bool = False,
    ) -> None:
        super().__init__(atoms, bonds, hidden=hidden, layers=layers, readout=readout)
        convolutions = layers - 1
        self.convolutions = nn.ModuleList(
            self.convolution(hidden, self.bond_cardinalities) for _ in range(convolutions)
        )
        self.norms = nn.ModuleList(
            BatchNorm(hidden, act=None if index == convolutions - 1 else "relu") for index in range(convolutions)
        )
        self.dropouts = nn.ModuleList(Dropout(dropout) for _ in range(convolutions))
        # The virtual node is not updated after the last convolution, since nothing reads it there.
        self.virtual = nn.ModuleList(VirtualNode(hidden, dropout) for _ in range(convolutions - 1)) if virtual else None
        self.start = nn.Parameter(torch.zeros(hidden)) if virtual else None
        self.add_head(hidden, num_outputs)

    def convolve(
        self, h: Tensor, adjacency: Adjacency, segments: Segments, kinds: Tensor | None, key: DropoutKey | None
    ) -> Tensor:
        state = None if self.start is None else self.start.expand(segments.num_graphs, -1)
        place = None if state is None else segments.bounded_ids(h.shape[0])
        for index, (convolution, norm, dropout) in enumerate(
            zip(self.convolutions, self.norms, self.dropouts, strict=True)
        ):
            h = h if state is None or place is None else h + _spread(state, place, segments)
            following = dropout(norm(convolution(h, adjacency, segments, kinds), segments), key)
            if state is not None and self.virtual is not None and index < len(self.virtual):
                state = self.virtual[index](state, h, segments, key)
            h = following
        return h


class OGBGIN(OGBClassifier):
    """OGB's GIN."""

    convolution = OGBGINConvolution


class OGBGCN(OGBClassifier):
    """OGB's GCN."""

    convolution = OGBGCNConvolution


def _spread(state: Tensor, place: Tensor, segments: Segments) -> Tensor:
    """(G, C) to (N, C): the row of each atom's molecule; 0 for rows of no molecule."""
    arguments = (state, place, segments.ptr, segments.order, segments.max_size)
    spread: Tensor = _Spread.apply(*arguments)  # type: ignore[no-untyped-call]
    return spread


class _Spread(torch.autograd.Function):
    """Gathers rows of (G, C) by place. The gradient is summed molecule by molecule, without sorting the places."""

    generate_vmap_rule = True

    @staticmethod
    def forward(state: Tensor, place: Tensor, ptr: Tensor, order: Tensor | None, max_size: int | None) -> Tensor:
        """place: (N,), G for rows of no molecule."""
        return nn.functional.pad(state, (0, 0, 0, 1))[place]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, place, ptr, order, ctx.max_size = inputs
        ctx.save_for_backward(place, ptr, order)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Sum over the atoms of each molecule."""
        place, ptr, order = ctx.saved_tensors
        molecules = Segments.trusted(ptr, order, place.shape[0], ctx.max_size, True)
        return pool(gradient, molecules), None, None, None, None
