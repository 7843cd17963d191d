"""Graphs from NetworkX and PyTorch Geometric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

from graphnorm.data import DataError, DataWarning, as_graphs, from_networkx, from_pyg, synthetic, to_networkx


def test_networkx_round_trip() -> None:
    graphs = synthetic.cliques(12)
    back = from_networkx([to_networkx(graphs, g) for g in range(12)], [graphs.classes[k] for k in graphs.labels])
    assert back.col.equal(graphs.col)
    assert back.node_ptr.equal(graphs.node_ptr)
    assert back.tags is not None
    assert graphs.tags is not None
    assert back.tags.equal(graphs.tags)
    assert back.labels.equal(graphs.labels)


def labelled() -> nx.Graph:
    graph = nx.Graph()
    graph.add_node("a", kind="C", mass=[1.0, 2.0])
    graph.add_node("b", kind="N", mass=[3.0, 4.0])
    graph.add_node("c", kind=7, mass=[5.0, 6.0])
    graph.add_edge("a", "b", bond="single")
    graph.add_edge("b", "c", bond="double")
    graph.add_edge("c", "c", bond="double")
    return graph


def test_networkx_attributes() -> None:
    graphs = from_networkx([labelled(), labelled()], [0, 1], node_label="kind", node_features="mass", edge_label="bond")
    assert graphs.removed_self_loops == 2
    batch = graphs.batch([1])
    assert batch.tags is not None
    assert batch.x is not None
    assert batch.edge_tags is not None
    assert batch.tags[:, 0].tolist() == [1, 2, 0]
    assert batch.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    edges = zip(batch.row.tolist(), batch.col.tolist(), batch.edge_tags[:, 0].tolist(), strict=True)
    assert list(edges) == [(0, 1, 1), (1, 0, 1), (1, 2, 0), (2, 1, 0)]


def test_directed_and_multigraphs() -> None:
    path = nx.DiGraph([(0, 1), (1, 2)])
    with pytest.raises(DataError, match=r"graph 1 of the list: the edge from node 0 to node 1 has no edge back"):
        from_networkx([nx.path_graph(3), path], [0, 1])
    assert from_networkx([path, path], [0, 1], symmetrise=True).num_edges == 8
    double = nx.MultiGraph([(0, 1), (0, 1)])
    with pytest.raises(DataError, match=r"graph 0 of the list: .* is a duplicate"):
        from_networkx([double, double], [0, 1])
    assert from_networkx([double, double], [0, 1], merge_duplicates=True).num_edges == 4


@pytest.mark.parametrize(
    ("graphs", "labels", "keywords", "message"),
    [
        ([nx.path_graph(2)], [0, 1], {}, "1 graphs and 2 labels"),
        ([nx.path_graph(2), nx.Graph()], [0, 1], {}, "graph 1 of the list: the graph has no nodes"),
        ([nx.path_graph(2)] * 2, [3, 3], {}, "same label, 3"),
        ([nx.path_graph(2)] * 2, [[0.5], [1.5, 2]], {}, "the graphs have 1 to 2 targets"),
        ([nx.path_graph(2)] * 2, [0, None], {}, "the label in the column 'target' is missing"),
        ([nx.path_graph(2)] * 2, "y", {}, "the graph has no attribute 'y'"),
        ([nx.path_graph(2)] * 2, [0, 1], {"node_label": "z"}, "node 0 has no attribute 'z'"),
        ([nx.path_graph(2)] * 2, [0, 1], {"edge_label": "z"}, r"edge \(0, 1\) has no attribute 'z'"),
        ([], [], {}, "there are no graphs"),
    ],
)
def test_networkx_mistakes(graphs: list[Any], labels: list[Any], keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        from_networkx(graphs, labels, **keywords)
    assert error.value.remedy


def test_networkx_features_of_different_lengths() -> None:
    graph = labelled()
    graph.nodes["a"]["mass"] = 1.0
    with pytest.raises(DataError, match="different lengths"):
        from_networkx([graph, labelled()], [0, 1], node_features="mass")
    for wrong in ("heavy", [[1.0, 2.0]], [1.0, "x"]):
        graph.nodes["a"]["mass"] = wrong
        with pytest.raises(DataError, match="graph 0 of the list: the attribute 'mass' of node 'a' is"):
            from_networkx([graph, labelled()], [0, 1], node_features="mass")
    graph.nodes["a"]["mass"] = [float("nan"), 0.0]
    with pytest.raises(DataError, match="graph 0 of the list: feature 1 of node 0 is nan"):
        from_networkx([graph, labelled()], [0, 1], node_features="mass")


BOTH_WAYS = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def data(pyg: Any, label: int = 0, **changes: Any) -> Any:
    facts = {"x": torch.arange(6.0).reshape(3, 2), "edge_index": BOTH_WAYS, "y": torch.tensor([label])}
    return pyg.data.Data(**(facts | changes))


def test_pyg_features_of_every_kind(pyg: Any) -> None:
    continuous = from_pyg([data(pyg), data(pyg, 1)])
    assert continuous.x is not None
    assert continuous.tags is None
    assert continuous.x.shape == (6, 2)
    integers = [data(pyg, y, x=torch.tensor([[5, 1], [7, 1], [5, 0]])) for y in (0, 1)]
    assert from_pyg(integers).cardinalities == (2, 2)
    one_hot = [data(pyg, y, x=torch.eye(4)[:3]) for y in (0, 1)]
    kept = from_pyg(one_hot)
    assert kept.cardinalities == (4,)
    assert kept.features(kept.batch([1])).equal(torch.eye(4)[:3])
    attributed = [data(pyg, y, edge_attr=torch.tensor([1, 1, 2, 2])) for y in (0, 1)]
    assert from_pyg(attributed).edge_cardinalities == (2,)
    weighted = from_pyg([data(pyg, y, edge_attr=torch.tensor([0.5, 0.25, 2.0, 2.0])) for y in (0, 1)])
    assert weighted.edge_x is not None
    batch = weighted.batch([0])
    assert batch.edge_x is not None
    # The edge 0 → 1 carries 0.5; it belongs to its target, row 1.
    assert dict(zip(zip(*batch.edge_index.tolist(), strict=True), batch.edge_x[:, 0].tolist(), strict=True)) == {
        (0, 1): 0.5,
        (1, 0): 0.25,
        (1, 2): 2.0,
        (2, 1): 2.0,
    }


def test_pyg_without_features_or_with_labels_beside_it(pyg: Any) -> None:
    bare = [pyg.data.Data(edge_index=BOTH_WAYS, num_nodes=3) for _ in range(2)]
    graphs = from_pyg(bare, ["x", "y"], name="mine")
    assert (graphs.name, graphs.classes, graphs.num_features) == ("mine", ("x", "y"), 2)


def test_targets_of_every_shape(pyg: Any) -> None:
    def pack(*values: Any) -> Any:
        data = [pyg.data.Data(edge_index=BOTH_WAYS, y=torch.tensor(y), num_nodes=3) for y in values]
        return from_pyg(data)

    def pack_plain(*values: Any) -> Any:
        return from_pyg([pyg.data.Data(edge_index=BOTH_WAYS, y=y, num_nodes=3) for y in values])

    nan = float("nan")
    assert pack_plain(0, np.int64(7), 3).classes == ("0", "3", "7")
    with pytest.warns(DataWarning, match="measurements"):
        assert pack_plain(0.5, 1.5, 3.25).task == "values"
    assert pack(0, 7, 3).classes == ("0", "3", "7")
    assert pack([0], [1], [0]).classes == ("0", "1")
    assert pack([[0.0]], [[1.0]]).classes == ("0", "1")
    several = pack([[0, 1]], [[1, 0]])
    assert (several.task, several.target_names) == ("binary", ("target 1", "target 2"))
    masked = pack([[0.0, nan]], [[1.0, 0.0]])
    assert (masked.task, str(masked.targets.tolist())) == ("binary", "[[0.0, nan], [1.0, 0.0]]")
    assert pack([[0.5, nan]], [[1.0, -2.0]]).task == "values"
    graphs = [nx.path_graph(2) for _ in range(3)]
    for graph, y in zip(graphs, ([0.5, 1], [None, 3.5], [-1, 2]), strict=True):
        graph.graph["y"] = y
    named = from_networkx(graphs, "y")
    assert named.task == "values"
    assert str(named.targets.tolist()) == "[[0.5, 1.0], [nan, 3.5], [-1.0, 2.0]]"  # type: ignore[union-attr]


def test_values_of_nodes_are_no_targets(pyg: Any) -> None:
    with pytest.raises(DataError, match="one value for each of its nodes"):
        from_pyg([data(pyg, y=torch.tensor([0, 1, 1])), data(pyg, 1, y=torch.tensor([1, 0, 1]))])


def test_pyg_mistakes(pyg: Any) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"edge_index": None}, "no edge_index"),
        ({"edge_index": BOTH_WAYS.T}, r"edge_index has the shape \(4, 2\)"),
        ({"edge_index": BOTH_WAYS + 1}, "has the node 3, but the nodes are 0 to 2"),
        ({"edge_index": BOTH_WAYS - 1}, "has the node -1"),
        ({"edge_index": BOTH_WAYS[:, :1]}, "no edge back"),
        ({"x": torch.full((3, 2), float("nan"))}, "feature 1 of node 0 is nan"),
        ({"x": torch.zeros(3, 5)}, "same width"),
        ({"x": torch.zeros(2, 2), "num_nodes": 3}, r"x is \(2, 2\) for 3 rows"),
        ({"y": torch.zeros(3, 2)}, r"y is \(3, 2\), not a class or T numbers"),
        ({"y": torch.zeros(1, 2)}, "the graphs have 1 to 2 targets"),
        ({"y": None}, r"y is None.*labels"),
    ]
    for changes, message in cases:
        with pytest.raises(DataError, match=message) as error:
            from_pyg([data(pyg), data(pyg, 1, **changes)])
        if message != "same width":
            assert error.value.where == "graph 1 of the list"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"x": torch.full((3, 2), 1e300, dtype=torch.float64)}, "is 1e.300, too large for single precision"),
        ({"x": torch.ones(3, 2, dtype=torch.complex64)}, "x is complex"),
        ({"x": torch.ones(3, 2).to_sparse()}, "x is sparse"),
        ({"x": torch.ones(3, 2, device="meta")}, "without values"),
        ({"y": torch.tensor([1j])}, "y is complex"),
        ({"num_nodes": -1}, "num_nodes is -1"),
        ({"edge_index": [[0, 1], [1, 0]]}, "edge_index is a list"),
        ({"edge_index": BOTH_WAYS.numpy()}, "edge_index is a ndarray"),
    ],
)
def test_pyg_tensors_that_cannot_be_kept(pyg: Any, changes: dict[str, Any], problem: str) -> None:
    given = {"x": torch.ones(3, 2), "y": torch.tensor([1]), "edge_index": BOTH_WAYS} | changes
    with pytest.raises(DataError, match=problem) as error:
        from_pyg([pyg.data.Data(**given), pyg.data.Data(**given)], [0, 1] if "y" not in changes else None)
    assert error.value.remedy


def test_batches_are_no_graphs(pyg: Any) -> None:
    batch = pyg.data.Batch.from_data_list([data(pyg), data(pyg, 1)])
    with pytest.raises(DataError, match=r"to_data_list\(\)"):
        from_pyg([batch, batch])


def test_pyg_features_of_other_types(pyg: Any) -> None:
    for x in (torch.ones(3, 2, requires_grad=True), torch.full((3, 2), 0.5, dtype=torch.bfloat16)):
        graphs = from_pyg([pyg.data.Data(x=x, edge_index=BOTH_WAYS)] * 2, [0, 1])
        assert graphs.x is not None
        assert graphs.x.tolist() == [*x.tolist(), *x.tolist()]


@pytest.mark.parametrize(
    ("attribute", "values", "problem"),
    [
        ("node_features", [1e300, 1.0], "is 1e.300, too large for single precision"),
        ("node_features", [1 + 2j, 1.0], r"is \(1\+2j\).*a number or a list of numbers"),
        ("node_features", [10**400, 1.0], "a number or a list of numbers"),
        ("node_label", [float("nan"), 1.0], "a category is nan"),
        ("node_label", [[1, 2], [3, 4]], "a category must be a word or a number"),
        ("node_label", [1j, 1], "a category is 1j"),
        ("node_features", [[], []], "a number or a list of numbers"),
    ],
)
def test_networkx_attributes_that_cannot_be_kept(attribute: str, values: list[Any], problem: str) -> None:
    graph = nx.path_graph(2)
    nx.set_node_attributes(graph, dict(enumerate(values)), "a")
    with pytest.raises(DataError, match=problem) as error:
        from_networkx([graph, graph], [0, 1], **{attribute: "a"})
    assert error.value.remedy


@pytest.mark.parametrize("labels", [[1j, 2j], {"y": [[1], [2]], "z": [1, 0]}, {"y": [{}, {}], "z": [1, 0]}])
def test_labels_that_are_neither_words_nor_numbers(labels: Any) -> None:
    with pytest.raises(DataError, match="a word or a real number"):
        from_networkx([nx.path_graph(2)] * 2, labels)


@pytest.mark.parametrize("label", ["\x1b[31m", "\u202eabc", "a\u2028b", "\ud800"])
def test_labels_that_a_terminal_or_a_file_cannot_take(label: str) -> None:
    with pytest.raises(DataError, match="is not plain text"):
        from_networkx([nx.path_graph(2)] * 2, [label, "b"])


def test_graphs_of_any_form(pyg: Any, tmp_path: Path) -> None:
    import pandas

    frame = pandas.DataFrame({"smiles": ["CCO", "CC", None, "C", "N"], "y": [1.5, None, 2, -3, 4], "id": list("abcde")})
    with pytest.warns(DataWarning) as caught:
        graphs = as_graphs(frame, target="y", skip_invalid=True)
    told = " ".join(str(warning.message) for warning in caught)
    assert "1 of 5 SMILES cannot be read" in told
    assert "1 of 4 graphs have no target" in told
    assert (graphs.task, graphs.rows, str(graphs.targets.tolist())) == (  # type: ignore[union-attr]
        "values",
        [0, 1, 3, 4],
        "[[1.5], [nan], [-3.0], [4.0]]",
    )
    bools = pandas.DataFrame({"smiles": ["CCO", "CC"], "a": [True, False], "b": [False, None]})
    assert str(as_graphs(bools).targets.tolist()) == "[[1.0, 0.0], [0.0, nan]]"  # type: ignore[union-attr]
    data = [pyg.data.Data(edge_index=BOTH_WAYS, y=torch.tensor(y), num_nodes=3) for y in (0, 1)]
    assert as_graphs(data) == from_pyg(data)
    assert as_graphs(iter(data)) == from_pyg(data)
    named = [labelled(), labelled()]
    for graph, y in zip(named, ("u", "v"), strict=True):
        graph.graph["y"] = y
    assert as_graphs(named) == from_networkx(named, "y", node_label="kind", node_features="mass", edge_label="bond")
    split = tmp_path / "s.json"
    split.write_text('{"train": [0], "valid": [1], "test": [3, 4]}')
    assert as_graphs(graphs, split=split).splits["test"].tolist() == [2, 3]
    assert as_graphs(as_graphs(graphs, split=split), split="random") == graphs
    assert as_graphs("synthetic:trees") == synthetic.trees()


def test_masked_labels_are_missing_and_columns_keep_their_names() -> None:
    import pandas

    graphs = [nx.path_graph(k) for k in (2, 3, 4)]
    masked = np.ma.array([1.5, 2.5, 9.5], mask=[False, False, True])
    with pytest.warns(DataWarning, match="1 of 3 graphs have no target"):
        read = from_networkx(graphs, masked, task="values")
    assert str(read.targets.tolist()) == "[[1.5], [2.5], [nan]]"  # type: ignore[union-attr]
    with pytest.raises(DataError, match=r"graph 2 of the list: the label .* is missing"):
        from_networkx(graphs, np.ma.array([0, 1, 1], mask=[0, 0, 1]))
    frame = pandas.DataFrame({"a": [1, 2, 3], "b": [0.5, 0.25, 1]})
    assert from_networkx(graphs, frame).target_names == ("a", "b")
    assert from_networkx(graphs, [True, 1, 0]).labels.tolist() == [1, 1, 0]
    half = from_networkx(graphs, torch.tensor([0.5, 1, 2], dtype=torch.bfloat16), task="values")
    assert half.targets.tolist() == [[0.5], [1], [2]]  # type: ignore[union-attr]


@pytest.mark.parametrize("labels", [None, 5, torch.tensor(3), (k for k in (0, 1)), {"a": 3}, {None: [0, 1]}, {0, 1}])
def test_labels_that_are_no_list(labels: Any) -> None:
    with pytest.raises(TypeError, match=r"(labels|each name of the targets) must be"):
        from_networkx([nx.path_graph(2)] * 2, labels)


def test_an_attribute_is_a_category_only_if_it_is_one_everywhere() -> None:
    graphs = [nx.path_graph(2), nx.path_graph(3)]
    for graph, label in zip(graphs, "ab", strict=True):
        graph.graph["label"] = label
        nx.set_node_attributes(graph, {0: 1, 1: 0.5, 2: 0.25}, "weight")
    packed = as_graphs(graphs)
    assert (packed.cardinalities, packed.x is None) == ((), False)


@pytest.mark.parametrize(
    ("data", "options", "problem"),
    [
        ([], {}, "there are no graphs"),
        ([nx.path_graph(2)], {}, r'not clear which attribute of the graphs is the label.*graph.graph\["label"\]'),
        ([nx.path_graph(2)], {"target": "y"}, "^the graphs: there is no attribute 'y'; there are none"),
        ([nx.path_graph(2)], {"smiles": "y"}, "smiles cannot be used with a list of graphs"),
        (synthetic.trees(2), {"threshold": 3}, "threshold cannot be used with graphs that are loaded already"),
    ],
)
def test_forms_and_options_that_do_not_fit(data: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        as_graphs(data, **options)
    with pytest.raises(TypeError, match="must be a name, a path, PackedGraphs"):
        as_graphs(42)


def test_graphs_to_be_predicted_need_no_labels(pyg: Any) -> None:
    import pandas

    data = [pyg.data.Data(edge_index=torch.tensor([[0, 1], [1, 0]]), x=torch.randn(2, 3))]
    graphs = [nx.path_graph(2)]
    frame = pandas.DataFrame({"smiles": ["CC"]})
    for given in (data, graphs, frame):
        with pytest.raises(DataError):
            as_graphs(given)
        packed = as_graphs(given, unlabelled=True)
        assert (packed.num_graphs, packed.num_nodes, packed.classes) == (1, 2, ("unknown",))
    data[0].y, graphs[0].graph["label"] = torch.tensor([0.5, 1.5]), "a"  # y of nodes, and one class
    assert as_graphs(data, unlabelled=True).classes == as_graphs(graphs, unlabelled=True).classes == ("unknown",)
    assert as_graphs(packed, unlabelled=True) is packed
    with pytest.raises(TypeError, match=r"got 'CCO'; for SMILES use graphnorm.data.from_smiles"):
        as_graphs(["CCO", "CC"])
    with pytest.raises(TypeError, match=r"got 0; a single graph goes into a list: \[graph\]"):
        as_graphs(graphs[0], unlabelled=True)


def test_an_attribute_that_is_not_there_is_named_with_the_nearest() -> None:
    graphs = [nx.Graph([(0, 1), (1, 2)], energy=energy, mass=1) for energy in (0.5, 1.5)]
    with pytest.raises(DataError, match=r"^the graphs: there is no attribute 'energi'; did you mean 'energy'\?"):
        as_graphs(graphs, target="energi")
    with pytest.raises(
        DataError, match=r"^the graphs: there is no attribute 'zzz'; the attributes are 'energy', 'mass'\."
    ):
        as_graphs(graphs, target="zzz")


def test_parts_of_a_dataset_are_graphs_too(pyg: Any) -> None:
    """Of torch's random_split; they can be indexed and not iterated."""
    graphs = [data(pyg, k % 2, x=torch.full((3, 2), float(k))) for k in range(8)]
    part = torch.utils.data.Subset(graphs, [6, 1, 2])
    found = as_graphs(part)
    assert found.labels.tolist() == [0, 1, 0]
    assert found.x is not None
    assert found.x[::3, 0].tolist() == [6.0, 1.0, 2.0]


def test_attributes_of_networkx_graphs_keep_their_names() -> None:
    graphs = [nx.path_graph(3 + k) for k in range(4)]
    for k, graph in enumerate(graphs):
        graph.graph.update({"u": 0.5 * k} if k == 0 else {"u": 0.5 * k, "v": 1.25 * k})
    both = as_graphs(graphs, target="v,u")
    assert both.target_names == ("v", "u")
    assert both.targets is not None
    assert both.targets[1].tolist() == [1.25, 0.5]
    assert both.targets[0].isnan().tolist() == [True, False]
    assert as_graphs(graphs, target="u", task="values").target_names == ("u",)
