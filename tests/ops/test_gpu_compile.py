"""Every GPU kernel compiles for an H100. Triton's interpreter accepts more than its compiler, which needs no GPU."""

import os

import pytest
import torch

from graphnorm import Adjacency
from graphnorm import launch as launching
from graphnorm.adjacency import Blocks
from graphnorm.ops.neighbour_sum.reference import Problem as Sum
from graphnorm.ops.neighbour_sum.reference import Wanted
from graphnorm.ops.standardize.reference import GIVEN, LIVE, Problem

triton = pytest.importorskip("triton")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="kernels are not compiled in the interpreter"),
]


class Compiled:
    """Compiles a kernel for the arguments of each launch, and launches nothing."""

    def __init__(self, kernel):
        self.kernel, self.count = kernel, 0

    def __getitem__(self, grid):
        return self.compile

    def compile(self, *arguments, **options):
        from triton.backends.compiler import GPUTarget
        from triton.runtime.jit import mangle_type

        signature, constants = {}, {}
        for position, (parameter, value) in enumerate(zip(self.kernel.params, arguments, strict=True)):
            fixed = parameter.is_constexpr or value is None
            signature[parameter.name] = "constexpr" if fixed else mangle_type(value)
            if fixed:
                constants[(position,)] = value
        source = triton.compiler.ASTSource(fn=self.kernel, signature=signature, constexprs=constants)
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"enable_fp_fusion": True} | options)
        assert "ptx" in made.asm
        self.count += 1


class Forgetful(dict):
    """Keeps no kernel, since none can be launched."""

    def __setitem__(self, key, kernel):
        pass


@pytest.fixture
def kernels(monkeypatch):
    """``kernels(module)`` has its kernels compiled in place of launched, and gives them by name."""
    from graphnorm import read_batch_gpu
    from graphnorm.ops.standardize import gpu

    monkeypatch.setattr(launching, "_compiled", Forgetful())
    monkeypatch.setattr(launching, "_driver", lambda: 0)
    monkeypatch.setattr(gpu, "_work", gpu.Work)  # launches are not to be kept
    monkeypatch.setattr(read_batch_gpu, "_launches", read_batch_gpu._launches.__wrapped__)

    def replace(module):
        made = {name: Compiled(value) for name, value in vars(module).items() if isinstance(value, triton.JITFunction)}
        launched = {name: kernel for name, kernel in made.items() if kernel.kernel.do_not_specialize}
        for name, kernel in launched.items():
            monkeypatch.setattr(module, name, kernel)
        return launched

    return replace


def compiled(kernels):
    return {name for name, kernel in kernels.items() if kernel.count}


def test_standardize(kernels):
    from graphnorm.ops.standardize import gpu

    made = kernels(gpu.kernels)
    weight = torch.ones(5)
    for sizes, ptr in (([3, 5], True), ([90, 70, 4], True), ([900, 3, 600, 2], True), ([3000], False)):
        x = torch.randn(sum(sizes), 5)
        bounds = torch.tensor([0, *sizes]).cumsum(0) if ptr else None
        for order, parameters in ((None, (weight,) * 3), (torch.randperm(len(x)) if ptr else None, (None,) * 3)):
            problem = Problem(*parameters, bounds, order, None, None, 1e-5, True, LIVE, max(sizes))
            _, mean, var = gpu.forward(x, x if order is None else None, problem)
            gpu.backward(x, x, problem._replace(mean=mean, var=var))
    plan = gpu.CallPlan(x, Problem(*[None] * 7, 1e-5, True, LIVE, None))
    plan.average(plan.forward(x, None, (None,) * 3)[1][0], weight, weight.clone(), 0.1, 1.0)
    assert compiled(made) == set(made)


def test_layer_norm(kernels):
    from graphnorm.ops import layer_norm_gpu as gpu

    made, weight = kernels(gpu), torch.ones(71)
    for x, parameter in ((torch.randn(2, 300, 71), weight.expand(2, 71)), (torch.randn(300, 71), None)):
        gpu.forward(x, x, parameter, parameter, 1e-5, True)
        gpu.backward(x, x, parameter, parameter, 1e-5, True)
    assert compiled(made) == set(made)


