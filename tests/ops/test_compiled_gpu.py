"""The kernels that compiled programs launch on a GPU, alone and in a compiled network."""

import operator
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import oracle
from graphnorm import Segments, make_norm
from graphnorm.backends import triton_kernels
from graphnorm.ops.standardize.compiled import FuseReLU
from graphnorm.ops.standardize.reference import GIVEN, LIVE, Problem

SIZES = [3, 1, 0, 70, 18, 2, 0]


@pytest.mark.interpreted
@pytest.mark.parametrize("relu", [0, 1, 2])
@pytest.mark.parametrize("channels", [1, 5, 71])
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.usefixtures("fresh_memory_is_nan")
def test_values_and_gradients(device_of_triton, relu, channels, shuffled):
    """With rows of no graph before and behind the others, and graphs without rows."""
    gpu = triton_kernels("graphnorm.ops.standardize.compiled_gpu")
    ids = torch.repeat_interleave(torch.arange(len(SIZES)), torch.tensor(SIZES))
    ids = torch.cat([torch.full((2,), -1), ids, torch.full((40,), -1)])
    order = torch.argsort(torch.rand(len(ids))) if shuffled else None
    ptr = 2 + torch.tensor([0, *SIZES]).cumsum(0)
    x, dy, residual = (torch.randn(len(ids), channels, dtype=torch.float64) for _ in range(3))
    parameters = [torch.randn(channels, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    leaves = [x.requires_grad_(), *parameters]
    places = torch.arange(len(ids)) if order is None else order
    named = dict(zip(oracle.PARAMETERS, parameters, strict=True))
    right = oracle.standardize(x, torch.empty_like(ids).scatter(0, places, ids), act="relu" if relu else None, **named)
    gradients = torch.autograd.grad(right, leaves, dy)

    to = lambda t: None if t is None else t.detach().to(device_of_triton)  # noqa: E731
    problem = Problem(*map(to, parameters), to(ptr), to(order), None, None, 1e-5, bool(relu), LIVE, None)
    y, mean, var = gpu.forward(to(x), to(residual), problem, relu)
    found = [y, *gpu.backward(to(dy), to(x), problem._replace(mean=mean, var=var), relu)]
    found[2:] = found[2].sum(1)
    for f, r in zip(found, (right + residual, *gradients), strict=True):
        assert oracle.error(f, r) < 1e-12
    given = problem._replace(mean=mean, var=var, statistics=GIVEN)
    assert oracle.error(gpu.forward(to(x), None, given, relu)[0], right) < 1e-12


@pytest.mark.interpreted
def test_memory_in_any_layout(device_of_triton):
    gpu = triton_kernels("graphnorm.ops.standardize.compiled_gpu")
    x, dy = torch.randn(2, 71, 9, device=device_of_triton).transpose(1, 2)
    ptr = torch.tensor([0, 4, 9], device=device_of_triton)
    parameters = (torch.randn(142)[::2], torch.randn(1).expand(71), torch.randn(71, 2)[:, 0])
    strided = Problem(*(p.to(device_of_triton) for p in parameters), ptr, None, None, None, 1e-5, False, LIVE, None)
    packed = strided._replace(**{name: getattr(strided, name).contiguous() for name in oracle.PARAMETERS})
    results = []
    for problem, values, gradient in ((strided, x, dy), (packed, x.contiguous(), dy.contiguous())):
        y, mean, var = gpu.forward(values, values, problem, 0)
        results.append((y, *gpu.backward(gradient, values, problem._replace(mean=mean, var=var), 0)))
    torch.testing.assert_close(*results, rtol=0, atol=0)


class Fusion:
    """A compiler's backend that fuses as on a GPU, and counts what is left."""

    def __call__(self, module, inputs):
        for node in module.graph.find_nodes(op="call_function", target=operator.getitem):
            node.meta["example_value"] = SimpleNamespace(is_cuda=True)
        FuseReLU()(module.graph)
        self.left = sum(node.target is torch.relu for node in module.graph.nodes)
        return module


def test_a_relu_is_fused_where_it_alone_reads_the_output():
    norm, x, ids = make_norm("graph", 3), torch.randn(6, 3), torch.tensor([0, 0, 1, 1, 1, 2])

    def without_gradients(x):
        y = norm(x, ids, 3)
        with torch.no_grad():
            clipped = torch.relu(y)
        return y - y.detach() + clipped

    def twice(x):
        y = norm(x, ids, 3)
        return torch.relu(y) + y

    for function, left in ((lambda x: torch.relu(norm(x, ids, 3)), 0), (twice, 1), (without_gradients, 1)):
        fusion = Fusion()
        y = torch.compile(function, backend=fusion)(x)
        assert fusion.left == left
        torch.testing.assert_close(y, function(x))


class Network(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.linear, self.norms = nn.Linear(64, 64, bias=False), nn.ModuleList(make_norm(name, 64) for _ in range(2))

    def forward(self, x, batch, batch_size):
        h = self.norms[0](self.linear(x), batch, batch_size).relu()
        return self.norms[1](self.linear(h), batch, batch_size)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["graph", "instance", "batch", "layer", "rms"])
def test_compiled_networks_give_the_results_of_eager_mode(name):
    """Of other sizes too, without compiling again, and of ids in no order."""
    network = Network(name).cuda()
    program = torch.compile(network, dynamic=True, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about the machine
        for sizes in ([18] * 128, [20, 1, 30] * 50, [400] * 3):
            ids = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)).cuda()
            ids = ids[torch.randperm(len(ids))] if len(sizes) == 150 else ids
            x, dy = torch.randn(2, len(ids), 64, device="cuda")
            results = []
            for model in (program, network):
                leaves = [(x + 3).requires_grad_(), *network.parameters()]
                y = model(leaves[0], ids, len(sizes))
                results.append((y, *torch.autograd.grad(y, leaves, dy)))
            for f, r in zip(*results, strict=True):
                assert oracle.error(f, r.double().cpu()) < 1e-4


@pytest.mark.gpu
def test_the_compiler_launches_the_kernels_itself():
    """Two launches a layer, ReLU among them, no mask kept, no copies of arguments, ``batch`` read once."""
    from torch._inductor.utils import run_and_get_code

    network, ids = Network("graph").cuda(), torch.arange(128, device="cuda").repeat_interleave(30)
    program = torch.compile(network, dynamic=True, fullgraph=True)

    def step() -> None:
        program(torch.randn(len(ids), 64, device="cuda"), ids, 128).sum().backward()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, (forward, backward) = run_and_get_code(step)
    calls = [[line for line in code.splitlines() if ".run(" in line] for code in (forward, backward)]
    assert sum("forward_graphs" in line for line in calls[0]) == 2
    assert sum("backward_graphs" in line for line in calls[1]) == 2
    assert forward.count("torch.ops.graphnorm.read_batch.default(") == 1
    assert "relu" not in forward.partition("def call")[2]
    others = [line.replace("_to_copy_sum", "") for line in calls[0] + calls[1]]  # of the parameters' gradients
    assert not [line for line in others if "clone" in line or "copy" in line], calls


@pytest.mark.gpu
def test_segments_and_padding_in_a_compiled_program():
    norm = make_norm("graph", 64, act="relu").cuda()
    segments = Segments(sizes=[5, 0, 30], num_rows=40).to("cuda")
    program = torch.compile(norm, dynamic=True, fullgraph=True)
    x = torch.randn(40, 64, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(program(x, segments, residual=x), norm(x, segments, residual=x))


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [[18] * 128, [3000, 2000]], ids=["short", "long"])
def test_programs_that_the_compiler_records_as_cuda_graphs(sizes):
    """Long graphs are left to the operation's kernels, which keep memory of their own."""
    norm = make_norm("graph", 64).cuda()
    program = torch.compile(norm, mode="reduce-overhead")
    ids = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)).cuda()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about the machine
        for _ in range(4):
            x, dy = torch.randn(2, len(ids), 64, device="cuda")
            results = []
            for layer in (program, norm):
                leaf = x.clone().requires_grad_()
                y = layer(leaf, ids, len(sizes))
                results += [y.detach().clone(), torch.autograd.grad(y, leaf, dy)[0].clone()]
            torch.testing.assert_close(results[:2], results[2:])
