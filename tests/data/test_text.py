"""The fast reader against the slow one, and the message for every kind of bad line."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphnorm.data import text
from graphnorm.data.text import read_floats, read_integers
from graphnorm.errors import DataError


def integers(content: bytes, columns: int | None = None) -> np.ndarray:
    return read_integers(io.BytesIO(content), "file.txt", columns)


numbers = st.integers(0, 10**8 - 1) | st.integers(-(10**17), 10**17)


@given(st.integers(1, 4).flatmap(lambda k: st.lists(st.tuples(*[numbers] * k), min_size=1, max_size=20)))
@settings(max_examples=200, deadline=None)
def test_reads_what_was_written(rows: list[tuple[int, ...]]) -> None:
    for separator, end in ((",", "\n"), (", ", "\n"), (" ", "\r\n"), ("\t,", " \n")):
        content = "".join(separator.join(map(str, row)) + end for row in rows).encode()
        assert integers(content).tolist() == [list(row) for row in rows]
        assert integers(content.rstrip() + b"\n\n \n").tolist() == [list(row) for row in rows]


@given(st.lists(st.lists(st.integers(0, 10**8 - 1), min_size=2, max_size=2), min_size=1, max_size=30))
@settings(max_examples=100, deadline=None)
def test_the_fast_reader_takes_plain_numbers_and_agrees(rows: list[list[int]]) -> None:
    content = "".join(f"{a}, {b}\n" for a, b in rows).encode()
    fast = text._fast_integers(content, 2)
    assert fast is not None
    assert fast.tolist() == rows


@given(st.text(alphabet="0123456789-+, \t\r\nx.", max_size=30))
@settings(max_examples=1000, deadline=None)
def test_the_fast_reader_accepts_only_what_the_slow_one_does(content: str) -> None:
    chunk = content.encode() + b"\n"
    for columns in (1, 2):
        fast = text._fast_integers(chunk, columns)
        if fast is not None:
            assert fast.tolist() == text._slow(chunk, columns, text._INTEGER, np.int64, 1, "file").tolist()


def test_chunks_join_seamlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    content = "".join(f"{i}, {i * 7}\r\n" for i in range(500)).encode() + b"\n\n"
    whole = integers(content)
    for size in (1, 2, 7, 64):
        monkeypatch.setattr(text, "CHUNK", size)
        assert np.array_equal(integers(content), whole)
    assert whole.dtype == np.int32


def test_large_numbers_are_kept() -> None:
    assert integers(b"1\n5000000000\n").tolist() == [[1], [5000000000]]


def test_byte_order_mark_and_nothing_at_all() -> None:
    assert integers(b"\xef\xbb\xbf1\n2\n").tolist() == [[1], [2]]
    assert integers(b"", 2).shape == (0, 2)
    assert integers(b"\n \n", 1).shape == (0, 1)


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"1, 2\n3\n", 2, "'3' has 1 of 2 numbers"),
        (b"1, 2\n3, 4, 5\n", 2, "has 3 of 2 numbers"),
        (b"1, 2\n3, x\n", 2, "holds 'x', which is not an integer"),
        (b"1, 2\n3, 4.5\n", 2, "holds '4.5', which is not an integer"),
        (b"1, 2\n\n3, 4\n", 2, "the line is empty"),
        (b"1, 2\n3,, 4\n", 2, "not an integer"),
        (b"1, 2\n\xe9, 4\n", 2, "not an integer"),
        (b"1, 2\n3\x00, 4\n", 2, "null bytes"),
        (b"1, 2\n3, " + b"9" * 5000 + b"\n", 2, "more than 18 digits"),
        ("1, 2\n".encode("utf-16"), None, "UTF-16"),
    ],
)
def test_bad_lines(content: bytes, line: int | None, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        integers(content, 2)
    assert error.value.line == line
    assert str(error.value).startswith("file.txt:2: " if line else "file.txt: ")
    assert "Remedy: " in str(error.value)


def test_the_line_is_right_beyond_the_first_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "CHUNK", 16)
    with pytest.raises(DataError, match=r"file\.txt:301: "):
        integers(b"1, 2\n" * 300 + b"1; 2\n" + b"1, 2\n" * 9, 2)


@pytest.mark.parametrize("filler", [b"7", b"\n", b" "])
def test_a_line_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch, filler: bytes) -> None:
    monkeypatch.setattr(text, "CHUNK", 64)
    monkeypatch.setattr(text, "MAX_LINE", 1024)
    with pytest.raises(DataError, match=r"file\.txt:2: no number ends a line"):
        integers(b"1\n2" + filler * 5000 + b"\n3\n", 1)


def test_floats() -> None:
    table = read_floats(io.BytesIO(b"1.5, -2e3\n.5, 7\nnan, 1e99\n"), "file.txt")
    assert table[:2].tolist() == [[1.5, -2000.0], [0.5, 7.0]]
    assert np.isnan(table[2, 0])
    assert np.isinf(table[2, 1])
    with pytest.raises(DataError, match=r"file\.txt:2: .*'one', which is not a number"):
        read_floats(io.BytesIO(b"1.5\none\n"), "file.txt")
