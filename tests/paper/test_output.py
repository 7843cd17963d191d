"""Files of an item: in every form the same, and marked where they are of a quick pass."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure

from graphnorm.paper.output import QUICK_NOTE, Output, Sheet, smaller
from graphnorm.study.render import Table, TwoLines

TABLE = Table(("name & more", "x"), [["50 % of a_b", 1.23456789], ["a|b", None], ["α ± −", True]])


def figure() -> Figure:
    drawn = Figure()
    drawn.add_subplot().plot([1, 2, 3], marker="o")
    return drawn


@pytest.mark.parametrize("quick", [False, True])
def test_a_quick_pass_is_marked_on_every_file(quick: bool, tmp_path: Path) -> None:
    drawn = figure()
    sheet = Sheet(TABLE, ("Marks.",), addition=", wide")
    output = Output(
        "fig2", "Figure 2", quick, {"": drawn, "-b": drawn}, table=TABLE, sheets={"-wide": sheet}, sentences=("So.",)
    )
    files = output.write(tmp_path)
    assert {path.suffix for path in files} == {".png", ".svg", ".md", ".tex", ".csv", ".json"}
    assert all(path.name.startswith("fig2-quick") is quick for path in files)
    assert sorted(files) == sorted(tmp_path.iterdir())
    for ending in (".md", ".tex", "-wide.md", "-wide.tex"):
        text = (tmp_path / f"{output.stem}{ending}").read_text()
        assert (QUICK_NOTE in text) is quick
        assert ("Marks." in text) is ("Figure 2, wide" in text) is ("wide" in ending)
    assert (drawn.get_suptitle() == f"Figure 2. {QUICK_NOTE}") is quick
    content = json.loads((tmp_path / f"{output.stem}.json").read_text())
    assert (content["item"], content["title"], content["quick"]) == ("fig2", output.title, quick)
    assert content["sentences"] == ["So."]


def test_a_figure_keeps_its_own_title_below(tmp_path: Path) -> None:
    drawn = figure()
    drawn.suptitle("Two graphs")
    output = Output("fig5", "Figure 5", quick=False, figures={"": drawn})
    for _ in range(2):  # also when it is written twice
        output.write(tmp_path)
        assert drawn.get_suptitle() == "Figure 5\nTwo graphs"


def test_tables_of_the_json_are_those_of_the_markdown(tmp_path: Path) -> None:
    two = Table(("norm", "MUTAG"), [["GraphNorm", TwoLines("90.0 ± 1.0 †", "91.6")], ["none", TwoLines("–")]])
    sheets = {"-wide": Sheet(two, ("† One.", "Made."), ", wide")}
    facts = {"made": "2026-11-16T08", "graphnorm": "2", "torch": "5", "trained_on": [], "studies": []}
    Output("t", "T", quick=False, table=TABLE, sheets=sheets, sentences=("So.",), facts=facts).write(tmp_path)
    content = json.loads((tmp_path / "t.json").read_text())
    assert list(content["tables"]) == ["", "-wide"]
    for suffix, table in content["tables"].items():
        rows = [[TwoLines(**cell) if isinstance(cell, dict) else cell for cell in row] for row in table["rows"]]
        expected = Table(tuple(table["columns"]), rows).to_markdown(table["title"])
        notes = "".join(f"\n{note}\n" for note in table["notes"])
        assert (tmp_path / f"t{suffix}.md").read_text() == expected + notes
    assert content["tables"][""]["notes"][0] == "So."
    assert content["tables"]["-wide"]["rows"][0][1] == {"above": "90.0 ± 1.0 †", "below": "91.6"}


def test_the_csv_reads_back(tmp_path: Path) -> None:
    """It has what the figures show, or the table where there is nothing else."""
    data = Table(("epoch", "value"), [[1, None], [2, 0.123456789]])
    for given, expected in ((data, [["1", ""], ["2", "0.123457"]]), (None, [["50 % of a_b", "1.23457"]])):
        Output("t", "T", quick=False, table=TABLE, data=given).write(tmp_path)
        rows = list(csv.reader(io.StringIO((tmp_path / "t.csv").read_text())))
        assert rows[1 : 1 + len(expected)] == expected


@pytest.mark.parametrize("rows", [3, 41])
@pytest.mark.parametrize("width", [10, 130])
def test_latex_is_balanced_and_plain(rows: int, width: int, tmp_path: Path) -> None:
    """Braces and environments close in order; what is not ASCII has a command; long and wide tables fit a page."""
    cell = "a_b & 50 % ± − – α × → √ † ‡ § {x}"
    table = Table(("c" * width, "#"), [[cell, TwoLines(cell, "~^")]] * rows)
    Output("t", cell, quick=False, sheets={"": Sheet(table, ("A note: √10.", cell))}).write(tmp_path)
    latex = (tmp_path / "t.tex").read_text()
    assert latex.isascii()
    opened: list[str] = []
    for token in re.findall(r"\\(?:begin|end)\{\w+\}|\\.|[{}]", latex):
        if token == "{" or token.startswith(r"\begin"):
            opened.append(token.replace(r"\begin", r"\end"))
        elif token == "}" or token.startswith(r"\end"):
            assert opened.pop() == token.replace("}", "{", token == "}")
    assert not opened
    needed = [name for name, holds in (("longtable", rows > 40), ("pdflscape", width > 120)) if holds]
    assert latex.startswith(f"% needs \\usepackage{{{','.join(needed)}}}\n") is bool(needed)
    assert (r"\begin{longtable}" in latex) is (rows > 40)
    assert (r"\begin{landscape}" in latex) is (width > 120)
    assert latex.index("A note: $\\surd$10.") > latex.index(r"\hline")
    for line in latex.splitlines():
        if line.endswith(r"\\") and not line.startswith(r"\caption"):
            assert len(re.findall(r"(?<!\\)&", line)) == 1  # one between two columns


def test_the_same_picture_has_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        files = Output("fig2", "Figure 2", quick=False, figures={"": figure()}).write(folder)
        written.append({file.name: file.read_bytes() for file in files})
    assert written[0] == written[1]
    assert {"fig2.png", "fig2.svg"} <= written[0].keys()


def test_a_smaller_svg_shows_the_same(tmp_path: Path) -> None:
    """Texts, and lines within a twentieth of a point."""
    drawn = Figure()
    axes = drawn.add_subplot(title="rate 0.00012345")
    axes.plot([k * 7919 % 101 for k in range(2000)], label="a; b: c")
    axes.scatter([1, 2], [3, 4])
    axes.legend()
    whole = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "fixed"}):
        drawn.savefig(whole, format="svg")
    small = smaller(whole.getvalue())
    assert len(small) < 0.7 * len(whole.getvalue())
    assert "rate 0.00012345" in texts(small)
    assert texts(small) == texts(whole.getvalue())
    ends = zip(places(whole.getvalue()), places(small), strict=True)
    assert max(abs(a - b) for before, after in ends for a, b in zip(before, after, strict=True)) <= 0.0501


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)<", svg)


def places(svg: str) -> list[list[float]]:
    """The points of every path of straight lines."""
    found = []
    for path in re.findall(r' d="([^"CQ]*)"', svg):
        points: list[float] = []
        for command, numbers in re.findall(r"([MLl])([^MLlz]*)", path):
            pairs = [float(number) for number in re.findall(r"-?[\d.]+", numbers)]
            for x, y in zip(pairs[::2], pairs[1::2], strict=True):
                points += [points[-2] + x, points[-1] + y] if command == "l" else [x, y]
        found.append(points)
    return found
