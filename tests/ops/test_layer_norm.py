"""Every row by itself, across its channels: values, gradients and transformations, for every set of kernels."""

import os

import pytest
import torch
from torch.func import grad, vmap

import graphnorm
from graphnorm import LayerNorm, Segments
from graphnorm.backends import chosen_backend
from graphnorm.layers.functional import layer_norm, standardize
from graphnorm.ops.layer_norm import WIDEST
from oracle import Case, error, laid_out
from oracle import standardize as right_answer

pytestmark = pytest.mark.usefixtures("fresh_memory_is_nan")

AFFINE = ("weight", "bias")
SHAPES = [(1, 1), (40, 1), (7, 5), (90, 8), (200, 64), (70, 71), (19, 300), (3, 1030)]
HALF = (torch.bfloat16, torch.float16)


def case_of(rows: int, channels: int, device, *, parameters: tuple[str, ...] = AFFINE, **options) -> Case:
    return Case([rows], channels, device=device, scope="node", parameters=parameters, **options)


# ---- values and gradients ------------------------------------------------------------------------


@pytest.mark.interpreted
@pytest.mark.parametrize("act", [None, "relu"])
@pytest.mark.parametrize(("rows", "channels"), SHAPES, ids=str)
def test_values_and_gradients_in_float64(device, rows, channels, act):
    case_of(rows, channels, device, act=act, residual=True).check(1e-12)


@pytest.mark.interpreted
@pytest.mark.parametrize(("rows", "channels"), SHAPES, ids=str)
def test_float32_is_within_a_millionth(device, rows, channels):
    case_of(rows, channels, device, dtype=torch.float32, residual=True).check(1e-6)


@pytest.mark.interpreted
@pytest.mark.parametrize("channels", [5, 64, 71, 300, 1030])
def test_large_means_do_not_cancel(device, channels):
    case_of(50, channels, device, dtype=torch.float32, mean=1e4).check(5e-6)


@pytest.mark.interpreted
@pytest.mark.parametrize("channels", [24, 71])
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_types_round_only_their_output(device, dtype, channels):
    errors = case_of(60, channels, device, dtype=dtype, mean=0.0, residual=True).errors()
    assert max(errors[name] for name in AFFINE) < 2e-5, errors
    assert max(errors[name] for name in ("y", "x")) < torch.finfo(dtype).eps, errors


@pytest.mark.interpreted
@pytest.mark.parametrize("parameters", [(), ("weight",), ("bias",)])
def test_parameters_may_be_left_out(device, parameters):
    case_of(9, 6, device, parameters=parameters, act="relu").check(1e-12)


@pytest.mark.parametrize("rows", [20_000, 3_000])
def test_gradients_of_parameters_over_many_rows(device, rows):
    case_of(rows, 37, device, dtype=torch.float32, mean=0.0).check(1e-6)


def test_outputs_larger_than_the_caches(device):
    case_of(50_000, 64, device, dtype=torch.float32).check(1e-6)


@pytest.mark.parametrize("threads", [2, 3])
def test_rows_are_shared_out_among_threads(threads, set_threads):
    set_threads(threads)
    case_of(1001, 65, "cpu", act="relu", residual=True).check(1e-12)


@pytest.mark.interpreted
@pytest.mark.parametrize("programs", [1, 3])
def test_gpu_programs_that_take_several_tiles(device, programs, monkeypatch):
    if chosen_backend() != "triton":
        pytest.skip("about the GPU kernels")
    from graphnorm.ops import layer_norm_gpu as gpu

    monkeypatch.setattr(gpu, "_PROGRAMS", programs)
    gpu.cut.cache_clear()
    try:
        assert gpu.cut(1, 333, 64).blocks > 1
        case_of(333, 64, device, act="relu", residual=True).check(1e-12)
    finally:
        gpu.cut.cache_clear()


@pytest.mark.interpreted
def test_no_rows(device):
    found = case_of(0, 3, device).results()
    assert found["y"].shape == (0, 3)
    assert all((value == 0).all() for value in found.values()), found


