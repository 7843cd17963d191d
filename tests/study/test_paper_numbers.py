"""The paper's numbers: each as the paper's source prints it, and where it stands beside ours."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from fakes import paper_source
from graphnorm.study import paper_numbers as paper
from graphnorm.study.paper_numbers import MOLHIV, TU, Reported, reported

NORMS = {"LayerNorm": "layer", "BatchNorm": "batch", "InstanceNorm": "instance", "GraphNorm": "graph"}


def printed(label: str) -> dict[str, list[tuple[float, ...]]]:
    """The rows of numbers of a table in the paper's source: by their names, the numbers of each cell."""
    before = paper_source().partition(rf"\label{{{label}}}")[0]
    rows = {}
    for line in before.rpartition(r"\begin{tabular}")[2].splitlines():
        name, *cells = line.strip().removeprefix("&").rstrip("\\ &").split("&")
        name = re.sub(r"\\citep\{.*?\}|\\text\w*|[\\{}()]", "", name).strip()
        if cells and re.search(r"\d", cells[0]):
            clean = [re.sub(r"(\d),(\d)(?!\d)", r"\1.\2", cell).replace(",", "") for cell in cells]  # 1,7 is 1.7
            rows[name] = [tuple(map(float, re.findall(r"\d+(?:\.\d+)?", cell))) for cell in clean]
    return rows


def numbers(row: dict[str, Reported]) -> list[tuple[float, ...]]:
    """As they are printed: nothing for a dataset that the table leaves out."""
    found = [row.get(name) for name in TU]
    return [() if cell is None else (cell.mean,) if cell.std is None else (cell.mean, cell.std) for cell in found]


def test_table_1_is_as_printed() -> None:
    rows = printed("tab:test-results")
    for name, norm in NORMS.items():
        assert numbers(paper.GIN[norm]) == rows[f"GIN+{name}"]
    for name, row in paper.BASELINES.items():
        assert numbers(row) == rows[name]
    assert len(rows) == len(paper.GIN) + len(paper.BASELINES) + 3  # and graphs, classes, nodes


def test_table_2_is_as_printed() -> None:
    rows = printed("tab:test-molhiv")
    for model, cells in paper.TABLE_2.items():
        for name, norm in NORMS.items():
            assert cells[norm][:2] == rows[f"{model.removeprefix('molhiv-').upper()}+{name}"][0]
    for name, cell in paper.MOLHIV_BASELINES.items():
        assert cell[:2] == rows[name][0]
    assert len(rows) == 2 * len(NORMS) + 2 + 3


def test_the_dataset_table_is_as_printed() -> None:
    rows = printed("tab:appendix-dataset-statistics")
    columns = zip(*([number for (number,) in row] for row in rows.values()), strict=True)
    assert [tuple(entry) for entry in paper.dataset_table().values()] == list(columns)
    assert list(paper.dataset_table()) == [*TU, MOLHIV]


def test_no_number_changes_unnoticed() -> None:
    """Also where the paper's source is absent."""
    tables = (paper.GIN, paper.BASELINES, paper.TABLE_2, paper.MOLHIV_BASELINES, paper.dataset_table())
    assert hashlib.sha256(json.dumps(tables).encode()).hexdigest()[:16] == "d9be48ff5f20896e"


@pytest.mark.parametrize(("settings", "notes"), [((10, 400, 60), 0), ((10, 400, 1), 1), ((3, 12, 60), 1)])
def test_other_settings_than_the_papers_are_noted(settings: tuple[int, int, int], notes: int) -> None:
    assert len(paper.unlike_the_paper(*settings)) == notes


def test_the_papers_own_statements() -> None:
    """GraphNorm is in bold for GIN everywhere but on NCI1, where BatchNorm and the WL kernel are higher."""
    best = {name: max(paper.GIN, key=lambda norm: paper.GIN[norm][name].mean) for name in TU}
    assert best.pop("NCI1") == "batch"
    assert best.pop("COLLAB") in ("batch", "graph")
    assert set(best.values()) == {"graph"}
    for rows in paper.TABLE_2.values():
        assert max(rows, key=lambda norm: rows[norm].mean) == "graph"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (("MUTAG", "gin", "graph", "paper"), "91.6 ± 6.5"),
        (("ogbg-molhiv", "molhiv-gcn", "graph", "given"), "78.30 ± 0.69"),
        (("MUTAG", "gin", "graph", "fair"), "None"),
        (("MUTAG", "gcn", "graph", "paper"), "None"),
        (("MUTAG", "gin", "none", "paper"), "None"),
        (("molecules", "gin", "graph", "paper"), "None"),
        (("PTC_MR", "gin", "graph", "paper"), "None"),
        (("ogbg-molhiv", "gin", "graph", "given"), "None"),
    ],
)
def test_the_number_of_a_cell(cell: tuple[str, str, str, str], text: str) -> None:
    assert str(reported(*cell)) == text


def test_baselines_by_the_names_they_have_here() -> None:
    assert str(reported("NCI1", "wl", "none", "paper")) == "86.0 ± 1.8"
    assert str(reported("COLLAB", "dgcnn", "none", "paper")) == "73.7"
    assert reported("ogbg-molhiv", "ogb-gin", "none", "given") == (75.58, 1.40, 2)
    for data, model, protocol in (
        ("NCI1", "wl", "fair"), ("NCI1", "mlp", "paper"), ("PTC", "awl", "paper"), ("mine", "wl", "paper")
    ):  # fmt: skip
        assert reported(data, model, "none", protocol) is None