def test_neighbour_sum(kernels):
    from graphnorm.ops.neighbour_sum import gpu

    made = kernels(gpu)
    x, edge_x = torch.randn(50, 5), torch.randn(900, 5)
    edges = Adjacency(edge_index=torch.randint(0, 50, (2, 900)), num_nodes=50)
    arrays = (edges.rowptr, edges.col, edges.edge_ids, *edges.transpose())
    full = Sum(torch.tensor(1.0), torch.ones(50), *arrays, 0.0, True, True, None)
    bare = Sum(None, None, edges.rowptr, edges.col, None, *edges.transpose()[:2], None, 0.5, False, False, None)
    readout = Sum(None, None, edges.rowptr, *[None] * 5, 0.0, False, True, None)
    for problem, given, features in ((full, x, edge_x), (bare, x, None), (readout, None, edge_x)):
        gpu.forward(given, features, problem)
        wanted = Wanted(given is not None, None if features is None else 900, problem is full)
        gpu.backward(x, given, features, problem, wanted)
    assert compiled(made) == set(made)


def test_linear_dense_sum_categories_and_dropout(kernels):
    from graphnorm.ops import categories_gpu, dense_sum_gpu, dropout_gpu, linear_gpu

    made = [kernels(module) for module in (categories_gpu, dense_sum_gpu, dropout_gpu, linear_gpu)]
    x, weight, bias = torch.randn(2, 40, 7), torch.randn(2, 7, 7), torch.randn(2, 7)
    for some in (bias, None):
        linear_gpu.forward(x, weight, some)
    linear_gpu.backward(x, x, weight, True)
    categories_gpu.weight_gradient(x, torch.zeros(2, 40, dtype=torch.int64), 9)
    blocks = Blocks(torch.zeros(640, dtype=torch.uint8), torch.zeros(1).long(), torch.tensor([0, 40]), 40)
    for scale, own in ((torch.ones(40), x), (None, None)):
        dense_sum_gpu.run(x, None if scale is None else torch.ones(2), scale, blocks, 0.5, own)
        dropout_gpu.drop(x, own, torch.zeros(2).long(), torch.rand(2), 1)
    assert all(compiled(some) == set(some) for some in made)


def test_adam(monkeypatch):
    from graphnorm.training import adam_gpu as gpu

    step = Compiled(gpu._step)
    monkeypatch.setattr(gpu, "_step", step)
    entries, owner, members = torch.zeros(7), torch.zeros(7, dtype=torch.int32), torch.zeros(2)
    gpu.launch(entries, entries, entries, entries, owner, members, members, members, members > 0)
    assert step.count


def test_reading_a_batch(kernels):
    from graphnorm import read_batch_gpu

    made = kernels(read_batch_gpu)
    read_batch_gpu.read(torch.tensor([0, 0, 2]).repeat(500), 3)
    assert compiled(made) == set(made)


def test_kernels_of_compiled_programs(kernels, monkeypatch):
    from graphnorm.ops.standardize import compiled_gpu as gpu

    made, weight = kernels(gpu), torch.ones(71)
    monkeypatch.setattr(gpu, "wrap_triton", lambda kernel: kernel)
    bounds, order = torch.tensor([0, 5, 40]), torch.arange(40)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        x = torch.randn(40, 71, dtype=dtype)
        for parameter, rows, statistics in ((weight, order, LIVE), (None, None, GIVEN)):
            problem = Problem(*[parameter] * 3, bounds, rows, None, None, 1e-5, True, LIVE, None)
            _, mean, var = gpu.forward(x, x if rows is None else None, problem, 2)
            problem = problem._replace(mean=mean, var=var, statistics=statistics)
            gpu.forward(x, None, problem, 0)
            gpu.backward(x, x, problem, 2)
    assert compiled(made) == set(made)
