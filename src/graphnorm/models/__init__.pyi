from graphnorm.models.graph import (
    GCN as GCN,
    GIN as GIN,
    Dropout as Dropout,
    DropoutKey as DropoutKey,
    GCNConvolution as GCNConvolution,
    GINConvolution as GINConvolution,
    GraphClassifier as GraphClassifier,
)
from graphnorm.models.molecules import (
    MolecularClassifier as MolecularClassifier,
    MolecularGCN as MolecularGCN,
    MolecularGIN as MolecularGIN,
)
from graphnorm.models.registry import (
    BASELINES as BASELINES,
    MODELS as MODELS,
    NORMALIZED as NORMALIZED,
    ModelSpec as ModelSpec,
    find_model as find_model,
    name_model as name_model,
)
from graphnorm.models.resnet import ResNet18 as ResNet18
