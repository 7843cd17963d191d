"""Downloads: resumed after an interruption, checked, and complete or absent.

``torch.hub.download_url_to_file`` is no substitute. It cannot resume or retry and has no timeout. If the connection is
cut, it takes the part that arrived for the file, unless a checksum is known, and few of our sources publish one.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from pathlib import Path

from graphnorm.errors import DownloadError, need

__all__ = ["download", "sha256_of"]

BLOCK = 1 << 18


def download(
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
    """Download ``url`` to the file ``target`` and return its path; an existing file is kept.

    sha256: expected checksum.
    max_bytes: a larger file is refused.
    attempts, pause: how often to try, and how many seconds to wait after the first failure (doubled each time).
    timeout: seconds without data after which a connection is given up.

    Bytes that have arrived are kept in ``target.part``. A later call, also of another process, continues from there if
    the server confirms that the file has not changed, and starts again otherwise. Only a complete file with the right
    checksum is renamed to ``target``. A lock makes sure that several processes download a file once.
    """
    if not url.startswith(("http://", "https://")):
        raise DownloadError(f"{url} is not a web address", remedy="use an http or https address")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = _Part(target)
    with need("filelock", "downloading", "data").FileLock(target.with_name(target.name + ".lock")):
        if target.exists():
            return target
        for attempt in range(attempts):
            try:
                part.complete(url, max_bytes, timeout, progress)
                break
            except (OSError, http.client.HTTPException) as error:
                refused = isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500
                if refused or attempt == attempts - 1:
                    raise DownloadError(
                        f"{url} cannot be downloaded: {error or type(error).__name__}",
                        remedy=f"download it by other means and save it as {target}, "
                        "or in a folder that you name with --data-root or GRAPHNORM_DATA",
                    ) from error
                time.sleep(pause * 2**attempt)
        found = sha256_of(part.path)
        if sha256 is not None and found != sha256:
            part.discard()
            raise DownloadError(
                f"{url} has the checksum {found}, not {sha256}; it was deleted",
                remedy="try again; if it happens again, the file at its source has changed",
            )
        part.path.replace(target)
        part.discard()
    return target


def sha256_of(path: str | os.PathLike[str]) -> str:
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        error.filename = str(path)  # which Python does not say of a disk that fails while it is read
        raise


class _Part:
    """The part of a file that has arrived, and the server's identifier of the version it belongs to."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(target.name + ".part")
        self._version = target.with_name(target.name + ".part.json")
        self._title = target.name

    def complete(self, url: str, max_bytes: int, timeout: float, progress: bool) -> None:
        """Make one attempt to download the rest, or everything if the file has changed. OSError if it is cut off."""
        tqdm = need("tqdm.auto", "downloading", "data").tqdm
        have, version = self._arrived()
        request = urllib.request.Request(url, headers={"User-Agent": "graphnorm"})
        if have and version:
            request.add_header("Range", f"bytes={have}-")
            request.add_header("If-Range", version)
        try:
            response = urllib.request.urlopen(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                self.discard()
                raise ConnectionError("the server refused to continue; starting again") from error
            raise
        with response:
            resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
            have = have if resumed else 0
            length = response.headers.get("Content-Length")
            total = have + int(length) if length and length.isdigit() else None
            self._refuse_large(url, total or 0, max_bytes)
            self._version.write_text(json.dumps(response.headers.get("ETag") or response.headers.get("Last-Modified")))
            bar = tqdm(
                desc=self._title,
                initial=have,
                total=total,
                unit="B",
                unit_scale=True,
                disable=None if progress else True,  # None: shown on a terminal only
            )
            with self.path.open("ab" if resumed else "wb") as file, bar:
                while block := response.read(BLOCK):
                    have += len(block)
                    self._refuse_large(url, have, max_bytes)
                    file.write(block)
                    bar.update(len(block))
                file.flush()
                os.fsync(file.fileno())
        if total is not None and have != total:
            raise ConnectionError(f"the connection was cut after {have} of {total} bytes")

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._version.unlink(missing_ok=True)

    def _arrived(self) -> tuple[int, str | None]:
        """Number of bytes, and the version if the server promises that equal versions have equal bytes."""
        if not self.path.exists():
            return 0, None
        version = None
        with contextlib.suppress(OSError, ValueError):
            version = json.loads(self._version.read_text())
        strong = isinstance(version, str) and not version.startswith("W/")
        return self.path.stat().st_size, version if strong else None

    def _refuse_large(self, url: str, size: int, max_bytes: int) -> None:
        if size > max_bytes:
            self.discard()
            raise DownloadError(
                f"{url} has more than {max_bytes} bytes, the most that was expected",
                remedy="check what is at that address; download it by hand if you trust it",
            )
