"""The paper's claims and tables, from JSON to the top of a page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from graphnorm.errors import GraphnormError
from graphnorm.paper.output import QUICK_NOTE, Output, Sheet
from graphnorm.report import Chapter, build_page, read_reproduced
from graphnorm.study import Result
from graphnorm.study.render import Table, TwoLines
from pages import EVIL, Reader

CLAIM = {
    "claim": "It is faster.",
    "verdict": "in part",
    "tally": "ahead on 4, tied on 3",
    "words": f"`graph` against {EVIL}",
    "remark": "As we *read* it.",
    "columns": ["", "p"],
    "rows": [["PTC", "0.110"]],
    "notes": ["Trained in part."],
    "provenance": "From `fig2`, made on 2026-11-16.",
}
OTHERS = [
    CLAIM | {"claim": "It is better.", "verdict": "undecided", "words": "", "notes": [], "rows": []},
    CLAIM | {"claim": EVIL, "verdict": "does not hold here"},
    CLAIM | {"verdict": "holds"},
]
CLAIMS = {"quick": False, "rules": ["A claim *holds* if so."], "unjudged": {"fig4": 2}, "claims": [CLAIM, *OTHERS]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Claims, and Table 1 in rows."""
    (tmp_path / "claims.json").write_text(json.dumps(CLAIMS))
    rows = [["MUTAG", "gin", "a|b", "92.0 ± 7.9", True], ["PTC", EVIL, "batch", None, 0.5]]
    write(tmp_path, table=Table(("dataset", "model", "norm", "measured", "equal"), rows), sentences=("24 of 28.",))
    return tmp_path


def write(folder: Path, item: str = "table1", *, quick: bool = False, **parts: Any) -> None:
    facts = {"made": "2026-11-16T06", "graphnorm": "1", "torch": "2", "trained_on": [], "studies": []}
    Output(item, "Table 1: accuracy", quick, facts=facts, **parts).write(folder)


def test_claims(folder: Path, result: Result) -> None:
    page = build_page([Chapter(result)], reproduced=read_reproduced(folder))
    claims = page[page.index('id="claims"') : page.index('id="table1"')]
    assert "<li>A claim <em>holds</em> if so.</li>" in claims
    assert "2 of <code>fig4</code>." in claims
    rows = re.findall(r'<td class="(\w*)">(.*?)</td><td>(.*?)</td>', claims)
    assert rows == [
        ("half", "in part *", "ahead on 4, tied on 3"),
        ("open", "undecided", "ahead on 4, tied on 3"),
        ("no", "does not hold here *", "ahead on 4, tied on 3"),
        ("yes", "holds *", "ahead on 4, tied on 3"),
    ]
    first, second, *_ = re.findall(r"<details><summary>the numbers</summary>(.*?)</details>", claims, re.DOTALL)
    assert "<strong>In part</strong>: ahead on 4, tied on 3. <code>graph</code> against &lt;img" in first
    assert "As we <em>read</em> it." in first
    assert "<td>PTC</td><td>0.110</td>" in first
    assert "<li>Trained in part.</li>" in first
    assert "From <code>fig2</code>, made on" in first
    assert "<table>" not in second
    assert "<li>" not in second
    assert page.index('id="table1"') < page.index('id="part-1"')
    reader = Reader(page)
    assert not [tag for tag, attributes in reader.tags if tag in ("img", "b") or "onerror" in attributes]
    assert reader.text.count(EVIL) == 5  # three times in words, once as a claim, once in the table


def test_the_page_opens_with_the_verdicts_and_the_figure(folder: Path, result: Result) -> None:
    (folder / "fig2.svg").write_text("<svg/>")
    (folder / "fig2.json").write_text(json.dumps({"title": f"Figure 2: {EVIL}"}))
    page = build_page([Chapter(result)], reproduced=read_reproduced(folder))
    top = page[page.index('class="strip"') : page.index('id="claims"')]
    assert re.findall(r'class="(\w+)"><strong>1</strong> <span>(.*?)</span></a>', top) == [
        ("yes", "holds"),
        ("half", "in part"),
        ("no", "does not hold here"),
        ("open", "undecided"),
    ]
    (picture,) = [attributes for tag, attributes in Reader(top).tags if tag == "img"]
    assert picture == {"src": "data:image/svg+xml;base64,PHN2Zy8+", "alt": f"Figure 2: {EVIL}"}
    rules = re.findall(
        r'<details class="plain"><summary>How a claim is judged</summary>(.*?)</details>', page, re.DOTALL
    )
    assert ["<em>holds</em>" in rule for rule in rules] == [True]


def test_a_table_in_rows(folder: Path) -> None:
    (table,) = read_reproduced(folder).tables
    assert (table["id"], table["title"], table["names"]) == ("table1", "Table 1: accuracy", 3)
    assert [[cell.above for cell in row] for row in table["rows"]] == [
        ["MUTAG", "gin", "a|b", "92.0 ± 7.9", "yes"],
        ["PTC", EVIL, "batch", "–", "0.5"],
    ]
    assert table["notes"] == ["24 of 28.", "Made on 2026-11-16 with graphnorm 1, torch 2."]


def test_the_layout_of_the_paper_is_preferred(folder: Path, result: Result) -> None:
    rows = Table(("dataset", "norm"), [["MUTAG", "graph"]])
    wide = Sheet(Table(("norm", "MUTAG"), [["graph", TwoLines("92.0", "91.6")], ["none", TwoLines("–")]]), ("In %.",))
    write(folder, table=rows, sheets={"-wide": wide, "-fair": wide._replace(addition=", under fair")})
    write(folder, "table2", quick=True, sheets={"-wide": wide})
    first, fair, second = read_reproduced(folder).tables
    assert (first["id"], first["columns"], first["names"]) == ("table1", ["norm", "MUTAG"], 1)
    assert first["notes"] == ["In %."]
    assert (fair["id"], fair["title"]) == ("table1-fair", "Table 1: accuracy, under fair")
    assert second["title"].endswith(QUICK_NOTE)
    page = build_page([Chapter(result)], reproduced=read_reproduced(folder))
    assert '<th scope="row" class="name stays">graph</th><td>92.0<br><small>91.6</small></td>' in page
    assert '<th scope="row" class="name stays">none</th><td>–</td>' in page


def test_a_quick_pass_is_marked(folder: Path, result: Result) -> None:
    (folder / "claims.json").unlink()
    (folder / "claims-quick.json").write_text(json.dumps(CLAIMS | {"quick": True}))
    text = Reader(build_page([Chapter(result)], reproduced=read_reproduced(folder))).text
    assert f"{QUICK_NOTE}. So few folds and epochs decide nothing." in text


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("claims", "{"),
        ("claims", b"\xff\xfe|"),
        ("claims", "[]"),
        ("claims", json.dumps(CLAIMS | {"claims": [{}]})),
        ("claims", json.dumps(CLAIMS | {"claims": [{"claim": "It is."}]})),
        ("table1", '{"title": "without tables"}'),
        ("table1", '{"tables": {"": {"title": "", "columns": ["a", "b"], "rows": [["1"]], "notes": []}}}'),
        ("table1", '{"tables": {"": {"title": "", "columns": ["a"], "rows": [[{"over": "1"}]], "notes": []}}}'),
    ],
)
def test_files_that_reproduce_did_not_write(folder: Path, file: str, content: str | bytes) -> None:
    path = folder / f"{file}.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(GraphnormError, match=f"{file}.json: this is not what graphnorm reproduce writes"):
        read_reproduced(folder)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(GraphnormError, match="no such folder"):
        read_reproduced(tmp_path / "absent")
