"""The text files of a dataset, read from a folder or a zip archive that is never unpacked onto the disk.

A good line is a fixed count of numbers, separated by commas or by blanks. numpy parses a chunk of lines at once. If it
refuses, the chunk is read line by line, and a bad line is an error with the file, the line and the remedy.
"""

from __future__ import annotations

import gzip
import re
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypedDict, cast

import numpy as np
import numpy.typing as npt

from graphnorm.data.download import sha256_of
from graphnorm.errors import DataError, GraphnormError

__all__ = ["Archive", "Files", "Place", "decoding", "refuse_irregular", "stamp", "too_large", "unpacked_limit"]

MAX_UNPACKED = 16 << 30
"""Data that unpacks to more bytes than this is refused, unless the caller allows more."""
RATIO, ALWAYS = 200, 64 << 20
"""So is data that unpacks to more than 200 times its size and more than 64 MiB. The benchmarks stay below 40 times."""
MAX_FILES = 10_000
HASHED = 64 << 20
"""Files of at most this size in all are recognised by their content in the cache, others by their size and times."""
MAX_LINE = 1 << 24
CHUNK = 1 << 18
INTEGER = re.compile(r"[+-]?[0-9]+")
FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?nan|[+-]?inf", re.IGNORECASE)
BLANKS = re.compile(rb"[ \t]+")
BLANK = re.compile(rb"(?<=[,\n])[ \t]*(?=[,\n])")
Integers = npt.NDArray[np.integer[Any]]


class Place(TypedDict, total=False):
    """The place of a mistake: arguments of :class:`~graphnorm.errors.GraphnormError`."""

    where: str
    line: int


@contextmanager
def decoding(where: str | Path) -> Iterator[None]:
    """Turn any exception of a decoder into one clear error that names the file.

    Python's zip, gzip, LZMA and npz readers raise a dozen exception types on damaged files (``BadZipFile``,
    ``zlib.error``, ``EOFError``, ``struct.error``, ``NotImplementedError``, ``KeyError``, ``MemoryError`` …). So
    all are caught here, and only code that decodes bytes should run inside.
    """
    try:
        yield
    except GraphnormError:
        raise
    except Exception as error:
        raise DataError(
            f"the file cannot be read: {type(error).__name__}: {error}",
            where=where,
            remedy="it is damaged, incomplete or of another kind; get it again",
        ) from error


def refuse_irregular(path: Path) -> None:
    """Refuse what is neither a file nor a folder: a device or a pipe may never end."""
    if not path.exists():
        raise DataError("there is no such file or folder", where=path, remedy="check the path")
    if not path.is_file() and not path.is_dir():
        raise DataError("this is neither a file nor a folder", where=path, remedy="name a file or a folder")


def unpacked_limit(packed: int, gigabytes: float | None) -> int:
    """The number of bytes that a file or folder of ``packed`` bytes may unpack to; ``gigabytes`` allows another."""
    return min(MAX_UNPACKED, max(ALWAYS, RATIO * packed)) if gigabytes is None else int(gigabytes * 2**30)


def stamp(files: list[Path]) -> list[tuple[str | int, ...]]:
    """Values that change when the content of the files does."""
    states = [path.stat() for path in files]
    if sum(state.st_size for state in states) <= HASHED:
        return [(str(path.resolve()), sha256_of(path)) for path in files]
    return [
        (str(path.resolve()), state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns)
        for path, state in zip(files, states, strict=True)
    ]


