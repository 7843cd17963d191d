"""The segments of a batch tensor are cached, and never used where they could be wrong. The GPU's rules, on a CPU."""

import gc
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import graphnorm
from graphnorm import GraphNorm, GraphSizeNorm, InstanceNorm, Segments, segment_cache
from graphnorm.layers import functional
from graphnorm.models.graph import graph_structure
from graphnorm.segment_cache import as_segments


@pytest.fixture
def cache(monkeypatch):
    """The cache, empty at first."""
    monkeypatch.setattr(segment_cache, "_cache", {})
    monkeypatch.setattr(segment_cache._drop_from_cache, "__defaults__", (segment_cache._cache,))
    return segment_cache._cache


@pytest.fixture
def stream(monkeypatch, cache):
    """Makes CPU tensors count as a GPU's; the one entry is the stream, ``None`` while a CUDA graph is captured."""
    current = [0]
    monkeypatch.setattr(segment_cache, "_stream", lambda batch: current[0])
    return current


@pytest.fixture
def built(monkeypatch):
    """The arguments of every construction of Segments from a layer's batch vector."""
    calls, make = [], Segments.temporary
    monkeypatch.setattr(Segments, "temporary", lambda *given: calls.append(given) or make(*given))
    return calls


def vector():
    return torch.tensor([1, 0, 1, 0, 0])


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize("batch_size", [None, 2, 3])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_found_again(batch_size, dtype):
    batch = vector().to(dtype)
    first = as_segments(batch, batch_size)
    assert first == Segments(batch=batch, batch_size=batch_size)
    assert as_segments(batch, batch_size) is first
    assert as_segments(batch.clone(), batch_size) is not first


@pytest.mark.usefixtures("stream")
def test_layers_functions_and_models_share(built):
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x, batch, batch_size):
            return self.norm(x)

    x, batch = torch.randn(5, 3), vector()
    for layer in (GraphNorm(3), InstanceNorm(3), GraphSizeNorm(), graphnorm.make_norm("pair", 3)):
        layer(x, batch, 2)
    functional.graph_norm(x, batch, batch_size=2)
    graph_structure(x, torch.tensor([[0, 1], [1, 0]]), batch, 2)
    graphnorm.convert_norms(Normed(), to="graph")(x, batch, 2)
    assert len(built) == 1


@pytest.mark.usefixtures("cache")
def test_on_a_cpu_every_change_is_noticed():
    batch = vector()
    first = as_segments(batch, 2)
    assert as_segments(batch, 2) is first
    for change in (lambda: batch.numpy().fill(1), lambda: batch.data.zero_(), lambda: batch.resize_(3)):
        change()
        assert as_segments(batch, 2) == Segments(batch=batch, batch_size=2)


@pytest.mark.parametrize("change", [torch._neg_view, lambda ids: ids.to_sparse(), lambda ids: ids[None]])
def test_sorted_memory_of_another_kind_is_no_sorted_batch(change):
    """The C library reads memory, and that of a negative view has the other sign."""
    with pytest.raises((TypeError, ValueError), match=r"negative id|sparse|one-dimensional"):
        as_segments(change(torch.tensor([0, 1, 1])), 2)


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize(
    "change",
    [
        lambda batch: batch.copy_(torch.tensor([0, 0, 0, 1, 1])),
        lambda batch: batch.__setitem__(0, 0),
        lambda batch: batch[1:].mul_(0),
        lambda batch: batch.detach().fill_(0),
        lambda batch: torch.add(batch, -batch, out=batch),
        lambda batch: batch.resize_(3),
        lambda batch: batch.set_(torch.tensor([0, 1])),
        torch.inference_mode()(lambda batch: batch.zero_()),
    ],
    ids=["copy", "entry", "view", "detached", "out", "resize", "set", "inference"],
)
def test_a_change_in_place_is_noticed(change):
    batch = vector()
    first = as_segments(batch, 2)
    change(batch)
    assert as_segments(batch, 2) != first
    assert as_segments(batch, 2) == Segments(batch=batch, batch_size=2)
    assert as_segments(batch, 2) is as_segments(batch, 2)


