"""Segments: three ways in, one meaning; wrong input says what to do."""

import copy
import pickle

import pytest
import torch
from torch.utils import _pytree as pytree

import graphnorm
from graphnorm import GraphNorm, Segments
from graphnorm.layers import REGISTRY


def test_three_ways_in_agree():
    right = Segments(sizes=[3, 0, 2])
    assert Segments(batch=torch.tensor([0, 0, 0, 2, 2])) == right
    assert Segments(ptr=torch.tensor([0, 3, 3, 5])) == right
    assert Segments(sizes=torch.tensor([3, 0, 2], dtype=torch.int32)) == right
    assert Segments(sizes=iter([3, 0, 2])) == right
    assert (right.num_graphs, right.num_rows, right.max_size, right.may_pad) == (3, 5, 3, False)
    assert right.sizes.tolist() == [3, 0, 2]
    assert right.ids(5).tolist() == [0, 0, 0, 2, 2]
    assert right != Segments(sizes=[3, 2])
    assert right != Segments(sizes=[3, 0, 2], num_rows=6)
    assert right != 5


def test_unsorted_batch():
    segments = Segments(batch=torch.tensor([1, 0, 1, 3]), batch_size=5)
    assert segments.order.tolist() == [1, 0, 2, 3]
    assert segments.ptr.tolist() == [0, 1, 3, 3, 4, 4]
    assert segments.ids(4).tolist() == [1, 0, 1, 3]
    assert "not in order" in repr(segments)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_any_integer_type(dtype):
    assert Segments(batch=torch.tensor([0, 1, 1], dtype=dtype)) == Segments(sizes=[1, 2])


def test_padding():
    segments = Segments(sizes=[2, 1], num_rows=5)
    assert segments.may_pad
    assert segments.ids(5).tolist()[:3] == [0, 0, 1]
    assert all(i >= 2 or i < 0 for i in segments.ids(5).tolist()[3:])


def test_empty():
    assert Segments(sizes=[]).num_graphs == 0
    assert Segments(batch=torch.tensor([], dtype=torch.int64)).num_graphs == 0
    assert Segments(batch=torch.tensor([], dtype=torch.int64), batch_size=3).sizes.tolist() == [0, 0, 0]
    assert Segments(ptr=torch.tensor([0])).num_rows == 0


@pytest.mark.parametrize("batch", [[0, 0, 1, 2], [2, 0, 1, 0]])
def test_copies(batch):
    segments = Segments(batch=torch.tensor(batch))
    leaves, structure = pytree.tree_flatten(segments)
    for twin in (
        pickle.loads(pickle.dumps(segments)),
        copy.deepcopy(segments),
        segments.to("cpu"),
        pytree.tree_unflatten(leaves, structure),
    ):
        assert twin == segments
        assert (twin.max_size, twin.may_pad) == (segments.max_size, segments.may_pad)


def test_loaded_by_torch(tmp_path):
    """As ``torch.load`` reads files by default, with nothing in them that could run."""
    segments = Segments(batch=torch.tensor([2, 0, 1, 0]))
    torch.save(segments, tmp_path / "segments.pt")
    assert torch.load(tmp_path / "segments.pt") == segments


def test_70000_graphs():
    sizes = torch.randint(0, 4, (70_000,))
    batch = torch.repeat_interleave(torch.arange(70_000), sizes)
    assert Segments(batch=batch, batch_size=70_000) == Segments(sizes=sizes)
    shuffled = batch[torch.randperm(len(batch))]
    assert torch.equal(Segments(batch=shuffled, batch_size=70_000).ptr, Segments(sizes=sizes).ptr)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({}, ValueError, "exactly one of batch, ptr and sizes"),
        ({"batch": torch.tensor([0]), "sizes": [1]}, ValueError, "batch and sizes"),
        ({"batch": torch.tensor([0.0])}, TypeError, r"batch must hold integers.*batch\.long\(\)"),
        ({"batch": [0, 1]}, TypeError, "batch must be a tensor"),
        ({"batch": torch.zeros(2, 2, dtype=torch.int64)}, ValueError, "batch must be one-dimensional"),
        ({"batch": torch.tensor([0, -2])}, ValueError, "batch holds the negative id -2"),
        ({"batch": torch.tensor([-1])}, ValueError, "batch holds the negative id -1"),
        ({"batch": torch.tensor([-1, -1, 0, 1])}, ValueError, "batch holds the negative id -1"),
        ({"batch": torch.tensor([-1, 0]), "batch_size": 2}, ValueError, "batch holds the negative id -1"),
        ({"batch": torch.tensor([0, 3]), "batch_size": 2}, ValueError, "batch holds id 3.*batch_size=4"),
        ({"batch": torch.tensor([0]), "batch_size": -1}, ValueError, "batch_size is -1"),
        ({"batch": torch.tensor([0]), "batch_size": 1.0}, TypeError, "batch_size must be an int"),
        ({"batch": torch.tensor([0]), "batch_size": "1"}, TypeError, "batch_size must be an int"),
        ({"sizes": [1.5, 2]}, TypeError, "sizes must hold integers"),
        ({"batch": torch.tensor([0]), "num_rows": 2}, ValueError, "num_rows is 2"),
        ({"ptr": torch.tensor([], dtype=torch.int64)}, ValueError, "ptr is empty"),
        ({"ptr": torch.tensor([0, 3, 2])}, ValueError, "ptr must start at 0 and never fall"),
        ({"ptr": torch.tensor([1, 3])}, ValueError, "ptr must start at 0"),
        ({"ptr": torch.tensor([0, 3]), "num_rows": 2}, ValueError, "num_rows is 2, but the graphs own 3"),
        ({"sizes": [2, -1]}, ValueError, "sizes holds -1"),
        ({"sizes": torch.tensor([0.5])}, TypeError, "sizes must hold integers"),
        ({"sizes": [2, 1], "batch_size": 3}, ValueError, "batch_size is 3, but sizes describes 2 graphs; leave it out"),
        ({"ptr": torch.tensor([0, 3]), "batch_size": 3}, ValueError, "batch_size is 3, but ptr describes 1 graphs"),
        ({"sizes": [2, 1], "num_rows": "3"}, TypeError, "num_rows must be an int, the number of rows, got '3'"),
        ({"sizes": [], "num_rows": -1}, ValueError, "num_rows is -1; it is a number of rows, so at least 0"),
        ({"sizes": [2, 1], "max_size": 1.5}, TypeError, "max_size must be an int, the number of rows, got 1.5"),
        ({"sizes": [2, 1], "max_size": 1}, ValueError, "max_size is 1, but a graph has 2 rows; leave it out"),
        ({"batch": torch.tensor([0, 10**15])}, ValueError, r"batch holds id 10{15}.*unique\(return_inverse=True\)"),
        (
            {"batch": torch.tensor([2**63 - 1, 0])},
            ValueError,
            "batch holds id 9223372036854775807, so 2 rows would form",
        ),
        ({"batch": torch.tensor([0]), "batch_size": 10**15}, ValueError, "batch_size is 10{15}, so 1 rows would form"),
        ({"batch": torch.tensor([0], device="meta")}, ValueError, "batch_size is needed where .* cannot be read"),
    ],
)
def test_wrong_input(arguments, error, words):
    with pytest.raises(error, match=words):
        Segments(**arguments)


