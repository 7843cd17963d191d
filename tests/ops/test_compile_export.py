"""torch.compile, torch.export, ONNX and autocast give the results of eager mode."""

import copy
import hashlib
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
import torch._dynamo.testing
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.utils import run_and_get_code

import oracle
from graphnorm import GraphNorm, InstanceNorm, LayerNorm, Segments, make_norm
from graphnorm.backends import library
from graphnorm.layers import REGISTRY
from graphnorm.layers.functional import pool
from graphnorm.models import GIN

NAMES = list(REGISTRY)
needs_library = pytest.mark.skipif(library is None, reason="the C library was not built")


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Network(nn.Module):
    def __init__(self, name: str = "graph") -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 8), nn.Linear(8, 8)
        self.norms = nn.ModuleList([make_norm(name, 8), make_norm(name, 8, act="relu")])

    def forward(self, x, batch=None, batch_size=None):
        h = torch.relu(self.norms[0](self.first(x), batch, batch_size))
        return self.norms[1](self.second(h) + h, batch, batch_size, residual=h)


def batch_of(sizes):
    ids = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return torch.randn(len(ids), 3), ids[torch.randperm(len(ids))], len(sizes)


def gradients(network, y):
    return torch.autograd.grad(y.square().sum(), list(network.parameters()), allow_unused=True)


