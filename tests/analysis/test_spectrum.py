"""Singular values against plain LAPACK on full matrices, Theorem 1, condition numbers, extremes."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphnorm.analysis import (
    Aggregation,
    affordable,
    conditions,
    dense_q,
    extreme_singular_values,
    interlacing,
    shared_values,
    sparse_q,
    spectra,
    tolerance,
)
from graphnorm.analysis import aggregation as aggregation_module
from graphnorm.analysis import spectrum as spectrum_module
from graphnorm.data import PackedGraphs, from_networkx, load, synthetic
from graphnorm.errors import GraphnormError

AGGREGATIONS = [
    Aggregation(),
    Aggregation(xi=0.3),
    Aggregation(xi=-1.0),
    Aggregation(xi=-0.2, self_loop=True),
    Aggregation("gcn"),
]


def plain(graphs: PackedGraphs, graph_id: int, aggregation: Aggregation) -> tuple[np.ndarray, np.ndarray]:
    """λ and μ by LAPACK's singular values of the full Q and QN."""
    q = dense_q(graphs.batch([graph_id]), aggregation)
    n = len(q)
    shift = np.eye(n) - np.full((n, n), 1 / n)
    before, after = (np.sort(np.linalg.svd(matrix, compute_uv=False)) for matrix in (q, q @ shift))
    assert after[0] < 1e-12 * max(1, before[-1])  # the one that N brings
    return before, after[1:]


def assert_as_plain(graphs: PackedGraphs, aggregation: Aggregation) -> None:
    result = spectra(graphs, None, aggregation)
    for k in range(graphs.num_graphs):
        for ours, reference in zip(result.of(k), plain(graphs, k, aggregation), strict=True):
            assert ours.shape == reference.shape
            assert np.abs(ours - reference).max(initial=0) <= tolerance(result.sizes, result.largest)[k] + 1e-300


@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=lambda a: a.label)
def test_q_is_that_of_the_paper(corner_cases: PackedGraphs, aggregation: Aggregation) -> None:
    batch = corner_cases.batch(range(corner_cases.num_graphs))
    row, col = batch.row.numpy(), batch.col.numpy()
    adjacency = np.zeros((batch.num_rows, batch.num_rows))
    adjacency[row, col] = 1
    identity = np.eye(batch.num_rows)
    if aggregation.model == "gin":
        expected = adjacency + (1 + aggregation.xi + aggregation.self_loop) * identity
    else:
        root = np.diag(1 / np.sqrt((adjacency + identity).sum(1)))
        expected = root @ (adjacency + identity) @ root
    np.testing.assert_allclose(dense_q(batch, aggregation), expected, atol=1e-15)
    np.testing.assert_allclose(sparse_q(batch, aggregation).toarray(), expected, atol=1e-15)


@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=lambda a: a.label)
def test_singular_values_are_those_of_the_full_matrices(corner_cases: PackedGraphs, aggregation: Aggregation) -> None:
    assert_as_plain(corner_cases, aggregation)
    assert_as_plain(synthetic.cliques(12), aggregation)
    assert_as_plain(synthetic.trees(6), aggregation)


@given(seed=st.integers(0, 10**6), size=st.integers(1, 9), density=st.floats(0, 1), which=st.sampled_from(AGGREGATIONS))
def test_any_small_graph(seed: int, size: int, density: float, which: Aggregation) -> None:
    graphs = from_networkx([nx.gnp_random_graph(size, density, seed=seed), nx.empty_graph(1)], [0, 1])
    assert_as_plain(graphs, which)
    assert interlacing(spectra(graphs, None, which)).holds.all()


def sizes_without_twins(graphs: PackedGraphs) -> list[int]:
    """The number of classes of nodes with the same neighbours, by comparing rows of the adjacency matrix."""
    sizes = []
    for k in range(graphs.num_graphs):
        batch = graphs.batch([k])
        adjacency = np.zeros((batch.num_rows, batch.num_rows), bool)
        adjacency[batch.row.numpy(), batch.col.numpy()] = True
        closed = adjacency | np.eye(batch.num_rows, dtype=bool)
        twins = (adjacency[:, None] == adjacency).all(2) | (closed[:, None] == closed).all(2)
        sizes.append(len(np.unique(twins, axis=0)))
    return sizes


def test_twins_cost_nothing(corner_cases: PackedGraphs) -> None:
    sizes = sizes_without_twins(corner_cases)
    assert [sizes[k] for k in (3, 4, 5, 8)] == [2, 1, 2, 3]  # a star, cliques, cliques around a hub
    for k, size in enumerate(sizes):
        cost = 2 * size**3  # a graph may take half of the work
        assert affordable(corner_cases, np.array([k]), cost).tolist() == [k]
        assert affordable(corner_cases, np.array([k]), cost - 1).tolist() == []


