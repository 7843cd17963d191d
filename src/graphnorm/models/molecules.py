"""The molecular pair for ogbg-molhiv: atom and bond encoders, and convolutions that see the bonds.

OGB describes an atom by nine categories and a bond by three; an encoder sums one learned vector for each. Written
out, that sum is a product of the one-hot categories, side by side, with one matrix. A message is h_u + bond_e, and
its sum over the neighbours of a node is

    Σ_u h_u + Σ_e onehot(e)·B = Σ_u h_u + counts·B,

where counts, the number of bonds of each kind at each atom, does not depend on any parameter. So bonds cost one thin
matrix product a layer, and no array of the size of the edges times the width is ever made.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphnorm.adjacency import Adjacency
from graphnorm.layers import make_norm
from graphnorm.models.graph import READOUTS, Dropout, DropoutKey, Linear, graph_structure, number_dropouts
from graphnorm.ops.neighbour_sum import aggregate, pool
from graphnorm.segments import Segments

__all__ = ["DROPOUT_ON", "MolecularClassifier", "MolecularGCN", "MolecularGIN", "MolecularModel"]

DROPOUT_ON = ("convolutions", "scores")
"""Where dropout can act in :class:`MolecularClassifier`."""


class Encoder(Linear):
    """One learned vector for every value of every category, summed; takes the categories one-hot, side by side.

    Initialised as OGB's encoders are: Glorot's uniform rule on each category's own table.
    """

    def __init__(self, cardinalities: tuple[int, ...], hidden: int) -> None:
        self.cardinalities = cardinalities
        super().__init__(sum(cardinalities), hidden, bias=False)

    def reset_parameters(self) -> None:
        """Draw every category's table anew."""
        with torch.no_grad():
            for table in torch.split_with_sizes(self.weight, list(self.cardinalities), dim=1):
                bound = (6.0 / sum(table.shape)) ** 0.5
                table.uniform_(-bound, bound)


