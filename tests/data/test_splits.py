"""Chosen splits, and the checks of every split."""

from __future__ import annotations

import gzip
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphnorm.data import DataError, DataWarning, PackedGraphs, as_graphs, from_smiles, load
from graphnorm.data.splits import PARTS, scaffold_split
from graphnorm.training import Split

TEN = [*(f"c1ccccc1{'C' * k}" for k in range(8)), "C1CC1", "CC"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    words = ["train"] * 6 + ["val", "Validation ", "test", "test"]
    lines = [f"{text},{k % 2},{word}" for k, (text, word) in enumerate(zip(TEN, words, strict=True))]
    path = tmp_path / "t.csv"
    path.write_text("smiles,label,part\n" + "\n".join(lines))
    return path


def parts(graphs: PackedGraphs) -> dict[str, list[int]]:
    return {name: ids.tolist() for name, ids in graphs.splits.items()}


def test_by_scaffold(table: Path) -> None:
    graphs = load(table, split="scaffold")
    assert parts(graphs) == {"test": [8], "train": list(range(8)), "valid": [9]}
    assert load(table, split="random").splits == {}
    with pytest.warns(DataWarning, match="'part' looks like a split, but is not used; --split part uses it"):
        assert load(table).splits == {}
    with pytest.raises(DataError, match=r"no graphs in the part train and valid.*--split random"):
        scaffold_split(["one"] * 10)
    with pytest.raises(DataError, match="split cannot be used with synthetic:trees"):
        load("trees", split="scaffold")


def test_by_scaffold_as_ogb_does(archives: Path) -> None:
    """Against the rule as OGB and MoleculeNet state it, on 499 molecules of bace."""
    from rdkit import Chem
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    table = gzip.decompress((archives / "moleculenet" / "bace.csv.gz").read_bytes()).decode().splitlines()[1:500]
    scaffolds = [MurckoScaffoldSmiles(mol=Chem.MolFromSmiles(line.partition(",")[0])) for line in table]
    sets: dict[str, list[int]] = {}
    for k, scaffold in enumerate(scaffolds):
        sets.setdefault(scaffold, []).append(k)
    expected: dict[str, list[int]] = {"train": [], "valid": [], "test": []}
    for ids in sorted(sets.values(), key=lambda ids: (len(ids), ids[0]), reverse=True):
        if len(expected["train"]) + len(ids) > 0.8 * len(table):
            if len(expected["train"]) + len(expected["valid"]) + len(ids) > 0.9 * len(table):
                expected["test"] += ids
            else:
                expected["valid"] += ids
        else:
            expected["train"] += ids
    assert {part: ids.tolist() for part, ids in scaffold_split(scaffolds).items()} == {
        part: sorted(ids) for part, ids in expected.items()
    }


def test_by_a_column(table: Path) -> None:
    graphs = load(table, split="part")
    assert parts(graphs) == {"test": [8, 9], "train": [0, 1, 2, 3, 4, 5], "valid": [6, 7]}
    assert graphs.label_column == "label"
    with pytest.raises(DataError, match=r"no column 'parts'; did you mean 'part'\?"):
        load(table, split="parts")


def test_by_a_file(table: Path, tmp_path: Path) -> None:
    graphs = load(table, split="part")
    file = tmp_path / "split.json"
    file.write_text(json.dumps({"train": [0, 1, 2, 3, 4, 5], "val": [6, 7], "test": [8, 9]}))
    assert load(table, split=str(file)) == graphs
    file = tmp_path / "split.csv"
    file.write_text("row,part\n" + "\n".join(f"{k},{part}" for part in PARTS for k in parts(graphs)[part]))
    assert load(table, split=file) == graphs
    file.write_text("part\n" + "\n".join(next(p for p in PARTS if k in parts(graphs)[p]) for k in range(10)))
    assert load(table, split=file) == graphs


def test_duplicates_in_two_parts_are_reported(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("smiles,label,part\nCCO,1,train\nC,0,train\nCC,1,valid\nOCC,1,test\nN,0,test\n")
    with pytest.warns(DataWarning) as caught:
        load(table, split="part")
    texts = [str(warning.message) for warning in caught]
    assert len(texts) == 2
    assert "1 of 5 molecules is a duplicate" in texts[0]
    assert "1 of the 2 test graphs is a duplicate of one in another part" in texts[1]


def test_the_validation_part_may_be_missing(table: Path, tmp_path: Path) -> None:
    file = tmp_path / "split.json"
    file.write_text('{"train": [0, 1, 2], "test": [4]}')
    with pytest.warns(DataWarning, match="6 of 10 graphs are in no part of the split"):
        assert parts(load(table, split=file)) == {"test": [4], "train": [0, 1, 2]}
    table.write_text(
        table.read_text().replace("val", "train").replace("Validation ", "train").replace("trainid", "train")
    )
    assert set(load(table, split="part").splits) == {"train", "test"}


def test_a_file_counts_rows_that_are_left_out(tmp_path: Path) -> None:
    table, file = tmp_path / "t.csv", tmp_path / "split.json"
    table.write_text("smiles,label\nX,1\nC,0\nCC,1\nCCC,0\n")
    file.write_text('{"train": [0, 1], "valid": [2], "test": [3]}')
    with pytest.warns(UserWarning, match="1 of 4 SMILES"):
        graphs = load(table, split=file, skip_invalid=True)
    assert parts(graphs) == {"test": [2], "train": [0], "valid": [1]}


def test_a_part_that_is_there_twice_is_refused(table: Path, tmp_path: Path) -> None:
    file = tmp_path / "split.json"
    file.write_text('{"train": [0, 1], "train": [4], "test": [2]}')
    with pytest.raises(DataError, match="'train' is no part of a split, or there twice"):
        load(table, split=file)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"train": [0, 1], "valid": [1], "test": [2]}, "graph 1 is in the parts train and valid"),
        ({"train": [0, 1], "valid": [2], "test": [10]}, "ids from 0 to 10, but the graphs are 0 to 9"),
        ({"train": [0, -1], "valid": [2], "test": [3]}, "ids from -1 to 3"),
        ({"train": [0, 1], "valid": [], "test": [2]}, "no graphs in the part valid"),
        ({"train": [0, 1], "valid": [2]}, "no graphs in the part test"),
        ({"train": [0, 1], "valid": [2], "test": [3], "more": [4]}, "'more' is no part of a split"),
        ({"train": [0, 1.5], "valid": [2], "test": [3]}, "train is not a list of ids"),
        ({"train": [0, True], "valid": [2], "test": [3]}, "train is not a list of ids"),
        ([0, 1], "this is no split"),
        ("{", "this is no split"),
    ],
)
def test_wrong_files_are_refused(table: Path, tmp_path: Path, content: object, problem: str) -> None:
    file = tmp_path / "split.json"
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match=problem) as error:
        load(table, split=file)
    assert error.value.where == str(file) or error.value.where == file
    assert error.value.remedy


