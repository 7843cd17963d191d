"""The operation under torch's transformations: vmap, grad, double backward; and opcheck."""

import pytest
import torch
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap

import graphnorm
from graphnorm import Segments, make_norm
from graphnorm.layers import REGISTRY
from graphnorm.layers.functional import graph_norm, standardize
from oracle import Case, error
from oracle import standardize as right_answer

NAMES = list(REGISTRY)
SIZES = [4, 1, 0, 6, 3]


def randomized(name: str):
    """A layer of 5 channels whose parameters are not all ones and zeros."""
    norm = make_norm(name, 5, act="relu")
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return norm


# ---- vmap ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("segments", [Segments(sizes=SIZES), Segments(batch=torch.randint(0, 4, (14,)), batch_size=5)])
def test_stacked_layers_equal_separate_ones(name, segments):
    """Outputs, gradients and running averages of three stacked layers are those of three layers."""
    norms = [randomized(name).double() for _ in range(3)]
    x, dy = torch.randn(2, 3, 14, 5, dtype=torch.float64)
    parameters, buffers = stack_module_state(norms)
    buffers = {key: value.clone() for key, value in buffers.items()}

    def output(parameters, buffers, x):
        return functional_call(norms[0], (parameters, buffers), (x, segments))

    x = x.requires_grad_()
    y = vmap(output)(parameters, buffers, x)
    leaves = [x, *parameters.values()]
    found = torch.autograd.grad(y, leaves, dy)
    for m, norm in enumerate(norms):
        alone = x[m].detach().requires_grad_()
        right = norm(alone, segments)
        assert torch.allclose(y[m], right, atol=1e-12)
        gradients = torch.autograd.grad(right, [alone, *norm.parameters()], dy[m])
        for one, stacked in zip(gradients, found, strict=True):
            assert torch.allclose(stacked[m], one, atol=1e-11)
        for key, value in norm.named_buffers():
            assert torch.allclose(buffers[key][m], value)


@pytest.mark.interpreted
def test_vmap_on_every_backend(device):
    x, weight = torch.randn(3, 14, 5, device=device), torch.randn(3, 5, device=device)
    segments = Segments(sizes=SIZES).to(device)

    def loss(x, weight):
        return graph_norm(x, segments, weight, mean_scale=weight).square().sum()

    found = vmap(grad(loss, argnums=(0, 1)))(x, weight)
    for m in range(3):
        right = grad(loss, argnums=(0, 1))(x[m], weight[m])
        assert all(torch.allclose(f[m], r, atol=2e-5, rtol=1e-5) for f, r in zip(found, right, strict=True))


def test_members_with_their_own_segments(device):
    """Each member has its own graphs: ptr is mapped over, and so is an order."""
    sizes = torch.tensor([[4, 1, 0, 6, 3], [0, 0, 14, 0, 0], [2, 3, 4, 5, 0]])
    ptr = torch.nn.functional.pad(sizes.cumsum(1), (1, 0)).to(device)
    x, weight = torch.randn(3, 14, 5, device=device), torch.randn(5, device=device)
    y = vmap(lambda x, ptr: graph_norm(x, Segments(ptr=ptr, num_rows=14), weight))(x, ptr)
    shuffle = torch.stack([torch.randperm(14) for _ in range(3)]).to(device)
    back = vmap(lambda x, ptr, order: graph_norm(x, Segments.trusted(ptr, order, 14), weight))
    for m in range(3):
        right = graph_norm(x[m], Segments(sizes=sizes[m]).to(device), weight)
        assert torch.allclose(y[m], right, atol=1e-6)
    unsorted = torch.empty_like(x).scatter(1, shuffle[..., None].expand_as(x), x)
    found = back(unsorted, ptr, shuffle).gather(1, shuffle[..., None].expand_as(x))
    assert torch.allclose(found, y, atol=1e-6)