@pytest.mark.usefixtures("stream")
def test_a_change_of_what_it_is_a_view_of_is_noticed():
    base = torch.tensor([7, 7, 0, 0, 1])
    batch = base[2:]
    assert as_segments(batch, 2).ptr.tolist() == [0, 2, 3]
    base[3] = 1
    assert as_segments(batch, 2).ptr.tolist() == [0, 1, 3]


@pytest.mark.usefixtures("stream")
def test_another_number_of_graphs():
    batch = vector()
    found = {size: as_segments(batch, size) for size in (2, 3, None)}
    assert [segments.num_graphs for segments in found.values()] == [2, 3, 2]
    assert all(as_segments(batch, size) is segments for size, segments in found.items())
    with pytest.raises(ValueError, match="batch_size is 1"):
        as_segments(batch, 1)


def test_another_stream(stream):
    batch = vector()
    first = as_segments(batch, 2)
    stream[0] = 1
    assert as_segments(batch, 2) is not first
    stream[0] = 0
    assert as_segments(batch, 2) is first


# ---- how long ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_freed_with_the_tensor(cache, dtype):
    batch = vector().to(dtype)
    gc.disable()  # no cycle that it would have to find
    try:
        norm, x = GraphNorm(3), torch.randn(5, 3, requires_grad=True)
        y = norm(x, batch, 2) + x.index_select(0, batch)
        assert len(cache) == 1
        segments = as_segments(batch, 2)
        gone = [
            weakref.ref(batch),
            weakref.ref(segments.ptr),
            weakref.ref(segments.ids(5)),
            weakref.ref(segments.order),
        ]
        y.sum().backward()
        del batch, segments, y
    finally:
        gc.enable()
    assert not cache
    assert [reference() for reference in gone] == [None] * 4


@pytest.mark.usefixtures("stream")
def test_kept_by_the_user_they_outlive_the_tensor(cache):
    batch = vector()
    segments = as_segments(batch, 2)
    del batch
    assert not cache
    assert segments.ids(5).tolist() == vector().tolist()


@pytest.mark.usefixtures("stream")
def test_many_living_tensors_do_not_pile_up(cache):
    batches = [vector() for _ in range(3 * segment_cache._MAX_CACHED)]
    for batch in batches:
        assert as_segments(batch, 2) is as_segments(batch, 2)
    assert 0 < len(cache) <= segment_cache._MAX_CACHED


@pytest.mark.usefixtures("stream")
def test_wrong_input_is_not_cached(cache):
    for batch, size in ((torch.tensor([0, 5]), 2), (torch.tensor([0.0]), 1), (torch.tensor([[0]]), 1)):
        with pytest.raises((TypeError, ValueError)):
            as_segments(batch, size)
    assert not cache


# ---- where the cache is not used ---------------------------------------------------


