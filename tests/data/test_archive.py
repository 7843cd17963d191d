"""Numbers from text files, the message for every kind of bad line, and archives that are damaged or dangerous."""

from __future__ import annotations

import gzip
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphnorm.data import DataError, load
from graphnorm.data import archive as module
from graphnorm.data.archive import Archive


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts")


def integers(folder: Path, content: bytes, columns: int | None = None) -> np.ndarray:
    (folder / "file.txt").write_bytes(content)
    return Archive(folder).read_integers("file.txt", columns)


def floats(folder: Path, content: bytes) -> np.ndarray:
    (folder / "file.txt").write_bytes(content)
    return Archive(folder).read_floats("file.txt")


numbers = st.integers(0, 10**8 - 1) | st.integers(-(10**17), 10**17)


@given(rows=st.integers(1, 4).flatmap(lambda k: st.lists(st.tuples(*[numbers] * k), min_size=1, max_size=20)))
@settings(max_examples=200, deadline=None)
def test_reads_what_was_written(folder: Path, rows: list[tuple[int, ...]]) -> None:
    for separator, end in ((",", "\n"), (", ", "\n"), (" ", "\r\n"), ("\t,", " \n"), ("  ", "\n")):
        content = "".join(separator.join(map(str, row)) + end for row in rows).encode()
        assert integers(folder, content).tolist() == [list(row) for row in rows]
        assert integers(folder, content.rstrip() + b"\n\n \n").tolist() == [list(row) for row in rows]


