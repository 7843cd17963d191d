"""Values and gradients of the operation, for every set of kernels, against the float64 oracle."""

import pytest
import torch

from graphnorm import GraphNorm, Segments
from graphnorm.layers.functional import standardize
from oracle import PARAMETERS, Case, error

pytestmark = pytest.mark.usefixtures("fresh_memory_is_nan")

HALF = (torch.bfloat16, torch.float16)
SIZES = [3, 1, 0, 7, 18, 2, 0]


@pytest.mark.interpreted
@pytest.mark.parametrize("act", [None, "relu"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_values_and_gradients_in_float64(device, act, shuffled):
    Case(SIZES, 5, device=device, shuffled=shuffled, act=act, residual=True).check(1e-12)


@pytest.mark.interpreted
@pytest.mark.parametrize("parameters", [(), ("weight", "bias"), ("mean_scale",), ("bias",), ("weight", "mean_scale")])
def test_every_parameter_may_be_left_out(device, parameters):
    Case(SIZES, 5, device=device, parameters=parameters).check(1e-12)


@pytest.mark.interpreted
@pytest.mark.parametrize("scope", ["graph", "batch"])
@pytest.mark.parametrize("statistics", ["live", "detached"])
def test_scopes_and_statistics(device, scope, statistics):
    case = Case(SIZES, 6, device=device, scope=scope, statistics=statistics, act="relu", residual=True)
    case.check(1e-12)


@pytest.mark.interpreted
@pytest.mark.parametrize("kept", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_given_statistics(device, dtype, kept):
    """Running averages come in whatever type they are kept in, and none of them is read as another."""
    case = Case(SIZES, 6, device=device, dtype=dtype, statistics="given")
    mean, var = torch.randn(len(SIZES), 6, dtype=kept), torch.rand(len(SIZES), 6, dtype=kept)
    found = case._run(case.given, False, mean=mean.to(device), var=var.to(device))
    right = case._run(case.right, True, mean=mean.double(), var=var.double())
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 8e-3}[dtype]
    assert max(error(found[name], right[name]) for name in right) < tolerance


@pytest.mark.parametrize("scope", ["graph", "batch"])
def test_returned_statistics_are_mean_and_variance(device, scope):
    case = Case([4, 1, 0, 6], 3, device=device, scope=scope)
    _, mean, var = standardize(case.given["x"], case.segments, scope=scope)
    ids = case.ids if scope == "graph" else torch.zeros_like(case.ids)
    for g in range(len(mean)):
        rows = case.right["x"][ids == g]
        right = (rows.mean(0), rows.var(0, correction=0)) if len(rows) else (torch.zeros(3),) * 2
        assert torch.allclose(mean[g].cpu(), right[0].double())
        assert torch.allclose(var[g].cpu(), right[1].double())
    assert not mean.requires_grad
    assert not var.requires_grad


# Wide rows, odd rows, long graphs that are split and short ones. Without relu: a value that rounds to the other side of
# 0 is no error, but moves a gradient by a whole entry.
@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("sizes", "channels"),
    [([5, 0, 9], 2), ([18] * 9, 64), ([4, 1, 30], 71), ([25, 3], 300), ([300, 3, 0, 65, 1], 8)],
    ids=str,
)
def test_float32_is_within_a_millionth(device, sizes, channels):
    Case(sizes, channels, device=device, dtype=torch.float32, residual=True).check(1e-6)


@pytest.mark.parametrize("sizes", [[18] * 128, [30] * 128], ids=lambda sizes: sizes[0])
def test_float32_at_mean_zero(device, sizes):
    Case(sizes, 64, device=device, dtype=torch.float32, mean=0.0).check(1e-6)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("sizes", [[18, 40, 1, 0, 25] * 10, [2000, 3, 1]], ids=len)
def test_graphs_are_shared_out_among_threads(threads, sizes, set_threads):
    set_threads(threads)
    Case(sizes, 75, act="relu", residual=True).check(1e-12)


@pytest.mark.parametrize("sizes", [[5000, 3, 1, 2000, 18, 4000], [12_000], [1] * 300 + [9000]], ids=lambda s: len(s))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_long_graphs_beside_short_ones(device, sizes, dtype):
    case = Case(sizes, 37, device=device, dtype=dtype)
    case.check(1e-6 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize(("sizes", "channels"), [([700], 8), ([3700, 700, 30, 18], 64), ([20_000], 1)], ids=str)
def test_long_graphs_at_mean_zero(device, sizes, channels):
    """The hardest: the α-gradient is proportional to the mean, here a sum that cancels almost wholly."""
    Case(sizes, channels, device=device, dtype=torch.float32, mean=0.0).check(1e-6)


@pytest.mark.interpreted
@pytest.mark.parametrize("sizes", [[18, 40, 3, 25], [3000, 30]], ids=str)
def test_large_means_do_not_cancel(device, sizes):
    """x = 1e4 + noise, α ≠ 1: output and all gradients keep float32's own accuracy."""
    Case(sizes, 16, device=device, dtype=torch.float32, mean=1e4).check(5e-6)


@pytest.mark.interpreted
@pytest.mark.parametrize("scope", ["graph", "batch"])
def test_large_means_do_not_cancel_at_alpha_one(device, scope):
    case = Case([18, 40, 3, 25], 16, device=device, dtype=torch.float32, mean=1e4, parameters=("weight", "bias"))
    case.check(5e-6, scope=scope)


@pytest.mark.interpreted
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_types_round_only_their_output(device, dtype):
    """Sums are taken in float32, so errors are those of rounding the result."""
    errors = Case([18, 5, 30, 1], 24, device=device, dtype=dtype, mean=0.0, residual=True).errors()
    step = torch.finfo(dtype).eps
    assert max(errors[name] for name in PARAMETERS) < 2e-5, errors
    assert max(errors[name] for name in ("y", "x")) < step, errors


@pytest.mark.interpreted
def test_float16_of_large_spread_does_not_overflow(device):
    case = Case([18, 5, 30], 24, device=device, dtype=torch.float16, mean=0.0, std=300.0, parameters=())
    y = case.results()["y"]
    assert y.std().item() == pytest.approx(1, abs=0.1)
    case.check(1e-3)


@pytest.mark.interpreted
def test_padding_rows_give_and_receive_zeros_and_influence_nothing(device):
    plain = Case([6, 3, 4], 5, device=device)
    padded = Case([6, 3, 4], 5, device=device, padding=3)
    for name in ("x", "dy"):
        padded.given[name][:13] = plain.given[name]
        padded.given[name][13:] = float("inf") if name == "x" else float("nan")
    for name in PARAMETERS:
        padded.given[name] = plain.given[name]
    found, right = padded.results(), plain.results()
    for name in ("y", "x"):
        assert torch.equal(found[name][:13], right[name])
        assert (found[name][13:] == 0).all()
    for name in PARAMETERS:
        assert torch.allclose(found[name], right[name], rtol=1e-12)


@pytest.mark.interpreted
@pytest.mark.parametrize("scope", ["graph", "batch"])
def test_residual_of_padding_rows_passes(device, scope):
    case = Case([4, 2], 3, device=device, padding=2, residual=True, scope=scope, act="relu")
    case.check(1e-12)
    found = case.results()
    assert torch.equal(found["y"][6:], case.given["residual"][6:])
    assert torch.equal(found["residual"], case.given["dy"])


@pytest.mark.interpreted
def test_graph_of_one_node(device):
    """At α = 1: y = β, dx exactly 0, and dα = −γ·x·Σdy/√ε, the exact and finite derivative."""
    case = Case([1, 1, 1], 4, device=device, dtype=torch.float32)
    case.given["mean_scale"] = torch.ones(4, device=device)
    found = case.results()
    assert torch.equal(found["y"], case.given["bias"].expand(3, 4))
    assert (found["x"] == 0).all()
    x, dy, weight = (case.right[name] for name in ("x", "dy", "weight"))
    assert error(found["mean_scale"], -(weight * x * dy).sum(0) / 1e-5**0.5) < 1e-6


@pytest.mark.interpreted
def test_graphs_of_one_node_with_any_alpha(device):
    Case([1] * 9, 4, device=device).check(1e-12)


def test_constant_graph_is_like_one_node(device):
    x = torch.full((6, 3), 4.25, device=device, requires_grad=True)
    weight, alpha = torch.ones(3, device=device), torch.ones(3, device=device, requires_grad=True)
    y = standardize(x, Segments(sizes=[6]).to(device), weight=weight, mean_scale=alpha)[0]
    y.sum().backward()
    assert (y == 0).all()
    assert (x.grad == 0).all()
    assert torch.isfinite(alpha.grad).all()


@pytest.mark.interpreted
@pytest.mark.parametrize(("sizes", "padding"), [([], 0), ([0], 0), ([0, 0, 0], 0), ([], 4), ([0, 0], 4)], ids=str)
@pytest.mark.parametrize("scope", ["graph", "batch"])
def test_no_rows_or_no_graphs(device, sizes, padding, scope):
    found = Case(sizes, 3, device=device, padding=padding, scope=scope).results()
    assert found["y"].shape == (padding, 3)
    assert all((value == 0).all() for value in found.values()), found


def test_no_segments_means_one_graph(device):
    x = torch.randn(9, 4, device=device)
    assert torch.equal(standardize(x)[0], standardize(x, Segments(sizes=[9]).to(device))[0])


@pytest.mark.interpreted
def test_equal_twice_bit_by_bit(device):
    case = Case(
        [300, 2, 40, 1, 5000],
        24,
        device=device,
        dtype=torch.float32,
        shuffled=True,
        act="relu",
        residual=True,
    )
    first, second = case.results(), case.results()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_graph_does_not_depend_on_its_neighbours(device):
    case = Case([20, 7, 33], 16, device=device, dtype=torch.float32)
    y = case.results()["y"]
    alone = Case([7], 16, device=device, dtype=torch.float32)
    alone.given = {n: t[20:27] if t.dim() == 2 else t for n, t in case.given.items()}
    assert torch.allclose(alone.results()["y"], y[20:27], rtol=0, atol=1e-6)


def test_second_moment_is_not_centred_twice(device):
    """σ̂² = Var + (1−α)²μ²: the second moment of the shifted value, not its variance."""
    x = torch.randn(50, 3, dtype=torch.float64, device=device) + 2
    alpha = torch.tensor([0.0, 0.4, 1.3], dtype=torch.float64, device=device)
    y = standardize(x, mean_scale=alpha, eps=0.0)[0]
    mu = x.mean(0)
    second = x.var(0, correction=0) + (1 - alpha) ** 2 * mu**2
    assert torch.allclose(y, (x - alpha * mu) / second.sqrt())
    assert torch.allclose((y * y).mean(0), torch.ones_like(alpha))


def test_memory_kept_for_backward(saved_tensors):
    """Besides x: two numbers per graph and channel, at most a fifth of x for graphs of 18 rows."""
    case = Case([18] * 128, 64, dtype=torch.float32, act="relu", residual=True)
    x = case.given["x"].requires_grad_()
    with saved_tensors() as saved:
        GraphNorm(64, act="relu")(x, case.segments, residual=case.given["residual"])
    sizes = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in saved}
    assert 0 < sum(sizes.values()) - sizes[x.data_ptr()] <= 0.2 * x.nbytes
