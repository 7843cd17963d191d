"""Neighbour sums and readouts, for every set of kernels, against the float64 oracle."""

import pytest
import torch
from torch.func import grad, vmap

import graphnorm
from graphnorm import Adjacency, Segments
from graphnorm.ops.neighbour_sum import aggregate, pool
from neighbour_sum_oracle import Case, neighbours
from oracle import error, laid_out

pytestmark = pytest.mark.usefixtures("fresh_memory_is_nan")

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}
PARTS = [
    (),
    ("self_weight",),
    ("self_weight", "scale"),
    ("edge_x",),
    ("scale", "edge_x"),
    ("self_weight", "scale", "edge_x"),
]


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("relu", "reduce", "symmetric"),
    [(False, "sum", False), (True, "sum", True), (True, "mean", False), (False, "mean", True)],
)
@pytest.mark.parametrize("parts", PARTS, ids="+".join)
def test_values_and_gradients_in_float64(device, parts, relu, reduce, symmetric):
    Case(9, 21, device=device, parts=parts, relu=relu, reduce=reduce, symmetric=symmetric).check(1e-12)


@pytest.mark.interpreted
@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_types(device, dtype, index):
    Case(12, 40, 8, device=device, dtype=dtype, index=index, padding=3, relu=True).check(TOLERANCE[dtype])


@pytest.mark.interpreted
@pytest.mark.parametrize("channels", [1, 8, 31, 64, 150])
def test_channels(device, channels):
    Case(6, 15, channels, device=device, relu=True, reduce="mean").check(1e-12)


@pytest.mark.interpreted
@pytest.mark.parametrize("parts", [("self_weight", "scale"), ("self_weight", "scale", "edge_x")], ids="+".join)
@pytest.mark.parametrize(("reduce", "padding"), [("sum", 0), ("mean", 100)])
def test_rows_with_very_many_neighbours(device, parts, reduce, padding):
    """A hub among ordinary rows, in both directions."""
    options = {"parts": parts, "reduce": reduce, "padding": padding, "relu": "edge_x" in parts}
    Case(50, 60, 5, device=device, hub=170, symmetric=True, **options).check(1e-12)


@pytest.mark.parametrize("relu", [False, True])
def test_rows_that_several_threads_share(device, relu):
    Case(50, 100, 64, device=device, hub=9000, relu=relu).check(1e-12)
    Case(50, 100, 7, device=device, hub=9000, relu=relu, reduce="mean", parts=("self_weight",)).check(1e-12)


@pytest.mark.interpreted
@pytest.mark.parametrize("padding", [0, 4])
def test_padding_and_empty(device, padding):
    Case(7, 0, device=device, padding=padding).check(1e-12)
    Case(0, 0, device=device).check(1e-12)
    Case(5, 9, 0, device=device).check(1e-12)
    Case(5, 9, device=device, padding=padding, relu=True).check(1e-12)


def test_plain_number_as_self_weight(device):
    case = Case(9, 21, device=device, parts=("scale",), self_weight=0.3)
    case.check(1e-12)


def test_gradients_that_are_not_wanted_are_not_computed(device):
    case = Case(9, 21, device=device)
    x, w, a = (case.given[name].requires_grad_(name != "x") for name in ("x", "self_weight", "edge_x"))
    y = aggregate(x, case.adjacency, self_weight=w, edge_x=a, relu=True)
    assert case.adjacency._transpose is None  # no need of it: x has no gradient
    dw, da = torch.autograd.grad(y, (w, a), case.given["dy"])
    leaf = x.clone().requires_grad_()
    y = aggregate(leaf, case.adjacency, self_weight=w, edge_x=a, relu=True)
    right = torch.autograd.grad(y, (leaf, w, a), case.given["dy"])
    assert torch.allclose(dw, right[1])
    assert torch.equal(da, right[2])


@pytest.mark.parametrize("layout", ["strided", "transposed", "expanded"])
def test_any_memory_layout(device, layout):
    case = Case(12, 30, 6, device=device, relu=True)
    for name in ("x", "dy", "edge_x"):
        case.given[name] = laid_out(case.given[name], layout)
        case.right[name] = case.given[name].double().cpu()
    case.check(1e-12)