@pytest.mark.interpreted
@pytest.mark.parametrize("channels", [1, 6])
def test_equal_channels_have_no_spread(device, channels):
    """The output is act(β), and no gradient reaches x where that of all channels is the same."""
    x = torch.full((5, channels), 4.25, device=device, requires_grad=True)
    weight, bias = torch.full((channels,), 0.5, device=device), torch.full((channels,), -0.25, device=device)
    for act, right in ((None, -0.25), ("relu", 0.0)):
        assert (layer_norm(x, weight, bias, act=act) == right).all()
    layer_norm(x, weight, bias).sum().backward()
    one_rounding = 0.5 * torch.finfo(torch.float32).eps / 1e-5**0.5  # of the gradient, over √ε
    assert x.grad.abs().max() <= one_rounding


@pytest.mark.interpreted
def test_no_eps_at_all(device):
    """Programs reach beyond the last row; what they find there is not divided by its spread of 0."""
    case_of(37, 7, device, eps=0.0).check(1e-11)


@pytest.mark.interpreted
def test_relu_has_slope_one_at_exactly_zero(device):
    bias = torch.zeros(3, device=device, requires_grad=True)
    layer_norm(torch.ones(4, 3, device=device), bias=bias, act="relu").sum().backward()
    assert torch.equal(bias.grad.cpu(), torch.full((3,), 4.0))


@pytest.mark.interpreted
def test_equal_twice_bit_by_bit(device):
    case = case_of(300, 24, device, dtype=torch.float32, act="relu", residual=True)
    first, second = case.results(), case.results()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_padding_rows_are_rows_like_others(device):
    """No statistic runs over rows, so there is nothing to keep them out of."""
    case = Case([4, 2], 3, device=device, padding=2, parameters=AFFINE, scope="node", residual=True)
    case.check(1e-12)
    assert (case.results()["y"][6:] != case.given["residual"][6:]).all()


@pytest.mark.parametrize("channels", [WIDEST, WIDEST + 1])
def test_very_wide_rows(device, channels):
    case = case_of(3, channels, device, act="relu", residual=True)
    case.check(1e-11)
    values = torch.randn(2, 3, channels)
    weight = torch.randn(2, channels)
    y = vmap(layer_norm)(values.to(device), weight.to(device))
    assert error(y[1], torch.nn.functional.layer_norm(values[1].double(), (channels,), weight[1].double())) < 1e-6


def test_residual_of_a_wider_type_widens_the_output(device):
    x, residual = torch.randn(4, 8, device=device).bfloat16(), torch.randn(4, 8, device=device)
    y = layer_norm(x, residual=residual)
    assert y.dtype == torch.float32
    assert torch.equal(y, layer_norm(x) + residual)


def test_only_the_inputs_are_kept_for_backward(device, saved_tensors):
    norm = LayerNorm(64, mode="node", act="relu", device=device)
    x, residual = torch.randn(100, 64, device=device, requires_grad=True), torch.randn(100, 64, device=device)
    with saved_tensors() as saved:
        norm(x, residual=residual)
    assert {t.data_ptr() for t in saved} == {t.data_ptr() for t in (x, *norm.parameters())}


# ---- any input -----------------------------------------------------------------------------------

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

TOLERANCE = {torch.float64: 1e-11, torch.float32: 4e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}


@given(
    rows=st.integers(0, 90),
    channels=st.sampled_from([1, 2, 5, 8, 31, 32, 64, 71, 300]),
    dtype=st.sampled_from(list(TOLERANCE)),
    layouts=st.tuples(*[st.sampled_from(["contiguous", "strided", "transposed", "offset"])] * 3),
    parameters=st.sets(st.sampled_from(AFFINE)),
    name=st.sampled_from(["auto", "reference"]),
    seed=st.integers(0, 2**16),
)
def test_any_input(rows, channels, dtype, layouts, parameters, name, seed):
    chosen = tuple(sorted(parameters))
    case = case_of(rows, channels, "cpu", dtype=dtype, parameters=chosen, residual=True, seed=seed, eps=1e-3)
    for key, layout in zip(("x", "dy", "residual"), layouts, strict=True):
        case.given[key] = laid_out(case.given[key], layout)
    with graphnorm.backend(name):
        found = case.results()
    right = case._run(case.right, True)
    for key in right:
        gap, scale = torch.linalg.vector_norm(found[key].double() - right[key]), torch.linalg.vector_norm(right[key])
        assert gap <= TOLERANCE[dtype] * (1 + scale), (key, gap, scale)


# ---- vmap, gradients of gradients ----------------------------------------------------------------


