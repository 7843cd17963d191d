"""Regularity: kinds of graphs by networkx, and what the shift keeps by dense matrices."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from graphnorm.analysis import Aggregation, Regularity, classify_from_mean, dense_q, regularity, typical_graphs
from graphnorm.data import PackedGraphs, from_networkx, load, synthetic, to_networkx


def is_clique_union(graph: nx.Graph) -> bool:
    parts = (graph.subgraph(nodes) for nodes in nx.connected_components(graph))
    return all(part.number_of_edges() == len(part) * (len(part) - 1) // 2 for part in parts)


def without_hubs(graph: nx.Graph) -> nx.Graph:
    rest = graph.copy()
    rest.remove_nodes_from([node for node, degree in graph.degree() if degree == len(graph) - 1])
    return rest


@pytest.mark.parametrize("family", ["corner_cases", "random", "cliques"])
def test_kinds_of_graphs(family: str, corner_cases: PackedGraphs) -> None:
    random = [nx.gnp_random_graph(4, 0.6, seed=seed) for seed in range(60)]
    graphs = {
        "corner_cases": corner_cases,
        "random": from_networkx(random, [k % 2 for k in range(60)]),
        "cliques": synthetic.cliques(10),
    }[family]
    result = regularity(graphs)
    for k in range(graphs.num_graphs):
        graph = to_networkx(graphs, k)
        degrees = np.array([degree for _, degree in graph.degree()])
        assert result.degree_variance[k] == pytest.approx(degrees.var())
        assert result.mean_degree[k] == pytest.approx(degrees.mean())
        assert result.regular[k] == (len(set(degrees)) == 1)
        assert result.complete[k] == (degrees == len(graph) - 1).all()
        assert result.clique_union[k] == is_clique_union(graph)
        assert result.hub_cliques[k] == is_clique_union(without_hubs(graph))
    assert result.hub_cliques.any()


@pytest.mark.parametrize("aggregation", [Aggregation(), Aggregation(xi=0.3, self_loop=True), Aggregation("gcn")])
def test_what_the_shift_keeps(aggregation: Aggregation, corner_cases: PackedGraphs) -> None:
    for graphs in (corner_cases, synthetic.trees(8), synthetic.cliques(8), with_continuous_features()):
        result = regularity(graphs, None, aggregation)
        for k in range(graphs.num_graphs):
            batch = graphs.batch([k])
            n = batch.num_rows
            shift = np.eye(n) - np.full((n, n), 1 / n)
            signal = graphs.features(batch).double().numpy().T @ dense_q(batch, aggregation)
            kept = np.linalg.norm(signal @ shift) / np.linalg.norm(signal)
            assert result.signal_kept[k] == pytest.approx(kept, abs=1e-7)
            structure = dense_q(batch, Aggregation())
            kept = np.linalg.norm(structure @ shift) / np.linalg.norm(structure)
            assert result.structure_kept[k] == pytest.approx(kept, abs=1e-7)


def with_continuous_features() -> PackedGraphs:
    graphs = []
    for seed in range(4):
        graph = nx.gnp_random_graph(7, 0.4, seed=seed)
        random = np.random.default_rng(seed)
        nx.set_node_attributes(graph, {node: random.standard_normal(3).tolist() for node in graph}, "x")
        graphs.append(graph)
    packed = from_networkx(graphs, [0, 1, 0, 1], node_features="x")
    assert packed.x is not None
    return packed


def test_proposition_1() -> None:
    result = regularity(synthetic.regular(30))
    assert result.regular.all()
    assert result.signal_kept.max() < 1e-12
    assert result.structure_kept.min() > 0.5
    assert result.summary()["share_without_signal"] == 1


def test_proposition_2(corner_cases: PackedGraphs) -> None:
    result = regularity(corner_cases)
    np.testing.assert_array_equal(result.structure_kept == 0, result.complete)


def test_typical_graphs() -> None:
    graphs = synthetic.trees(40)
    result = regularity(graphs)
    ids = typical_graphs(result, 4)
    kept = result.signal_kept[ids]
    assert (np.diff(kept) >= 0).all()
    assert len(set(ids.tolist())) == 4
    assert kept[0] <= np.quantile(result.signal_kept, 0.25) + 1e-12
    assert len(typical_graphs(result, 4, max_nodes=1)) == 0
    some = regularity(graphs, [7, 30, 2])
    assert set(typical_graphs(some, 3).tolist()) == {7, 30, 2}


def test_summary_without_signal() -> None:
    ones = np.ones(1)
    nothing = Regularity(
        np.arange(1), np.arange(1, 2), ones, ones, *(np.array([False]) for _ in range(4)), ones * np.nan, ones
    )
    assert nothing.summary()["signal_kept_quantiles"] is None


def test_imdb_is_the_regular_one(archives: Path) -> None:
    """The paper calls IMDB-BINARY regular and PROTEINS irregular: it shows in cliques and lost signal."""
    imdb, proteins = (regularity(load(name, archives)).summary() for name in ("IMDB-BINARY", "PROTEINS"))
    assert imdb["share_complete"] == pytest.approx(0.139)
    assert imdb["share_hub_cliques"] > 0.6 > 0.1 > proteins["share_hub_cliques"]
    assert imdb["share_without_signal"] == pytest.approx(0.139)


def test_whether_the_mean_distinguishes_the_classes() -> None:
    regular, trees = (classify_from_mean(make(60)) for make in (synthetic.regular, synthetic.trees))
    assert regular is not None
    assert trees is not None
    assert regular.mean.min() == 1
    assert regular.spread.mean() < 0.65
    assert trees.spread.mean() > 0.9  # the degrees vary more in one class; their mean hardly differs
    assert trees.mean.mean() < 0.75
    assert regular.summary()["difference"] == pytest.approx(regular.mean.mean() - regular.spread.mean())
    assert regular.majority == 0.5


def test_too_few_graphs_to_classify() -> None:
    assert classify_from_mean(synthetic.trees(60), range(6)) is None