def test_long_sums_keep_their_digits(device):
    """A row with 20,000 neighbours, and a graph of as many rows, in float32."""
    x = torch.randn(20_000, 4) + 3
    star = torch.stack([torch.arange(20_000), torch.zeros(20_000, dtype=torch.int64)])
    y = aggregate(x.to(device), Adjacency(edge_index=star, num_nodes=20_000).to(device))
    right = x.double().sum(0)
    assert error(y[0], right) < 1e-6
    assert error(pool(x.to(device), Segments(sizes=[20_000]).to(device))[0], right) < 1e-6


def test_equal_twice_bit_by_bit(device):
    case = Case(300, 900, 16, device=device, dtype=torch.float32, hub=700, relu=True)
    first, again = case.results(), case.results()
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_wrong_neighbours_stay_in_bounds(device):
    """Numbers out of range may give any result, but touch no other memory; inside debug() they are an error."""
    x = torch.randn(3, 4, device=device, requires_grad=True)
    for rowptr, col in (([0, 1, 2, 3], [0, 10**9, -7]), ([-5, 1, 900, 2], [0, 1, 2])):
        arrays = {"rowptr": torch.tensor(rowptr, device=device), "col": torch.tensor(col, device=device)}
        y = aggregate(x, Adjacency(**arrays, symmetric=True), self_weight=1.0)
        assert torch.isfinite(torch.autograd.grad(y.sum(), x)[0]).all()
        with graphnorm.debug(), pytest.raises(ValueError, match=r"col holds|rowptr must"):
            Adjacency(**arrays)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reduce": "max"}, "reduce is 'max'"),
        ({"scale": torch.ones(4)}, r"scale has shape \(4,\); expected \(3,\)"),
        ({"scale": torch.ones(3, requires_grad=True)}, r"scale\.detach\(\)"),
        ({"edge_x": torch.ones(2, 4)}, r"edge_x has shape \(2, 4\); expected \(2, 5\)"),
        ({"self_weight": torch.ones(2)}, "self_weight is one number"),
        ({"x": torch.ones(4, 5)}, "x has 4 rows, but the adjacency describes 3"),
        ({"x": torch.ones(3)}, "x must have shape"),
        ({"scale": torch.ones(3, device="meta")}, "scale is on meta, x is on cpu"),
        ({"x": torch.ones(3, 5, device="meta")}, r"the adjacency is on cpu.*\.to\('meta'\)"),
    ],
)
def test_wrong_input_says_what_to_do(options, words):
    adjacency = Adjacency(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    with pytest.raises(ValueError, match=words):
        aggregate(options.pop("x", torch.ones(3, 5)), adjacency, **options)


def test_wrong_types():
    adjacency = Adjacency(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    with pytest.raises(TypeError, match=r"floating-point.*x\.float\(\)"):
        aggregate(torch.ones(3, 5, dtype=torch.int64), adjacency)
    with pytest.raises(TypeError, match="tensor of features"):
        pool([1.0], Segments(sizes=[1]))


# ---- readout -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", [pytest.param(t, marks=pytest.mark.interpreted if t == torch.float32 else ()) for t in TOLERANCE], ids=str
)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("layout", ["sorted", "unsorted", "padded"])
def test_pool(device, layout, reduce, dtype):
    sizes = [3, 1, 0, 130, 18, 0, 1, 0, 2, 4, 0, 0, 1, 0]
    graphs = len(sizes)
    ids = torch.repeat_interleave(torch.arange(graphs), torch.tensor(sizes))
    if layout == "unsorted":
        ids = ids[torch.randperm(len(ids))]
    segments = Segments(batch=ids, batch_size=graphs)
    if layout == "padded":
        segments = Segments(sizes=sizes, num_rows=len(ids) + 3)
        ids = torch.nn.functional.pad(ids, (0, 3), value=graphs)
    x = torch.randn(len(ids), 7).to(dtype)
    given, right = (t.detach().clone().requires_grad_() for t in (x.to(device), x.double()))
    y = pool(given, segments.to(device), reduce)
    total = torch.zeros(graphs + 1, 7, dtype=torch.float64).index_add(0, ids, right)[:graphs]
    if reduce == "mean":
        total = total / torch.tensor(sizes).clamp(min=1)[:, None]
    dy = torch.randn(graphs, 7).to(dtype)
    y.backward(dy.to(device))
    total.backward(dy.double())
    assert y.dtype == dtype
    assert error(y, total) < TOLERANCE[dtype]
    assert error(given.grad, right.grad) < TOLERANCE[dtype]


def test_pool_of_nothing(device):
    x = torch.randn(4, 3, device=device, requires_grad=True)
    for segments in (Segments(sizes=[], num_rows=4), Segments(sizes=[0, 0], num_rows=4)):
        y = pool(x, segments.to(device))
        assert y.shape == (segments.num_graphs, 3)
        assert (y == 0).all()
        assert (torch.autograd.grad(y.sum(), x)[0] == 0).all()
    assert pool(x[:0], Segments(sizes=[0, 0]).to(device)).tolist() == [[0.0] * 3] * 2


# ---- transformations -----------------------------------------------------------------------------


@pytest.mark.parametrize("parts", PARTS, ids="+".join)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_gradients_of_both_orders(parts, relu, reduce):
    case = Case(5, 8, 2, parts=parts)
    names = [name for name in ("x", "self_weight", "edge_x") if name in case.given]
    leaves = tuple(case.given[name].requires_grad_() for name in names)

    def output(*leaves):
        given = dict(zip(names, leaves, strict=True)) | {"scale": case.given.get("scale")}
        return aggregate(adjacency=case.adjacency, relu=relu, reduce=reduce, **given)

    assert torch.autograd.gradcheck(output, leaves)
    assert torch.autograd.gradgradcheck(output, leaves)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_gradients_of_pool_of_both_orders(reduce):
    x = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    segments = Segments(batch=torch.tensor([1, 0, 1, 3, 1, 0]))
    assert torch.autograd.gradcheck(lambda x: pool(x, segments, reduce), (x,))
    assert torch.autograd.gradgradcheck(lambda x: pool(x, segments, reduce), (x,))


@pytest.mark.interpreted
@pytest.mark.parametrize("own_graphs", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_members_equal_separate_calls(device, own_graphs, relu):
    """Three members that share graphs or not; weights and edge features differ."""
    cases = [Case(8, 20, 5, device=device, seed=m, relu=relu) for m in range(3)]
    ordered = [case.adjacency for case in cases]
    stacked = {name: torch.stack([case.given[name] for case in cases]) for name in cases[0].given}
    rowptr, col = (torch.stack([getattr(a, name) for a in ordered]) for name in ("rowptr", "col"))
    if not own_graphs:
        rowptr, col = rowptr[0].expand_as(rowptr), col[0].expand_as(col)

    def loss(x, w, a, scale, rowptr, col, dy):
        y = aggregate(x, Adjacency(rowptr=rowptr, col=col), self_weight=w, edge_x=a, scale=scale, relu=relu)
        return (y * dy).sum()

    names = ("x", "self_weight", "edge_x", "scale")
    arguments = [stacked[name] for name in names]
    if own_graphs:
        found = vmap(grad(loss, argnums=(0, 1, 2)))(*arguments, rowptr, col, stacked["dy"])
    else:
        in_dims = (0, 0, 0, 0, None, None, 0)
        found = vmap(grad(loss, argnums=(0, 1, 2)), in_dims)(*arguments, rowptr[0], col[0], stacked["dy"])
    for m in range(3):
        one = [t[m] for t in (*arguments, rowptr, col, stacked["dy"])]
        right = grad(loss, argnums=(0, 1, 2))(*one)
        assert all(torch.allclose(f[m], r, atol=1e-12) for f, r in zip(found, right, strict=True))


@pytest.mark.interpreted
def test_members_share_what_is_not_theirs(device):
    """Symmetric graphs shared by all, as in a fleet on one batch; only x and the weight are mapped over."""
    case = Case(8, 20, 5, device=device, symmetric=True, parts=("scale",))
    x, w = torch.randn(4, 8, 5, device=device).double(), torch.randn(4, device=device).double()

    def output(x, w):
        return aggregate(x, case.adjacency, self_weight=w, scale=case.given["scale"])

    found = vmap(output)(x, w)
    only_weight = vmap(output, (None, 0))(x[0], w)
    for m in range(4):
        assert torch.allclose(found[m], output(x[m], w[m]))
        assert torch.allclose(only_weight[m], output(x[0], w[m]))


@pytest.mark.interpreted
def test_members_of_pool(device):
    """Members whose boundaries and order differ."""
    x = torch.randn(3, 9, 4, device=device).double()
    batch = torch.stack([torch.randint(0, 4, (9,)) for _ in range(3)]).to(device)

    def loss(x, batch):
        return pool(x, Segments(batch=batch, batch_size=4), "mean").square().sum()

    found = vmap(grad(loss))(x, batch)
    for m in range(3):
        assert torch.allclose(found[m], grad(loss)(x[m], batch[m]))


def test_transposes_outlive_the_transformation_they_were_first_used_in():
    case = Case(6, 14, 3)
    x = case.given["x"]
    vmap(grad(lambda x: aggregate(x, case.adjacency).sum()))(x[None])
    torch.compile(lambda x: aggregate(x, case.adjacency), backend="aot_eager")(x.requires_grad_())
    case.check(1e-12)
    made = case.adjacency._transpose
    case.check(1e-12)
    assert case.adjacency._transpose is made


def test_opcheck():
    case = Case(6, 14, 3)
    given = {name: t.requires_grad_(name != "scale") for name, t in case.given.items()}
    adjacency = case.adjacency
    arguments = (
        given["x"], given["edge_x"], given["self_weight"], given["scale"],
        adjacency.rowptr, adjacency.col, adjacency.edge_ids, *adjacency.transpose(), 0.0, True, True, None,
    )  # fmt: skip
    torch.library.opcheck(torch.ops.graphnorm.neighbour_sum, arguments)
    backward = (given["dy"], *arguments, True, adjacency.num_edges, True)
    torch.library.opcheck(torch.ops.graphnorm.neighbour_sum_backward, backward)
    nothing = (given["x"], *[None] * 3, adjacency.rowptr, adjacency.col, *[None] * 4, 0.0, False, False, None)
    torch.library.opcheck(torch.ops.graphnorm.neighbour_sum, nothing, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_compile_with_fullgraph_and_dynamic_shapes(reduce):
    def model(x, adjacency, segments, w):
        h = aggregate(x, adjacency, self_weight=w, relu=True, reduce=reduce)
        return pool(h.square(), segments, reduce)

    torch.compiler.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows, edges, sizes in ((6, 14, [2, 4]), (9, 30, [3, 3, 3]), (5, 8, [1, 4])):
        case = Case(rows, edges, 3)
        leaves = [case.given["x"].requires_grad_(), case.given["self_weight"].requires_grad_()]
        results = []
        for run in (compiled, model):
            y = run(leaves[0], case.adjacency, Segments(sizes=sizes), leaves[1])
            results.append((y, *torch.autograd.grad(y.square().sum(), leaves)))
        assert all(torch.allclose(f, r) for f, r in zip(*results, strict=True))
    torch.compiler.reset()


def test_export_is_plain_torch():
    class Model(torch.nn.Module):
        def forward(self, x, edge_index, edge_x):
            return aggregate(x, Adjacency(edge_index=edge_index, num_nodes=6), self_weight=1.0, edge_x=edge_x)

    def arguments(edges):
        case = Case(6, edges, 3)
        return case.given["x"], case.edge_index, case.given["edge_x"]

    edges = torch.export.Dim("edges", min=2)
    program = torch.export.export(Model(), arguments(14), dynamic_shapes=(None, {1: edges}, {0: edges}))
    targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert targets
    assert not any("graphnorm" in target for target in targets)
    x, edge_index, edge_x = arguments(20)
    right = neighbours(x, edge_index, self_weight=1.0, edge_x=edge_x)
    assert torch.allclose(program.module()(x, edge_index, edge_x), right)


def test_features_are_not_kept_for_backward(saved_tensors):
    case = Case(9, 21, 5, symmetric=True, parts=("self_weight", "scale"))
    x = case.given["x"].requires_grad_()
    with saved_tensors() as saved:
        aggregate(x, case.adjacency, self_weight=1.0, scale=case.given["scale"])
        pool(x, Segments(sizes=[4, 5]))
    assert saved
    assert all(not t.is_floating_point() or t.dim() == 1 for t in saved)


hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402


@given(
    rows=st.integers(1, 60),
    edges=st.integers(0, 300),
    channels=st.sampled_from([1, 2, 7, 8, 31, 64, 65, 300]),
    dtype=st.sampled_from(list(TOLERANCE)),
    index=st.sampled_from([torch.int64, torch.int32]),
    parts=st.sampled_from(PARTS),
    relu=st.booleans(),
    reduce=st.sampled_from(["sum", "mean"]),
    symmetric=st.booleans(),
    padding=st.integers(0, 9),
    hub=st.sampled_from([0, 0, 400]),
    name=st.sampled_from(["auto", "reference"]),
    seed=st.integers(0, 2**16),
)
def test_any_input(rows, edges, channels, dtype, name, **options):
    with graphnorm.backend(name):
        Case(rows, edges, channels, dtype=dtype, **options).check(10 * TOLERANCE[dtype])
