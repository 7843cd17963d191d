"""Batches against a plain loop over graphs, by the C library and by torch, with and without static shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

import graphnorm
from graphnorm import backends
from graphnorm.data import Bounds, DataError, GraphBatch, PackedGraphs, one_hot
from graphnorm.data.batching import BatchTables, assemble, uses_c

BACKENDS = ["auto", "reference"] if backends.library else ["auto"]
needs_library = pytest.mark.skipif(backends.library is None, reason="the C library was not built")

NAMES = ("ids", "labels", "ptr", "batch", "rowptr", "col", "tags", "x", "edge_tags", "edge_x", "targets")


def make_graphs(num_graphs: int = 7, seed: int = 0) -> PackedGraphs:
    """Random graphs of 1 to 6 nodes, some without edges, with every kind of feature."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, num_graphs)
    degrees, cols = [], []
    for size in sizes:
        upper = np.triu(rng.random((size, size)) < 0.5, 1)
        adjacency = upper | upper.T
        degrees += adjacency.sum(1).tolist()
        cols += [np.flatnonzero(row) for row in adjacency]
    col = torch.tensor(np.concatenate(cols), dtype=torch.int32)
    n, e = int(sizes.sum()), len(col)
    return PackedGraphs(
        name="random",
        node_ptr=torch.tensor(np.append(0, sizes.cumsum())),
        rowptr=torch.tensor(np.append(0, np.cumsum(degrees))),
        col=col,
        labels=torch.tensor(rng.integers(0, 3, num_graphs)),
        classes=("a", "b", "c"),
        tags=torch.tensor(rng.integers(0, 4, (n, 2)), dtype=torch.uint8),
        cardinalities=(4, 4),
        x=torch.tensor(rng.normal(size=(n, 3)), dtype=torch.float32),
        edge_tags=torch.tensor(rng.integers(0, 300, (e, 1)), dtype=torch.int16),
        edge_cardinalities=(300,),
        edge_x=torch.tensor(rng.normal(size=(e, 2)), dtype=torch.float32),
        task="values",  # with labels besides, so that both are seen
        target_names=("a", "b"),
        targets=torch.where(torch.tensor(rng.random((num_graphs, 2)) < 0.3), torch.nan, torch.rand(num_graphs, 2)),
    )


GRAPHS = make_graphs()


