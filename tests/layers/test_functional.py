"""Functions and modules are twins; wrong arguments are named."""

import pytest
import torch
from tests import oracle

from graphnorm import BatchNorm, GraphNorm, GraphSizeNorm, InstanceNorm, LayerNorm, Segments
from graphnorm import functional as F  # noqa: N812

BATCH = torch.tensor([0, 2, 1, 1, 0, 2, 2])


def test_functions_equal_their_modules():
    x, weight, bias, alpha = torch.randn(7, 4), torch.randn(4), torch.randn(4), torch.randn(4)
    graph, instance, layer, batch = GraphNorm(4), InstanceNorm(4, affine=True), LayerNorm(4, mode="node"), BatchNorm(4)
    with torch.no_grad():
        for norm in (graph, instance, layer, batch):
            norm.weight.copy_(weight)
            norm.bias.copy_(bias)
        graph.mean_scale.copy_(alpha)
    assert torch.equal(F.graph_norm(x, BATCH, weight, bias, alpha), graph(x, BATCH))
    assert torch.equal(F.instance_norm(x, BATCH, weight, bias, batch_size=3), instance(x, BATCH))
    assert torch.equal(F.layer_norm(x, weight, bias), layer(x))
    assert torch.equal(F.batch_norm(x, weight, bias), batch(x))
    running = {"running_mean": batch.running_mean, "running_var": batch.running_var}
    assert torch.equal(F.batch_norm(x, weight, bias, **running), batch.eval()(x))
    assert torch.equal(F.graph_size_norm(x, BATCH), GraphSizeNorm()(x, BATCH))


def test_tail_and_eps_reach_the_operation():
    x, residual = torch.randn(7, 4), torch.randn(7, 4)
    y = F.instance_norm(x, BATCH, eps=10.0, act="relu", residual=residual)
    assert torch.allclose(y, torch.relu(F.instance_norm(x, BATCH, eps=10.0)) + residual)
    assert (F.instance_norm(x, BATCH, eps=10.0).abs() < F.instance_norm(x, BATCH).abs()).all()


def test_residual_of_another_type_is_added():
    x, residual = torch.randn(7, 4, dtype=torch.bfloat16), torch.randn(7, 4)
    y = F.graph_norm(x, BATCH, residual=residual)
    assert torch.equal(y, F.graph_norm(x, BATCH) + residual)


