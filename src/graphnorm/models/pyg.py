"""Models of PyTorch Geometric by name: ``pyg:GCN``, ``pyg:GIN``, ``pyg:GAT``, ``pyg:PNA``, ``pyg:GraphSAGE``.

Each is the class of that name in ``torch_geometric.nn.models`` with its default options, followed by the sum or mean
over the nodes and a linear head. The normalization comes before the activation of every convolution but the last.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import GraphnormError, need
from graphnorm.models.graph import check_readout
from graphnorm.models.own import OwnModel, norm_of_nodes
from graphnorm.settings import Hyperparameters

__all__ = ["build_pyg"]


class _PygModel(nn.Module):
    """Convolutions, readout and head.

    GCN and GAT get their self-loops here: where they add them themselves, ``torch.func.vmap`` cannot take them.
    """

    def __init__(self, kind: str, convolutions: nn.Module, hidden: int, num_outputs: int, readout: str) -> None:
        super().__init__()
        check_readout(readout)
        self.kind, self.readout = kind, readout
        self.convolutions = convolutions
        self.head = nn.Linear(hidden, num_outputs)

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int, edge_attr: Tensor | None = None
    ) -> Tensor:
        utils = _pyg("utils")
        more: dict[str, Any] = {}
        if self.kind in ("GCN", "GAT"):
            target, nodes = edge_index[1], torch.arange(len(x), device=x.device)
            edge_index = torch.cat([edge_index, nodes.expand(2, -1)], dim=1)
            if self.kind == "GCN":
                more["edge_weight"] = (edge_index[0] >= 0).to(x.dtype)  # ones, for each member its own
            elif edge_attr is not None:
                loops = utils.scatter(edge_attr, target, 0, len(x), "mean")  # as GATConv fills them
                edge_attr = torch.cat([edge_attr, loops])
        if edge_attr is not None:
            more["edge_attr"] = edge_attr
        h = self.convolutions(x, edge_index, batch=batch, batch_size=batch_size, **more)
        scores: Tensor = self.head(utils.scatter(h, batch, 0, batch_size, self.readout))
        return scores


def build_pyg(name: str, settings: Hyperparameters, norm: str, graphs: PackedGraphs, outputs: int) -> OwnModel:
    """Build the model ``name`` of :data:`~graphnorm.models.registry.PYG`."""
    if settings.layers < 3:
        raise GraphnormError(
            f"layers is {settings.layers}; pyg:{name} normalizes after every convolution but the last",
            remedy="give 3 or more: two convolutions and the linear head",
        )
    options: dict[str, Any] = {}
    if name in ("GCN", "GAT"):
        options["add_self_loops"] = False
    if name in ("GAT", "PNA") and graphs.num_edge_features:
        options["edge_dim"] = graphs.num_edge_features
    if name == "PNA":
        options["aggregators"] = ["mean", "min", "max", "std"]
        options["scalers"] = ["identity", "amplification", "attenuation"]
        options["deg"] = torch.bincount(graphs.degree).cpu()
    convolutions = getattr(_pyg("nn.models"), name)(
        graphs.num_features,
        settings.hidden,
        settings.layers - 1,
        dropout=settings.dropout,
        norm=norm_of_nodes(norm, settings.hidden),
        **options,
    )
    model = _PygModel(name, convolutions, settings.hidden, outputs, settings.readout)
    return OwnModel(model, f"pyg:{name}", outputs, sees_edges=name in ("GAT", "PNA"))


def _pyg(part: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch_geometric's own, at import
        return need(f"torch_geometric.{part}", "a model of PyTorch Geometric", "pyg")
