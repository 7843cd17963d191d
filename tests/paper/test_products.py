"""Tables and files: what is written, in every form, and the mark of a quick pass."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from graphnorm.paper.products import QUICK_NOTE, Product, Sheet, Stacked, Table
from graphnorm.paper.reported import Reported

from graphnorm.paper.tables import Score, agreement, dataset_rows, within_an_error

TABLE = Table(("name & more", "x"), [["50 % of a_b", 1.23456789], ["a|b", None], ["α ± −", True]])


def test_csv_reads_back() -> None:
    rows = list(csv.reader(io.StringIO(TABLE.to_csv())))
    assert rows == [["name & more", "x"], ["50 % of a_b", "1.23457"], ["a|b", ""], ["α ± −", "yes"]]


def test_markdown_and_latex_escape() -> None:
    markdown = TABLE.to_markdown("caption")
    assert markdown.startswith("**caption**\n\n| name & more | x |\n")
    assert r"| a\|b | – |" in markdown
    latex = TABLE.to_latex("100 %")
    assert r"\caption{100 \%}" in latex
    assert r"50 \% of a\_b & 1.235 \\" in latex
    assert r"$\alpha$ $\pm$ $-$ & yes \\" in latex


def test_a_table_longer_than_a_page() -> None:
    latex = Table(("a", "b"), [["x", k] for k in range(41)]).to_latex("caption")
    assert latex.startswith("% needs \\usepackage{longtable}\n")
    assert latex.count("longtable}") == 3
    assert "tabular" not in latex
    assert latex.index(r"\caption{caption} \\") < latex.index(r"\endhead") < latex.index(r"x & 0 \\")
    assert "longtable" not in Table(("a", "b"), [["x", k] for k in range(40)]).to_latex("caption")


def test_large_numbers_keep_their_digits() -> None:
    assert Table(("a",), [[4989.53], [0.123456]]).to_markdown("c").splitlines()[4:] == ["| 4989.5 |", "| 0.1235 |"]


def test_measured_beside_reported() -> None:
    near, far = Score(91.0, 5.0, Reported(91.6, 6.5, 1)), Score(80.0, 5.0, Reported(91.6, 6.5, 1))
    bare, missing = Score(66.0, 2.0, Reported(67.0, None, 1)), Score(float("nan"), reported=Reported(90.0, 1.0, 1))
    between = Score(89.0, 5.0, Reported(91.6, 6.5, 1))  # 6.5 / √10 is 2.06
    together = (near, between, far, bare, missing)
    assert [score.within for score in together] == [True, True, False, None, None]
    assert [score.within_error for score in together] == [True, False, False, None, None]
    assert agreement({"a": [near], "b": [between, far, bare], "c": [missing]}) == (
        "2 of 3 cells lie within one reported standard deviation of the paper (67 %): 1 of 1 a, 1 of 2 b."
    )
    assert agreement({"": [bare]}) == "No cell can be compared with the paper's numbers."
    assert within_an_error(together, "folds")[0].endswith("lie 1 of 3.")
    assert within_an_error([bare, missing], "folds") == ()


def test_dataset_rows() -> None:
    """Rounded or cut off, an average is as printed; a digit further it is not, even if by less than 0.1."""
    rows = dataset_rows("COLLAB", (5000, 3, 74.49, 4989.44, 66.98), (5000, 2, 74.5, 4989.5, 66.9))
    assert [row[-1] for row in rows] == [True, False, True, False, True]


def test_two_lines_in_a_cell() -> None:
    table = Table(("a",), [[Stacked("90.0 ± 1.0 †", "91_0")], [Stacked("–")]])
    assert table.to_markdown("c").splitlines()[4:] == ["| 90.0 ± 1.0 †<br><small>91_0</small> |", "| – |"]
    latex = table.to_latex("c")
    assert r"\shortstack[l]{\strut 90.0 $\pm$ 1.0 \dag{}\\{\scriptsize 91\_0}} \\" in latex
    assert "\n-- \\\\\n" in latex


@pytest.mark.parametrize("rows", [3, 50])
@pytest.mark.parametrize("width", [10, 130])
def test_latex_is_balanced_and_plain(rows: int, width: int) -> None:
    """Braces and environments close in order; what is not ASCII has a command; wide tables are turned."""
    cell = "a_b & 50 % ± − – α × → √ † ‡ § {x}"
    table = Table(("c" * width, "#"), [[cell, Stacked(cell, "~^")]] * rows)
    latex = table.to_latex(cell, notes=("A note: √10.", cell))
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
    assert (r"\begin{landscape}" in latex) is (width > 120)
    assert latex.index("A note: $\\surd$10.") > latex.index(r"\hline")
    for line in latex.splitlines():
        if line.endswith(r"\\") and not line.startswith(r"\caption"):
            assert len(re.findall(r"(?<!\\)&", line)) == 1  # one between two columns


@pytest.mark.parametrize("quick", [False, True])
def test_a_quick_pass_is_marked_on_every_output(quick: bool, tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([1, 2])
    product = Product("fig2", "Figure 2", quick, figures={"": figure, "-b": figure}, table=TABLE, sentences=("So.",),
                      sheets={"-wide": Sheet(TABLE, ("Marks.",), addition=", wide")})  # fmt: skip
    files = product.write(tmp_path)
    assert {path.suffix for path in files} == {".png", ".svg", ".pdf", ".md", ".tex", ".csv", ".json"}
    assert all(path.name.startswith("fig2-quick") is quick for path in files)
    assert sorted(files) == sorted(tmp_path.iterdir())
    for ending in (".md", ".tex", ".json", "-wide.md", "-wide.tex"):
        text = (tmp_path / f"{product.stem}{ending}").read_text()
        assert (QUICK_NOTE in text) is quick
        assert ("Marks." in text) is ("Figure 2, wide" in text) is ("wide" in ending)
    assert (figure.get_suptitle() == f"Figure 2. {QUICK_NOTE}") is quick
    assert json.loads((tmp_path / f"{product.stem}.json").read_text())["quick"] is quick


def test_the_same_picture_has_the_same_bytes(tmp_path: Path) -> None:
    figure_module = pytest.importorskip("matplotlib.figure")
    written = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        figure = figure_module.Figure()
        figure.add_subplot().plot([1, 2, 3], marker="o")
        files = Product("fig2", "Figure 2", quick=False, figures={"": figure}).write(folder)
        written.append({file.name: file.read_bytes() for file in files})
    assert written[0] == written[1]
    assert {"fig2.png", "fig2.svg", "fig2.pdf"} <= written[0].keys()
