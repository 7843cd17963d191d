"""Curves and arrays as bytes: every bit comes back, counts are small, damaged bytes raise."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from graphnorm.study import compression
from graphnorm.study.compression import compress_array, compress_curve, decompress_array, decompress_curve


@st.composite
def accuracies(draw: st.DrawFn) -> npt.NDArray[np.float32]:
    graphs = draw(st.integers(1, 40_000))
    counts = draw(arrays.arrays(np.int64, st.integers(0, 30), elements=st.integers(0, graphs)))
    shares: npt.NDArray[np.float32] = counts.astype(np.float32) / np.float32(graphs)
    return np.where(draw(arrays.arrays(bool, len(shares))), np.float32(np.nan), shares)


@given(arrays.arrays(np.float32, st.integers(0, 30), elements=st.floats(width=32)) | accuracies())
def test_any_curve_comes_back_to_the_bit(curve: npt.NDArray[np.float32]) -> None:
    back = decompress_curve(compress_curve(curve))
    assert back.dtype == np.float32
    assert back.tobytes() == curve.tobytes()


@pytest.mark.parametrize("value", [-0.0, np.inf, -np.inf, 1.5, -0.25, np.uint32(0x7FC00001).view(np.float32)])
def test_values_that_are_no_shares(value: float) -> None:
    curve = np.array([0.5, value, np.nan, 0.25], np.float32)
    assert decompress_curve(compress_curve(curve)).tobytes() == curve.tobytes()


@pytest.mark.parametrize("graphs", [19, 3699])
def test_counts_take_less_room_than_shares(graphs: int) -> None:
    counts = graphs * np.linspace(0.5, 0.9, 400) + np.random.default_rng(0).normal(0, 2, 400)
    curve = counts.clip(0, graphs).round().astype(np.float32) / np.float32(graphs)
    assert len(compress_curve(curve)) < 0.6 * len(zlib.compress(curve.tobytes(), 9))


@given(
    arrays.arrays(
        st.sampled_from(["f4", "f8", ">f4", "i8", "i2", "u1", "?"]),
        arrays.array_shapes(min_dims=0, min_side=0, max_side=4),
    )
)
def test_any_array_comes_back(values: npt.NDArray[Any]) -> None:
    back = decompress_array(compress_array(values))
    assert (back.dtype, back.shape) == (values.dtype, values.shape)
    assert back.tobytes() == values.tobytes()


@given(st.binary(max_size=80), st.booleans())
def test_other_bytes_raise(content: bytes, compressed: bool) -> None:
    """``ValueError`` or ``zlib.error``, or they happen to be a curve."""
    for unpack in (decompress_curve, decompress_array):
        try:
            unpack(zlib.compress(content) if compressed else content)
        except (ValueError, zlib.error):
            continue
        assert unpack is decompress_curve


def test_what_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "LARGEST", 1000)
    for data in (compress_curve(np.zeros(400, np.float32)), compress_array(np.zeros(4))):
        compression._decompress(data)
    for unpack, data in (
        (decompress_curve, compress_curve(np.ones(1200, np.float32))),
        (decompress_array, compress_array(np.ones(200))),
    ):
        with pytest.raises(ValueError, match="too large"):
            unpack(data)


@pytest.mark.parametrize("head", [b"<f8 999999999 999999999\n", b"|O 2\n", b"<f8 x\n", b"<f8", b"<U4 2\n"])
def test_an_array_s_head_is_not_trusted(head: bytes) -> None:
    with pytest.raises(ValueError, match=r"reshape|type|literal"):
        decompress_array(compression._compress(head + bytes(24)))
