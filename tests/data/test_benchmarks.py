"""The paper's datasets, from their archives: counts, and graph by graph against PyTorch Geometric and OGB."""

from __future__ import annotations

import gzip
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphnorm.data import CATALOG, PackedGraphs, from_pyg, load

# graphs, class sizes, average nodes and undirected edges, and the number of node features
EXPECTED = {
    "MUTAG": (188, (63, 125), 17.93, 19.79, 7),
    "PTC": (344, (192, 152), 25.56, 25.96, 19),
    "PTC_MR": (344, (192, 152), 14.29, 14.69, 18),
    "PROTEINS": (1113, (663, 450), 39.06, 72.82, 3),
    "NCI1": (4110, (2053, 2057), 29.87, 32.30, 37),
    "IMDB-BINARY": (1000, (500, 500), 19.77, 96.53, 65),
    "REDDIT-BINARY": (2000, (1000, 1000), 429.63, 497.75, 1),
    "COLLAB": (5000, (2600, 775, 1625), 74.49, 2457.22, 369),
    "ogbg-molhiv": (41127, (39684, 1443), 25.51, 27.47, 174),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_counts(archives: Path, name: str) -> None:
    graphs = load(name, archives)
    statistics = graphs.statistics()
    num_graphs, class_sizes, nodes, edges, features = EXPECTED[name]
    assert (statistics.num_graphs, statistics.class_sizes) == (num_graphs, class_sizes)
    assert round(statistics.avg_nodes, 2) == nodes
    assert round(statistics.avg_undirected_edges, 2) == edges
    assert graphs.num_features == features
    assert graphs.name == name
    assert statistics.removed_self_loops == (2837 if name == "COLLAB" else 0)


@pytest.mark.parametrize("name", [n for n in EXPECTED if n not in ("PTC_MR", "ogbg-molhiv")])
def test_the_papers_table(archives: Path, name: str) -> None:
    """The paper truncates or rounds its averages to one digit. Its edges of PTC follow another rule."""
    statistics, paper = load(name, archives).statistics(), CATALOG[name].paper
    assert paper is not None
    assert statistics.avg_nodes == pytest.approx(paper.avg_nodes, abs=0.1)
    assert statistics.avg_degree == pytest.approx(paper.avg_degree, abs=0.1)
    assert statistics.avg_edges == pytest.approx(77.5 if name == "PTC" else paper.avg_edges, abs=0.1)


def test_molhiv_splits(archives: Path) -> None:
    graphs = load("molhiv", archives)
    found = {name: (len(ids), int(graphs.labels[ids].sum())) for name, ids in graphs.splits.items()}
    assert found == {"train": (32901, 1232), "valid": (4113, 81), "test": (4113, 130)}
    assert len(torch.cat(list(graphs.splits.values())).unique()) == graphs.num_graphs


def tu_dataset(pyg: Any, archives: Path, name: str, root: Path) -> Any:
    raw = root / name / "raw"
    raw.mkdir(parents=True)
    with zipfile.ZipFile(archives / f"{name}.zip") as archive:
        for member in archive.namelist():
            (raw / Path(member).name).write_bytes(archive.read(member))
    return pyg.datasets.TUDataset(root, name)


@pytest.mark.parametrize(
    "name",
    [
        "MUTAG",
        "PTC",
        "PTC_MR",
        "PROTEINS",
        "NCI1",
        "IMDB-BINARY",
        pytest.param("REDDIT-BINARY", marks=pytest.mark.slow),
    ],
)
def test_equals_tudataset(pyg: Any, archives: Path, tmp_path: Path, name: str) -> None:
    graphs, dataset = load(name, archives), tu_dataset(pyg, archives, name, tmp_path)
    assert len(dataset) == graphs.num_graphs
    distinct = torch.unique(graphs.degree)
    for g, data in enumerate(dataset):
        batch = graphs.batch([g])
        assert batch.num_rows == data.num_nodes
        assert batch.labels.equal(data.y)
        assert batch.edge_index.flip(0).equal(data.edge_index)
        if data.x is not None:
            assert graphs.features(batch).equal(data.x)
        elif CATALOG[name].features == "degree":
            assert batch.tags is not None
            assert distinct[batch.tags[:, 0].long()].equal(batch.degree)
    if dataset.num_node_features:
        assert from_pyg(dataset) == graphs


def test_collab_equals_an_independent_reading(archives: Path) -> None:
    """TUDataset takes minutes and gigabytes here; see ``benchmarks/data.py`` for that comparison."""
    import pandas

    graphs = load("COLLAB", archives)
    with zipfile.ZipFile(archives / "COLLAB.zip") as archive:

        def column(part: str, **keywords: Any) -> Any:
            with archive.open(f"COLLAB/COLLAB_{part}.txt") as file:
                return pandas.read_csv(file, header=None, dtype=np.int32, **keywords).to_numpy()

        edges, graph, labels = (
            column("A") - 1,
            column("graph_indicator")[:, 0] - 1,
            column("graph_labels")[:, 0],
        )
    edges = edges[edges[:, 0] != edges[:, 1]]
    first = np.searchsorted(graph, np.arange(5000))
    assert np.array_equal(graphs.node_ptr.numpy()[:-1], first)
    assert np.array_equal(graphs.labels.numpy(), labels)
    assert np.array_equal(graphs.degree.numpy(), np.bincount(edges[:, 0], minlength=len(graph)))
    assert np.array_equal(graphs.col.numpy(), edges[:, 1] - first[graph[edges[:, 0]]])


def test_equals_ogbs_loader(archives: Path, tmp_path: Path) -> None:
    from ogb.io.read_graph_raw import read_csv_graph_raw

    graphs = load("ogbg-molhiv", archives)
    with zipfile.ZipFile(archives / "ogbg_molhiv.zip") as archive:
        archive.extractall(tmp_path)
    raw = tmp_path / "ogbg_molhiv" / "raw"
    theirs = read_csv_graph_raw(raw, add_inverse_edge=True)
    assert len(theirs) == graphs.num_graphs
    assert graphs.tags is not None
    assert graphs.edge_tags is not None
    assert np.array_equal(graphs.sizes.numpy(), [graph["num_nodes"] for graph in theirs])
    assert np.array_equal(graphs.tags.numpy(), np.concatenate([graph["node_feat"] for graph in theirs]))
    orders = [np.lexsort((graph["edge_index"][0], graph["edge_index"][1])) for graph in theirs]
    sources = [graph["edge_index"][0][order] for graph, order in zip(theirs, orders, strict=True)]
    features = [graph["edge_feat"][order] for graph, order in zip(theirs, orders, strict=True)]
    degrees = [np.bincount(graph["edge_index"][1], minlength=graph["num_nodes"]) for graph in theirs]
    assert np.array_equal(graphs.degree.numpy(), np.concatenate(degrees))
    assert np.array_equal(graphs.col.numpy(), np.concatenate(sources))
    assert np.array_equal(graphs.edge_tags.numpy(), np.concatenate(features))
    labels = gzip.decompress((raw / "graph-label.csv.gz").read_bytes()).split()
    assert graphs.labels.tolist() == [int(label) for label in labels]
    shutil.rmtree(tmp_path / "ogbg_molhiv")


def test_a_copy_of_another_dataset_under_its_name_is_refused(archives: Path, tmp_path: Path) -> None:
    shutil.copy(archives / "PTC_MR.zip", tmp_path / "PTC.zip")
    with pytest.raises(ValueError, match=r"this is not PTC: \(344, 4915, 10108\)"):
        load("PTC", tmp_path)


def test_batches_equal_pygs(pyg: Any, archives: Path) -> None:
    graphs = load("MUTAG", archives)
    ids = [7, 3, 150, 3, 20]
    singles = [graphs.batch([g]) for g in ids]
    theirs = pyg.data.Batch.from_data_list(
        [pyg.data.Data(x=graphs.features(b), edge_index=b.edge_index, y=b.labels) for b in singles]
    )
    ours = graphs.batch(ids)
    assert ours.ptr.equal(theirs.ptr)
    assert ours.batch.equal(theirs.batch)
    assert ours.edge_index.equal(theirs.edge_index)
    assert ours.labels.equal(theirs.y)
    assert graphs.features(ours).equal(theirs.x)


def test_bounds_from_averages_would_overflow(archives: Path) -> None:
    """Sizes are heavy-tailed: the largest planned batch is far above the average one."""
    graphs: PackedGraphs = load("REDDIT-BINARY", archives)
    order = torch.randperm(2000, generator=torch.Generator().manual_seed(0))[:1920].reshape(60, 32)
    bounds = graphs.bounds(order)
    assert bounds.max_nodes == int(graphs.sizes[order].sum(1).max())
    assert bounds.max_nodes > 1.25 * float(graphs.sizes.double().mean()) * 32
    assert graphs.batch(order[:4], bounds=bounds).batch.shape == (4, bounds.max_nodes)
