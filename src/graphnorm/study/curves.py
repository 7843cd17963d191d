"""Curves as bytes: what a trial measured after every epoch, in as few of them as exactness allows.

A metric is kept to the bit, because choices are made by it. Most are accuracies k/n of one fixed n; then the counts k
are kept, as differences between epochs. The training loss is only ever looked at: it is rounded to 12 significant bits
(a relative error below 2⁻¹², 0.025 %). All of it is deflated; the checksum of the zlib format tells damage from data.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Curve", "CurveError", "pack_curve", "unpack_curve", "unpack_curves"]

Curve = npt.NDArray[np.float32]

HEADER = struct.Struct("<cII")  # coding, denominator, epochs
COUNTS, EXACT, ROUNDED = b"c", b"x", b"r"
MAX_DENOMINATOR = 4000
"""Beyond this a float32 does not tell k/n from its neighbours: n² > 2²⁴."""
DROPPED_BITS = 12


class CurveError(ValueError):
    """Bytes that are no curve."""


def pack_curve(curve: Curve, *, exact: bool = True) -> bytes:
    """Give the bytes of one curve, float32 of shape (epochs,).

    >>> accuracy = np.array([0.5, 0.75, np.nan], np.float32)
    >>> unpack_curve(pack_curve(accuracy))
    array([0.5 , 0.75,  nan], dtype=float32)
    """
    curve = np.ascontiguousarray(curve, dtype="<f4")
    plain: npt.NDArray[Any]
    if not exact:
        coding, denominator, plain = ROUNDED, 0, _round(curve)
    elif (found := _counts(curve)) is not None:
        coding, (denominator, counts) = COUNTS, found
        plain = np.diff(counts, prepend=np.int16(0)).astype("<i2")
    else:
        coding, denominator, plain = EXACT, 0, curve
    planes = plain.view(np.uint8).reshape(-1, plain.itemsize).T  # equal bytes side by side deflate better
    return zlib.compress(HEADER.pack(coding, denominator, len(curve)) + np.ascontiguousarray(planes).tobytes(), 9)


def unpack_curve(data: bytes) -> Curve:
    """Give the curve that :func:`pack_curve` made bytes of."""
    return unpack_curves([data])[0]


def unpack_curves(blobs: Sequence[bytes]) -> list[Curve]:
    """Unpack many curves at once: those of one length and coding are decoded together."""
    groups: dict[tuple[bytes, int], list[int]] = {}
    plains: list[bytes] = []
    denominators = np.ones(len(blobs), np.float32)
    for place, blob in enumerate(blobs):
        try:
            plain = zlib.decompress(blob)
            coding, denominator, epochs = HEADER.unpack_from(plain)
        except (zlib.error, struct.error) as error:
            raise CurveError(f"a curve is damaged: {error}") from error
        groups.setdefault((coding, epochs), []).append(place)
        denominators[place] = denominator
        plains.append(plain)
    curves: list[Curve] = [np.empty(0, np.float32)] * len(blobs)
    for (coding, epochs), places in groups.items():
        width = 2 if coding == COUNTS else 4
        joined = b"".join(plains[place] for place in places)
        if coding not in (COUNTS, EXACT, ROUNDED) or len(joined) != len(places) * (HEADER.size + width * epochs):
            raise CurveError(f"a curve is in no known form: {coding!r}, {epochs} epochs")
        bytes_ = np.frombuffer(joined, np.uint8).reshape(len(places), -1)[:, HEADER.size :]
        values = np.ascontiguousarray(bytes_.reshape(len(places), width, epochs).swapaxes(1, 2))
        if coding == COUNTS:
            counts = np.cumsum(values.view("<i2")[..., 0], axis=1, dtype=np.int16)
            decoded = np.where(
                counts < 0, np.float32(np.nan), counts.astype(np.float32) / denominators[places][:, None]
            )
        else:
            decoded = values.view("<f4")[..., 0]
        for place, curve in zip(places, decoded, strict=True):
            curves[place] = curve
    return curves


def _round(curve: Curve) -> npt.NDArray[np.uint32]:
    """To the nearest number of 12 significant bits; infinite and NaN stay what they are."""
    bits = curve.view("<u4")
    rounded = (bits + (1 << (DROPPED_BITS - 1))) >> DROPPED_BITS << DROPPED_BITS
    return np.where(np.isfinite(curve), rounded, bits).astype("<u4")


def _counts(curve: Curve) -> tuple[int, npt.NDArray[np.int16]] | None:
    """The n and the k of a curve k/n, with −1 for NaN; none where the curve is not of this form to the bit."""
    known = np.isfinite(curve)
    values = np.unique(curve[known])
    if not known.all() and np.isinf(curve).any():
        return None
    if np.signbit(values).any() or (len(values) and values[-1] > 1):
        return None
    denominator = 1
    for value in values[:: max(1, len(values) // 16)]:
        denominator = math.lcm(denominator, Fraction(float(value)).limit_denominator(MAX_DENOMINATOR).denominator)
        if denominator > MAX_DENOMINATOR:
            return None
    counts = np.where(known, np.rint(np.where(known, curve, 0) * denominator), -1).astype(np.int16)
    restored = counts.astype(np.float32) / np.float32(denominator)
    return (denominator, counts) if np.array_equal(restored[known], curve[known]) else None
