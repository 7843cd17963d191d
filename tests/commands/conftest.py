"""What the tests of commands share: no datasets but those that come with the package, and a table of molecules."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHNORM_DATA", raising=False)


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of twelve alcohols and twelve hydrocarbons, by itself in a folder."""
    path = tmp_path_factory.mktemp("table") / "mine.csv"
    rows = [f"{'C' * n}O,alcohol\n{'C' * n},hydrocarbon\n" for n in range(1, 13)]
    path.write_text("smiles,label\n" + "".join(rows))
    return path