class Archive:
    """The files of a folder or of a zip archive, by their relative names.

    max_size: the most that may be read from it, in GiB; by default see :func:`unpacked_limit`.
    """

    def __init__(self, path: Path, max_size: float | None = None) -> None:
        self.path = path
        refuse_irregular(path)
        if path.is_dir():
            found = list(islice(path.rglob("*"), MAX_FILES + 1))
            if len(found) > MAX_FILES:
                problem = f"the folder holds more than {MAX_FILES} files"
                raise DataError(problem, where=path, remedy="give the folder of one dataset")
            files = [p for p in found if p.is_file()]
            self.names = sorted(p.relative_to(path).as_posix() for p in files)
            self._left = self._limit = unpacked_limit(sum(p.stat().st_size for p in files), max_size)
            return
        self._left = self._limit = unpacked_limit(path.stat().st_size, max_size)
        with decoding(path), zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        self.names = [entry.filename for entry in entries]
        for name in self.names:
            parts = PurePosixPath(name.replace("\\", "/"))
            if parts.is_absolute() or ".." in parts.parts or ":" in name or "\0" in name:
                raise DataError(
                    f"the archive contains a file outside of its own folder, {name!r}",
                    where=path,
                    remedy="do not use this archive; get it from its source",
                )
        if sum(entry.file_size for entry in entries) > self._left:
            raise too_large(path, self._limit)

    def ending(self, suffix: str) -> list[str]:
        return [name for name in self.names if name.endswith(suffix)]

    def line(self, name: str, index: int) -> Place:
        """The place of line ``index``, from 0, of a file."""
        return {"where": str(self.path / name), "line": index + 1}

    def stamp(self) -> list[tuple[str | int, ...]]:
        """Values that change when the content does."""
        return stamp([self.path / name for name in self.names] if self.path.is_dir() else [self.path])

    def read_integers(self, name: str, columns: int | None = None) -> Integers:
        """(lines, columns) integers, separated by commas or blanks; int32 if all of them fit."""
        parts: list[Integers] = []
        for part in self._read(name, columns, np.int64):
            fits = part.min() >= -(2**31) and part.max() < 2**31
            parts.append(part.astype(np.int32) if fits else part)
        return np.concatenate(parts) if parts else np.empty((0, columns or 1), np.int32)

    def read_floats(self, name: str) -> npt.NDArray[np.float32]:
        """(lines, columns) floats, separated by commas or blanks. The caller has to refuse ``nan`` and ``inf``."""
        parts = list(self._read(name, None, np.float64))
        with np.errstate(over="ignore"):  # a number too large for float32 becomes inf
            return np.concatenate(parts).astype(np.float32) if parts else np.empty((0, 1), np.float32)

    def read_targets(self, name: str, columns: int | None = None) -> npt.NDArray[np.float64]:
        """(lines, columns) numbers, separated by commas or blanks. An empty word is a missing value, ``nan``."""
        parts = list(self._read(name, columns, np.float64, blanks=True))
        return np.concatenate(parts) if parts else np.empty((0, 1))

    def _read(self, name: str, columns: int | None, dtype: type, blanks: bool = False) -> Iterator[npt.NDArray[Any]]:
        """Numbers of the file, a chunk of lines at a time."""
        comma = True
        for line, chunk in self._chunks(name):
            if line == 1:
                first = chunk[: chunk.index(b"\n")]
                comma = b"," in first
                columns = columns or len(first.split(b"," if comma else None))
            assert columns is not None
            if blanks and (comma or columns == 1):
                chunk = BLANK.sub(b"nan", b"\n" + chunk)[1:]
            values = _parse(chunk if comma or columns == 1 else BLANKS.sub(b",", chunk), columns, dtype)
            if values is None:
                lines = chunk[:-1].decode("utf-8", "backslashreplace").split("\n")
                parsed = [
                    _parse_line(text, "," if comma else None, columns, dtype, self.line(name, line - 1 + k))
                    for k, text in enumerate(lines)
                ]
                values = np.array(parsed, dtype).reshape(-1, columns)
            yield values

    def _chunks(self, name: str) -> Iterator[tuple[int, bytes]]:
        """Whole lines, about ``CHUNK`` bytes, with the number of the first; without blank lines at the end."""
        where, line = self.path / name, 1
        with self._open(name) as file:
            with decoding(where):
                rest = file.read(3)
            if rest[:2] in (b"\xff\xfe", b"\xfe\xff"):
                raise DataError("the file is UTF-16 text", where=where, remedy="save it as UTF-8 or ASCII")
            rest, end = rest.removeprefix(b"\xef\xbb\xbf"), False
            while not end:
                with decoding(where):
                    block = file.read(CHUNK)
                end = not block
                self._left -= len(block)
                if self._left < 0:
                    raise too_large(where, self._limit)
                text = rest + block
                # Up to the last line break that is followed by a number, so that blank lines at the end can be dropped.
                cut = len(text.rstrip()) if end else text.rfind(b"\n", 0, len(text.rstrip())) + 1
                chunk, rest = text[:cut], text[cut:]
                if chunk:
                    chunk = chunk.replace(b"\r\n", b"\n") if b"\r" in chunk else chunk
                    yield line, chunk + b"\n" if end else chunk
                    line += chunk.count(b"\n")
                if len(rest) > MAX_LINE:
                    raise DataError(
                        f"a line or a run of blank lines is longer than {MAX_LINE >> 20} MiB",
                        where=where,
                        line=line,
                        remedy="the file is damaged or of another kind; write one entry on each line",
                    )

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        """The bytes of a file; a ``.gz`` file is decompressed on the way."""
        with ExitStack() as stack:
            with decoding(self.path / name):
                if self.path.is_dir():
                    file: IO[bytes] = stack.enter_context((self.path / name).open("rb"))
                else:
                    file = stack.enter_context(stack.enter_context(zipfile.ZipFile(self.path)).open(name))
                if name.endswith(".gz"):
                    file = cast(IO[bytes], stack.enter_context(gzip.open(file)))
            yield file


