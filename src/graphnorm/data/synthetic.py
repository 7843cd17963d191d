"""Families of graphs made for the paper's propositions; the same seed gives the same graphs.

Each family has two balanced classes and graphs in random order. The only node features are the degree or a constant.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from graphnorm.data.build import RawGraphs, join_edges, pack
from graphnorm.data.catalog import FeatureRule
from graphnorm.data.packed import PackedGraphs
from graphnorm.data.targets import Targets
from graphnorm.errors import DataError

__all__ = ["FAMILIES", "cliques", "regular", "trees"]

Edges = npt.NDArray[np.int64]


def regular(num_graphs: int = 400, seed: int = 0, degrees: tuple[int, int] = (4, 6)) -> PackedGraphs:
    """Regular graphs of 15 to 40 nodes. The degree is the feature, and the class.

    On an r-regular graph with degree features every node has the same value, so a shift by the full mean leaves zero
    (Proposition 1): InstanceNorm cannot separate the classes, GraphNorm can. Graphs are circulants: node i is joined to
    i ± s for degree/2 random steps s, and the nodes are shuffled.

    >>> graphs = regular(20)
    >>> sorted(set(graphs.degree.tolist())), graphs.num_features
    ([4, 6], 2)
    """
    if any(degree % 2 or not 0 < degree <= 14 for degree in degrees) or degrees[0] == degrees[1]:
        problem = f"the degrees {degrees} do not make two classes"
        raise DataError(problem, remedy="give two different even degrees up to 14")

    def make(kind: int, random: np.random.Generator) -> tuple[int, Edges]:
        size = int(random.integers(15, 41))
        steps = random.choice((size - 1) // 2, degrees[kind] // 2, replace=False) + 1
        node = np.arange(size)
        pairs = np.stack((np.tile(node, len(steps)), np.concatenate([(node + step) % size for step in steps])), 1)
        return size, random.permutation(size)[pairs]

    names = tuple(f"degree {degree}" for degree in degrees)
    return _family("regular", make, names, num_graphs, seed, "degree")


def cliques(num_graphs: int = 400, seed: int = 0) -> PackedGraphs:
    """Ego networks: a hub that belongs to every clique, as an actor belongs to films. The degree is the feature.

    One class has few large cliques (2 or 3 of 7 to 10 other nodes), the other many small ones (5 to 8 of 3 to 4). A
    single clique is a complete graph, and there Q_GIN N = ξN (Proposition 2). These graphs are almost as regular.

    >>> cliques(20).classes
    ('few large', 'many small')
    """
    shapes = (((2, 4), (7, 11)), ((5, 9), (3, 5)))

    def make(kind: int, random: np.random.Generator) -> tuple[int, Edges]:
        number, others = shapes[kind]
        sizes = random.integers(*others, size=int(random.integers(*number)))
        clique = np.repeat(np.arange(len(sizes)), sizes)
        i, j = np.triu_indices(len(clique), k=1)
        inside = clique[i] == clique[j]
        hub = np.stack((np.zeros(len(clique), np.int64), np.arange(1, len(clique) + 1)), 1)
        return len(clique) + 1, np.concatenate((hub, np.stack((i[inside], j[inside]), 1) + 1))

    return _family("cliques", make, ("few large", "many small"), num_graphs, seed, "degree")


def trees(num_graphs: int = 400, seed: int = 0) -> PackedGraphs:
    """Trees of 20 to 80 nodes, irregular like discussion threads. The feature is a constant.

    A tree grows node by node. In one class a new node picks its parent uniformly, in the other with a probability
    proportional to the square of the degree, so that hubs form.

    >>> trees(20).classes
    ('even', 'hubs')
    """

    def make(kind: int, random: np.random.Generator) -> tuple[int, Edges]:
        size = int(random.integers(20, 81))
        parent, degree = np.zeros(size, np.int64), np.zeros(size)
        degree[:2] = 1
        for node in range(2, size):
            chance = degree[:node] ** (2 * kind)
            parent[node] = random.choice(node, p=chance / chance.sum())
            degree[[node, parent[node]]] += 1
        return size, np.stack((parent[1:], np.arange(1, size)), 1)

    return _family("trees", make, ("even", "hubs"), num_graphs, seed, "constant")


FAMILIES: dict[str, Callable[..., PackedGraphs]] = {"regular": regular, "cliques": cliques, "trees": trees}


def _family(
    name: str,
    make: Callable[[int, np.random.Generator], tuple[int, Edges]],
    classes: tuple[str, ...],
    num_graphs: int,
    seed: int,
    features: FeatureRule,
) -> PackedGraphs:
    if num_graphs < 2:
        raise DataError(f"{num_graphs} graphs do not make two classes", remedy="ask for at least two graphs")
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(num_graphs, dtype=np.int64) % 2)
    graphs = [make(int(label), random) for label in labels]
    sizes = np.array([size for size, _ in graphs])
    pairs = join_edges([edges for _, edges in graphs], sizes)
    raw = RawGraphs(
        name=f"synthetic:{name}",
        sizes=sizes,
        row=np.concatenate((pairs[:, 0], pairs[:, 1])),
        col=np.concatenate((pairs[:, 1], pairs[:, 0])),
        targets=Targets("classes", labels, classes),
        source=f"made here, seed {seed}",
    )
    return pack(raw, features=features)
