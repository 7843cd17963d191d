"""Choosing kernels by name; blocks nest; a name that cannot be used raises an error."""

import pytest
import torch

import graphnorm
from graphnorm import backends
from graphnorm.backends import chosen_backend
from graphnorm.ops.standardize import cpu, reference
from graphnorm.ops.standardize.api import kernels_for


def test_backends_nest_and_end_also_after_an_error():
    with graphnorm.backend("reference"):
        with pytest.raises(KeyError), graphnorm.backend("auto"):
            raise KeyError
        assert chosen_backend() == "reference"
    assert chosen_backend() == "auto"


def test_unknown_backend_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown backend 'cuda'.*'auto', 'reference', 'cpu', 'triton'"):
        graphnorm.backend("cuda").__enter__()
    assert chosen_backend() == "auto"


def test_the_choice_follows_the_name():
    x = torch.randn(3, 2)
    with graphnorm.backend("reference"):
        assert kernels_for(x, 1) is reference
    if backends.library is not None:
        assert kernels_for(x, 1) is cpu
        with graphnorm.backend("cpu"):
            assert kernels_for(x, 1) is cpu


def test_cpu_kernels_refuse_what_they_cannot_run():
    x = torch.randn(3, 2).to(torch.float8_e4m3fn)
    with (
        graphnorm.backend("cpu"),
        pytest.raises(RuntimeError, match=r"backend 'cpu' cannot run.*float8.*C library"),
    ):
        kernels_for(x, 1)


def test_triton_needs_a_gpu_or_its_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with (
        graphnorm.backend("triton"),
        pytest.raises(RuntimeError, match=r"needs Triton.*GPU.*TRITON_INTERPRET=1"),
    ):
        graphnorm.GraphNorm(2)(torch.randn(3, 2))


def test_auto_falls_back_to_plain_torch_without_the_library(monkeypatch):
    monkeypatch.setattr(backends, "library", None)
    assert kernels_for(torch.randn(3, 2), 1) is reference