def test_other_wrong_files_are_refused(table: Path, tmp_path: Path) -> None:
    for name, text in (("a.json", "{"), ("b.csv", "row,part\nx,train\n"), ("c.csv", "part\ntrain\n"), ("d.csv", "")):
        (tmp_path / name).write_text(text)
        with pytest.raises(DataError):
            load(table, split=tmp_path / name)
    with pytest.raises(DataError, match="no such file"):
        load(table, split=tmp_path / "absent.json")


def test_an_official_split_can_be_left_out(archives: Path) -> None:
    with zipfile.ZipFile(archives / "ogbg_molhiv.zip") as archive:
        assert any("scaffold" in name for name in archive.namelist())
    graphs = load("molhiv", archives, split="random")
    assert graphs.splits == {}
    assert np.array_equal(graphs.labels, load("molhiv", archives).labels)


def test_rows_given_in_python(table: Path) -> None:
    mask = np.arange(10) >= 8
    for split in (
        {"train": range(6), "valid": torch.tensor([6, 7]), "test": mask},
        Split(np.arange(6), np.array([6, 7]), np.array([8, 9])),
    ):
        found = parts(as_graphs(table, split=split))
        assert found == {"train": list(range(6)), "valid": [6, 7], "test": [8, 9]}
    graphs = load(table, split="random")
    assert parts(replace(graphs, splits={"train": np.arange(8), "test": [8, 9]}))["test"] == [8, 9]


def test_what_is_wrong_with_rows_given_in_python_is_said() -> None:
    with pytest.warns(DataWarning, match="1 of 3 molecules is a duplicate"):
        graphs = from_smiles(["CCO", "OCC", "C"], [0, 1, 0])
    with pytest.warns(DataWarning, match="1 of the 1 test graphs is a duplicate of one in another part") as caught:
        as_graphs(graphs, split={"train": [0, 2], "test": [1]})
    assert len(caught) == 1
    with pytest.warns(DataWarning, match="1 of 3 graphs is in no part of the split"):
        few = as_graphs(graphs, split={"train": [0], "test": [2]})
    assert "in no part" in few.notes[-1]
    assert as_graphs(few, split="random").notes == graphs.notes
    assert as_graphs(few, split={"train": [0, 1], "test": [2]}).notes == graphs.notes


@pytest.mark.parametrize(
    ("split", "problem"),
    [
        ({"train": [0, 1], "test": [1, 2]}, "graph 1 is in the parts train and test"),
        ({"train": [0, 0, 1, 1], "test": [2]}, "graph 0 is in the part train more than once; in all, 2 graphs are"),
        ({"train": [0, 1], "test": [10]}, "ids from 0 to 10"),
        ({"train": [0, 1], "test": []}, "no graphs in the part test"),
        ({"train": [0, 1], "test": [2.0]}, "the part 'test' of the split is float64"),
        ({"train": [0, 1], "tests": [2]}, "'tests' is no part of a split"),
        ({"train": np.ones(9, bool), "test": [2]}, "the part 'train' of the split is bool"),
    ],
)
def test_wrong_rows_are_refused(table: Path, split: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        as_graphs(table, split=split)
    with pytest.raises(TypeError, match="the rows of each part"):
        as_graphs(table, split=5)
