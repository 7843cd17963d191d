"""The paper's claims and tables, from Markdown to the top of a page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from graphnorm.errors import GraphnormError
from graphnorm.paper.products import Table
from graphnorm.report import build_page, read_comparison, read_items
from graphnorm.report.items import block, inline

EVIL = "<img src=x onerror=alert(1)>"
CLAIMS = f"""# The paper's claims, measured

Made by `graphnorm reproduce`.

- A claim *holds* if it is right.

| claim | here | cases |
|---|---|---|
| Figure 2: it is faster. | holds in part \\* | 6 of 8 |
| Figure 2: it is better. | undecided | 1 of 1 |
| Table 1: it is {EVIL}. | does not hold here | 4 of 12 |

\\* Unfinished.

## Figure 2: curves

### Figure 2: it is faster.

**Holds in part**: PTC: 93.1 against {EVIL}.

| | graph | p |
| --- | --- | --- |
| PTC | 93.1 | 0.110 |

### Figure 2: it is better.

**Undecided**.

From `fig2`, made on 2026-11-16.

Notes:

- In part.

## Table 1: scores

### Table 1: it is {EVIL}.

**Does not hold here**.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "claims.md").write_text(CLAIMS)
    table = Table(("dataset", "norm", "measured"), [["MUTAG", "a|b", "92.0 ± 7.9"], ["PTC", EVIL, None]])
    (tmp_path / "table1.md").write_text(table.to_markdown("Table 1: accuracy") + "\n24 of 28 cells.\n")
    (tmp_path / "table1.json").write_text(json.dumps({"made": "2026-11-16T06:06:38", "trained_on": ["H200", "cpu"]}))
    return tmp_path


def test_what_is_read(folder: Path) -> None:
    items = read_items(folder)
    assert items.claims is not None
    assert items.claims.title == "The paper's claims, measured"
    assert items.claims.columns == ["claim", "here", "cases"]
    assert items.claims.rows[0] == ["Figure 2: it is faster.", "holds in part \\*", "6 of 8"]
    assert items.claims.before == "Made by `graphnorm reproduce`.\n\n- A claim *holds* if it is right."
    assert items.claims.after == "\\* Unfinished."
    (table,) = items.tables
    assert (table.title, table.names) == ("Table 1: accuracy", 2)
    assert table.rows == [["MUTAG", "a|b", "92.0 ± 7.9"], ["PTC", EVIL, "–"]]
    assert (table.before, table.after) == ("", "24 of 28 cells.\n\nMade on 2026-11-16; trained on H200, cpu.")


def test_claims_of_an_item_share_its_origin_and_notes(folder: Path) -> None:
    claims = read_items(folder).claims
    assert claims is not None
    faster, better, other = (claims.more[row[0]] for row in claims.rows)
    origin = "From `fig2`, made on 2026-11-16.\n\nNotes:\n\n- In part."
    assert better == f"**Undecided**.\n\n{origin}"
    assert faster.startswith("**Holds in part**")
    assert faster.endswith(f"| PTC | 93.1 | 0.110 |\n\n{origin}")
    assert other == "**Does not hold here**."


def test_markdown_but_no_html() -> None:
    assert inline("holds \\*, *x*") == "holds *, <em>x</em>"
    assert "<table>" in block("| a |\n|---|\n| 1 |")
    assert block(f"- {EVIL}") == "<ul>\n<li>&lt;img src=x onerror=alert(1)&gt;</li>\n</ul>\n"
    for link in ("[a](javascript:alert(1))", "![a](x.png)", "<https://example.org>"):
        assert not any(element in inline(link) for element in ("<a", "<img"))


def test_the_shape_of_the_paper_is_preferred(folder: Path) -> None:
    wide = (
        "**Table 1**\n\n| norm | MUTAG |\n|---|---|\n| graph | 92.0<br><small>91.6</small> |\n\nMade on 2026-11-16.\n"
    )
    (folder / "table1-wide.md").write_text(wide)
    (folder / "table2-quick.md").write_text(wide.replace("Table 1", "Table 2. QUICK PASS"))
    (folder / "table1-fair.md").write_text(wide.replace("Table 1", "Table 1, under fair"))
    first, fair, second = read_items(folder).tables
    assert (fair.id, fair.title) == ("table1-fair", "Table 1, under fair")
    assert (first.id, first.columns, first.after) == ("table1", ["norm", "MUTAG"], "Made on 2026-11-16.")
    assert inline(first.rows[0][1]) == "92.0<br><small>91.6</small>"
    assert second.title == "Table 2. QUICK PASS"


def test_names_stay_names_at_the_top_too(folder: Path, comparison: Path) -> None:
    pytest.importorskip("plotly")
    page = build_page([read_comparison(comparison)], items=read_items(folder))
    assert "<img" not in page
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") == 3
    assert re.search(r"<details><summary>the numbers</summary>.*<p><strong>Holds in part</strong>: PTC", page)
    assert re.findall(r'<td class="(\w*)">', page)[:6] == ["part", "", "open", "", "no", ""]
    assert page.index('id="claims"') < page.index('id="table1"') < page.index('id="part-1"')


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# Claims\n\nNone.\n", "there is no table in it"),
        ("| a | b |\n|---|---|\n| 1 |\n", "its table is not whole"),
        ("| a | b |\n| 1 | 2 |\n", "its table is not whole"),
        ("| a |\n|---|\n| 1 |\nand more\n", "its table is not whole"),
        ("| a |\n", "its table is not whole"),
        (b"\xff\xfe|", "this is no text"),
    ],
)
def test_what_is_no_table(folder: Path, text: str | bytes, problem: str) -> None:
    (folder / "claims.md").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(GraphnormError, match=problem):
        read_items(folder)


def test_folders_without_them(tmp_path: Path) -> None:
    with pytest.raises(GraphnormError, match="neither claims nor tables"):
        read_items(tmp_path)
    with pytest.raises(GraphnormError, match="no such folder"):
        read_items(tmp_path / "absent")
