"""Counters that are 0 for every launch, and memory that no two launches use at once."""

import pytest
import torch

from graphnorm.ops import launch
from graphnorm.ops.launch import GraphScratch, Scratch

CPU = torch.device("cpu")


@pytest.mark.parametrize("count", [1, 64, launch._COUNTERS + 1, 5 * launch._COUNTERS])
def test_counters_of_a_stream_are_enough_and_zero(count):
    scratch = Scratch(CPU)
    for wanted in (3, count, 3):
        counters = scratch.counters(wanted)
        assert counters.dtype is torch.int32
        assert counters.shape[0] >= wanted
        assert (counters == 0).all()


def test_counters_made_in_inference_mode_can_be_written_outside_of_it():
    with torch.inference_mode():
        counters = Scratch(CPU).counters(3)
    counters[0] = 1  # of a tensor made in that mode this would be an error
    assert counters[0] == 1


def test_room_is_used_again_unless_it_is_large(monkeypatch):
    monkeypatch.setattr(launch, "_LARGEST_ROOM", 100)
    scratch = Scratch(CPU)
    small, large = (scratch.room(size, torch.float32) for size in (100, 101))
    assert small.shape[0] >= 100
    assert large.shape[0] >= 101
    assert scratch.room(3, torch.float32) is small
    assert scratch.room(3, torch.float64).dtype is torch.float64
    assert scratch.room(101, torch.float32) is not large


def test_no_two_recorded_launches_share_counters():
    scratch = GraphScratch(CPU, torch.zeros(100, dtype=torch.int32))
    seen = []
    for k in range(30):  # more than the stock has
        counters = scratch.counters(9)
        assert counters.shape == (9,)
        assert (counters == 0).all()
        assert counters.data_ptr() % 16 == 0
        counters.fill_(k + 1)
        seen.append(counters)
    assert all((counters == k + 1).all() for k, counters in enumerate(seen))
    assert scratch.room(4, torch.float64).data_ptr() != scratch.room(4, torch.float64).data_ptr()


def test_streams_and_graphs_have_memory_of_their_own(monkeypatch):
    monkeypatch.setattr(launch, "_stream_scratch", {})
    monkeypatch.setattr(launch, "_graph_scratch", {})
    monkeypatch.setattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: capturing, raising=False)
    capturing = True
    assert isinstance(launch.scratch(CPU, 0, 40), GraphScratch)  # nothing was called before
    capturing = False
    first = launch.scratch(CPU, 0, 40)
    assert launch.scratch(CPU, 0, 40) is first
    assert launch.scratch(CPU, 0, 41) is not first
    capturing = True
    of_graphs = launch.scratch(CPU, 0, 40)
    assert of_graphs.counters(5).data_ptr() != of_graphs.counters(5).data_ptr()
    assert launch.scratch(CPU, 0, 40) is of_graphs