def test_batches_do_not_change_the_result(corner_cases: PackedGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = spectra(corner_cases)
    monkeypatch.setattr(aggregation_module, "EDGES_PER_BATCH", 7)
    monkeypatch.setattr(spectrum_module, "NUMBERS_PER_STACK", 1)
    parts = spectra(corner_cases)
    np.testing.assert_allclose(parts.q, whole.q, atol=1e-14)
    np.testing.assert_allclose(parts.shifted, whole.shifted, atol=1e-14)


def test_order_and_choice_of_graphs(corner_cases: PackedGraphs) -> None:
    whole, some = spectra(corner_cases), spectra(corner_cases, [9, 0, 3])
    assert some.ids.tolist() == [9, 0, 3]
    for k, graph in enumerate(some.ids):
        for ours, reference in zip(some.of(k), whole.of(int(graph)), strict=True):
            np.testing.assert_allclose(ours, reference, atol=1e-14)


def test_a_broken_spectrum_is_noticed(corner_cases: PackedGraphs) -> None:
    result = spectra(corner_cases)
    assert interlacing(result).holds.all()
    shifted = result.shifted.copy()
    start = result.ptr[9] - 9
    shifted[start + 4] += 1.0
    broken = interlacing(replace(result, shifted=shifted))
    assert np.flatnonzero(~broken.holds).tolist() == [9]
    assert broken.summary()["holds"] == corner_cases.num_graphs - 1
    assert 0 < broken.excess[9] <= 1


def test_equality_only_where_a_singular_vector_is_orthogonal_to_one() -> None:
    """Theorem 1's second half, on graphs whose singular values are all different."""
    checked = 0
    for seed in range(40):
        graph = nx.gnp_random_graph(9, 0.45, seed=seed)
        graphs = from_networkx([graph, nx.empty_graph(1)], [0, 1])
        aggregation = Aggregation(xi=0.21)
        values, vectors = np.linalg.eigh(dense_q(graphs.batch([0]), aggregation))
        order = np.argsort(np.abs(values))
        overlap = np.abs(vectors.sum(0))[order]
        before, after = spectra(graphs, [0], aggregation).of(0)
        if np.diff(before).min() < 1e-3:
            continue
        checked += 1
        for i, inner in enumerate(overlap):
            touched = min(abs(before[i] - after[j]) for j in (i - 1, i) if 0 <= j < len(after))
            assert (touched < 1e-9) == (inner < 1e-9)
    assert checked > 5


def test_conditions(corner_cases: PackedGraphs) -> None:
    result = conditions(spectra(corner_cases))
    # Graph 3, a star of 6 leaves: Q has 1 five times and 1 ± √6.
    assert result.q[3] == pytest.approx((1 + 6**0.5) / 1)
    # Graph 4, a complete graph at ξ = 0: Q = 11ᵀ, QN = 0.
    assert (result.rank_q[4], result.rank_shifted[4]) == (1, 0)
    assert result.q[4] == 1
    assert np.isnan(result.shifted[4])
    assert np.isnan(result.improvement[4])
    assert (result.rank_q[0], result.rank_shifted[0]) == (1, 0)
    assert (result.q[2], result.shifted[2]) == (1, 1)
    regular = conditions(spectra(corner_cases, None, Aggregation(xi=0.37)))
    known = np.isfinite(regular.improvement)
    assert (regular.improvement[known] >= 1 - 1e-9).all()
    summary = result.summary()
    assert summary["better"] + summary["equal"] + summary["worse"] == int(np.isfinite(result.improvement).sum())
    assert summary["shifted_to_zero"] == 3
    assert json.loads(json.dumps(result.to_dict()))["shifted"][4] is None


def test_conditions_may_get_worse_where_q_is_singular() -> None:
    """A path of two nodes and a lone one: N turns the zero of Q = diag(11ᵀ, 1) into a small value."""
    graph = nx.disjoint_union(nx.path_graph(5), nx.empty_graph(1))
    result = conditions(spectra(from_networkx([graph, nx.empty_graph(1)], [0, 1])))
    assert result.rank_q[0] == 5  # 2cos(2π/3) = -1 is an eigenvalue of the path
    before, after = plain(from_networkx([graph, nx.empty_graph(1)], [0, 1]), 0, Aggregation())
    assert result.q[0] == pytest.approx(before[-1] / before[1])
    assert result.shifted[0] == pytest.approx(after[-1] / after[after > 1e-12][0])


def test_extremes_of_a_large_graph() -> None:
    tree = nx.random_labeled_tree(400, seed=1)
    grid = nx.grid_2d_graph(9, 15)
    ring = nx.cycle_graph(90)  # singular at ξ = 0: 2cos(2π/3) = -1
    small = nx.path_graph(9)
    graphs = from_networkx([tree, grid, ring, small, nx.empty_graph(1)], [0, 1, 0, 1, 0])
    for aggregation in AGGREGATIONS:
        ends = extreme_singular_values(graphs, None, aggregation)
        whole = spectra(graphs, None, aggregation)
        zero = tolerance(whole.sizes, whole.largest)
        for k in range(4):
            for ours, values in zip((ends.q[k], ends.shifted[k]), whole.of(k), strict=True):
                expected = np.where(values[[0, -1]] <= zero[k], 0, values[[0, -1]])
                np.testing.assert_allclose(ours, expected, rtol=1e-8, atol=zero[k])
        assert np.isnan(ends.shifted[4]).all()


def test_extremes_that_converge_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = from_networkx([nx.random_labeled_tree(600, seed=1), nx.empty_graph(1)], [0, 1])
    ends, whole = extreme_singular_values(graphs, [0], Aggregation("gcn")), spectra(graphs, [0], Aggregation("gcn"))
    np.testing.assert_allclose(ends.shifted[0, 1], whole.of(0)[1][-1], rtol=1e-12)
    monkeypatch.setattr(spectrum_module, "MAX_RESTARTS", 1)
    with pytest.raises(GraphnormError, match="did not converge"):
        extreme_singular_values(graphs, [0], Aggregation("gcn"))


def test_affordable_graphs() -> None:
    graphs = synthetic.trees(30)
    ids = np.arange(30)[::-1].copy()
    sizes = np.array(sizes_without_twins(graphs), float)[ids]
    some = affordable(graphs, ids, float((sizes**3)[:10].sum()))
    assert some.tolist() == ids[:10].tolist()
    assert len(affordable(graphs, ids)) == 30
    assert len(affordable(graphs, ids, 1.0)) == 0


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda g: spectra(g, []), "ids of shape"),
        (lambda g: spectra(g, [99]), "numbers from 0"),
        (lambda g: Aggregation("gat"), "use 'gin' or 'gcn'"),  # type: ignore[arg-type]
    ],
)
def test_mistakes(corner_cases: PackedGraphs, mistake: object, message: str) -> None:
    with pytest.raises(GraphnormError, match=message):
        mistake(corner_cases)  # type: ignore[operator]