def test_batch_vectors_inside_vmap_need_their_batch_size():
    x, batch = torch.randn(2, 6, 3), torch.tensor([[0, 0, 1, 1, 2, 2], [2, 1, 0, 0, 0, 0]])
    y = vmap(lambda x, batch: graph_norm(x, batch, batch_size=3))(x, batch)
    assert torch.allclose(y[1], graph_norm(x[1], batch[1]), atol=1e-6)
    with pytest.raises(ValueError, match="batch_size"):
        vmap(lambda x, batch: graph_norm(x, batch))(x, batch)


@pytest.mark.interpreted
@pytest.mark.parametrize("ptr", [[0, 4, 10**9], [-(10**9), 4, 6], [0, 5, 2], [7, 8, 9]], ids=str)
def test_wrong_boundaries_inside_vmap_stay_in_bounds(device, ptr):
    """They cannot be looked at there; numbers may be wrong, but only memory of the call is touched."""
    x, ptr = torch.randn(2, 6, 4, device=device), torch.tensor([ptr, [0, 3, 6]], device=device)

    def run(x, ptr):
        return graph_norm(x, Segments(ptr=ptr, num_rows=6))

    gradient = vmap(grad(lambda x, ptr: run(x, ptr).square().sum()))(x, ptr)
    assert torch.isfinite(gradient).all()
    assert torch.allclose(vmap(run)(x, ptr)[1], run(x[1], ptr[1]), atol=1e-6)


# ---- grad, jacrev, double backward ---------------------------------------------------------------


@pytest.mark.parametrize("statistics", ["live", "given"])
@pytest.mark.parametrize("segments", [Segments(sizes=[3, 1, 2]), Segments(batch=torch.tensor([1, 0, 2, 1, 0, 2]))])
def test_gradcheck_and_gradgradcheck(statistics, segments):
    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    x, residual, weight, bias, alpha = draw(6, 2), draw(6, 2), draw(2), draw(2), draw(2)
    given = {"mean": torch.randn(3, 2).double(), "var": torch.rand(3, 2).double()} if statistics == "given" else {}

    def output(x, residual, weight, bias, mean_scale):
        return standardize(
            x, segments, weight=weight, bias=bias, mean_scale=mean_scale, residual=residual,
            statistics=statistics, eps=0.1, **given,
        )[0]  # fmt: skip

    assert torch.autograd.gradcheck(output, (x, residual, weight, bias, alpha))
    assert torch.autograd.gradgradcheck(output, (x, residual, weight, bias, alpha))


def test_detached_statistics_are_constants_in_every_order():
    """Gradients of the first and second order equal those with the same statistics handed in."""
    x, alpha = torch.randn(9, 3).double().requires_grad_(), torch.rand(3).double().requires_grad_()
    segments = Segments(sizes=[4, 5])
    _, mean, var = standardize(x, segments)

    def orders(**options):
        y = standardize(x, segments, mean_scale=alpha, **options)[0].pow(3).sum()
        first = torch.autograd.grad(y, (x, alpha), create_graph=True)
        return *first, *torch.autograd.grad(sum(g.pow(2).sum() for g in first), (x, alpha))

    detached, given = orders(statistics="detached"), orders(statistics="given", mean=mean, var=var)
    assert all(torch.allclose(d, g) for d, g in zip(detached, given, strict=True))


def test_hessian_vector_product_and_penalty_on_forces(device):
    """Forces are gradients; a loss on them needs the second order, with relu and unsorted rows too."""
    case = Case([4, 3, 5], 3, device=device, shuffled=True)
    tensors, oracle = case.given, case.right

    def energy(run, t):
        x = t["x"].detach().requires_grad_()
        weight = t["weight"].detach().requires_grad_()
        (force,) = torch.autograd.grad(run(x, weight).pow(3).sum(), x, create_graph=True)
        return torch.autograd.grad(force.square().sum(), (x, weight))

    found = energy(
        lambda x, w: standardize(x, case.segments, weight=w, mean_scale=tensors["mean_scale"], act="relu")[0],
        tensors,
    )
    expected = energy(
        lambda x, w: right_answer(x, case.ids, weight=w, mean_scale=oracle["mean_scale"], act="relu"), oracle
    )
    assert max(error(f, e) for f, e in zip(found, expected, strict=True)) < 1e-10