class Files:
    """The files of one dataset in an archive: ``edge`` is ``raw/edge.csv.gz``, with what stands before and after it."""

    def __init__(self, archive: Archive, before: str, after: str) -> None:
        self._archive, self._before, self._after = archive, before, after

    def name(self, part: str) -> str:
        return f"{self._before}{part}{self._after}"

    def __contains__(self, part: str) -> bool:
        return self.name(part) in self._archive.names

    def at(self, part: str, index: int) -> Place:
        """The place of line ``index``, from 0."""
        return self._archive.line(self.name(part), index)

    def integers(self, part: str, columns: int | None = None) -> Integers:
        return self._archive.read_integers(self.name(part), columns)

    def floats(self, part: str) -> npt.NDArray[np.float32]:
        return self._archive.read_floats(self.name(part))

    def targets(self, part: str, columns: int | None = None) -> npt.NDArray[np.float64]:
        return self._archive.read_targets(self.name(part), columns)


def too_large(where: str | Path, limit: int) -> DataError:
    return DataError(
        f"the data unpacks to more than {limit / 2**20:,.0f} MiB, far more than its size",
        where=where,
        remedy="check where it comes from; if it is really so large, allow more: max_size=64 (--max-size 64, in GiB)",
    )


def _parse(chunk: bytes, columns: int, dtype: type) -> npt.NDArray[Any] | None:
    """(lines, columns) numbers of whole lines; None if a line is bad, or unusual (such as one with a sign)."""
    lines = chunk.count(b"\n")
    separators = chunk.translate(None, b"0123456789 \t" if dtype is np.int64 else b"0123456789+-.eEnaifNAIF \t")
    if separators != (b"," * (columns - 1) + b"\n") * lines or chunk[:1].isspace():
        return None
    try:
        values: npt.NDArray[Any] = np.fromstring(chunk[:-1].replace(b"\n", b","), dtype, sep=",")
    except (ValueError, DeprecationWarning):  # numpy stops at the first bad number, and warns
        return None
    if len(values) != lines * columns or (dtype is np.int64 and values.max() >= 10**18):
        return None
    return values.reshape(lines, columns)


def _parse_line(text: str, delimiter: str | None, columns: int, dtype: type, place: Place) -> list[float]:
    number, kind = (INTEGER, "an integer") if dtype is np.int64 else (FLOAT, "a number")
    words = [word.strip() for word in text.split(delimiter)]
    shown = repr(text[:60])
    bad = next((word for word in words if not number.fullmatch(word)), None)
    if not text.strip():
        problem = "the line is empty"
    elif "\0" in text:
        problem = f"{shown} has null bytes: the file is binary or UTF-16"
    elif bad is not None:
        problem = f"{shown} contains {bad[:20]!r}, which is not {kind}"
    elif len(words) != columns:
        problem = f"{shown} has {len(words)} numbers instead of {columns}"
    elif dtype is np.int64 and max(len(word.lstrip("+-")) for word in words) > 18:
        problem = f"{shown} contains an integer of more than 18 digits"
    else:
        return [int(word) if dtype is np.int64 else float(word) for word in words]
    raise DataError(problem, **place, remedy=f"write {columns} numbers on each line, separated by commas, in UTF-8")
