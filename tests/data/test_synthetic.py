"""The synthetic families show what the paper states."""

from __future__ import annotations

import networkx as nx
import pytest
import torch

from graphnorm.data import DataError, load, synthetic, to_networkx


@pytest.mark.parametrize("name", synthetic.FAMILIES)
def test_seeded_balanced_and_by_name(name: str) -> None:
    family = synthetic.FAMILIES[name]
    assert family(30, seed=3) == family(30, seed=3)
    assert family(30, seed=3) != family(30, seed=4)
    graphs = load(f"synthetic:{name}")
    assert graphs == family()
    assert graphs.statistics().class_sizes == (200, 200)
    assert all(nx.is_connected(to_networkx(graphs, g)) for g in range(20)) or name == "regular"
    with pytest.raises(DataError, match="at least two graphs"):
        family(1)


def test_regular_graphs_are_regular_and_the_class_is_the_degree() -> None:
    graphs = synthetic.regular(60, degrees=(2, 8))
    for g in range(60):
        assert set(graphs.batch([g]).degree.tolist()) == {(2, 8)[int(graphs.labels[g])]}
    sizes = [graphs.sizes[graphs.labels == k].double().mean() for k in (0, 1)]
    assert abs(sizes[0] - sizes[1]) < 6
    for degrees in ((4, 4), (3, 4), (2, 16)):
        with pytest.raises(DataError, match="two different even degrees"):
            synthetic.regular(10, degrees=degrees)


def test_cliques_share_a_hub() -> None:
    graphs = synthetic.cliques(40)
    for g in range(40):
        graph = to_networkx(graphs, g)
        assert graph.degree(0) == len(graph) - 1
        graph.remove_node(0)
        parts = [graph.subgraph(part) for part in nx.connected_components(graph)]
        assert all(nx.density(part) == 1 for part in parts)
        assert len(parts) <= 3 if graphs.labels[g] == 0 else len(parts) >= 5


def test_trees_are_trees_with_and_without_hubs() -> None:
    graphs = synthetic.trees(60)
    assert all(nx.is_tree(to_networkx(graphs, g)) for g in range(60))
    top = torch.tensor([float(graphs.batch([g]).degree.max()) for g in range(60)])
    assert top[graphs.labels == 1].mean() > 2 * top[graphs.labels == 0].mean()
    assert graphs.num_features == 1
