"""Downloads from a local server that behaves badly in every way we could think of."""

from __future__ import annotations

import hashlib
import http.server
import multiprocessing
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphnorm.data import sha256_of
from graphnorm.data.download import download
from graphnorm.errors import DownloadError

CONTENT = bytes(range(256)) * 4096
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serve CONTENT at any address, and record the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges: list[str | None] = []
        self.cuts: list[int] = []  # the next answers stop after this many bytes
        self.ranged = True
        self.etag: str | None = '"one"'
        self.sized = True
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.zip"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, asked = self.server, self.headers.get("Range")
        server.ranges.append(asked)
        if server.status != 200:
            self.send_error(server.status)
            return
        start = 0
        if asked and server.ranged and self.headers.get("If-Range") == server.etag:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        if start > len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        body = CONTENT[start:]
        if server.sized:
            self.send_header("Content-Length", str(len(body)))
        if server.etag:
            self.send_header("ETag", server.etag)
        self.end_headers()
        self.wfile.write(body[: server.cuts.pop(0)] if server.cuts else body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def get(url: str, target: Path, **keywords: object) -> Path:
    return download(url, target, pause=0.0, progress=False, timeout=5, **keywords)  # type: ignore[arg-type]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_a_plain_download(server: Server, tmp_path: Path) -> None:
    path = get(server.url, tmp_path / "deep" / "file.zip", sha256=SHA256)
    assert path.read_bytes() == CONTENT
    assert files(path.parent) == ["file.zip"]
    assert sha256_of(path) == SHA256
    get(server.url, path)
    assert server.ranges == [None]  # an existing file is not downloaded again


def test_a_cut_is_resumed(server: Server, tmp_path: Path) -> None:
    server.cuts = [300_000, 200_000]
    path = get(server.url, tmp_path / "file.zip", sha256=SHA256)
    assert path.read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=300000-", "bytes=500000-"]
    assert files(tmp_path) == ["file.zip"]


def test_a_later_process_goes_on(server: Server, tmp_path: Path) -> None:
    server.cuts = [300_000]
    with pytest.raises(DownloadError, match="cut after 300000 of 1048576 bytes"):
        get(server.url, tmp_path / "file.zip", attempts=1)
    assert not (tmp_path / "file.zip").exists()
    get(server.url, tmp_path / "file.zip", sha256=SHA256)
    assert server.ranges[-1] == "bytes=300000-"


def test_a_file_that_changed_meanwhile_is_started_afresh(server: Server, tmp_path: Path) -> None:
    server.cuts = [300_000]
    with pytest.raises(DownloadError):
        get(server.url, tmp_path / "file.zip", attempts=1)
    (tmp_path / "file.zip.part").write_bytes(b"x" * 300_000)
    server.etag = '"two"'
    assert get(server.url, tmp_path / "file.zip").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("etag", "ranged", "asked"), [(None, True, None), ('W/"weak"', True, None), ('"one"', False, "bytes=300000-")]
)
def test_without_a_strong_validator_or_ranges_it_restarts(
    server: Server, tmp_path: Path, etag: str | None, ranged: bool, asked: str | None
) -> None:
    server.cuts, server.etag, server.ranged = [300_000], etag, ranged
    assert get(server.url, tmp_path / "file.zip", sha256=SHA256).read_bytes() == CONTENT
    assert server.ranges == [None, asked]


def test_a_part_beyond_the_end_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(b"x" * 2_000_000)
    (tmp_path / "file.zip.part.json").write_text('"\\"one\\""')
    assert get(server.url, tmp_path / "file.zip", sha256=SHA256).read_bytes() == CONTENT


def test_a_damaged_note_is_ignored(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(CONTENT[:1000])
    (tmp_path / "file.zip.part.json").write_text("{not json")
    assert get(server.url, tmp_path / "file.zip", sha256=SHA256).read_bytes() == CONTENT
    assert server.ranges == [None]


@pytest.mark.parametrize(
    ("state", "options", "words", "requests"),
    [
        ({}, {"sha256": "0" * 64}, f"has the checksum {SHA256}, not 0000", 1),
        ({"sized": True}, {"max_bytes": 500_000}, "more than 500000 bytes", 1),
        ({"sized": False}, {"max_bytes": 500_000}, "more than 500000 bytes", 1),
        ({"status": 404}, {}, r"404.*Remedy: .*save it as .*file\.zip.*GRAPHNORM_DATA", 1),
        ({"status": 503}, {"attempts": 3}, "503", 3),  # a server in trouble is asked again
    ],
)
def test_what_is_refused_leaves_nothing(
    server: Server, tmp_path: Path, state: dict[str, Any], options: dict[str, Any], words: str, requests: int
) -> None:
    vars(server).update(state)
    with pytest.raises(DownloadError, match=words):
        get(server.url, tmp_path / "file.zip", **options)
    assert files(tmp_path) == []
    assert len(server.ranges) == requests


def test_offline(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"cannot be downloaded: .*Remedy: download it by other means"):
        get("http://127.0.0.1:9/file.zip", tmp_path / "file.zip", attempts=2)
    with pytest.raises(DownloadError, match="not a web address"):
        get("file:///etc/passwd", tmp_path / "file.zip")
    assert files(tmp_path) == []


def test_two_processes_fetch_it_once(server: Server, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(
            target=download,
            args=(server.url, tmp_path / "file.zip"),
            kwargs={"sha256": SHA256, "progress": False},
        )
        for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert server.ranges == [None]
    assert (tmp_path / "file.zip").read_bytes() == CONTENT


def test_the_progress_bar_counts_every_byte(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    download(server.url, tmp_path / "file.zip", progress=True)
    assert "file.zip: 100%" in capsys.readouterr().err