def test_jacrev_once_and_twice():
    segments, alpha = Segments(sizes=[2, 3]), torch.rand(2).double()
    x = torch.randn(5, 2).double()

    def run(x):
        return graph_norm(x, segments, mean_scale=alpha)

    with graphnorm.backend("reference"):
        right = torch.autograd.functional.jacobian(run, x)
    assert torch.allclose(jacrev(run)(x), right)
    assert (right[2:, :, :2] == 0).all()  # graphs do not mix
    first = grad(lambda x: run(x).pow(3).sum())
    assert torch.allclose(jacrev(first)(x), torch.autograd.functional.hessian(lambda x: run(x).pow(3).sum(), x))


@pytest.mark.parametrize("ids", [[0, 0, 1, 1, 1], [1, 0, 1, 0, 1]])
def test_batch_vectors_inside_grad(ids):
    """torch.func.grad wraps even the batch vector; it is read all the same."""
    x, batch = torch.randn(5, 2).double(), torch.tensor(ids)
    right = x.clone().requires_grad_()
    graph_norm(right, batch).pow(3).sum().backward()

    def loss(x):
        return graph_norm(x, batch).pow(3).sum()

    assert torch.allclose(grad(loss)(x), right.grad)
    assert torch.allclose(vmap(grad(loss))(x[None])[0], right.grad)
    assert torch.allclose(jacrev(loss)(x), right.grad)
    assert torch.allclose(grad(lambda x: grad(loss)(x).sum())(x), jacrev(grad(loss))(x).sum((0, 1)))


@pytest.mark.parametrize("name", ["size", "batch", "graph"])
def test_segments_outlive_the_transformation_they_were_first_used_in(name):
    """Segments do not keep a derived array that belongs to a transformation."""
    norm, x = make_norm(name, 2).eval(), torch.randn(5, 2)
    segments = Segments(ptr=torch.tensor([0, 2, 4]), num_rows=5)
    grad(lambda x: norm(x, segments).pow(3).sum())(x)
    vmap(lambda x: norm(x, segments))(x[None])
    torch.compile(lambda x: norm(x, segments), backend="aot_eager")(x)
    assert torch.allclose(norm(x, segments), norm(x, Segments(sizes=[2, 2], num_rows=5)))


def test_output_that_is_not_used():
    """Only the statistics are: no gradient arrives, and none is made up."""
    x = torch.randn(5, 2, requires_grad=True)
    y, mean, _ = standardize(x)
    (y.detach().sum() + mean.sum() + x.sum()).backward()
    assert torch.equal(x.grad, torch.ones_like(x))


# ---- the custom operators ------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [True, False])
def test_opcheck(ordered):
    case = Case(SIZES, 3, dtype=torch.float32, shuffled=not ordered)
    tensors = {name: t.clone().requires_grad_() for name, t in case.given.items()}
    x, parameters = tensors["x"], (tensors["weight"], tensors["bias"], tensors["mean_scale"])
    where = (case.segments.ptr, case.segments.order)
    options = (1e-5, True, "live", case.segments.max_size)
    forward = (x, None, *parameters, *where, None, None, *options)
    torch.library.opcheck(torch.ops.graphnorm.standardize, forward)
    _, mean, var = torch.ops.graphnorm.standardize(*forward)
    backward = (tensors["dy"], x, *parameters, *where, mean, var, *options)
    torch.library.opcheck(torch.ops.graphnorm.standardize_backward, backward)


def test_opcheck_without_anything_optional():
    x = torch.randn(6, 3, requires_grad=True)
    arguments = (x, *[None] * 8, 1e-5, False, "live", None)
    torch.library.opcheck(torch.ops.graphnorm.standardize, arguments)
