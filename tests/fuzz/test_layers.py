"""Calls of layers with tensors of any shape and type: the float64 reference's answer, or an error that says why."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import graphnorm
from graphnorm.layers import REGISTRY, make_norm

CHANNELS = 3
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64)
TAME = st.floats(-2, 2, width=16)
WILD = TAME | st.floats(width=32) | st.sampled_from([1e30, 1e-30, float("nan"), float("inf")])
IDS = st.integers(0, 3) | st.sampled_from([-1, 5, 2**31, 2**62])


@st.composite
def features(draw: st.DrawFn) -> Tensor:
    rows, width = draw(st.integers(0, 6)), draw(st.sampled_from([CHANNELS] * 12 + [0, 1, 4]))
    values = draw(
        st.lists(draw(st.sampled_from([TAME, TAME, TAME, WILD])), min_size=rows * width, max_size=rows * width)
    )
    x = torch.tensor(values, dtype=torch.float64).reshape(rows, width)
    x = x.to(draw(st.sampled_from(TYPES[:4] * 4 + TYPES)))
    shape = draw(st.sampled_from(["plain", "strided", "transposed", "expanded"] * 4 + ["row", "three"]))
    if shape == "row":
        return x.flatten()
    if shape == "three":
        return x[None]
    if shape == "strided":
        return x.repeat_interleave(2, 0)[::2]
    if shape == "transposed":
        return x.t().contiguous().t()
    return x[:1].expand(rows, width) if shape == "expanded" else x


@st.composite
def batches(draw: st.DrawFn, rows: int) -> Any:
    kind = draw(st.sampled_from(["fits", "fits", "none", "segments"] * 4 + ["any", "float", "pairs", "list"]))
    if kind == "none":
        return None
    fits = st.lists(st.integers(0, 3), min_size=rows, max_size=rows)
    ids = draw(st.lists(IDS, max_size=6) if kind == "any" else fits)
    if kind == "list":
        return ids
    batch = torch.tensor(ids, dtype=torch.int64)
    if kind == "segments":
        return graphnorm.Segments(batch=batch, batch_size=4)
    if kind == "pairs":
        return batch[:, None]
    return batch.float() if kind == "float" else batch


@given(st.data(), st.sampled_from(sorted(REGISTRY)), features(), st.booleans())
def test_calls(data: st.DataObject, name: str, x: Tensor, training: bool) -> None:
    batch = data.draw(batches(x.shape[0]))
    sizes = st.sampled_from([None, 4] * 8 + [0, 3, -1, 2**40, 1.5, "4", True])
    batch_size: Any = None if isinstance(batch, graphnorm.Segments | None) else data.draw(sizes)
    norm, exact = make_norm(name, CHANNELS).train(training), make_norm(name, CHANNELS).double().train(training)
    exact.load_state_dict(norm.state_dict())
    before = x.clone()
    try:
        y = norm(x, batch, batch_size)
    except (TypeError, ValueError) as error:
        refusal = str(error)
    else:
        refusal = ""
    assert torch.equal(x, before) or bool(before.isnan().any())
    if refusal:
        assert len(refusal) > 20
        return
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    if x.double().abs().le(2).all():
        with graphnorm.backend("reference"):
            expected = exact(x.double(), batch, batch_size)
        torch.testing.assert_close(y.double(), expected, rtol=4 * torch.finfo(x.dtype).eps + 1e-5, atol=1e-3)