class PassThrough(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def inside_debug(check, stream):
    with graphnorm.debug():
        check()


def inside_a_dispatch_mode(check, stream):
    with PassThrough():
        check()


def inside_vmap(check, stream):
    torch.func.vmap(lambda x: check() or x)(torch.zeros(2))


def inside_grad(check, stream):
    torch.func.grad(lambda x: check() or x)(torch.zeros(()))


def inside_a_trace(check, stream):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own: tracing is deprecated, and has doubts about our ints
        torch.jit.trace(lambda x: check() or x + 1, torch.zeros(2), check_trace=False)


def inside_a_capture(check, stream):
    stream[0] = None
    check()
    stream[0] = 0


@pytest.mark.parametrize(
    "inside",
    [inside_debug, inside_a_dispatch_mode, inside_vmap, inside_grad, inside_a_trace, inside_a_capture],
)
def test_not_cached(inside, stream, cache):
    known, new, checked = vector(), vector(), []
    first = as_segments(known, 2)

    def check():
        assert as_segments(known, 2) is not first
        assert as_segments(new, 2) is not as_segments(new, 2)
        checked.append(True)

    inside(check, stream)
    assert checked
    assert len(cache) == 1
    assert as_segments(known, 2) is first


@pytest.mark.usefixtures("stream")
def test_debug_checks_every_call():
    """Also those with a cached batch: on a GPU only debug() reports ids out of range."""
    batch, norm, x = vector(), GraphNorm(3), torch.randn(5, 3)
    norm(x, batch, 2)
    batch.data[0] = 9  # unnoticed
    norm(x, batch, 2)
    with graphnorm.debug(), pytest.raises(ValueError, match="batch holds id 9"):
        norm(x, batch, 2)


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize("way", ["compile", "export"])
def test_compiled_and_exported_programs_read_the_batch(way, cache):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = GraphNorm(3), InstanceNorm(3)

        def forward(self, x, batch):
            return self.second(self.first(x, batch, 2), batch, 2)

    model, x, batch = Two(), torch.randn(5, 3), vector()
    model(x, batch)
    (known,) = cache.values()
    if way == "compile":
        torch.compiler.reset()
        program = torch.compile(model, backend="aot_eager", fullgraph=True)
        program(x, batch)
    else:
        program = torch.export.export(model, (x, batch)).module()
    assert list(cache.values()) == [known]
    other = torch.tensor([0, 0, 1, 1, 1])
    batch.data.copy_(other)  # unnoticed, so that cached segments would give another result
    assert torch.allclose(program(x, batch), model(x, other), atol=1e-6)
    assert not torch.allclose(program(x, batch), model(x, batch), atol=1e-2)


@pytest.mark.usefixtures("stream")
def test_inference_tensors_have_no_version(cache):
    with torch.inference_mode():
        batch = vector()
        assert as_segments(batch, 2) is not as_segments(batch, 2)
        batch.zero_()
        assert as_segments(batch, 2).ptr.tolist() == [0, 5, 5]
    assert as_segments(batch, 2) is not as_segments(batch, 2)
    assert not cache


@pytest.mark.usefixtures("stream")
def test_training_does_not_find_the_segments_of_inference_mode():
    batch = vector()
    with torch.inference_mode():
        first = as_segments(batch, 2)
        assert as_segments(batch, 2) is first
        assert first.ptr.is_inference()
    trained = as_segments(batch, 2)
    assert not trained.ptr.is_inference()
    with torch.inference_mode():
        assert as_segments(batch, 2) is first


@pytest.mark.usefixtures("stream")
def test_subclasses_and_numbers_that_are_no_ints(cache):
    class Special(torch.Tensor):
        pass

    special, batch = vector().as_subclass(Special), torch.zeros(3, dtype=torch.long)
    assert as_segments(special, 2) is not as_segments(special, 2)
    assert as_segments(batch, True) is not as_segments(batch, True)
    assert not cache


# ---- threads -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("stream")
def test_threads(cache):
    """Each thread changes and frees its own vectors, and all share one."""
    shared, threads, rounds = vector(), 8, 150
    right, start = Segments(batch=shared, batch_size=2), threading.Barrier(threads)

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        start.wait()
        for _ in range(rounds):
            own = torch.randint(0, 4, (20,), generator=generator)
            for _ in range(3):
                assert as_segments(own, 4) == Segments(batch=own, batch_size=4)
                assert as_segments(shared, 2) == right
                own.random_(0, 4, generator=generator)
        return rounds

    with ThreadPoolExecutor(threads) as pool:
        assert sum(pool.map(work, range(threads))) == threads * rounds
    assert len(cache) <= 1
    assert as_segments(shared, 2) is as_segments(shared, 2)
