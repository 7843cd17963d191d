"""The page in a real browser: charts are drawn, can be changed, and ask nobody for anything."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphnorm.data import load
from graphnorm.paper.output import Output
from graphnorm.report import Chapter, build_page, read_analysis, read_reproduced
from graphnorm.study import Result
from graphnorm.study.render import Table

pytest.importorskip("plotly")
playwright = pytest.importorskip("playwright.sync_api", reason="driving a browser needs playwright")
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(result: Result, analysis: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    datasets = [f"DATASET-{number}" for number in range(8)]
    table = Table(("model", "norm", *datasets), [["GIN", "GraphNorm", *(["92.0 ± 7.9"] * 8)]])
    Output("table1", "Table 1", quick=False, table=table).write(folder)
    claim = {"claim": "It is so.", "verdict": "does not hold here", "tally": "3 of 8"}
    claim |= {"words": "on 3 of 8 graphs", "remark": "", "columns": [], "rows": [], "notes": [], "provenance": ""}
    claims = {"quick": False, "rules": [], "unjudged": {}, "claims": [claim]}
    (folder / "claims.json").write_text(json.dumps(claims))
    _, fingerprint, section = read_analysis(analysis)
    page = build_page(
        [Chapter(result)],
        find_graphs=lambda of: load(of.dataset),
        models=[(fingerprint, section)],
        reproduced=read_reproduced(folder),
    )
    path = folder / "page.html"
    path.write_text(page)
    return path.as_uri()


class Opened:
    """A page, and what it complained about or asked for."""

    def __init__(self, browser: Any, address: str, **context: Any) -> None:
        self.page = browser.new_context(**context).new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        self.page.locator("#part-1-train-curves").scroll_into_view_if_needed()
        self.page.wait_for_selector("#part-1-train-curves[data-drawn]", timeout=60_000)

    def visible(self, chart: str) -> list[str]:
        """The normalizations that a chart shows."""
        script = """chart => [...new Set(document.getElementById(chart).data
            .filter(trace => trace.visible !== false && trace.visible !== "legendonly").map(trace => trace.meta))]"""
        found: list[str] = self.page.evaluate(script, chart)
        return found


def test_a_reader_at_a_desk(browser: Any, address: str) -> None:
    opened = Opened(browser, address, viewport={"width": 1200, "height": 900}, color_scheme="dark")
    page = opened.page
    assert opened.visible("part-1-train-curves") == ["none", "layer", "batch", "instance", "graph"]

    page.click(".chip[data-norm=layer]")
    for chart in ("part-1-train-curves", "part-1-valid-curves"):
        assert opened.visible(chart) == ["none", "batch", "instance", "graph"]
    assert page.get_attribute(".chip[data-norm=layer]", "aria-pressed") == "false"
    page.click(".chip[data-norm=layer]")
    assert "layer" in opened.visible("part-1-train-curves")

    page.hover("#part-1-train-curves .nsewdrag", position={"x": 150, "y": 100})
    page.wait_for_selector("#part-1-train-curves .hoverlayer :text('graph')", timeout=10_000)

    script = "document.getElementById('part-1-train-curves').layout.xaxis.range[1]"
    before = page.evaluate(script)
    box = page.locator("#part-1-train-curves .nsewdrag").bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 140, steps=4)
    page.mouse.up()
    page.wait_for_function(f"{script} < {before}")

    ground = "getComputedStyle(document.body).backgroundColor"
    ink = "document.getElementById('part-1-train-curves').layout.font.color"
    dark = page.evaluate(ground), page.evaluate(ink)
    page.click("#theme")
    page.wait_for_function(f"{ink} !== {dark[1]!r}")
    assert page.evaluate(ground) != dark[0]

    for _ in range(2):  # unpacked at the first click
        with page.expect_download() as found:
            page.click("figure:has(#part-1-train-curves) a[download]")
        assert found.value.suggested_filename == "part-1-train-curves.csv"
        assert Path(found.value.path()).read_text().startswith("norm,epoch,mean,std\n")

    for place in page.query_selector_all(".chart"):
        place.scroll_into_view_if_needed()
    page.wait_for_function("document.querySelectorAll('.chart:not([data-drawn])').length === 0", timeout=60_000)
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith(("file:", "data:", "blob:"))] == []

    buttons = {button.get_attribute("data-title") for button in page.locator(".modebar-btn").all()}
    assert "Download plot as a PNG" in buttons
    assert not [title for title in buttons if "share" in title.lower() or "cloud" in title.lower()]
    context = "[...document.querySelectorAll('.chart')].map(chart => chart._context)"
    uploads = page.evaluate(
        f"{context}.map(({{showSendToCloud, plotlyServerURL}}) => [showSendToCloud, plotlyServerURL])"
    )
    assert uploads == [[False, ""]] * len(uploads)

    page.evaluate("fetch('https://example.org/').catch(() => {})")
    assert any("Content Security Policy" in text for text in opened.complaints)


def test_bands_end_where_scores_do(browser: Any, result: Result, tmp_path: Path) -> None:
    curves = {"train": (np.array([99.0, 1.0]), np.array([3.0, 3.0]))}
    path = tmp_path / "page.html"
    norms = {"graph": replace(result.norms["graph"], curves=curves)}
    path.write_text(build_page([Chapter(replace(result, norms=norms))]))
    opened = Opened(browser, path.as_uri())
    area, line = opened.page.evaluate("document.getElementById('part-1-train-curves').data")
    assert (area["x"], area["y"]) == ([1, 2, 2, 1], [100, 4, 0, 96])
    assert (line["x"], line["y"]) == ([1, 2], [99, 1])


def test_a_reader_with_a_phone(browser: Any, address: str) -> None:
    opened = Opened(browser, address, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = opened.page
    for place in page.query_selector_all(".chart"):
        place.scroll_into_view_if_needed()
    page.wait_for_function("document.querySelectorAll('.chart:not([data-drawn])').length === 0", timeout=60_000)
    page.locator("summary").last.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    goes_on = [
        part.evaluate("part => part.scrollWidth > part.clientWidth")
        for part in page.locator("[role=region]:not(.claims *)").all()
    ]
    assert goes_on == [False, True, True]  # claims, Table 1, scores
    assert [hint.is_visible() for hint in page.locator(".more").all()] == goes_on
    noise = "document.querySelector('[id^=part-1-noise]')"
    legend, plot, chart = (
        page.evaluate(f"{noise}{of}.getBoundingClientRect().toJSON()")
        for of in (".querySelector('.legend')", ".querySelector('.nsewdrag')", "")
    )
    assert legend["top"] >= plot["bottom"]
    assert plot["height"] > chart["height"] / 2
    assert opened.complaints == []


def test_paper(browser: Any, address: str) -> None:
    """Everything is opened and drawn, no chart is larger than its place, and afterwards all is as before."""
    opened = Opened(browser, address, color_scheme="dark")
    page = opened.page
    closed = "document.querySelectorAll('details:not([open])').length"
    before = page.evaluate(closed)
    assert before > 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for_function("document.querySelectorAll('.chart:not([data-drawn])').length === 0", timeout=60_000)
    page.emulate_media(media="print")
    assert page.evaluate(closed) == 0
    boxes = page.evaluate(
        "[...document.querySelectorAll('.charts > figure')]"
        ".flatMap(figure => [figure, figure.querySelector('.main-svg')]"
        ".map(part => part.getBoundingClientRect()).map(box => [box.left, box.top, box.right, box.bottom]))"
    )
    for (left, top, right, bottom), drawn in zip(boxes[::2], boxes[1::2], strict=True):
        assert (drawn[0] >= left - 1, drawn[1] >= top - 1, drawn[2] <= right + 1, drawn[3] <= bottom + 1) == (True,) * 4
    for one, other in combinations(boxes[::2], 2):
        assert one[2] <= other[0] + 1 or other[2] <= one[0] + 1 or one[3] <= other[1] + 1 or other[3] <= one[1] + 1
    assert page.pdf().startswith(b"%PDF")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") is None
    assert page.evaluate(closed) == before
    assert opened.complaints == []


def test_many_studies(browser: Any, result: Result, tmp_path: Path) -> None:
    """They are folded, a link opens the one that it leads to, and the contents stay in view."""
    path = tmp_path / "page.html"
    path.write_text(build_page([Chapter(result, told_apart=name) for name in ("a", "b")]))
    page = browser.new_page(viewport={"width": 1300, "height": 700})
    page.goto(path.as_uri())
    study = "[...document.querySelectorAll('details.study')].map(part => part.open)"
    assert page.evaluate(study) == [False, False]
    page.click("nav a[href='#part-2']")
    page.wait_for_selector("#part-2-train-curves[data-drawn]", timeout=60_000)
    assert page.evaluate(study) == [False, True]
    page.evaluate("scrollTo(0, 1e6)")
    assert page.locator("nav a[href='#part-1']").bounding_box()["y"] >= 0
    page.goto(f"{path.as_uri()}#part-1-train-curves")
    page.reload()
    assert page.evaluate(study)[0]
    page.set_viewport_size({"width": 390, "height": 700})
    assert not page.is_visible("nav a[href='#part-1']")
    page.click("nav summary")
    page.click("nav a[href='#part-1']")
    assert not page.is_visible("nav a[href='#part-1']")


def test_bands_are_those_of_up_to_four_curves(browser: Any, address: str) -> None:
    opened = Opened(browser, address)
    bands = (
        "document.getElementById('part-1-train-curves').data.filter(of => of.fill === 'toself' && of.visible).length"
    )
    assert opened.page.evaluate(bands) == 0  # of five
    opened.page.click(".chip[data-norm=layer]")
    assert opened.page.evaluate(bands) == 4
    opened.page.click(".chip[data-norm=layer]")
    assert opened.page.evaluate(bands) == 0


def test_nothing_that_takes_the_focus_is_inside_of_an_image_or_a_button(browser: Any, address: str) -> None:
    nested = ":is([role=img], [role=button], button, summary) :is(a, button, input, [tabindex])"
    assert Opened(browser, address).page.locator(nested).count() == 0
