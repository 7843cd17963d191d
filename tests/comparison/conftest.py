"""What the tests of comparisons share: a fake engine in place of the real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_training import FakeTraining
from graphnorm.data import PackedGraphs, load


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHNORM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeTraining]:
    """Put a fake engine in the real one's place."""

    def put(**behaviour: Any) -> FakeTraining:
        engine = FakeTraining(**behaviour)
        monkeypatch.setattr("graphnorm.training.train", engine)
        return engine

    return put


@pytest.fixture(scope="session")
def trees() -> PackedGraphs:
    return load("synthetic:trees")