def agree(found, right):
    return all(
        (f is None and r is None) or torch.allclose(f, r, atol=1e-4, rtol=1e-4)
        for f, r in zip(found, right, strict=True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_compile_with_fullgraph_and_dynamic_shapes(name):
    """One graph serves all sizes, forward and backward."""
    network = Network(name)
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(network, backend=counter, fullgraph=True, dynamic=True)
    compilations = None
    for sizes in ([4, 2, 5], [3, 3, 6, 1, 2], [7, 2]):
        x, batch, graphs = batch_of(sizes)
        state = {key: value.clone() for key, value in network.state_dict().items()}
        y = compiled(x, batch, graphs)
        compilations = compilations or counter.frame_count
        found = gradients(network, y)
        after = {key: value.clone() for key, value in network.state_dict().items()}
        network.load_state_dict(state)
        right = network(x, batch, graphs)
        assert torch.allclose(y, right, atol=1e-5)
        assert agree(found, gradients(network, right))
        assert all(torch.allclose(after[key], value) for key, value in network.state_dict().items())
    assert counter.frame_count == compilations  # those of the first call


def test_compile_with_segments_as_argument():
    network = Network()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(network, backend=counter, fullgraph=True, dynamic=True)
    counts = []
    for sizes in ([4, 2, 5], [3, 3, 6, 1, 2], [7, 2], [1, 9, 8, 2]):
        x, segments = torch.randn(sum(sizes), 3), Segments(sizes=sizes)
        y = compiled(x, segments)
        counts.append(counter.frame_count)
        assert torch.allclose(y, network(x, segments), atol=1e-5)
    assert counts[1:] == counts[1:2] * 3, counts  # the first sizes may be taken for constants, not the later ones


def test_compile_with_batch_alone():
    """The number of graphs is then read from the batch vector, within the same compiled graph."""
    network = Network()
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True, dynamic=True)
    for sizes in ([4, 2, 5], [3, 3, 6, 1, 2]):
        x, batch, _ = batch_of(sizes)
        y, right = compiled(x, batch), network(x, batch)
        assert torch.allclose(y, right, atol=1e-5)
        assert agree(gradients(network, y), gradients(network, right))
        with torch.no_grad():
            assert torch.allclose(compiled(x, batch), right, atol=1e-5)
        shuffled = 7 * batch[torch.randperm(len(batch))]  # other numbers, and no order
        assert torch.allclose(compiled(x, shuffled), network(x, shuffled), atol=1e-5)


def test_numbers_that_depend_on_graphs_without_rows():
    """Compiled training may add such graphs to a batch vector, but not where they count."""
    x, ids = torch.randn(7, 3), torch.tensor([3, 0, 0, 1, 3, 1, 0])
    sums = torch.compile(lambda x, ids: pool(x, Segments(batch=ids)), backend="aot_eager", fullgraph=True)
    assert agree([sums(x, ids)], [pool(x, Segments(batch=ids))])
    layers = [InstanceNorm(3, track_running_stats=True) for _ in range(2)]
    torch.compile(layers[0], backend="aot_eager", fullgraph=True)(x, ids)
    layers[1](x, ids)
    assert agree(layers[0].buffers(), layers[1].buffers())


@pytest.mark.parametrize("norm", ["graph", "batch"])
def test_a_compiled_model_scores_each_graph_where_batch_alone_is_given(norm):
    x, ids, edges = torch.randn(7, 3), torch.tensor([3, 0, 0, 1, 3, 1, 0]), torch.tensor([[1, 2, 0, 4], [2, 1, 4, 0]])
    model = GIN(3, 2, hidden=4, layers=2, norm=norm, dropout=0.0).eval()
    scores = torch.compile(model, backend="aot_eager", fullgraph=True)(x, edges, ids)
    assert scores.shape == (4, 2)
    assert torch.allclose(scores, model(x, edges, ids), atol=1e-5)


@pytest.mark.parametrize("with_gradients", [True, False])
def test_compile_with_a_batch_of_no_rows(with_gradients):
    network, x, batch = Network(), torch.randn(0, 3), torch.zeros(0, dtype=torch.int64)
    with torch.set_grad_enabled(with_gradients):
        y = torch.compile(network, backend="aot_eager", fullgraph=True)(x, batch)
    assert y.shape == network(x, batch).shape == (0, 8)


@pytest.mark.parametrize("name", ["graph", "batch", "instance"])
@pytest.mark.parametrize("training", [True, False])
def test_one_graph_of_any_number_of_rows(name, training):
    """None, one, or a number that only the values of a mask decide."""
    norm, compiled = make_norm(name, 4).train(training), partial(torch.compile, backend="aot_eager")
    for rows in (0, 1, 5):
        x = torch.randn(rows, 4)
        assert agree([compiled(norm, fullgraph=True)(x)], [norm(x)])
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        x, mask = torch.randn(9, 4), torch.arange(9) > 3
        assert agree([compiled(lambda x, mask: norm(x[mask]))(x, mask)], [norm(x[mask])])


@pytest.mark.parametrize("segments", [None, Segments(sizes=[4, 5])])
@pytest.mark.parametrize("name", ["graph", "batch"])
def test_gradients_of_gradients_with_a_backend_that_allows_them(name, segments):
    norm = make_norm(name, 4).double()
    x, v, w = torch.randn(3, 9, 4, dtype=torch.float64)
    found = []
    for program in (torch.compile(norm, backend="eager"), norm):
        leaf = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(program(leaf, segments), leaf, v, create_graph=True)
        found.append(torch.autograd.grad(first, leaf, w)[0])
    torch.testing.assert_close(*found)


def test_evaluation_without_inductor():
    norm, x = make_norm("batch", 4).eval(), torch.randn(9, 4)
    for backend in ("eager", "aot_eager"):
        assert agree([torch.compile(norm, backend=backend)(x)], [norm(x)])


@pytest.mark.parametrize(
    ("ids", "graphs", "error", "words"),
    [
        ([0, 1, 2, 9], 3, ValueError, "batch holds id 9, but batch_size is 3"),
        ([0, 1, -1, 2], 3, ValueError, "batch holds the negative id -1"),
        ([0, 1, -1, 2], None, RuntimeError, "outside"),
        ([0, 1, 300_000_000, 2], None, RuntimeError, "Runtime assertion failed"),
    ],
)
def test_compiled_programs_refuse_ids_out_of_range(ids, graphs, error, words):
    compiled = torch.compile(Network(), backend="aot_eager", fullgraph=True, dynamic=True)
    with pytest.raises(error, match=words), torch.set_grad_enabled(max(ids) < 100):
        compiled(torch.randn(4, 3), torch.tensor(ids), graphs)


# ---- on a CPU: sums by the library, rows by the compiler -----------------------------------------


@needs_library
def test_the_compiler_sees_through_the_layers_on_a_cpu():
    """The batch is read once, a layer keeps its input alone, and nothing but the means of graphs is in double."""
    graphs = {}

    def keep(name):
        def compiler(graph, _):
            graphs[name] = graph
            return make_boxed_func(graph)

        return compiler

    backend = aot_autograd(
        fw_compiler=keep("forward"), bw_compiler=keep("backward"), decompositions=select_decomp_table(),
        partition_fn=partial(min_cut_rematerialization_partition, compiler="inductor"),
    )  # fmt: skip
    network, (x, batch, size) = Network(), batch_of([40, 20, 50])
    y = torch.compile(network, backend=backend, fullgraph=True, dynamic=True)(x, batch, size)
    right = network(x, batch, size)
    assert agree(gradients(network, y), gradients(network, right))
    ours = {
        name: [str(node.target).split(".")[1] for node in graph.graph.nodes if "graphnorm" in str(node.target)]
        for name, graph in graphs.items()
    }
    assert ours == {
        "forward": ["read_batch", *["standardize_coefficients"] * 2],
        "backward": ["standardize_slopes"] * 2,
    }
    (outputs,) = graphs["forward"].graph.find_nodes(op="output")
    kept = [node.meta["val"] for node in outputs.args[0] if isinstance(node.meta.get("val"), torch.Tensor)]
    assert torch.bool not in {tensor.dtype for tensor in kept}
    assert sum(tensor.shape == (len(x), 8) for tensor in kept) == 4  # the output, x of each layer, the residual
    assert not [tensor for tensor in kept if tensor.dtype == torch.float64 and tensor.shape[0] == len(x)]


@needs_library
def test_operators_of_compiled_programs_take_any_strides():
    """Only then does Inductor give them its own buffers; else it computes their arguments twice."""
    import graphnorm.ops.standardize.compiled  # noqa: F401

    ops = torch.ops.graphnorm
    ids = torch.tensor([1, 0, 2, 1, 0, 1])
    ptr, order = ops.read_batch(torch.stack([ids, ids], 1)[:, 1], 3)
    assert ptr.tolist() == [0, 2, 5, 6]
    x, dz = torch.randn(5, 6), torch.randn(5, 6)
    results = []
    for xs, dzs in ((x.t(), dz.t()), (x.t().contiguous(), dz.t().contiguous())):
        found, mean, var = ops.standardize_coefficients(xs, *[None] * 3, ptr, order, None, None, 1e-5, "live", None)
        slopes = ops.standardize_slopes(dzs, xs, *[None] * 3, ptr, order, mean, var, 1e-5, "live", None)
        results.append((found, mean, var, *slopes))
    for strided, contiguous in zip(*results, strict=True):
        assert torch.equal(strided, contiguous)
    for op in (ops.read_batch, ops.standardize_coefficients, ops.standardize_slopes):
        assert torch.Tag.flexible_layout in op.default.tags


@needs_library
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("graph", torch.float32),
        ("graph", torch.bfloat16),
        ("batch-alpha", torch.float32),
        ("batch-running", torch.float16),
        ("batch-detached", torch.float64),
    ],
    ids=str,
)
def test_compiled_layers_are_as_accurate(name, dtype):
    """Also where means are large, rows are padding, graphs are empty, and there is but one graph."""
    torch.manual_seed(1)
    norm = make_norm(name, 5, act="relu")
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.uniform_(0.3, 1.2)
    compiled = torch.compile(norm, backend="aot_eager", fullgraph=True, dynamic=True)
    mean = 1e4 if dtype in (torch.float32, torch.float64) else 0.0
    shuffled = torch.tensor([1, 3, 0, 3, 1, 0, 1, 3, 3])
    for training in (True, False):
        for segments in (Segments(sizes=[3, 0, 5], num_rows=9), Segments(batch=shuffled), None):
            norm.train(training)
            x = (torch.randn(9, 5) + mean).to(dtype).requires_grad_()
            residual, state = torch.randn(9, 5).to(dtype).requires_grad_(), copy.deepcopy(norm.state_dict())
            found, right = [], []
            for layer, results in ((compiled, found), (norm, right)):
                norm.load_state_dict(state)
                y = layer(x, segments, residual=residual)
                leaves = [x, residual, *norm.parameters()]
                results += [y, *torch.autograd.grad(y.float().square().sum(), leaves, allow_unused=True)]
            tolerance = 5e-6 if mean else 2e-2
            for f, r in zip(found, right, strict=True):
                assert f.dtype == r.dtype
                assert oracle.error(f.double(), r.double()) < tolerance


