"""Curves as bytes: exact where choices are made by them, small, and damage is noticed."""

from __future__ import annotations

import contextlib
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from graphnorm.study.curves import CurveError, pack_curve, unpack_curve, unpack_curves


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype == np.float32 and a.tobytes() == b.tobytes()


@given(arrays.arrays(np.float32, st.integers(0, 30), elements=st.floats(width=32, allow_nan=False)))
def test_any_metric_comes_back_to_the_bit(curve: np.ndarray) -> None:
    assert same(unpack_curve(pack_curve(curve)), curve)


@given(st.integers(1, 4110), st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=60))
def test_accuracies_come_back_to_the_bit(total: int, shares: list[float | None]) -> None:
    accuracy = [np.nan if share is None else round(share * total) / total for share in shares]
    curve = np.array(accuracy, np.float32)
    assert np.array_equal(unpack_curve(pack_curve(curve)), curve, equal_nan=True)


def learning(epochs: int = 400, total: int = 411) -> np.ndarray:
    random = np.random.default_rng(total)
    rising = 0.7 + 0.2 * (1 - np.exp(-np.arange(epochs) / 40)) + random.normal(0, 0.015, epochs)
    return (np.rint(np.clip(rising, 0, 1) * total) / total).astype(np.float32)


def test_an_accuracy_takes_about_a_byte_an_epoch() -> None:
    assert len(pack_curve(learning())) < 1.1 * 400


def test_the_loss_is_rounded() -> None:
    loss = np.array([0.693147, 1e-30, 3e38, np.inf, -np.inf, np.nan, 0.0], np.float32)
    back = unpack_curve(pack_curve(loss, exact=False))
    assert np.all(np.abs(back[:3] / loss[:3] - 1) < 2**-12)
    assert np.array_equal(back[3:], loss[3:], equal_nan=True)
    many = np.random.default_rng(0).uniform(0, 1, 400).astype(np.float32)
    assert len(pack_curve(many, exact=False)) < 0.6 * many.nbytes


def test_many_at_once_of_several_lengths_and_kinds() -> None:
    curves = [learning(total=n) for n in (411, 188, 3, 411)] + [learning(7), np.array([0.123, 9.0], np.float32)]
    back = unpack_curves([pack_curve(curve) for curve in curves])
    assert all(same(a, b) for a, b in zip(back, curves, strict=True))
    assert unpack_curves([]) == []


def test_damage_is_noticed() -> None:
    blob = pack_curve(learning())
    for place in range(len(blob)):
        wrong = blob[:place] + bytes([blob[place] ^ 0x10]) + blob[place + 1 :]
        with contextlib.suppress(CurveError):
            assert same(unpack_curve(wrong), learning()), place  # a bit of the deflate format that says nothing
    with pytest.raises(CurveError):
        unpack_curve(blob[:-5])
    with pytest.raises(CurveError, match="no known form"):
        unpack_curve(zlib.compress(b"q" + b"\0" * 20))
