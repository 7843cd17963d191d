"""One table in five forms."""

from __future__ import annotations

import csv
import io

import pytest

from graphnorm.study.render import Table, TwoLines, facts

TABLE = Table(
    ("norm", "score", "many"),
    [
        ["a|b <i> & 5 %", 0.123456789, 1234.5678],
        [TwoLines("above", "below"), None, True],
        [TwoLines("alone"), 7, "±"],
    ],
)


def test_text_is_aligned() -> None:
    lines = Table(("norm", "score"), [["batch", 7], ["graph", None]]).to_text(left=("norm",)).splitlines()
    assert lines == ["norm   score", "batch      7", "graph      –"]


def test_csv_keeps_six_digits() -> None:
    rows = list(csv.reader(io.StringIO(TABLE.to_csv())))
    assert rows[0] == ["norm", "score", "many"]
    assert rows[1] == ["a|b <i> & 5 %", "0.123457", "1234.57"]
    assert rows[2] == ["above\nbelow", "", "yes"]


def test_markdown_escapes_bars() -> None:
    lines = TABLE.to_markdown("caption").splitlines()
    assert lines[0] == "**caption**"
    assert lines[4] == r"| a\|b <i> & 5 % | 0.1235 | 1234.6 |"
    assert lines[5] == "| above<br><small>below</small> | – | yes |"


def test_html_is_escaped_and_the_best_is_bold() -> None:
    html = TABLE.to_html([False, True])
    assert "a|b &lt;i&gt; &amp; 5 %" in html
    assert html.count("<tr>") == 4
    assert html.count("<b>") == 3
    assert "<b>yes</b>" in html


@pytest.mark.parametrize(("rows", "width", "kind"), [(2, 1, "table"), (41, 1, "longtable"), (2, 130, "landscape")])
def test_latex_of_any_size(rows: int, width: int, kind: str) -> None:
    table = Table(("norm", "α"), [["x" * width, "1 ± 2"]] * rows)
    text = table.to_latex("a caption_", notes=["† of 5 %"])
    assert text.count(r"\begin{") == text.count(r"\end{")
    assert rf"\begin{{{kind}}}" in text
    assert text.startswith("% needs") == (kind != "table")
    assert r"\caption{a caption\_}" in text
    assert r"1 $\pm$ 2 \\" in text
    assert r"\dag{} of 5 \%" in text
    assert TABLE.to_latex("x").count(r"\shortstack") == 1


def test_facts() -> None:
    assert facts({"one_name": (1, 2), "b": None}).splitlines() == ["one name  1, 2", "b         None"]
    assert facts({"a": 1}, as_json=True) == '{\n "a": 1\n}'
