"""The quick path of layers in eager mode gives the values, gradients and errors of the general one."""

import pytest
import torch

import graphnorm
from graphnorm import GraphNorm, InstanceNorm, Segments
from graphnorm.layers.functional import graph_norm

SIZES = [4, 1, 0, 9, 3]
ROWS = sum(SIZES)


def segments_of(kind: str, device: torch.device) -> Segments:
    if kind == "sorted":
        return Segments(sizes=SIZES).to(device)
    batch = torch.repeat_interleave(torch.arange(len(SIZES)), torch.tensor(SIZES))
    batch = batch[torch.randperm(ROWS)]
    return Segments(batch=batch.to(device), batch_size=len(SIZES))


def layer(channels: int, device: torch.device, **options) -> GraphNorm:
    norm = GraphNorm(channels, **options).to(device)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return norm


def by_the_general_path(norm, x, segments, residual):
    """Under `vmap` there is no quick path."""
    parameters = [norm.weight, norm.bias, norm.mean_scale]
    call = torch.func.vmap(
        lambda x, *p: graph_norm(x, segments, *p, eps=norm.eps, act=norm.act, residual=residual),
    )
    return call(x[None], *(p[None] for p in parameters))[0]


@pytest.mark.interpreted
@pytest.mark.parametrize("kind", ["sorted", "unsorted"])
@pytest.mark.parametrize("act", [None, "relu"])
@pytest.mark.usefixtures("fresh_memory_is_nan")
def test_equal_to_the_general_path(device, kind, act):
    segments, norm = segments_of(kind, device), layer(6, device, act=act)
    x = torch.randn(ROWS, 6, device=device, requires_grad=True)
    residual = torch.randn(ROWS, 6, device=device, requires_grad=True) if act else None
    inputs = [x, *norm.parameters(), *([residual] if act else [])]
    dy = torch.randn(ROWS, 6, device=device)
    expected = by_the_general_path(norm, x, segments, residual)
    expected = [expected, *torch.autograd.grad(expected, inputs, dy)]
    for _ in range(2):  # the second time by the plan of the first
        y = norm(x, segments, residual=residual)
        torch.testing.assert_close([y, *torch.autograd.grad(y, inputs, dy)], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.interpreted
def test_gradient_of_the_gradient(device):
    segments, norm = segments_of("sorted", device), layer(2, device).double()
    x = torch.randn(ROWS, 2, device=device, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: norm(x, segments), x, fast_mode=True)


def test_plans_are_made_once():
    segments, norm, other = Segments(sizes=SIZES), GraphNorm(6), GraphNorm(7)
    for _ in range(2):
        norm(torch.randn(ROWS, 6), segments)
        GraphNorm(6)(torch.randn(ROWS, 6), segments)
        other(torch.randn(ROWS, 7), segments)
    assert len(segments.plans) == (0 if graphnorm.backends.library is None else 2)


def test_plans_do_not_pile_up():
    segments, x = Segments(sizes=[3]), torch.randn(3, 2)
    for k in range(200):
        GraphNorm(2, eps=1e-5 * (k + 1))(x, segments)
    assert len(segments.plans) < 100


@pytest.mark.parametrize("name", ["weight", "bias", "mean_scale"])
def test_a_parameter_of_another_width_is_refused_after_a_plan_was_made(device, name):
    segments, norm, x = segments_of("sorted", device), layer(6, device), torch.randn(ROWS, 6, device=device)
    norm(x, segments)
    getattr(norm, name).data = torch.ones(3, device=device)
    with pytest.raises(ValueError, match=rf"{name} has shape \(3,\)"):
        norm(x, segments)


def test_other_rows_and_residuals_are_refused_after_a_plan_was_made(device):
    segments, norm, x = segments_of("sorted", device), layer(6, device), torch.randn(ROWS, 6, device=device)
    norm(x, segments)
    with pytest.raises(ValueError, match="rows"):
        norm(x[:-1], segments)
    with pytest.raises(ValueError, match="residual has shape"):
        norm(x, segments, residual=x[:-1])
    with pytest.raises(ValueError, match="was made for 6 channels"):
        norm(x[:, :5], segments)


@pytest.mark.interpreted
def test_parameters_of_another_type_and_layout(device):
    segments, norm = segments_of("sorted", device), layer(6, device)
    x = torch.randn(ROWS, 6, device=device, requires_grad=True)
    expected = norm(x, segments)
    wide = GraphNorm(6).to(device).double()
    wide.load_state_dict(norm.state_dict())
    y = wide(x, segments)
    torch.testing.assert_close(y, expected)
    y.sum().backward()
    assert wide.weight.grad.dtype is torch.float64
    strided = torch.randn(6, ROWS, device=device).T
    torch.testing.assert_close(norm(strided, segments), norm(strided.contiguous(), segments))


def test_changing_a_parameter_before_backward_is_noticed(device):
    segments, norm = segments_of("sorted", device), layer(6, device)
    y = norm(torch.randn(ROWS, 6, device=device, requires_grad=True), segments)
    with torch.no_grad():
        norm.weight += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_layer_without_parameters_and_one_with_frozen_ones(device):
    segments, x = segments_of("sorted", device), torch.randn(ROWS, 6, device=device, requires_grad=True)
    plain, frozen = InstanceNorm(6).to(device), GraphNorm(6).to(device).requires_grad_(False)
    for norm in (plain, frozen):
        norm(x, segments).square().sum().backward()
    torch.testing.assert_close(plain(x, segments), frozen(x, segments))


def test_parametrized_parameters_are_used(device):
    segments, norm, x = segments_of("sorted", device), layer(6, device), torch.randn(ROWS, 6, device=device)

    class Double(torch.nn.Module):
        def forward(self, weight):
            return 2 * weight

    with torch.no_grad():
        norm.bias.zero_()
    expected = 2 * norm(x, segments)
    torch.nn.utils.parametrize.register_parametrization(norm, "weight", Double())
    torch.testing.assert_close(norm(x, segments), expected)


@pytest.mark.interpreted
def test_one_small_graph(device):
    norm, x = layer(6, device), torch.randn(5, 6, device=device)
    torch.testing.assert_close(norm(x, Segments(sizes=[5]).to(device)), norm(x), rtol=1e-5, atol=1e-5)


@pytest.mark.interpreted
def test_batch_norm_of_a_few_rows(device):
    ours, torchs = graphnorm.BatchNorm(3, act="relu").to(device), torch.nn.BatchNorm1d(3).to(device)
    x = torch.randn(5, 3, device=device)
    torch.testing.assert_close(ours(x), torchs(x).relu())
    torch.testing.assert_close(ours.running_var, torchs.running_var)


@pytest.mark.interpreted
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_batch_norm_by_the_quick_path(device, dtype):
    """Against the general path, which averages kept in another memory format lead to."""
    quick, general = (graphnorm.BatchNorm(3, act="relu", dtype=dtype, device=device) for _ in range(2))
    general.module.running_mean = torch.zeros(6, dtype=quick.running_mean.dtype, device=device)[::2]
    x, dy = (torch.randn(100, 3, dtype=dtype, device=device) for _ in range(2))
    for momentum in (0.1, 0.3):
        for norm in (quick, general):
            norm.momentum = momentum
            norm(x + 7).backward(dy)
    torch.testing.assert_close(quick(x), general(x))
    torch.testing.assert_close(quick.weight.grad, general.weight.grad)
    torch.testing.assert_close(quick.state_dict(), general.state_dict())
    assert quick.num_batches_tracked == 3
