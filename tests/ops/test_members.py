"""A member of a stack gets the same bits whatever is stacked with it, and whatever the number of threads."""

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from graphnorm import Adjacency, Segments
from graphnorm.layers.functional import aggregate, batch_norm, graph_norm, layer_norm, pool
from graphnorm.ops.linear import linear

ROWS = 1300
WIDE = 3000  # rows of 64 channels that all threads share, where they are one graph
GRAPHS = Segments(sizes=torch.randint(0, 60, (60,), generator=torch.Generator().manual_seed(0)), num_rows=2000)
LARGE = Segments(sizes=[40, 2600, 9, 350])
EDGES = Adjacency(edge_index=torch.randint(0, ROWS, (2, 9000), generator=torch.manual_seed(1)), num_nodes=ROWS)
HUB = Adjacency(edge_index=torch.stack([torch.arange(6000) % ROWS, torch.zeros(6000).long()]), num_nodes=ROWS)

OPERATIONS = {
    "linear": (lambda x, w, b: linear(x, w, b), (ROWS, 40), (50, 40), (50,)),
    "linear, wide": (lambda x, w, b: linear(x, w, b), (ROWS, 128), (100, 128), (100,)),
    "layer norm": (lambda x, w, b: layer_norm(x, w, b, act="relu"), (ROWS, 64), (64,), (64,)),
    "layer norm, odd": (lambda x, w, b: layer_norm(x, w, b), (ROWS, 37), (37,), (37,)),
    "graphs": (lambda x, w, b, a: graph_norm(x, GRAPHS, w, b, a), (2000, 64), (64,), (64,), (64,)),
    "a large graph": (lambda x, w, b, a: graph_norm(x, LARGE, w, b, a), (2999, 64), (64,), (64,), (64,)),
    "large graphs, wide": (lambda x, w, b, a: graph_norm(x, LARGE, w, b, a), (2999, 300), (300,), (300,), (300,)),
    "the whole batch": (lambda x, w, b: batch_norm(x, w, b), (WIDE, 64), (64,), (64,)),
    "neighbours": (lambda x, w: aggregate(x, EDGES, self_weight=w), (ROWS, 64), ()),
    "a hub": (lambda x, w: aggregate(x, HUB, self_weight=w), (ROWS, 64), ()),
    "readout": (lambda x: pool(x, GRAPHS), (2000, 64)),
}


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def first_member(name: str, members: int) -> list[Tensor]:
    """Output and gradients of the first of several members."""
    run, *shapes = OPERATIONS[name]
    leaves = [
        torch.cat([drawn(k, 1, *shape), drawn(9 + k, members - 1, *shape)]).requires_grad_()
        for k, shape in enumerate(shapes)
    ]
    y = vmap(run)(*leaves)
    dy = drawn(8, *y.shape[1:]).expand_as(y)
    return [y[0], *(gradient[0] for gradient in torch.autograd.grad(y, leaves, dy))]


@pytest.mark.parametrize("name", OPERATIONS)
def test_alone_and_in_a_stack(name, set_threads):
    set_threads(1)
    alone = first_member(name, 1)
    for threads in (1, 2, 3):
        set_threads(threads)
        for members in (1, 2, 3, 8):
            found = first_member(name, members)
            assert all(torch.equal(a, b) for a, b in zip(found, alone, strict=True)), (threads, members)
