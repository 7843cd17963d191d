"""Tables and files: what is written, in every form, and the mark of a quick pass."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from graphnorm.paper.products import QUICK_NOTE, Product, Table
from graphnorm.paper.reported import Reported
from graphnorm.paper.tables import Score, agreement, dataset_rows, score_table

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
    assert [score.within for score in (near, far, bare, missing)] == [True, False, None, None]
    assert agreement([near, far, bare, missing]).startswith("1 of 2 cells")
    assert agreement([bare]) == "No cell can be compared with the paper's numbers."
    table = score_table([(["MUTAG"], near, Score(88.0, 6.0)), (["PTC"], missing, None)], ["dataset"])
    assert table.columns == ("dataset", "measured", "reported", "difference", "within one sd", "under fair")
    assert table.rows[0] == ["MUTAG", "91.0 ± 5.0", "91.6 ± 6.5", "−0.6", True, "88.0 ± 6.0"]
    assert table.rows[1] == ["PTC", "–", "90.0 ± 1.0", None, None, None]
    assert far.numbers() == (80.0, 5.0, 91.6, 6.5, pytest.approx(-11.6), False)
    assert missing.numbers() == (None, None, 90.0, 1.0, None, None)


def test_dataset_rows() -> None:
    rows = dataset_rows("COLLAB", (5000, 3, 74.49, 4989.5, 66.0), (5000, 2, 74.5, 4989.5, 66.9))
    assert [row[-1] for row in rows] == [True, False, True, True, False]


@pytest.mark.parametrize("quick", [False, True])
def test_a_quick_pass_is_marked_on_every_output(quick: bool, tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([1, 2])
    product = Product("fig2", "Figure 2", quick, figures={"": figure, "-b": figure}, table=TABLE, sentences=("So.",))
    files = product.write(tmp_path)
    assert {path.suffix for path in files} == {".png", ".svg", ".pdf", ".md", ".tex", ".csv", ".json"}
    assert all(path.name.startswith("fig2-quick") is quick for path in files)
    assert sorted(files) == sorted(tmp_path.iterdir())
    for ending in ("md", "tex", "json"):
        text = (tmp_path / f"{product.stem}.{ending}").read_text()
        assert (QUICK_NOTE in text) is quick
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