def test_a_graph_too_large(corner_cases: PackedGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectrum_module, "MAX_DENSE", 11)
    with pytest.raises(GraphnormError, match=r"12 nodes.*extreme_singular_values"):
        spectra(corner_cases)
    assert 9 not in affordable(corner_cases, np.arange(11))


def test_theorem_1_on_nci1_in_time(archives: Path) -> None:
    graphs = load("NCI1", archives)
    start = time.perf_counter()
    result = spectra(graphs)
    seconds = time.perf_counter() - start
    assert len(result.q) == graphs.num_nodes
    assert interlacing(result).holds.all()
    assert seconds < 20


@pytest.mark.parametrize("name", ["MUTAG", "PTC", "PROTEINS", "IMDB-BINARY"])
def test_theorem_1_on_real_graphs(archives: Path, name: str) -> None:
    graphs = load(name, archives)
    for aggregation in (Aggregation(self_loop=True), Aggregation("gcn")):
        theorem = interlacing(spectra(graphs, None, aggregation))
        assert theorem.summary()["holds"] == graphs.num_graphs


@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=lambda a: a.label)
def test_q_and_qn_share_a_value_only_if_a_singular_vector_is_orthogonal_to_1(
    corner_cases: PackedGraphs, aggregation: Aggregation
) -> None:
    found = shared_values(corner_cases, None, aggregation)
    assert (found.orthogonal == found.shared).all()
    if aggregation == Aggregation():
        assert found.shared.sum() > 0


def test_a_shared_value_without_such_a_vector_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The singular values of a path, as if they were those of QN, too."""
    graphs = from_networkx([nx.path_graph(6), nx.path_graph(2)], labels=[0, 1])
    honest = shared_values(graphs, [0])
    assert honest.shared == honest.orthogonal
    svd = np.linalg.svd
    matrix, _ = aggregation_module.quotients(graphs, np.array([0]), Aggregation()).stack(np.array([0]))
    monkeypatch.setattr(np.linalg, "svd", lambda *_, **options: svd(matrix, **options))
    found = shared_values(graphs, [0])
    assert found.shared > found.orthogonal
