"""Fetching a file: resumed after a cut, checked, and in place wholly or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from graphnorm.errors import DownloadError, MissingDependencyError

__all__ = ["fetch", "sha256_of"]

BLOCK = 1 << 18


def fetch(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    max_bytes: int = 1 << 30,
    attempts: int = 4,
    timeout: float = 30.0,
    pause: float = 1.0,
    progress: bool = True,
) -> Path:
    """Fetch ``url`` into the file ``target`` and return it; a file that is there already is kept.

    A lock beside the target lets two processes ask for the same file: one fetches, the other waits and finds
    it. After a cut the transfer goes on where it stopped, if the server can tell that the file has not
    changed, and starts afresh otherwise. What came so far is kept in ``target.part`` for the next try, also
    of another process. Only a complete file with the right checksum is renamed to ``target``.
    """
    if not url.startswith(("http://", "https://")):
        raise DownloadError(f"{url} is not a web address", remedy="use an http or https address")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target):
        if target.exists():
            return target
        part = target.with_name(target.name + ".part")
        for attempt in range(attempts):
            try:
                _continue(url, part, max_bytes, timeout, progress)
                break
            except (OSError, http.client.HTTPException) as error:
                final = isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500
                if final or attempt == attempts - 1:
                    raise DownloadError(
                        f"{url} cannot be fetched: {error or type(error).__name__}",
                        remedy=f"fetch it by other means and save it as {target}, "
                        "or in a folder that you name with --data-root or GRAPHNORM_DATA",
                    ) from error
                time.sleep(pause * 2**attempt)
        found = sha256_of(part)
        if sha256 is not None and found != sha256:
            _discard(part)
            raise DownloadError(
                f"{url} has the checksum {found}, not {sha256}; it was thrown away",
                remedy="try again; if it stays so, the file was changed or replaced at its source",
            )
        part.replace(target)
        _discard(part)
    return target


def sha256_of(path: Path) -> str:
    """Give the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _continue(url: str, part: Path, max_bytes: int, timeout: float, progress: bool) -> None:
    """One try: append to ``part``, or start it again, until it is complete; an OSError where it is cut."""
    note = _note(part)
    have, validator = (part.stat().st_size, _validator_noted(note)) if part.exists() else (0, None)
    request = urllib.request.Request(url, headers={"User-Agent": "graphnorm"})
    if have and validator:
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", validator)
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            _discard(part)
            raise ConnectionError("the server refused to go on; starting afresh") from error
        raise
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else None
        _refuse_large(url, total or 0, max_bytes, part)
        note.write_text(json.dumps(response.headers.get("ETag") or response.headers.get("Last-Modified")))
        with part.open("ab" if resumed else "wb") as file, _bar(part, have, total, progress) as bar:
            while block := response.read(BLOCK):
                have += len(block)
                _refuse_large(url, have, max_bytes, part)
                file.write(block)
                bar.update(len(block))
    if total is not None and have != total:
        raise ConnectionError(f"the connection was cut after {have} of {total} bytes")


def _refuse_large(url: str, size: int, max_bytes: int, part: Path) -> None:
    if size > max_bytes:
        _discard(part)
        raise DownloadError(
            f"{url} has more than the {max_bytes} bytes that were expected at most",
            remedy="check what is at that address; fetch it by hand if you trust it",
        )


def _note(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _validator_noted(note: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError):
        validator = json.loads(note.read_text())
        # A weak validator does not promise equal bytes.
        return validator if isinstance(validator, str) and not validator.startswith("W/") else None
    return None


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


def _lock(target: Path) -> contextlib.AbstractContextManager[Any]:
    try:
        from filelock import FileLock
    except ImportError as error:
        raise MissingDependencyError("filelock", "downloading", "data") from error
    return FileLock(target.with_name(target.name + ".lock"))


class _NoBar:
    """Stands in where tqdm is not installed."""

    def __enter__(self) -> _NoBar:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def update(self, n: int) -> None:
        return None


def _bar(part: Path, have: int, total: int | None, progress: bool) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _NoBar()
    name = part.name.removesuffix(".part")
    # disable=None: shown on a terminal, silent in a log
    return tqdm(desc=name, initial=have, total=total, unit="B", unit_scale=True, disable=None if progress else True)
