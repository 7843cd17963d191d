"""Two processes under DistributedDataParallel: the gradients are the mean of those of each process alone."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from graphnorm import GraphNorm, Segments, convert_norms

SIZES = ([3, 1, 4], [2, 5])


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 4), GraphNorm(4, act="relu")

    def forward(self, x, segments):
        return self.norm(self.linear(x), segments)


class WithBatchNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)

    def forward(self, x, segments):
        return self.norm(self.linear(x))


NETWORKS = {"ours": Network, "converted": lambda: convert_norms(WithBatchNorm())}


def inputs(rank):
    draw = torch.Generator().manual_seed(rank)
    return torch.randn(sum(SIZES[rank]), 3, generator=draw), Segments(sizes=SIZES[rank])


def gradients(network, rank):
    x, segments = inputs(rank)
    network.zero_grad()
    network(x, segments).square().sum().backward()
    return [parameter.grad.clone() for parameter in network.parameters()]


def work(rank, folder, kind):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.manual_seed(0)
    network = nn.parallel.DistributedDataParallel(NETWORKS[kind]())
    torch.save(gradients(network, rank), f"{folder}/{rank}.pt")
    with pytest.raises(ValueError, match="convert the model first"):
        convert_norms(network)
    torch.distributed.barrier()  # gloo may abort where one process leaves while the other still listens
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without torch.distributed")
@pytest.mark.parametrize("kind", NETWORKS)
def test_gradients_are_averaged(tmp_path, kind):
    processes = [subprocess.Popen([sys.executable, __file__, str(rank), str(tmp_path), kind]) for rank in range(2)]
    try:
        assert [process.wait(timeout=120) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    torch.manual_seed(0)
    network = NETWORKS[kind]()
    alone = [gradients(network, rank) for rank in range(2)]
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        for f, a, b in zip(found, *alone, strict=True):
            assert torch.allclose(f, (a + b) / 2, atol=1e-6)


if __name__ == "__main__":
    work(int(sys.argv[1]), *sys.argv[2:])
