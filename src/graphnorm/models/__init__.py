"""The models of the paper and those it compares with, each written for one batch of graphs, and a table of them."""

from graphnorm.models.graph import GCN, GIN, Dropout, DropoutKey, GCNConvolution, GINConvolution, GraphClassifier
from graphnorm.models.molecules import MolecularClassifier, MolecularGCN, MolecularGIN
from graphnorm.models.registry import BASELINES, MODELS, NORMALIZED, ModelSpec, find_model, name_model
from graphnorm.models.resnet import ResNet18

__all__ = [
    "BASELINES",
    "GCN",
    "GIN",
    "MODELS",
    "NORMALIZED",
    "Dropout",
    "DropoutKey",
    "GCNConvolution",
    "GINConvolution",
    "GraphClassifier",
    "ModelSpec",
    "MolecularClassifier",
    "MolecularGCN",
    "MolecularGIN",
    "ResNet18",
    "find_model",
    "name_model",
]
