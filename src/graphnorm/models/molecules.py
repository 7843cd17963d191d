"""GIN and GCN for ogbg-molhiv, with atom and bond encoders, and convolutions that see the bonds.

OGB describes an atom by nine categories and a bond by three. An encoder sums one learned vector for each category: the
product of the concatenated one-hot categories with one matrix. A message is h_u + bond_e, and its sum over the
neighbours of a node is

    Σ_u h_u + Σ_e onehot(e)·B = Σ_u h_u + counts·B,

where ``counts``, the number of bonds of each kind at each atom, does not depend on parameters. So bonds cost one thin
matrix product per layer, and there is never an array of (edges, hidden).
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from graphnorm.adjacency import Adjacency
from graphnorm.errors import listing
from graphnorm.models.graph import (
    Dropout,
    DropoutKey,
    Linear,
    check_layers,
    check_readout,
    graph_structure,
    make_paper_norm,
    number_dropouts,
)
from graphnorm.ops.neighbour_sum import aggregate, pool
from graphnorm.segments import Segments

__all__ = ["DROPOUT_ON", "MolecularClassifier", "MolecularGCN", "MolecularGIN", "MolecularModel"]

DROPOUT_ON = ("convolutions", "scores", "inner and scores")


class Encoder(Linear):
    """Sums one learned vector for each category. The input is the concatenated one-hot categories.

    It is initialised like OGB's encoders, by Glorot's uniform rule for each category.
    """

    def __init__(self, cardinalities: tuple[int, ...], hidden: int) -> None:
        self.cardinalities = cardinalities
        super().__init__(sum(cardinalities), hidden, bias=False)

    def reset_parameters(self) -> None:
        """Draw the vectors of each category."""
        with torch.no_grad():
            for table in torch.split_with_sizes(self.weight, list(self.cardinalities), dim=1):
                bound = (6.0 / sum(table.shape)) ** 0.5
                table.uniform_(-bound, bound)


class MolecularConvolution(nn.Module):
    """Sums or averages messages h_u + bond_e, adds the node's own (1+ξ)h, and applies a perceptron.

    ``reduce="sum"`` with ``depth=2`` is GIN (hidden → 2·hidden → hidden). ``reduce="mean"`` with ``depth=1`` is the
    authors' GCN for molecules. Each linear layer is followed by the normalization and, unless it is the very ``last``
    of the model, by ReLU. ξ starts at 0, and stays there unless ``learn_xi``.
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
        last_norm: str,
        as_authors: bool,
    ) -> None:
        super().__init__()
        self.reduce = reduce
        self.xi = nn.Parameter(torch.zeros(())) if learn_xi else None
        self.bonds = Encoder(bonds, hidden) if bonds else None
        widths = [hidden, *[2 * hidden] * (depth - 1), hidden]
        self.linears = nn.ModuleList(Linear(a, b) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(
            make_paper_norm(last_norm, width, as_authors)
            if last and k == depth - 1
            else make_paper_norm(norm, width, as_authors, act="relu")
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
    """Base of the models of molecules: an atom encoder, convolutions, the sum or mean over the atoms, a linear head.

    A subclass calls ``__init__``, adds its convolutions, then calls ``add_head``. It also writes ``convolve``.

    Args:
        atoms: the number of values of each category of an atom.
        bonds: the same for bonds; empty if there are none.
        layers: the head counts, so 6 layers are five convolutions.
    """

    def __init__(
        self, atoms: tuple[int, ...], bonds: tuple[int, ...], *, hidden: int, layers: int, readout: str
    ) -> None:
        super().__init__()
        check_readout(readout)
        check_layers(layers)
        self.atom_cardinalities, self.bond_cardinalities, self.readout = tuple(atoms), tuple(bonds), readout
        self.atoms = Encoder(self.atom_cardinalities, hidden)

    def add_head(self, hidden: int, num_outputs: int, dropout: Dropout | None = None) -> None:
        """Add the linear head, with dropout of its scores, and number all dropouts."""
        self.head = Linear(hidden, num_outputs)
        self.dropout = dropout
        number_dropouts(self)

    def convolve(
        self, h: Tensor, adjacency: Adjacency, segments: Segments, kinds: Tensor | None, key: DropoutKey | None
    ) -> Tensor:
        """Apply all convolutions: (N, hidden) to (N, hidden). kinds: (E, Σ cardinalities), the one-hot bonds."""
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

        x: (N, K) categories as in OGB and PyTorch Geometric, or the same one-hot, (N, Σ cardinalities).
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
        return scores if self.dropout is None else self.dropout(scores, dropout_key)


class MolecularClassifier(MolecularModel):
    """Convolutions, each with a residual.

    Args:
        num_outputs: scores of each molecule.
        dropout: the share dropped in training.
        dropout_on: ``"convolutions"`` drops outputs of every convolution, as in OGB's models. ``"scores"`` drops scores
            only, as in the authors' code. ``"inner and scores"`` drops scores and outputs of every convolution but the
            last, as in their entry to OGB's leaderboard.
        learn_xi: whether ξ in (1+ξ)h is learned, as in the paper's equation, or stays 0, as in the authors' code.
        last_norm: the last normalization of all, if it differs from the others.
        as_authors: ξ stays 0, and ε is that of the authors' code.
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
        last_norm: str | None = None,
        as_authors: bool = False,
    ) -> None:
        super().__init__(atoms, bonds, hidden=hidden, layers=layers, readout=readout)
        if dropout_on not in DROPOUT_ON:
            raise ValueError(f"dropout_on is {dropout_on!r}; it can be {listing(list(map(repr, DROPOUT_ON)), 'or')}")
        dropped = {"convolutions": layers - 1, "scores": 0, "inner and scores": layers - 2}[dropout_on]
        self.convolutions = nn.ModuleList(
            MolecularConvolution(
                hidden,
                self.bond_cardinalities,
                norm,
                reduce=self.reduce,
                depth=self.depth,
                last=index == layers - 2,
                dropout=dropout if index < dropped else None,
                learn_xi=learn_xi and not as_authors,
                last_norm=last_norm or norm,
                as_authors=as_authors,
            )
            for index in range(layers - 1)
        )
        self.add_head(hidden, num_outputs, None if dropout_on == "convolutions" else Dropout(dropout))

    def convolve(
        self, h: Tensor, adjacency: Adjacency, segments: Segments, kinds: Tensor | None, key: DropoutKey | None
    ) -> Tensor:
        """Apply all convolutions. The bonds of each kind at each atom are counted once for all of them."""
        bonds = None
        if kinds is not None:
            kinds = kinds if adjacency.edge_ids is None else kinds[adjacency.edge_ids]
            bonds = pool(kinds, Segments(ptr=adjacency.rowptr, num_rows=kinds.shape[0]), self.reduce)
        for convolution in self.convolutions:
            h = convolution(h, adjacency, segments, bonds, key)
        return h


def one_hot(categories: Tensor, cardinalities: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """(N, K) integers to (N, Σ cardinalities); floats are one-hot already and are returned as they are."""
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
    """The authors' GCN for molecules: neighbour mean, (1+ξ)h, one linear layer."""

    reduce, depth = "mean", 1