class MolecularConvolution(nn.Module):
    """Messages h_u + bond_e, summed or averaged, the node's own (1+ξ)h, and a multi-layer perceptron.

    ``reduce="sum"`` with ``depth=2`` is GIN (hidden → 2·hidden → hidden); ``reduce="mean"`` with ``depth=1`` is what
    the authors train as GCN there. The last linear is followed by the normalization; ReLU unless ``last``.
    ξ starts at 0, and stays there unless ``learn_xi``.
    """

    def __init__(
        self,
        hidden: int,
        bonds: tuple[int, ...],
        norm: str,
        *,
        reduce: str,
        depth: int,
        last: bool,
        dropout: float | None,
        learn_xi: bool,
    ) -> None:
        super().__init__()
        self.reduce = reduce
        self.xi = nn.Parameter(torch.zeros(())) if learn_xi else None
        self.bonds = Encoder(bonds, hidden) if bonds else None
        widths = [hidden, *[2 * hidden] * (depth - 1), hidden]
        self.linears = nn.ModuleList(Linear(a, b) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(
            make_norm(norm, width, act=None if last and k == depth - 1 else "relu")
            for k, width in enumerate(widths[1:])
        )
        self.dropout = None if dropout is None else Dropout(dropout)

    def forward(
        self, h: Tensor, adjacency: Adjacency, segments: Segments, bonds: Tensor | None, key: DropoutKey | None
    ) -> Tensor:
        """(N, hidden) to (N, hidden); bonds: (N, kinds), the bonds of each kind at each atom, reduced like h."""
        z = aggregate(h, adjacency, self_weight=1.0 if self.xi is None else self.xi + 1, reduce=self.reduce)
        if self.bonds is not None and bonds is not None:
            z = z + self.bonds(bonds)
        *inner, last = zip(self.linears, self.norms, strict=True)
        for linear, norm in inner:
            z = norm(linear(z), segments)
        linear, norm = last
        out: Tensor
        if self.dropout is None:
            out = norm(linear(z), segments, residual=h)
        else:
            out = self.dropout(norm(linear(z), segments), key, residual=h)
        return out


class MolecularModel(nn.Module):
    """What models of molecules share: an atom encoder, convolutions, mean or sum over the atoms, a linear head.

    A subclass says what stands between the encoder and the head, in ``extend`` and ``convolve``.

    Args:
        atoms: how many values each category of an atom has.
        bonds: the same for bonds; empty where there are none.
        num_outputs: how many scores a molecule gets.
        layers: the head counts: 6 are five convolutions.
        options: what ``extend`` takes.
    """

    extend: Callable[..., None]
    """Called as ``extend(hidden, convolutions, **options)``: adds the modules between the encoder and the head."""

    def __init__(
        self,
        atoms: tuple[int, ...],
        bonds: tuple[int, ...],
        num_outputs: int,
        *,
        hidden: int,
        layers: int,
        readout: str = "mean",
        **options: Any,
    ) -> None:
        super().__init__()
        if readout not in READOUTS:
            raise ValueError(f"readout is {readout!r}; it can be 'sum' or 'mean'")
        if layers < 2:
            raise ValueError("a model needs at least two layers: a convolution and the linear head")
        self.atom_cardinalities, self.bond_cardinalities, self.readout = tuple(atoms), tuple(bonds), readout
        self.atoms = Encoder(self.atom_cardinalities, hidden)
        self.extend(hidden, layers - 1, **options)
        self.head = Linear(hidden, num_outputs)
        number_dropouts(self)

    def convolve(
        self, h: Tensor, adjacency: Adjacency, segments: Segments, kinds: Tensor | None, key: DropoutKey | None
    ) -> Tensor:
        """(N, hidden) to (N, hidden), all convolutions; kinds: (E, Σ cardinalities), the bonds one-hot."""
        raise NotImplementedError

    def forward(
        self,
        x: Tensor,
        edges: Tensor | Adjacency,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        edge_attr: Tensor | None = None,
        dropout_key: DropoutKey | None = None,
    ) -> Tensor:
        """Score every molecule of a batch.

        x: (N, K) categories as OGB and PyTorch Geometric hand them out, or the same one-hot, (N, Σ cardinalities).
        edge_attr: the same for the edges, (E, L) or (E, Σ cardinalities), in the order of ``edges``.

        Returns:
            (G, num_outputs): the scores.
        """
        adjacency, segments = graph_structure(x, edges, batch, batch_size)
        dtype = self.head.weight.dtype
        kinds = None if edge_attr is None else one_hot(edge_attr, self.bond_cardinalities, dtype)
        h = self.atoms(one_hot(x, self.atom_cardinalities, dtype))
        h = self.convolve(h, adjacency, segments, kinds, dropout_key)
        scores: Tensor = self.head(pool(h, segments, self.readout))
        return self.conclude(scores, dropout_key)

    def conclude(self, scores: Tensor, key: DropoutKey | None) -> Tensor:
        """(G, num_outputs) to the same: what happens to the scores."""
        return scores


class MolecularClassifier(MolecularModel):
    """Convolutions with a residual on each.

    Args:
        dropout: the share that is dropped in training,
        dropout_on: and of what: of the outputs of every convolution (``"convolutions"``), as in OGB's models, or of the
            ``"scores"`` alone, as in the authors' code.
        learn_xi: whether ξ in (1+ξ)h is learned, as in the paper's equation, or stays 0, as in the authors' code.
    """

    reduce = "sum"
    depth = 2

    def __init__(
        self,
        atoms: tuple[int, ...],
        bonds: tuple[int, ...],
        num_outputs: int,
        *,
        hidden: int = 300,
        layers: int = 5,
        norm: str = "graph",
        readout: str = "mean",
        dropout: float = 0.5,
        dropout_on: str = "convolutions",
        learn_xi: bool = True,
    ) -> None:
        if dropout_on not in DROPOUT_ON:
            raise ValueError(f"dropout_on is {dropout_on!r}; it can be 'convolutions' or 'scores'")
        options = {"norm": norm, "dropout": dropout, "dropout_on": dropout_on, "learn_xi": learn_xi}
        super().__init__(atoms, bonds, num_outputs, hidden=hidden, layers=layers, readout=readout, **options)

    def extend(
        self, hidden: int, convolutions: int, *, norm: str, dropout: float, dropout_on: str, learn_xi: bool
    ) -> None:
        """The convolutions, each with its normalization, and dropout."""
        self.dropout = Dropout(dropout) if dropout_on == "scores" else None
        self.convolutions = nn.ModuleList(
            MolecularConvolution(
                hidden,
                self.bond_cardinalities,
                norm,
                reduce=self.reduce,
                depth=self.depth,
                last=index == convolutions - 1,
                dropout=dropout if dropout_on == "convolutions" else None,
                learn_xi=learn_xi,
            )
            for index in range(convolutions)
        )

    def convolve(
        self, h: Tensor, adjacency: Adjacency, segments: Segments, kinds: Tensor | None, key: DropoutKey | None
    ) -> Tensor:
        """(N, hidden) to (N, hidden); the bonds of each kind at each atom are counted once for all convolutions."""
        bonds = None if kinds is None else self._bond_counts(kinds, adjacency)
        for convolution in self.convolutions:
            h = convolution(h, adjacency, segments, bonds, key)
        return h

    def conclude(self, scores: Tensor, key: DropoutKey | None) -> Tensor:
        """The scores, some of them dropped where dropout acts on them."""
        concluded: Tensor = scores if self.dropout is None else self.dropout(scores, key)
        return concluded

    def _bond_counts(self, kinds: Tensor, adjacency: Adjacency) -> Tensor:
        kinds = kinds if adjacency.edge_ids is None else kinds[adjacency.edge_ids]
        return pool(kinds, Segments(ptr=adjacency.rowptr, num_rows=kinds.shape[0]), self.reduce)


def one_hot(categories: Tensor, cardinalities: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """(N, K) integers to (N, Σ cardinalities); what is one-hot already passes."""
    if categories.is_floating_point():
        return categories
    columns = [
        (column[..., None] == torch.arange(cardinality, device=column.device)).to(dtype)
        for column, cardinality in zip(categories.unbind(-1), cardinalities, strict=True)
    ]
    return torch.cat(columns, dim=-1)


class MolecularGIN(MolecularClassifier):
    """GIN for molecules: neighbour sum, and a perceptron of two layers, hidden → 2·hidden → hidden."""


class MolecularGCN(MolecularClassifier):
    """What the authors train as GCN on molecules: neighbour mean, (1+ξ)h, one linear layer."""

    reduce, depth = "mean", 1
