"""The models of the paper, written for one batch of graphs."""

from graphnorm.models.classifier import GraphClassifier
from graphnorm.models.dropout import Dropout, DropoutKey
from graphnorm.models.gcn import GCN, GCNConvolution
from graphnorm.models.gin import GIN, GINConvolution
from graphnorm.models.molecules import MolecularClassifier, MolecularGCN, MolecularGIN
from graphnorm.models.resnet import ResNet18

__all__ = [
    "GCN",
    "GIN",
    "Dropout",
    "DropoutKey",
    "GCNConvolution",
    "GINConvolution",
    "GraphClassifier",
    "MolecularClassifier",
    "MolecularGCN",
    "MolecularGIN",
    "ResNet18",
]
