"""Boundaries and order of a batch vector by the kernels of a GPU, against a sort."""

import pytest
import torch

from graphnorm.backends import triton_kernels


@pytest.mark.interpreted
@pytest.mark.parametrize("rows", [1, 40, 1023, 3000])
@pytest.mark.parametrize("ids", ["sorted", "with gaps", "shuffled", "out of range", "one falls"])
@pytest.mark.usefixtures("fresh_memory_is_nan")
def test_reading_is_sorting(device_of_triton, rows, ids):
    gpu = triton_kernels("graphnorm.read_batch_gpu")
    graphs = 37
    batch = torch.randint(0, graphs, (rows,))
    batch = {
        "sorted": lambda: batch.sort().values,
        "with gaps": lambda: (batch.sort().values // 9 * 9 + 4).clamp(max=graphs - 1),
        "shuffled": lambda: batch,
        "out of range": lambda: torch.randint(-(2**40), 2**40, (rows,)).where(torch.rand(rows) < 0.3, batch),
        "one falls": lambda: torch.cat([batch.sort().values[:-1], torch.zeros(1, dtype=torch.int64)]),
    }[ids]()
    ptr, order = gpu.read(batch.to(device_of_triton), graphs)
    in_range = batch.clamp(-1, graphs)
    right, places = torch.sort(in_range, stable=True)
    assert torch.equal(ptr.cpu(), torch.searchsorted(right, torch.arange(graphs + 1)))
    assert torch.equal(order.cpu(), places)
