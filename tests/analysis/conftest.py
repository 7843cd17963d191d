"""What the tests of the analysis share: graphs with every corner case, and the real archives."""

from __future__ import annotations

import os
from pathlib import Path

import networkx as nx
import pytest

from graphnorm.data import PackedGraphs, from_networkx, synthetic


@pytest.fixture(scope="session")
def corner_cases() -> PackedGraphs:
    """Eleven small graphs. Tests name them by their place."""
    hub = nx.disjoint_union(nx.complete_graph(3), nx.complete_graph(4))
    hub.add_edges_from((7, node) for node in range(7))
    graphs = [
        nx.empty_graph(1),
        nx.complete_graph(2),
        nx.empty_graph(2),
        nx.star_graph(6),
        nx.complete_graph(5),  # 4
        nx.disjoint_union(nx.complete_graph(3), nx.complete_graph(4)),
        nx.cycle_graph(6),
        nx.path_graph(7),
        hub,  # 8, with two cliques
        nx.gnp_random_graph(12, 0.35, seed=3),
        nx.disjoint_union(nx.complete_graph(3), nx.empty_graph(1)),
    ]
    return from_networkx(graphs, [k % 2 for k in range(len(graphs))], name="corners")


@pytest.fixture(scope="session")
def trees() -> PackedGraphs:
    return synthetic.trees(60)


@pytest.fixture
def archives(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real archives; tests that want it are skipped where it is absent."""
    folder = os.environ.get("GRAPHNORM_DATA")
    if not folder or not (Path(folder) / "MUTAG.zip").exists():
        pytest.skip("GRAPHNORM_DATA names no folder with the benchmark archives")
    monkeypatch.setenv("GRAPHNORM_CACHE", str(tmp_path_factory.getbasetemp() / "analysis-cache"))
    return Path(folder)
