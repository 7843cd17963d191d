"""A model as a user would write it, with PyTorch Geometric. Tests pass it by its class, and by its file."""

import warnings

import torch
from torch import nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch_geometric's own, at import
    from torch_geometric.nn import MessagePassing, global_add_pool


class Convolution(MessagePassing):
    def __init__(self, width, hidden, norm, edge_features):
        super().__init__(aggr="add")
        self.eps = nn.Parameter(torch.zeros(()))
        self.mlp = nn.Sequential(nn.Linear(width, hidden), norm(hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.bonds = nn.Linear(edge_features, width) if edge_features else None
        self.norm = norm(hidden)

    def forward(self, x, edge_index, batch, edge_attr):
        bonds = None if self.bonds is None else self.bonds(edge_attr)
        received = self.propagate(edge_index, x=x, bonds=bonds)
        return self.norm(self.mlp((1 + self.eps) * x + received), batch).relu()

    def message(self, x_j, bonds):
        return x_j if bonds is None else (x_j + bonds).relu()


class OwnGIN(nn.Module):
    def __init__(self, in_features, num_outputs, norm, hidden=16, dropout=0.25, edge_features=0):
        super().__init__()
        widths = [in_features, hidden, hidden]
        self.convolutions = nn.ModuleList(Convolution(width, hidden, norm, edge_features) for width in widths)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, num_outputs)

    def forward(self, x, edge_index, batch, batch_size, edge_attr=None):
        for convolution in self.convolutions:
            x = self.dropout(convolution(x, edge_index, batch, edge_attr))
        return self.head(global_add_pool(x, batch, batch_size))