@pytest.fixture(params=BACKENDS)
def implementation(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test with the C library and with torch."""
    with graphnorm.backend(request.param):
        yield request.param


def loop(graphs: PackedGraphs, ids: list[int], rows: int, edges: int) -> dict[str, Tensor]:
    """The expected batch, in the simplest way: graph by graph, node by node."""
    out: dict[str, Any] = {"ids": ids, "labels": [], "ptr": [0], "batch": [], "rowptr": [0], "col": []}
    features: dict[str, list[Any]] = {name: [] for name in NAMES[6:-1]}
    for k, g in enumerate(ids):
        first = out["ptr"][-1]
        nodes = range(int(graphs.node_ptr[g]), int(graphs.node_ptr[g + 1])) if g >= 0 else range(0)
        for i in nodes:
            out["batch"].append(k)
            for name in ("tags", "x"):
                features[name].append(getattr(graphs, name)[i])
            for j in range(int(graphs.rowptr[i]), int(graphs.rowptr[i + 1])):
                out["col"].append(first + int(graphs.col[j]))
                for name in ("edge_tags", "edge_x"):
                    features[name].append(getattr(graphs, name)[j])
            out["rowptr"].append(len(out["col"]))
        out["labels"].append(int(graphs.labels[g]) if g >= 0 else -1)
        out["ptr"].append(len(out["batch"]))
    out["rowptr"] += [len(out["col"])] * (rows - len(out["batch"]))
    out["batch"] += [len(ids)] * (rows - len(out["batch"]))
    out["col"] += [0] * (edges - len(out["col"]))
    tensors = {name: torch.tensor(value, dtype=torch.int64) for name, value in out.items()}
    for name, taken in features.items():
        source = getattr(graphs, name)
        padded = torch.zeros(rows if name in ("tags", "x") else edges, source.shape[1], dtype=source.dtype)
        if taken:
            padded[: len(taken)] = torch.stack(taken)
        tensors[name] = padded
    missing = torch.full((2,), torch.nan)
    assert graphs.targets is not None
    tensors["targets"] = torch.stack([graphs.targets[g] if g >= 0 else missing for g in ids] or [missing])[: len(ids)]
    return tensors


def assert_same(batch: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name in NAMES:
        assert batch[name].dtype == expected[name].dtype, name
        assert torch.equal(batch[name].nan_to_num(-9), expected[name].nan_to_num(-9)), name


def as_dict(batch: GraphBatch) -> dict[str, Tensor]:
    return {name: getattr(batch, name) for name in NAMES}


def assemble_on_device(ids: Tensor, bounds: Bounds, **keywords: bool) -> GraphBatch:
    """Assemble as on a GPU, where it is not known whether there is padding."""
    with graphnorm.backend("reference"):
        return assemble(GRAPHS._tables, ids, bounds, padded=True, **keywords)


some_ids = st.lists(st.integers(-1, len(GRAPHS) - 1), min_size=0, max_size=6)


@given(some_ids, st.integers(0, 4), st.integers(0, 5))
@settings(max_examples=200, deadline=None)
def test_equals_the_loop(ids: list[int], spare_rows: int, spare_edges: int) -> None:
    exact = GRAPHS.bounds(ids)
    bounds = Bounds(exact.max_nodes + spare_rows, exact.max_edges + spare_edges)
    unpadded, expected = loop(GRAPHS, ids, *exact), loop(GRAPHS, ids, *bounds)
    for backend in BACKENDS:
        with graphnorm.backend(backend):
            assert GRAPHS.bounds(ids) == exact
            assert_same(as_dict(GRAPHS.batch(ids)), unpadded)
            assert_same(as_dict(GRAPHS.batch(ids, bounds=bounds)), expected)
    assert_same(as_dict(assemble_on_device(torch.tensor(ids, dtype=torch.int64), bounds)), expected)
    assert_same(as_dict(assemble_on_device(torch.tensor(ids, dtype=torch.int64), exact)), unpadded)


@given(st.lists(st.lists(st.integers(-1, len(GRAPHS) - 1), min_size=3, max_size=3), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_stack_equals_its_members(ids: list[list[int]]) -> None:
    stack = torch.tensor(ids)
    bounds = GRAPHS.bounds(stack)
    stacks = [as_dict(assemble_on_device(stack, bounds))]
    for backend in BACKENDS:
        with graphnorm.backend(backend):
            assert GRAPHS.bounds(stack) == bounds
            stacks.append(as_dict(GRAPHS.batch(stack)))
    for m, member in enumerate(ids):
        expected = loop(GRAPHS, member, *bounds)
        for batches in stacks:
            assert_same({name: array[m] for name, array in batches.items()}, expected)


@needs_library
@given(st.lists(st.lists(st.integers(-3, len(GRAPHS) + 2), min_size=2, max_size=2), min_size=1, max_size=3))
def test_both_implementations_agree_on_right_and_wrong_ids(ids: list[list[int]]) -> None:
    results: list[object] = []
    for backend in BACKENDS:
        with graphnorm.backend(backend):
            try:
                results.append(GRAPHS.bounds(ids))
            except DataError as error:
                results.append(error.problem)
    assert results[0] == results[1]


@needs_library
@pytest.mark.parametrize("threads", [1, 3])
def test_large_stacks_are_shared_out_among_threads(threads: int, fresh_memory_is_nan: None) -> None:
    stack = torch.randint(-1, len(GRAPHS), (40, 600))
    with graphnorm.backend("reference"):
        plain = GRAPHS.batch(stack)
        plain_features = GRAPHS.features(plain)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        batch = GRAPHS.batch(stack)
        features = GRAPHS.features(batch)
    finally:
        torch.set_num_threads(before)
    assert_same(as_dict(batch), as_dict(plain))
    assert features.equal(plain_features)


def test_bounds_are_the_largest_planned_batch() -> None:
    plan = torch.tensor([[0, 1, 2], [3, 4, -1]])
    sizes, edges = GRAPHS.sizes.tolist(), GRAPHS.edge_ptr.diff().tolist()
    assert GRAPHS.bounds(plan) == Bounds(max(sum(sizes[:3]), sum(sizes[3:5])), max(sum(edges[:3]), sum(edges[3:5])))


def test_static_assembly_reads_nothing_back() -> None:
    """Fake tensors have no values: reading one raises an error."""
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        tables = BatchTables(
            *(
                {k: mode.from_tensor(t) for k, t in v.items()} if isinstance(v, dict) else mode.from_tensor(v)
                for v in GRAPHS._tables
            )
        )
        ids = mode.from_tensor(torch.tensor([[0, 1, -1], [2, 3, 4]]))
        batch = assemble(tables, ids, Bounds(20, 40), padded=True)
    assert batch.rowptr.shape == (2, 21)
    assert batch.col.shape == (2, 40)


def test_assembly_without_edges_still_tells_degrees() -> None:
    ids = torch.tensor([[2, 0, -1], [1, 1, 3]])
    bounds = GRAPHS.bounds(ids)
    whole, without = as_dict(assemble_on_device(ids, bounds)), as_dict(assemble_on_device(ids, bounds, edges=False))
    for name, array in whole.items():
        if name in ("col", "edge_tags", "edge_x"):
            assert without[name].shape == (2, 0, *array.shape[2:])
        else:
            assert torch.equal(without[name].nan_to_num(-9), array.nan_to_num(-9)), name


def test_categories_of_padded_rows_are_none() -> None:
    graphs = replace(GRAPHS, tags=GRAPHS.tags[:, :1])  # type: ignore[index]
    exact = graphs.bounds([0])
    batch = graphs.batch([0], bounds=exact._replace(max_nodes=exact.max_nodes + 2))
    assert batch.categories().tolist() == [*batch.tags[:-2, 0].tolist(), -1, -1]  # type: ignore[index]
    with pytest.raises(ValueError, match="exactly one"):
        replace(batch, tags=None).categories()


def test_conveniences() -> None:
    batch = GRAPHS.batch([4, 0, 2])
    assert batch.num_graphs == 3
    assert batch.num_rows == int(batch.ptr[-1]) == int(batch.sizes.sum())
    assert torch.equal(batch.degree, torch.bincount(batch.row, minlength=batch.num_rows))
    assert torch.equal(batch.batch[batch.row], batch.batch[batch.col])
    assert torch.equal(batch.edge_index, torch.stack([batch.col, batch.row]))
    assert batch.real.all()
    assert "ptr=[4]" in repr(batch)
    assert batch.to("cpu").ptr.equal(batch.ptr)


@pytest.mark.usefixtures("implementation")
def test_padded_rows_have_no_features_and_no_edges() -> None:
    exact = GRAPHS.bounds([1, 2])
    batch = GRAPHS.batch([1, 2], bounds=Bounds(exact.max_nodes + 3, exact.max_edges + 2))
    assert (~batch.real).sum() == 3
    assert batch.degree[-3:].eq(0).all()
    features = GRAPHS.features(batch)
    assert features.shape == (batch.num_rows, GRAPHS.num_features)
    assert features[-3:].eq(0).all()
    assert features[:-3, :8].sum(1).eq(2).all()
    assert GRAPHS.features(batch, torch.float64).equal(features.double())
    assert batch.row[-2:].eq(batch.num_rows).all()


def test_vmap_sees_one_batch_at_a_time() -> None:
    ids = torch.tensor([[0, 1, -1], [5, 3, 2]])
    stack = GRAPHS.batch(ids)

    def pooled(batch: GraphBatch) -> Tensor:
        assert batch.ptr.shape == (4,)
        one_hots = batch.one_hot(GRAPHS.cardinalities)
        return torch.zeros(4, one_hots.shape[1]).scatter_add(0, batch.batch[:, None].expand_as(one_hots), one_hots)

    together = torch.func.vmap(pooled)(stack)
    for m in range(2):
        assert torch.equal(together[m], pooled(GRAPHS.batch(ids[m], bounds=GRAPHS.bounds(ids))))


def test_pytree_leaves_out_what_is_absent() -> None:
    batch = GRAPHS.batch([0])
    bare = GraphBatch(*(getattr(batch, name) for name in NAMES[:6]))
    leaves, spec = pytree.tree_flatten(bare)
    assert len(leaves) == 6
    assert pytree.tree_unflatten(leaves, spec).tags is None
    with pytest.raises(ValueError, match="no categorical"):
        bare.one_hot((2,))
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(bare)[0]]
    assert paths[0] == ".ids"


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_one_hot_joins_columns(dtype: torch.dtype) -> None:
    tags = torch.tensor([[2, 1], [0, 0], [1, 1]], dtype=dtype)
    expected = [[0, 0, 1, 0, 1], [1, 0, 0, 1, 0], [0, 1, 0, 0, 1]]
    assert one_hot(tags, (3, 2)).tolist() == expected
    assert one_hot(tags.T.contiguous().T, (3, 2), torch.float64).tolist() == expected
    masked = one_hot(tags, (3, 2), torch.bfloat16, real=torch.tensor([True, False, True]))
    assert masked.dtype == torch.bfloat16
    assert masked.tolist() == [expected[0], [0] * 5, expected[2]]


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("tags", [[[0, 2]], [[3, 0]], [[-1, 0]], [[0, -1]]])
def test_one_hot_refuses_tags_that_are_no_value(tags: list[list[int]]) -> None:
    with pytest.raises(IndexError, match=r"row 0 .* below \[3, 2\]"):
        one_hot(torch.tensor(tags), (3, 2))
    assert one_hot(torch.tensor(tags), (3, 2), real=torch.tensor([False])).eq(0).all()


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("cardinalities", [(3,), (3, 2, 2), (3, -2)])
def test_one_hot_refuses_cardinalities_that_do_not_fit(cardinalities: tuple[int, ...]) -> None:
    with pytest.raises((ValueError, IndexError)):
        one_hot(torch.zeros(4, 2, dtype=torch.uint8), cardinalities)


def test_features_are_traced_as_plain_torch() -> None:
    batch = GRAPHS.batch([1, -1, 2])
    expected = GRAPHS.features(batch)
    compiled_features = torch.compile(GRAPHS.features, backend="eager", fullgraph=True)
    assert compiled_features(batch).equal(expected)
    with FakeTensorMode() as mode:
        fake = pytree.tree_map(mode.from_tensor, batch)
        assert GRAPHS.features(fake).shape == expected.shape
    assert not uses_c(fake.tags)  # it has no memory outside of its mode either


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([7], "7 graphs, but the ids range from 7 to 7"),
        ([0, 2**62], "7 graphs, but the ids range from 0"),
        ([-2], "-1 marks an empty place"),
        ([0.5], "graph ids must be integers"),
        (torch.ones(7, dtype=torch.bool), "nonzero"),
        (torch.tensor(3), r"shape \(\) make no batch"),
        (torch.zeros(0, 3, dtype=torch.long), r"shape \(0, 3\) make no batch"),
        (torch.zeros(2, 2, 2, dtype=torch.long), r"shape \(B,\) or \(M, B\)"),
    ],
)
def test_wrong_ids(ids: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        GRAPHS.batch(ids)


@pytest.mark.usefixtures("implementation")
def test_a_batch_that_exceeds_its_bounds_is_refused() -> None:
    with pytest.raises(DataError, match=r"graphs\.bounds\(plan\)"):
        GRAPHS.batch(list(range(7)), bounds=Bounds(3, 100))


@pytest.mark.usefixtures("implementation")
def test_ids_of_any_layout_and_kind() -> None:
    ids = torch.tensor([[0, 4], [-1, 2], [3, 3]])
    expected = as_dict(GRAPHS.batch(ids))
    strided = torch.zeros(3, 4, dtype=torch.int16)
    strided[:, ::2] = ids
    for same in (ids.T.contiguous().T, strided[:, ::2], ids.numpy(), ids.tolist(), ids.int()):
        assert_same(as_dict(GRAPHS.batch(same)), expected)


@pytest.mark.parametrize(
    "damage",
    [
        {"node_ptr": torch.tensor([0, 3, 1, 4]), "labels": GRAPHS.labels[:3], "targets": GRAPHS.targets[:3]},
        {"labels": GRAPHS.labels[:3], "targets": GRAPHS.targets[:3]},
        {"x": GRAPHS.x[:-1]},
        {"col": GRAPHS.col[:-1]},
        {"edge_tags": GRAPHS.edge_tags[:-1]},
    ],
    ids=["falling", "labels", "features", "columns", "edge features"],
)
def test_arrays_that_do_not_fit_together_are_refused(damage: dict[str, Tensor]) -> None:
    with pytest.raises(DataError, match="do not fit together"):
        replace(GRAPHS, **damage).batch([0])


@pytest.mark.usefixtures("implementation")
def test_arrays_of_other_types_and_layouts_are_read_rightly() -> None:
    assert GRAPHS.x is not None
    narrow = {name: getattr(GRAPHS, name).int() for name in ("node_ptr", "rowptr", "labels")}
    other = replace(GRAPHS, **narrow, col=GRAPHS.col.long(), x=GRAPHS.x.T.contiguous().T)
    assert_same(as_dict(other.batch([2, -1, 5])), as_dict(GRAPHS.batch([2, -1, 5])))


@pytest.mark.usefixtures("implementation")
def test_a_batch_keeps_its_own_ids() -> None:
    ids = torch.tensor([1, 2])
    batch = GRAPHS.batch(ids)
    ids.fill_(0)
    assert batch.ids.tolist() == [1, 2]