@pytest.mark.interpreted
@pytest.mark.parametrize(("rows", "channels"), [(14, 5), (130, 64)])
def test_members_are_one_launch(device, rows, channels):
    """Three stacked layers with different parameters give the results of three layers."""
    x, residual = torch.randn(2, 3, rows, channels, device=device, dtype=torch.float64)
    weight, bias = torch.randn(2, 3, channels, device=device, dtype=torch.float64)

    def loss(x, residual, weight, bias):
        return layer_norm(x, weight, bias, act="relu", residual=residual).pow(3).sum()

    wanted = (0, 1, 2, 3)
    found = vmap(grad(loss, argnums=wanted))(x, residual, weight, bias)
    for m in range(3):
        alone = [t[m].cpu().requires_grad_() for t in (x, residual, weight, bias)]
        ids = torch.zeros(rows, dtype=torch.int64)
        y = right_answer(alone[0], ids, scope="node", weight=alone[2], bias=alone[3], act="relu", residual=alone[1])
        for one, exact in zip(found, torch.autograd.grad(y.pow(3).sum(), alone), strict=True):
            assert error(one[m], exact) < 1e-12


@pytest.mark.interpreted
def test_many_members(device):
    """More members than a GPU has programs: each gets one program, and there are no shares to add up."""
    members = 3 if os.environ.get("TRITON_INTERPRET") == "1" else 4300
    x, weight = torch.randn(members, 13, 6, device=device), torch.randn(members, 6, device=device)

    def loss(x, weight):
        return layer_norm(x, weight).pow(3).sum()

    found = vmap(grad(loss, argnums=(0, 1)))(x, weight)
    right = grad(loss, argnums=(0, 1))(x[-1].double(), weight[-1].double())
    assert all(error(f[-1], r.cpu()) < 1e-5 for f, r in zip(found, right, strict=True))


@pytest.mark.parametrize("present", [(True, True), (False, True), (True, False)])
def test_gradcheck_and_gradgradcheck(device, present):
    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, device=device, requires_grad=True)

    x, residual = draw(4, 3), draw(4, 3)
    parameters = [draw(3) for there in present if there]

    def output(x, residual, *parameters):
        rest = iter(parameters)
        weight, bias = (next(rest) if there else None for there in present)
        return layer_norm(x, weight, bias, residual=residual, eps=0.1)

    assert torch.autograd.gradcheck(output, (x, residual, *parameters))
    assert torch.autograd.gradgradcheck(output, (x, residual, *parameters))


def test_penalty_on_forces_with_relu(device):
    case = case_of(9, 4, device)

    def penalty(run, t):
        x, weight = (t[name].detach().requires_grad_() for name in ("x", "weight"))
        (force,) = torch.autograd.grad(run(x, weight, t["bias"]).pow(3).sum(), x, create_graph=True)
        return torch.autograd.grad(force.square().sum(), (x, weight))

    found = penalty(lambda x, w, b: layer_norm(x, w, b, act="relu"), case.given)
    right = penalty(
        lambda x, w, b: right_answer(x, case.ids, scope="node", weight=w, bias=b, act="relu"), case.right
    )  # fmt: skip
    assert max(error(f, r) for f, r in zip(found, right, strict=True)) < 1e-10


def test_output_without_use_and_input_without_gradient(device):
    x = torch.randn(5, 2, device=device)
    assert not layer_norm(x).requires_grad
    weight = torch.ones(2, device=device, requires_grad=True)
    layer_norm(x, weight).sum().backward()
    assert x.grad is None
    assert torch.isfinite(weight.grad).all()


# ---- the custom operators ------------------------------------------------------------------------


@pytest.mark.parametrize("parts", ["all", "x alone"])
def test_opcheck(parts):
    x, dy = (torch.randn(6, 3, requires_grad=True) for _ in range(2))
    weight, bias = (torch.randn(3, requires_grad=True) if parts == "all" else None for _ in range(2))
    residual = torch.randn(6, 3, requires_grad=True) if parts == "all" else None
    torch.library.opcheck(torch.ops.graphnorm.layer_norm, (x, residual, weight, bias, 1e-5, True))
    torch.library.opcheck(torch.ops.graphnorm.layer_norm_backward, (dy, x, weight, bias, 1e-5, True))


def test_scope_node_looks_at_no_segments():
    x = torch.randn(6, 3)
    y, mean, var = standardize(x, Segments(sizes=[2, 4]), scope="node")
    assert torch.equal(y, layer_norm(x))
    assert mean.numel() == var.numel() == 0