NORMS = [make for name, make in sorted(REGISTRY.items()) if name in ("graph", "instance", "size")]


@pytest.mark.parametrize("make", NORMS)
def test_batch_on_another_device(make):
    segments = Segments.trusted(torch.empty(3, dtype=torch.int64, device="meta"), num_rows=4)
    with pytest.raises(ValueError, match=r"on meta, x is on cpu.*\.to\('cpu'\)"):
        make(2)(torch.randn(4, 2), segments)


def test_debug_nests_and_ends():
    assert not graphnorm.backends.debugging()
    with graphnorm.debug():
        with graphnorm.debug():
            pass
        assert graphnorm.backends.debugging()
        GraphNorm(2)(torch.randn(3, 2), torch.tensor([0, 1, 1]), 2)
    assert not graphnorm.backends.debugging()


def test_inside_vmap_derived_arrays_are_cached():
    def rows(ptr):
        segments = Segments.trusted(ptr, None, 5)
        assert segments.ids(5) is segments.ids(5)
        assert segments.merged(5) is segments.merged(5)
        return segments.ids(5)

    assert torch.func.vmap(rows)(torch.tensor([[0, 2, 5], [0, 5, 5]])).tolist() == [[0, 0, 1, 1, 1], [0] * 5]


def test_derived_arrays_of_a_vmap_do_not_outlive_it():
    segments = Segments(sizes=[2, 3])
    torch.func.vmap(lambda x: x + segments.ids(5))(torch.zeros(2, 5))
    assert not torch._C._functorch.is_functorch_wrapped_tensor(segments.ids(5))


UNSORTED = [1, 0, 1, 0, 1]


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: Segments(batch=torch.tensor(UNSORTED)),
        lambda: Segments(batch=torch.tensor([0, 0, 1, 1, 1])),
        lambda: Segments(ptr=torch.tensor([0, 2, 5])),
        lambda: Segments(sizes=[2, 3]),
        lambda: Segments(batch=torch.tensor(UNSORTED)).to("cpu"),
    ],
    ids=["unsorted", "sorted", "ptr", "sizes", "moved"],
)
def test_made_in_inference_mode_they_serve_training(make, backend):
    x, right = torch.randn(5, 2, requires_grad=True), make()
    with torch.inference_mode():
        segments = make()

    def gradients(segments):
        """First and second derivatives of everything that reads segments."""
        y = GraphNorm(2)(x, segments) + graphnorm.make_norm("batch", 2)(x, segments)
        y = y + graphnorm.layers.functional.pool(x, segments)[segments.ids(5)] + x[segments.ids(5)]
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        return first, *torch.autograd.grad(first.square().sum(), x)

    with graphnorm.backend(backend):
        torch.testing.assert_close(gradients(segments), gradients(right))


def test_derived_arrays_made_in_inference_mode_serve_training():
    batch = torch.tensor(UNSORTED)
    for segments in (Segments(batch=batch), Segments(sizes=[2, 3])):
        with torch.inference_mode():
            asked = [segments.ids(5), segments.merged(5).ptr, segments.merged(5).order]
        assert not any(tensor.is_inference() for tensor in asked if tensor is not None)
        assert segments.ids(5) is asked[0]


def test_ids_made_in_inference_mode_are_copied_once_and_only_for_training():
    with torch.inference_mode():
        batch = torch.tensor(UNSORTED)
        segments = Segments(batch=batch)
        assert segments.ids(5) is batch
    ids = segments.ids(5)
    assert ids.tolist() == UNSORTED
    assert not ids.is_inference()
    assert segments.ids(5) is ids
