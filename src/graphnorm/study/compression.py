"""Curves and arrays as compressed bytes, for the store; every bit of them comes back.

An accuracy is a count of graphs divided by their number. A curve of accuracies is stored as its counts, which takes
half the space of its float32 values. Bytes of equal significance stand together, since zlib then finds more to save.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["compress_array", "compress_curve", "decompress_array", "decompress_curve"]

Array = npt.NDArray[Any]

LARGEST = 1 << 28
"""Bytes that an array may expand to: a bound for damaged or hostile files."""
MOST_GRAPHS = np.iinfo("<i2").max
"""The largest number of graphs that is tried; a curve of more graphs is stored as it is."""
HEAD = 4
"""Bytes before the counts: the number of graphs, or 0 before a curve that is stored as it is."""


def compress_curve(curve: npt.NDArray[np.float32]) -> bytes:
    """Compress a curve as float32.

    >>> decompress_curve(compress_curve(np.array([0.5, 0.75, np.nan], np.float32)))
    array([0.5 , 0.75,  nan], dtype=float32)
    """
    values = np.asarray(curve, "<f4")
    graphs = _number_of_graphs(values)
    counts = np.nan_to_num(values * np.float64(graphs), nan=-1).round().astype(_kind(graphs)) if graphs else values
    if _shares(counts, graphs).tobytes() != values.tobytes():  # for example -0.0
        graphs, counts = 0, values
    return _compress(graphs.to_bytes(HEAD, "little") + _by_significance(counts))


def decompress_curve(data: bytes) -> npt.NDArray[np.float32]:
    """Undo :func:`compress_curve`; damaged bytes raise ``zlib.error`` or ``ValueError``."""
    content = _decompress(data)
    graphs = int.from_bytes(content[:HEAD], "little")
    if graphs > MOST_GRAPHS:
        raise ValueError(f"a curve of {graphs} graphs")
    kind = np.dtype(_kind(graphs))
    return _shares(_from_significance(content[HEAD:], kind), graphs).astype(np.float32)


def _number_of_graphs(values: Array) -> int:
    """The smallest number of graphs whose shares all values are; NaN is none. 0 if there is no such number."""
    known = np.unique(values[~np.isnan(values)])
    if not len(known) or known[0] < 0 or known[-1] > 1:
        return 0
    numbers = np.arange(1, MOST_GRAPHS + 1)
    for value in known.tolist():
        counts = np.rint(value * numbers)
        numbers = numbers[counts.astype("<f4") / numbers.astype("<f4") == np.float32(value)]
        if not len(numbers):
            return 0
    return int(numbers[0])


def _kind(graphs: int) -> str:
    """The type of the counts."""
    return "<f4" if graphs == 0 else "i1" if graphs <= np.iinfo("i1").max else "<i2"


def _shares(counts: Array, graphs: int) -> Array:
    """Divide in float32, as the metric does; a count of -1 stands for NaN."""
    return np.where(counts < 0, np.float32(np.nan), counts.astype("<f4") / np.float32(graphs)) if graphs else counts


def compress_array(values: Array) -> bytes:
    """Compress an array of numbers of any shape and type.

    >>> decompress_array(compress_array(np.array([[1, 2], [3, 4]])))
    array([[1, 2],
           [3, 4]])
    """
    head = " ".join([values.dtype.str, *map(str, values.shape)])
    return _compress(head.encode() + b"\n" + _by_significance(np.ascontiguousarray(values)))


def decompress_array(data: bytes) -> Array:
    """Undo :func:`compress_array`; damaged bytes raise ``zlib.error`` or ``ValueError``."""
    head, _, content = _decompress(data).partition(b"\n")
    kind, *shape = head.decode().split(" ")
    if not re.fullmatch("[<>|][biuf][1248]", kind):
        raise ValueError(f"{kind!r} is no type of numbers")
    return _from_significance(content, np.dtype(kind)).reshape([int(length) for length in shape])


def _by_significance(values: Array) -> bytes:
    return values.reshape(-1, 1).view(np.uint8).T.tobytes()


def _from_significance(content: bytes, kind: np.dtype[Any]) -> Array:
    columns = np.frombuffer(content, np.uint8).reshape(kind.itemsize, -1)
    return np.ascontiguousarray(columns.T).view(kind).reshape(-1)


def _compress(content: bytes) -> bytes:
    compressor = zlib.compressobj(9, strategy=zlib.Z_FILTERED)  # for numbers a little smaller than the default
    return compressor.compress(content) + compressor.flush()


def _decompress(data: bytes) -> bytes:
    decompressor = zlib.decompressobj()
    content = decompressor.decompress(data, LARGEST)
    if not decompressor.eof:
        raise ValueError("it is cut off or too large")
    return content
