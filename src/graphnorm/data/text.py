"""Tables of numbers from text, straight into arrays, with the line of every mistake.

One definition of a good line serves all readers: numbers separated by a comma, by blanks, or by both, the
same count on every line. Integers are read a chunk at a time without a Python object per number. The fast
reader only accepts; where it meets anything else, the slow one goes through the chunk line by line and either
agrees with it or says what is wrong where.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from graphnorm.errors import DataError

__all__ = ["Readable", "read_floats", "read_integers"]

CHUNK = 1 << 17  # what is made of it stays in the second-level cache
MAX_LINE = 1 << 24
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_FLOAT = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?nan|[+-]?inf", re.IGNORECASE)
_SEPARATOR = re.compile(rb"[ \t]*,[ \t]*|[ \t]+")
_PLAIN = b"0123456789, \t\n"


class Readable(Protocol):
    """All that is asked of a file."""

    def read(self, size: int, /) -> bytes:
        """Give up to ``size`` bytes, and none at the end."""


def read_integers(
    file: Readable, where: str, columns: int | None = None
) -> npt.NDArray[np.int32] | npt.NDArray[np.int64]:
    """(lines, columns) integers; int32 where all of them fit."""
    parts: list[npt.NDArray[Any]] = []
    for first, chunk in _chunks(file, where):
        if columns is None:
            columns = len(_split(chunk[: chunk.index(b"\n")]))
        values = _fast_integers(chunk, columns)
        if values is None:
            values = _slow(chunk, columns, _INTEGER, np.int64, first, where)
        fits = values.size == 0 or (values.min() >= -(2**31) and values.max() < 2**31)
        parts.append(values.astype(np.int32) if fits else values)
    return _join(parts, columns, np.int32)


def read_floats(file: Readable, where: str) -> npt.NDArray[np.float32]:
    """(lines, columns) floats; ``nan`` and ``inf`` are read as such, for the caller to refuse by line."""
    parts: list[npt.NDArray[Any]] = []
    columns: int | None = None
    for first, chunk in _chunks(file, where):
        if columns is None:
            columns = len(_split(chunk[: chunk.index(b"\n")]))
        parts.append(_slow(chunk, columns, _FLOAT, np.float32, first, where))
    return _join(parts, columns, np.float32)


def _join(parts: list[npt.NDArray[Any]], columns: int | None, dtype: type) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty((0, columns or 1), dtype)


def _chunks(file: Readable, where: str) -> Iterator[tuple[int, bytes]]:
    """Give whole lines, some ``CHUNK`` bytes at a time, with the number of the first; blank ends go."""
    line, rest, start = 1, b"", True
    while True:
        block = file.read(CHUNK)
        if start and block[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise DataError("the file is UTF-16 text", where=where, remedy="save it as UTF-8 or ASCII")
        chunk = (rest + block).removeprefix(b"\xef\xbb\xbf") if start else rest + block
        start = False
        if not block:
            chunk = chunk.rstrip().replace(b"\r\n", b"\n") + b"\n"
            if chunk != b"\n":
                yield line, chunk
            return
        # Blank lines stay behind with the unfinished one, so that those at the very end can be dropped.
        cut = chunk.rfind(b"\n", 0, len(chunk.rstrip())) + 1
        chunk, rest = chunk[:cut], chunk[cut:]
        if len(rest) > MAX_LINE:
            raise DataError(
                f"no number ends a line for {MAX_LINE >> 20} MiB",
                where=where,
                line=line + chunk.count(b"\n"),
                remedy="the file is damaged or of another kind; write one entry a line",
            )
        if chunk:
            yield line, chunk.replace(b"\r\n", b"\n") if b"\r" in chunk else chunk
            line += chunk.count(b"\n")


def _fast_integers(chunk: bytes, columns: int) -> npt.NDArray[np.int64] | None:
    """(lines, columns) from a chunk of whole lines of non-negative integers of up to 8 digits, else None.

    A number's value comes from the eight bytes that end with its last digit, read as one little-endian word:
    bytes before its first digit are shifted out, and three multiplications add neighbouring digits, pairs and
    fours up.
    """
    if chunk.translate(None, _PLAIN):
        return None
    text = np.frombuffer(b"\n" * 8 + chunk, np.uint8)
    digit = (text - np.uint8(ord("0"))) < 10
    turns = np.flatnonzero(digit[1:] != digit[:-1]) + 1
    first, last = turns[0::2].reshape(-1), turns[1::2].reshape(-1)
    newline = np.flatnonzero(text[8:] == ord("\n")) + 8
    if len(first) != len(newline) * columns:
        return None
    length = last - first
    by_line = first.reshape(-1, columns), last.reshape(-1, columns)
    if (
        (length > 8).any()
        or (by_line[1][:, -1] > newline).any()
        or (by_line[0][1:, 0] < newline[:-1]).any()
        or not _commas_fit(text, *by_line)
    ):
        return None
    word = np.ndarray((len(text) - 7,), "<u8", text.data, strides=(1,))[last - 8]
    shift = ((8 - length) * 8).astype(np.uint64)
    word >>= shift
    word <<= shift
    for mask, factor, width in (
        (0x0F0F0F0F0F0F0F0F, 10 * 2**8 + 1, 8),
        (0x00FF00FF00FF00FF, 100 * 2**16 + 1, 16),
        (0x0000FFFF0000FFFF, 10000 * 2**32 + 1, 32),
    ):
        word &= np.uint64(mask)
        word *= np.uint64(factor)
        word >>= np.uint64(width)
    return word.view(np.int64).reshape(-1, columns)


def _commas_fit(text: npt.NDArray[np.uint8], first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> bool:
    """Whether there are no commas at all, or exactly one between neighbours on a line and none elsewhere."""
    comma = np.flatnonzero(text == ord(","))
    if comma.size == 0:
        return True
    if comma.size != first[:, 1:].size:
        return False
    by_line = comma.reshape(len(first), -1)
    return bool((by_line >= last[:, :-1]).all() and (by_line < first[:, 1:]).all())


def _split(line: bytes) -> list[bytes]:
    return _SEPARATOR.split(line.strip())


def _slow(
    chunk: bytes, columns: int, number: re.Pattern[bytes], dtype: type, line: int, where: str
) -> npt.NDArray[Any]:
    """Read line by line; this is what defines a good line."""
    values = []
    for offset, text in enumerate(chunk[:-1].split(b"\n")):
        words = _split(text)
        bad = next((word for word in words if not number.fullmatch(word)), None)
        shown = repr(text[:60].decode("utf-8", "backslashreplace"))
        kind = "an integer" if number is _INTEGER else "a number"
        if bad is not None:
            problem = f"{shown} holds {bad[:20].decode('utf-8', 'backslashreplace')!r}, which is not {kind}"
            if not text.strip():
                problem = "the line is empty"
            elif b"\0" in text:
                problem = f"{shown} has null bytes: the file is binary or UTF-16"
            raise DataError(
                problem,
                where=where,
                line=line + offset,
                remedy="write plain numbers separated by commas, in UTF-8",
            )
        if len(words) != columns:
            raise DataError(
                f"{shown} has {len(words)} of {columns} numbers",
                where=where,
                line=line + offset,
                remedy="the line is cut off or too long; complete it",
            )
        if number is _INTEGER and max(len(word.lstrip(b"+-")) for word in words) > 18:
            raise DataError(
                f"{shown} holds a number of more than 18 digits",
                where=where,
                line=line + offset,
                remedy="use smaller ids",
            )
        values.append([int(word) if number is _INTEGER else float(word) for word in words])
    with np.errstate(over="ignore"):  # a float too large for float32 becomes inf, which the caller refuses
        return np.array(values).astype(dtype).reshape(-1, columns)
