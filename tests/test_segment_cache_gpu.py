"""The cache of segments on a GPU, with streams and CUDA graphs."""

import gc

import pytest
import torch

import graphnorm
from graphnorm import GraphNorm, InstanceNorm, Segments
from graphnorm.segment_cache import as_segments

pytestmark = pytest.mark.gpu

GRAPHS = 5


def vector(rows=60):
    return torch.randint(0, GRAPHS, (rows,), device="cuda")


def test_two_layers_share_and_wait_once(monkeypatch, no_synchronisation):
    """Without batch_size, too: the first layer asks the device for the number of graphs, the second does not."""
    built, make = [], Segments.temporary
    monkeypatch.setattr(Segments, "temporary", lambda *given: built.append(given) or make(*given))
    first, second = GraphNorm(16, device="cuda"), InstanceNorm(16)
    x, batch = torch.randn(60, 16, device="cuda"), vector()
    for sizes in ((), (GRAPHS,)):
        built.clear()
        y = first(x, batch, *sizes)
        second(y, Segments(batch=batch, batch_size=GRAPHS if sizes else None))  # compiles its kernel
        with no_synchronisation():
            z = second(y, batch, *sizes)
        assert len(built) == 1
        right = second.cpu()(first.cpu()(x.cpu(), batch.cpu()), batch.cpu())
        assert torch.allclose(z.cpu(), right, atol=1e-5)
        first.cuda(), second.cuda()


def test_a_change_in_place_is_noticed():
    norm, x, batch = GraphNorm(16, device="cuda"), torch.randn(60, 16, device="cuda"), vector()
    norm(x, batch, GRAPHS)
    batch.copy_(vector())
    assert torch.equal(norm(x, batch, GRAPHS), norm(x, Segments(batch=batch, batch_size=GRAPHS)))


def test_a_cuda_graph_reads_the_ids_at_each_replay():
    """Although the segments of the same tensor were cached before, on the stream of the capture itself."""
    first, second = GraphNorm(16, device="cuda"), InstanceNorm(16)
    x, batch = torch.randn(60, 16, device="cuda"), vector()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            second(first(x, batch, GRAPHS), batch, GRAPHS)
        cached = as_segments(batch, GRAPHS)
        assert as_segments(batch, GRAPHS) is cached
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        assert as_segments(batch, GRAPHS) is not as_segments(batch, GRAPHS)
        y = second(first(x, batch, GRAPHS), batch, GRAPHS)
    with torch.cuda.stream(stream):
        assert as_segments(batch, GRAPHS) is cached
    torch.cuda.current_stream().wait_stream(stream)
    for _ in range(2):
        other = vector()
        batch.copy_(other)
        graph.replay()
        segments = Segments(batch=other, batch_size=GRAPHS)
        assert torch.allclose(y, second(first(x, segments), segments), atol=1e-5)
        assert torch.allclose(y, second(first(x, batch, GRAPHS), batch, GRAPHS), atol=1e-5)


def test_another_stream_has_other_segments():
    batch, stream = vector(), torch.cuda.Stream()
    first = as_segments(batch, GRAPHS)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        other = as_segments(batch, GRAPHS)
        assert other is not first
        assert as_segments(batch, GRAPHS) is other
    torch.cuda.current_stream().wait_stream(stream)
    assert as_segments(batch, GRAPHS) is first
    assert other == first


def test_memory_goes_with_the_tensor():
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    batch = vector(1_000_000)
    own = torch.cuda.memory_allocated() - before
    as_segments(batch, GRAPHS)
    assert torch.cuda.memory_allocated() - before > own  # the order of the rows
    del batch
    assert torch.cuda.memory_allocated() == before


def test_debug_checks_a_cached_batch():
    norm, x, batch = GraphNorm(4, device="cuda"), torch.randn(60, 4, device="cuda"), vector()
    batch[7] = GRAPHS
    norm(x, batch, GRAPHS)
    assert (norm(x, batch, GRAPHS)[7] == 0).all()
    with graphnorm.debug(), pytest.raises(ValueError, match=f"batch holds id {GRAPHS}"):
        norm(x, batch, GRAPHS)