@pytest.mark.parametrize("batch", [BATCH, Segments(sizes=[3, 0, 2], num_rows=7), None], ids=["batch", "padding", "one"])
def test_a_weight_and_a_bias_of_each_graph(batch):
    """Each graph alone, with its own parameters, in float64; rows of no graph are 0."""
    x = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    graphs = 1 if batch is None else 3
    weight, bias = (torch.randn(graphs, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    alpha, residual = torch.rand(4, dtype=torch.float64), torch.randn(7, 4, dtype=torch.float64)
    ids = torch.zeros(7, dtype=torch.int64) if batch is None else batch
    ids = torch.tensor([0, 0, 0, 2, 2, -1, -1]) if isinstance(batch, Segments) else ids
    parts = [oracle.standardize(x, torch.where(ids == g, 0, -1), mean_scale=alpha) for g in range(graphs)]
    of_graph = [(ids == g)[:, None] * (part * weight[g] + bias[g]) for g, part in enumerate(parts)]
    right = torch.relu(sum(of_graph)) + residual
    found = F.graph_norm(x, batch, weight, bias, alpha, act="relu", residual=residual)
    assert oracle.error(found, right) < 1e-12
    dy = torch.randn_like(right)
    for ours, theirs in zip(*(torch.autograd.grad(y, (x, weight, bias), dy) for y in (found, right)), strict=True):
        assert oracle.error(ours, theirs) < 1e-12


def test_parameters_of_each_graph_keep_the_type_of_the_features_and_mix_with_shared_ones():
    x, shared = torch.randn(7, 4, dtype=torch.bfloat16), torch.randn(4)
    assert F.instance_norm(x, BATCH, torch.randn(3, 4)).dtype == torch.bfloat16
    found = F.instance_norm(x.float(), BATCH, shared.expand(3, 4), shared)
    assert torch.allclose(found, F.instance_norm(x.float(), BATCH, shared, shared), atol=1e-6)
    with pytest.raises(ValueError, match=r"bias has shape \(2, 4\).*expected \(3, 4\): one row per graph"):
        F.graph_norm(x, BATCH, torch.randn(3, 4), torch.randn(2, 4))
    with pytest.raises(ValueError, match="act is 'tanh'"):
        F.graph_norm(x, BATCH, torch.randn(3, 4), act="tanh")


@pytest.mark.parametrize("batch", [BATCH, torch.tensor([0, 0, 2, 2, 2, 2, 0])], ids=["full", "empty graph"])
def test_parameters_of_each_graph_in_a_compiled_program(batch):
    """They tell the number of graphs; here one program is of as many rows as graphs."""
    program = torch.compile(F.graph_norm, backend="aot_eager", fullgraph=True)
    x = torch.randn(7, 4)
    for graphs in (3, 7):
        weight, bias = (torch.randn(graphs, 4, requires_grad=True) for _ in range(2))
        right = F.graph_norm(x, batch, weight, bias, batch_size=graphs)
        assert torch.allclose(program(x, batch, weight, bias), right, atol=1e-6)
        with torch.no_grad():
            assert torch.allclose(program(x, batch, weight, bias), right, atol=1e-6)


GOOD = torch.ones(3, 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scope": "edge"}, "scope is 'edge'.*'node', 'graph', 'batch'"),
        ({"statistics": "frozen"}, "statistics is 'frozen'"),
        ({"statistics": "given"}, "mean and var come with statistics='given'"),
        ({"mean": GOOD, "var": GOOD}, "mean and var come with statistics='given'"),
        ({"mean": GOOD}, "mean and var come with statistics='given'"),
        ({"statistics": "given", "mean": GOOD}, "both of them"),
        ({"statistics": "given", "mean": GOOD[0], "var": GOOD}, r"mean has shape \(4,\).*expected \(3, 4\)"),
        (
            {"statistics": "given", "mean": GOOD, "var": GOOD[:2]},
            r"var has shape \(2, 4\).*expected \(3, 4\)",
        ),
        ({"statistics": "given", "scope": "batch", "mean": GOOD, "var": GOOD}, r"mean .* expected \(1, 4\)"),
        ({"statistics": "given", "mean": GOOD, "var": GOOD.to("meta")}, "var is on meta"),
        ({"scope": "node", "mean_scale": GOOD[0]}, "scope 'node' takes no mean_scale"),
        ({"act": "tanh"}, "act is 'tanh'"),
        ({"weight": torch.ones(3)}, r"weight has shape \(3,\).*one entry per channel"),
        ({"bias": torch.ones(1, 4)}, "bias has shape"),
        ({"mean_scale": torch.ones(5)}, "mean_scale has shape"),
        ({"eps": -1.0}, "eps is -1.0; it is a small number"),
        ({"eps": float("nan")}, "eps is nan; it is a small number"),
        ({"eps": "x"}, "eps is 'x'; it is a small number"),
        ({"eps": None}, "eps is None; it is a small number"),
        ({"residual": torch.ones(4, 7)}, r"residual has shape \(4, 7\).*the same shape as x"),
        ({"residual": torch.ones(7, 4, device="meta")}, "residual is on meta, x is on cpu"),
    ],
)
def test_wrong_arguments_of_standardize(options, words):
    with pytest.raises(ValueError, match=words):
        F.standardize(torch.randn(7, 4), Segments(batch=BATCH), **options)


def test_features_of_another_shape():
    for shape in ((7,), (1, 7, 4)):
        with pytest.raises(ValueError, match="x must have shape"):
            F.standardize(torch.randn(shape))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: F.standardize(x, BATCH), r"segments must be Segments, got Tensor; write Segments\(batch=…\)"),
        (lambda x: F.batch_norm(x, segments=BATCH), "segments must be Segments, got Tensor"),
        (lambda x: F.graph_norm(x, BATCH, [1.0] * 4), "weight must be a tensor, got list"),
        (lambda x: F.graph_norm(x, BATCH, mean_scale=0.5), "mean_scale must be a tensor, got float"),
        (lambda x: F.layer_norm(x, bias=0.5), "bias must be a tensor, got float"),
        (lambda x: F.graph_norm(x.int(), BATCH), r"floating-point.*x\.float\(\)"),
        (lambda x: F.graph_norm(x, BATCH, residual=x.to_sparse()), "residual is a sparse tensor; convert it"),
        (lambda x: F.graph_norm(x, BATCH, residual=1), "residual must be a tensor of features, got int"),
        (lambda x: F.standardize(x, statistics="given", mean=0, var=1), "mean must be a tensor, got int"),
        (lambda x: F.graph_size_norm(x.tolist(), BATCH), "x must be a tensor of features, got list"),
    ],
)
def test_what_is_no_tensor_and_no_segments(call, words):
    with pytest.raises(TypeError, match=words):
        call(torch.randn(7, 4))
