"""Values and gradients however a call is cut into programs, whatever the tuning of the day says."""

import pytest
import torch

from graphnorm import GraphNorm, Segments
from graphnorm.backends import chosen_backend
from graphnorm.launch import GraphScratch, Tile
from graphnorm.layers.functional import batch_norm, graph_norm
from oracle import Case, error

pytestmark = [pytest.mark.interpreted, pytest.mark.usefixtures("fresh_memory_is_nan")]
SMALL = [3, 1, 0, 7, 12, 2, 0, 16, 5]
MIXED = [0, 3, 20, 1, 50, 16, 17, 0, 33, 5]


@pytest.fixture
def cut_as(device, monkeypatch):
    """Sets how calls are cut, with no counter to spare; skips a set of kernels that is not cut."""
    if chosen_backend() != "triton":
        pytest.skip("other kernels are not cut")
    gpu = pytest.importorskip("graphnorm.ops.standardize.gpu")
    monkeypatch.setattr(gpu, "scratch", lambda device, index, stream: GraphScratch(device))

    def choose(forward, backward, run, rows=0, window=0, fine=0, **options):
        if window:
            write = Tile(16, forward[1], 1)
            options |= {"windows": -(-rows // window), "fine_window": fine, "fine_windows": -(-rows // fine)}
            options |= {"window": window, "read": 16, "join": 2, "write": write, "whole": write}
        cut = gpu.Cut(Tile(*forward), Tile(*backward), run, **options)
        monkeypatch.setattr(gpu, "cut", lambda *sizes: cut)

    return choose


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize(("run", "half"), [(1, False), (4, True)])
def test_segments_in_registers(device, cut_as, run, half, shuffled):
    cut_as((16, 4, 1), (16, 2, 1), run, fits=True, half=half)
    case = Case(SMALL, 5, device=device, shuffled=shuffled, padding=0 if shuffled else 3, residual=True, act="relu")
    case.check(1e-12)
    norm, x = GraphNorm(5).to(device).double(), case.given["x"]
    short = norm(x, case.segments)
    torch.testing.assert_close(short, torch.func.vmap(lambda x: norm(x, case.segments))(x[None])[0])


def test_gradients_of_parameters_over_more_runs_than_a_group(device, cut_as):
    cut_as((4, 2, 1), (4, 2, 1), 1)
    Case([2] * 65, 3, device=device, padding=1).check(1e-12)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize(("window", "fine", "apart"), [(16, 8, False), (16, 16, True), (32, 16, False)])
def test_long_segments_beside_short_ones(device, cut_as, window, fine, apart, shuffled):
    padding = 0 if shuffled else 5
    cut_as((8, 4, 1), (8, 2, 1), 2, sum(MIXED) + padding, window, fine, apart=apart)
    Case(MIXED, 5, device=device, shuffled=shuffled, padding=padding, residual=True, act="relu").check(1e-12)


@pytest.mark.parametrize("statistics", ["live", "detached", "given"])
@pytest.mark.parametrize("act", [None, "relu"])
def test_one_long_segment(device, cut_as, statistics, act):
    cut_as((8, 4, 1), (8, 2, 1), 1, 150, 32, 8, apart=True)
    case = Case([150], 5, device=device, scope="batch", statistics=statistics, act=act, residual=act is not None)
    names = ("mean", "var") if statistics == "given" else ()
    known = {name: torch.rand(1, 5, dtype=torch.float64) for name in names}
    found = case._run(case.given, False, **{name: t.to(device) for name, t in known.items()})
    right = case._run(case.right, True, **known)
    assert max(error(found[name], right[name]) for name in right) < 1e-12


def test_one_long_segment_of_each_member(device, cut_as):
    cut_as((8, 4, 1), (8, 2, 1), 1, 50, 16, 8)
    x, residual, dy = torch.randn(3, 3, 50, 5, dtype=torch.float64, device=device)
    weight, bias = torch.randn(2, 3, 5, dtype=torch.float64, device=device)

    def loss(x, residual, weight, bias, dy):
        return (batch_norm(x, weight, bias, residual=residual) * dy).sum()

    found = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2, 3)))(x, residual, weight, bias, dy)
    for m in range(3):
        alone = [t[m].cpu().requires_grad_() for t in (x, residual, weight, bias)]
        y = torch.nn.functional.batch_norm(alone[0], None, None, alone[2], alone[3], training=True) + alone[1]
        right = torch.autograd.grad(y, alone, dy[m].cpu())
        assert max(error(f[m], r) for f, r in zip(found, right, strict=True)) < 1e-12


@pytest.mark.parametrize("lengths", [[[20, 0, 30], [1, 48, 1]], [[50, 0, 0], [0, 0, 50]]], ids=str)
def test_long_segments_of_members(device, cut_as, lengths):
    cut_as((8, 4, 1), (8, 2, 1), 2, 50, 16, 8)
    x, dy = torch.randn(2, 2, 50, 3, dtype=torch.float64, device=device)
    weight = torch.randn(2, 3, dtype=torch.float64, device=device)
    ptr = torch.tensor([[0, *torch.tensor(sizes).cumsum(0)] for sizes in lengths], device=device)

    def loss(x, weight, ptr, dy):
        return (graph_norm(x, Segments(ptr=ptr, num_rows=50), weight) * dy).sum()

    found = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))(x, weight, ptr, dy)
    for m, sizes in enumerate(lengths):
        case = Case(sizes, 3, device=device, parameters=("weight",))
        case.right = {"x": x[m].cpu(), "weight": weight[m].cpu(), "dy": dy[m].cpu()}
        right = case._run(case.right, True)
        assert max(error(f[m], right[name]) for f, name in zip(found, ("x", "weight"), strict=True)) < 1e-12


@pytest.mark.parametrize("channels", [5, 40, 70])
def test_few_long_graphs_among_many_short_ones_as_the_tuning_says(device, channels):
    sizes = [3, 80, 0, 1, 900, 17, 130, 0, 600, 64, 2]
    assert max(sizes) > 512  # else none is cut
    Case(sizes, channels, device=device, padding=4).check(1e-12)
