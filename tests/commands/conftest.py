"""What the tests of commands share: a cache of their own, and a way to run the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphnorm import cli

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHNORM_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        patch.delenv("GRAPHNORM_DATA", raising=False)
        yield


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line; gives the exit code, standard output and standard error."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        code = cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of twelve alcohols and twelve hydrocarbons, by itself in a folder."""
    path = tmp_path_factory.mktemp("table") / "mine.csv"
    rows = [f"{'C' * n}O,alcohol\n{'C' * n},hydrocarbon\n" for n in range(1, 13)]
    path.write_text("smiles,label\n" + "".join(rows))
    return path