@pytest.mark.slow
@pytest.mark.parametrize("with_size", [True, False])
def test_inductor(with_size):
    network = Network()
    compiled = torch.compile(network, fullgraph=True, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about the machine
        for sizes in ([4, 2, 5], [3, 3, 6, 1, 2]):
            x, batch, graphs = batch_of(sizes)
            y = compiled(x, batch, graphs if with_size else None)
            right = network(x, batch, graphs)
            assert torch.allclose(y, right, atol=1e-5)
            assert agree(gradients(network, y), gradients(network, right))


@pytest.mark.slow
@pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=needs_library), pytest.param("cuda", marks=pytest.mark.gpu)]
)
def test_evaluation_reads_the_batch_once(device):
    network, (x, batch, graphs) = Network().to(device).eval(), batch_of([40, 20, 50])
    program = torch.compile(network, dynamic=True, fullgraph=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch's own, about the machine
        y, (code,) = run_and_get_code(program, x.to(device), batch.to(device), graphs)
    assert code.count("torch.ops.graphnorm.read_batch.default(") == 1
    assert torch.allclose(y.cpu(), network.cpu()(x, batch, graphs), atol=1e-5)


@needs_library
def test_compiled_programs_on_disk_are_those_of_this_version():
    from graphnorm.ops.standardize import compiled

    folder = Path(compiled.__file__).parents[1]
    kernels = ("standardize/compiled.py", "standardize/compiled_gpu.py", "standardize/kernels.py", "tiles_gpu.py")
    assert {folder / name for name in kernels} <= set(compiled._SOURCES)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.rglob("*.py")))).hexdigest()
    assert digest in torch.compiler.config.cache_key_tag


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("with_size", [True, False])
def test_export(name, with_size):
    """The exported program runs on other numbers of nodes, and of graphs if batch alone is given."""
    network = Network(name).eval()
    x, batch, graphs = batch_of([4, 2, 5])
    rows = torch.export.Dim("rows", min=2)
    arguments = (x, batch, graphs) if with_size else (x, batch)
    shapes = ({0: rows}, {0: rows}, None)[: len(arguments)]
    program = torch.export.export(network, arguments, dynamic_shapes=shapes).module()
    x, batch, graphs = batch_of([3, 9, 2] if with_size else [3, 9, 2, 2, 2])
    arguments = (x, batch, graphs) if with_size else (x, batch)
    assert torch.allclose(program(*arguments), network(x, batch), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "segments"),
    [
        ("graph", Segments(sizes=[4, 2])),
        ("graph", Segments(batch=torch.tensor([0, 1, 1, 0, 2]))),
        ("batch", Segments(sizes=[4, 2], num_rows=8)),
    ],
    ids=str,
)
@pytest.mark.parametrize("strict", [False, True])
def test_export_with_segments(name, segments, strict, tmp_path):
    """Segments go into the exported program, and into one that was saved and loaded."""
    network, x = Network(name).eval(), torch.randn(segments.num_rows, 3)
    program = torch.export.export(network, (x, segments), strict=strict)
    torch.export.save(program, tmp_path / "network.pt2")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")  # torch 2.10's own
        loaded = torch.export.load(tmp_path / "network.pt2")
    for twin in (program, loaded):
        assert torch.allclose(twin.module()(x, segments), network(x, segments), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *[(name, 3) for name in ("graph", "layer", "size", "pair", "rms")],
        *[(name, 2) for name in ("graph", "size", "batch", "mean-subtraction")],
        *[(name, 1) for name in ("size", "instance")],
    ],
)
def test_onnx(name, given, tmp_path):
    """Of a model that is called with x alone, with batch, or with batch and batch_size."""
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    network = Network(name).eval()
    arguments = batch_of([4, 2, 5])[:given]
    rows = torch.export.Dim("rows", min=2)
    shapes = ({0: rows}, {0: rows}, None)[:given]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        torch.onnx.export(
            network, arguments, tmp_path / "network.onnx", dynamo=True, dynamic_shapes=shapes, verbose=False
        )
    session = runtime.InferenceSession(str(tmp_path / "network.onnx"), providers=["CPUExecutionProvider"])
    x, batch, _ = batch_of([3, 9, 2])
    names = [entry.name for entry in session.get_inputs()]
    (found,) = session.run(None, dict(zip(names, (x.numpy(), batch.numpy()), strict=False)))
    assert torch.allclose(torch.from_numpy(found), network(*(x, batch)[:given]), atol=1e-5)


@pytest.mark.parametrize("layer", [GraphNorm, LayerNorm])
def test_exported_layer_is_plain_torch(layer):
    """No operator of ours is left in an exported program, so it runs where this library is not installed."""
    program = torch.export.export(layer(3), (torch.randn(5, 3), torch.tensor([0, 0, 1, 1, 1]), 2))
    targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert targets
    assert not any("graphnorm" in target for target in targets)


def test_autocast():
    """Under autocast linear layers give bfloat16; the norm keeps it, and its parameters stay float32."""
    network, x, segments = Network(), torch.randn(14, 3), Segments(sizes=[4, 1, 0, 6, 3])
    right = network(x, segments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = network(x, segments)
        y.float().sum().backward()
    assert y.dtype == torch.bfloat16
    assert network.norms[0].weight.grad.dtype == torch.float32
    assert torch.allclose(y.float(), right, atol=0.1)