@given(rows=st.lists(st.lists(st.integers(0, 10**17), min_size=2, max_size=2), min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_plain_numbers_are_not_read_line_by_line(folder: Path, rows: list[list[int]]) -> None:
    """That would be fifty times as slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(module, "_parse_line")
        for template in ("{}, {}\n", "{},{}\n", "{} {}\n"):
            content = "".join(template.format(*row) for row in rows).encode()
            assert integers(folder, content, 2).tolist() == rows
        assert floats(folder, content.replace(b" ", b",")).shape == (len(rows), 2)


def plain(content: str, columns: int) -> list[list[int]] | None:
    """The numbers of a file, in the simplest way; None if a line is bad."""
    lines = content.rstrip().replace("\r\n", "\n").split("\n")
    delimiter = "," if "," in lines[0] else None
    rows = [[word.strip() for word in line.split(delimiter)] for line in lines]
    if any(len(row) != columns or not all(re.fullmatch(r"[+-]?[0-9]{1,18}", word) for word in row) for row in rows):
        return None
    return [[int(word) for word in row] for row in rows]


@given(content=st.text(alphabet="0123456789-+, \t\r\nx.", max_size=30).filter(str.strip))
@settings(max_examples=1000, deadline=None)
def test_any_text_is_read_rightly_or_refused(folder: Path, content: str) -> None:
    for columns in (1, 2):
        expected = plain(content, columns)
        try:
            assert integers(folder, content.encode(), columns).tolist() == expected
        except DataError:
            assert expected is None


def test_chunks_join_seamlessly(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "".join(f"{i}, {i * 7}\r\n" for i in range(500)).encode() + b"\n\n"
    whole = integers(folder, content)
    for size in (1, 2, 7, 64):
        monkeypatch.setattr(module, "CHUNK", size)
        assert np.array_equal(integers(folder, content), whole)
    assert whole.dtype == np.int32


def test_large_numbers_are_kept(folder: Path) -> None:
    assert integers(folder, b"1\n5000000000\n").tolist() == [[1], [5000000000]]


def test_byte_order_mark_and_empty_files(folder: Path) -> None:
    assert integers(folder, b"\xef\xbb\xbf1\n2\n").tolist() == [[1], [2]]
    assert integers(folder, b"", 2).shape == (0, 2)
    assert integers(folder, b"\n \n", 1).shape == (0, 1)
    assert floats(folder, b"").shape == (0, 1)


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        (b"1, 2\n3\n", 2, "'3' has 1 numbers instead of 2"),
        (b"1, 2\n3, 4, 5\n", 2, "has 3 numbers instead of 2"),
        (b"1, 2\n3, x\n", 2, "contains 'x', which is not an integer"),
        (b"1, 2\n3, 4.5\n", 2, "contains '4.5', which is not an integer"),
        (b"1, 2\n\n3, 4\n", 2, "the line is empty"),
        (b"\n1, 2\n", 1, "the line is empty"),
        (b"1, 2\n3,, 4\n", 2, "not an integer"),
        (b"1, 2\n3, \n", 2, "contains '', which is not an integer"),
        (b"1, 2\n3, -\n", 2, "contains '-', which is not an integer"),
        (b"1, 2\n\xe9, 4\n", 2, "not an integer"),
        (b"1, 2\n3\x00, 4\n", 2, "null bytes"),
        (b"1, 2\n3, " + b"9" * 5000 + b"\n", 2, "more than 18 digits"),
        (b"1, 2\n3, 9999999999999999999\n", 2, "more than 18 digits"),
        ("1, 2\n".encode("utf-16"), None, "UTF-16"),
    ],
)
def test_bad_lines(folder: Path, content: bytes, line: int | None, problem: str) -> None:
    with pytest.raises(DataError) as error:
        integers(folder, content, 2)
    assert problem in error.value.problem
    assert (Path(str(error.value.where)), error.value.line) == (folder / "file.txt", line)
    assert error.value.remedy


def test_the_line_is_right_beyond_the_first_chunk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 16)
    with pytest.raises(DataError) as error:
        integers(folder, b"1, 2\n" * 300 + b"1; 2\n" + b"1, 2\n" * 9, 2)
    assert error.value.line == 301


@pytest.mark.parametrize("filler", [b"7", b"\n", b" "])
def test_a_line_without_end_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch, filler: bytes) -> None:
    monkeypatch.setattr(module, "CHUNK", 64)
    monkeypatch.setattr(module, "MAX_LINE", 1024)
    with pytest.raises(DataError, match="a line or a run of blank lines is longer") as error:
        integers(folder, b"1\n2" + filler * 5000 + b"\n3\n", 1)
    assert error.value.line == 2


def test_floats(folder: Path) -> None:
    table = floats(folder, b"1.5, -2e3\n.5, 7\nnan, 1e99\n")
    assert table.dtype == np.float32
    assert table[:2].tolist() == [[1.5, -2000.0], [0.5, 7.0]]
    assert np.isnan(table[2, 0])
    assert np.isinf(table[2, 1])
    with pytest.raises(DataError, match="'one', which is not a number") as error:
        floats(folder, b"1.5\none\n")
    assert error.value.line == 2


@pytest.mark.parametrize(
    "name", ["../evil_A.txt", "/etc/evil_A.txt", "a/../../evil_A.txt", "C:\\evil_A.txt", "..\\evil"]
)
def test_files_outside_of_the_archives_folder_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, "1, 2\n")
    with pytest.raises(DataError, match="outside of its own folder"):
        load(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["evil.zip"]


def test_archives_that_unpack_to_too_much_are_refused(
    write_tu: Callable[..., Path], zipped: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_UNPACKED", 20)
    with pytest.raises(DataError, match="unpacks to more than"):
        load(zipped(write_tu()))


def test_a_bomb_is_refused_unless_more_is_allowed(write_tu: Callable[..., Path], tmp_path: Path) -> None:
    folder = write_tu()
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in folder.iterdir():
            archive.write(path, f"TINY/{path.name}")
        archive.writestr("TINY/TINY_more.txt", b"0\n" * (40 << 20))
    with pytest.raises(DataError, match=r"unpacks to more than 64 MiB.*--max-size"):
        load(tmp_path / "bomb.zip")
    assert load(tmp_path / "bomb.zip", max_size=1) == load(folder)


@pytest.mark.parametrize(
    ("end", "limit", "words"), [(None, 1000, "unpacks to more than"), (-9, 1 << 30, "cannot be read: EOFError")]
)
def test_a_gzip_that_is_too_large_or_damaged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, end: int | None, limit: int, words: str
) -> None:
    path = folder / "file.csv.gz"
    path.write_bytes(gzip.compress(b"1\n" * 1000)[:end])
    monkeypatch.setattr(module, "MAX_UNPACKED", limit)
    with pytest.raises(DataError, match=words) as error:
        Archive(folder).read_integers("file.csv.gz")
    assert error.value.where == path


def test_not_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "broken.zip"
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match=r"the file cannot be read: BadZipFile") as error:
        load(path)
    assert (error.value.where, error.value.line) == (path, None)
    with pytest.raises(DataError, match="no such file"):
        load(tmp_path / "absent.zip")
