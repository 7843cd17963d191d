"""Shared by tests of pages: studies that took no time to train, and a parser of pages."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

from fakes import fill
from graphnorm.data import PackedGraphs, load
from graphnorm.settings import Grid, Settings
from graphnorm.study import Store, make_plan
from graphnorm.training import Trial

ONE = Grid("one", {"epochs": (3,), "lr": (1e-2,)})
TWO = Grid("two", {"epochs": (3,), "lr": (1e-3, 1e-2)})
EVIL = "<img src=x onerror=alert(1)>\"'</script><b>"
"""A name to beware of."""


def enter(
    store: Store,
    norms: Sequence[str],
    grid: Grid = ONE,
    *,
    graphs: PackedGraphs | None = None,
    name: str | None = None,
    share: float = 1,
    **settings: Any,
) -> str:
    """Train a study, or the first share of its trials, and give its name."""
    chosen = Settings(norms=tuple(norms), **{"folds": 3} | settings)
    plan = make_plan(graphs or load("synthetic:trees"), chosen, grid, name=name)
    trained = {trial.key for trial in plan.trials[: round(share * len(plan.trials))]}
    return fill(store, plan, lambda trial: trial.key in trained).name


class Reader(HTMLParser):
    """Every tag with its attributes, the text of the page, and its charts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.page = page
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def having(self, name: str) -> list[dict[str, Any]]:
        """The attributes of every tag that has one of this name."""
        return [attributes for _, attributes in self.tags if name in attributes]

    @property
    def charts(self) -> dict[str, Any]:
        """What the page's script finds to draw, by id."""
        (found,) = re.findall(r'id="charts">(.*?)</script>', self.page, re.DOTALL)
        return {chart["id"]: chart for chart in json.loads(_unpacked(found))}

    @property
    def data(self) -> dict[str, list[list[str]]]:
        """The rows of every chart's CSV, by id."""
        links = {of["download"].removesuffix(".csv.gz"): of["href"].partition(",")[2] for of in self.having("download")}
        return {name: list(csv.reader(io.StringIO(_unpacked(packed)))) for name, packed in links.items()}


def _unpacked(text: str) -> str:
    return gzip.decompress(base64.b64decode(text)).decode()


def noise_run(dataset: str, batch_size: int, trained: int = 3) -> Any:
    """Batch noise at two layers along a training, as a store gives it."""

    def layer(name: str, last: float | None) -> Any:
        about = {"layer": name, "batch_size": batch_size, "epochs": [0, trained]}
        return SimpleNamespace(summary=lambda: about | {"relative_deviation": [0.1, last]})

    layers = [layer("convolutions.0.first_norm", None), layer("convolutions.3.second_norm", batch_size / 100)]
    trial = Trial(dataset=dataset, fingerprint=dataset.lower(), batch_size=batch_size)
    return SimpleNamespace(trial=trial, record=SimpleNamespace(epochs=trained), layers=layers)


def alpha_run(dataset: str, epochs: int = 3) -> Any:
    """The learned α of one layer, as a store gives it."""
    quantiles = {"0.05": 0.5, "0.25": 0.8, "0.5": 0.9, "0.75": 1.0, "0.95": epochs / 2}
    summary = {"convolutions.0.first_norm": {"quantiles": quantiles, "share_near_1": 0.25}}
    alphas = SimpleNamespace(summary=lambda: summary, epochs=[0, epochs])
    return SimpleNamespace(trial=Trial(dataset=dataset, fingerprint=dataset.lower(), epochs=epochs), alphas=alphas)
