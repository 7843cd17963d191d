"""A folder or a zip archive, read alike; nothing is ever unpacked onto the disk."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import IO, cast

from graphnorm.errors import DataError, GraphnormError

__all__ = ["MAX_UNPACKED", "Members", "Reader", "decoding"]

MAX_UNPACKED = 16 << 30
"""What unpacks to more bytes than this is refused."""


@contextmanager
def decoding(where: str | Path) -> Iterator[None]:
    """Turn whatever a decoder raises on damaged input into one clear error.

    Python's zip, gzip, LZMA and npz readers meet damage with a dozen exception types (``BadZipFile``,
    ``zlib.error``, ``EOFError``, ``struct.error``, ``NotImplementedError``, ``KeyError``, ``MemoryError`` …),
    so all of them are caught here, and only code that decodes bytes runs inside.
    """
    try:
        yield
    except GraphnormError:
        raise
    except Exception as error:
        raise DataError(
            f"the file cannot be read: {type(error).__name__}: {error}",
            where=where,
            remedy="it is damaged, cut off or of another kind; fetch it anew",
        ) from error


class Reader:
    """A stream of bytes whose damage is a :class:`DataError` that names the file."""

    def __init__(self, file: IO[bytes], where: str) -> None:
        self._file, self._where, self._size = file, where, 0

    def read(self, size: int, /) -> bytes:
        """Read up to ``size`` bytes; none at the end."""
        with decoding(self._where):
            content = self._file.read(size)
        self._size += len(content)
        _refuse_large(self._size, self._where)
        return content


def _refuse_large(size: int, where: str) -> None:
    if size > MAX_UNPACKED:
        raise DataError(
            f"the file unpacks to more than {MAX_UNPACKED >> 30} GiB",
            where=where,
            remedy="check where it comes from; split the data if it is really so large",
        )


class Members:
    """The files of a folder or of a zip archive by their relative names; a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._zip: zipfile.ZipFile | None = None
        if path.is_dir():
            self.names = sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())
            return
        if not path.exists():
            raise DataError("there is no such file or folder", where=path, remedy="check the path")
        with decoding(str(path)):
            self._zip = zipfile.ZipFile(path)
            entries = [entry for entry in self._zip.infolist() if not entry.is_dir()]
        self.names = [entry.filename for entry in entries]
        for name in self.names:
            refuse_outside(name, path)
        _refuse_large(sum(entry.file_size for entry in entries), str(path))

    def __enter__(self) -> Members:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._zip is not None:
            self._zip.close()

    def where(self, name: str) -> str:
        """Say where a member is, for people."""
        return str(self.path / name)

    def ending(self, suffix: str) -> list[str]:
        """Give the names that end with ``suffix``."""
        return [name for name in self.names if name.endswith(suffix)]

    @contextmanager
    def open(self, name: str) -> Iterator[Reader]:
        """Open a member to read its bytes; those of a ``.gz`` file are unpacked on the way."""
        with ExitStack() as stack:
            with decoding(self.where(name)):
                file: IO[bytes] = self._zip.open(name) if self._zip else (self.path / name).open("rb")
                stack.enter_context(file)
                if name.endswith(".gz"):
                    file = cast(IO[bytes], stack.enter_context(gzip.open(file)))
            yield Reader(file, self.where(name))

    def stamp(self) -> list[tuple[str, int, int]]:
        """Name, size and time of every file, or of the archive: changes whenever the content does."""
        files = [self.path] if self._zip else [self.path / name for name in self.names]
        return [(str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns) for p in files]


def refuse_outside(name: str, archive: Path) -> None:
    """Refuse an archive member that would land outside of the folder it is unpacked into."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in name or "\0" in name:
        raise DataError(
            f"the archive has a member that leads outside, {name!r}",
            where=archive,
            remedy="do not use this archive; fetch it from its source",
        )
