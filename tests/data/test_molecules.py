"""Molecules compared with OGB's own features, tables of SMILES, and mistakes in them."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.data.conftest import assert_refused

from graphnorm.data import DataError, DataWarning, PackedGraphs, from_smiles, load, save_packed
from graphnorm.data.molecules import ATOM_FEATURES, BOND_FEATURES, cardinalities

ODD = [
    "[2H]O[Xe]",
    "F/C=C/F",
    "F/C=C\\F",
    "C[C@H](N)O",
    "[Na+].[Cl-]",
    "[CH3]",
    "c1ccccc1",
    "F[P-](F)(F)(F)(F)F",
    "[U]",
    "C#N",
]


def assert_as_ogb_makes_it(graphs: PackedGraphs, smiles: list[str]) -> None:
    from ogb.utils.mol import smiles2graph

    for g, text in enumerate(smiles):
        theirs, batch = smiles2graph(text), graphs.batch([g])
        assert batch.tags is not None
        assert batch.edge_tags is not None
        order = np.lexsort((theirs["edge_index"][0], theirs["edge_index"][1]))
        assert np.array_equal(batch.tags.numpy(), theirs["node_feat"])
        assert np.array_equal(batch.edge_index.numpy(), theirs["edge_index"][:, order])
        assert np.array_equal(batch.edge_tags.numpy(), theirs["edge_feat"][order])


def test_vocabulary_is_ogbs() -> None:
    from ogb.utils.features import allowable_features, get_atom_feature_dims, get_bond_feature_dims

    assert list(cardinalities(ATOM_FEATURES)) == get_atom_feature_dims()
    assert list(cardinalities(BOND_FEATURES)) == get_bond_feature_dims()
    theirs = [list(values) for values in allowable_features.values()]
    assert [list(values) for values in (ATOM_FEATURES | BOND_FEATURES).values()] == theirs


def test_odd_molecules() -> None:
    graphs = from_smiles(ODD, [0, 1] * 5)
    assert_as_ogb_makes_it(graphs, ODD)


def test_the_molecules_inside_rdkit() -> None:
    from rdkit import RDConfig

    graphs = load("molecules")
    assert graphs.num_graphs == 1017
    assert graphs.statistics().class_sizes == (509, 508)
    assert graphs.classes == ("not above 6.44", "above 6.44")
    table = Path(RDConfig.RDContribDir) / "FreeWilson" / "data" / "CHEMBL2321810.smi"
    lines = [line.split() for line in table.read_text().splitlines()]
    assert_as_ogb_makes_it(graphs, [smiles for smiles, _ in lines])
    activity = dict(csv.reader(io.StringIO(table.with_name("CHEMBL2321810_act.csv").read_text())))
    assert graphs.labels.tolist() == [int(float(activity[name]) > 6.44) for _, name in lines]


def test_molecules_of_molhiv(archives: Path) -> None:
    from rdkit import Chem, rdBase

    with zipfile.ZipFile(archives / "ogbg_molhiv.zip") as archive:
        table = gzip.decompress(archive.read("ogbg_molhiv/mapping/mol.csv.gz")).decode()
    with rdBase.BlockLogs():  # a newer RDKit refuses seven of these molecules
        smiles = [row[1] for row in csv.reader(io.StringIO(table))][1::137]
        smiles = [text for text in smiles if Chem.MolFromSmiles(text)]
    assert len(smiles) > 290
    assert_as_ogb_makes_it(from_smiles(smiles, [g % 2 for g in range(len(smiles))]), smiles)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_tables_of_every_kind(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    expected = from_smiles(["CCO", "c1ccccc1", "CC"], ["b", "a", "b"])
    assert expected.classes == ("a", "b")
    assert expected.labels.tolist() == [1, 0, 1]
    assert load(write(tmp_path / "t.csv", "id,SMILES,label\n1,CCO,b\n\n2,c1ccccc1,a\n3,CC,b\n")) == expected
    assert load(write(tmp_path / "u.csv", "smiles;y\nCCO;b\nc1ccccc1;a\nCC;b\n")) == expected
    assert load(write(tmp_path / "t.tsv", "x\tsmiles\nb\tCCO\na\tc1ccccc1\nb\tCC\n")) == expected
    named = write(tmp_path / "v.csv", "a,b,c\nCCO,b,1\nc1ccccc1,a,2\nCC,b,3\n")
    assert load(named, smiles="a", label="b") == expected
    table = pyarrow.table({"smiles": ["CCO", "c1ccccc1", "CC"], "label": ["b", "a", "b"]})
    parquet.write_table(table, tmp_path / "t.parquet")
    assert load(tmp_path / "t.parquet") == expected


def test_measurements_become_two_classes() -> None:
    smiles, values = ["C", "CC", "CCC", "CCCC"], [1.0, 2.0, 3.0, 10.0]
    assert from_smiles(smiles, values, threshold="median").labels.tolist() == [0, 0, 1, 1]
    assert from_smiles(smiles, values, threshold=5.0).labels.tolist() == [0, 0, 0, 1]
    with pytest.raises(DataError, match="the threshold is 'mean'"):
        from_smiles(smiles, values, threshold="mean")  # type: ignore[arg-type]


def test_numbers_as_labels_are_ordered_by_value() -> None:
    graphs = from_smiles(["C", "CC", "CCC"], [10, 9, -1])
    assert graphs.classes == ("-1", "9", "10")
    assert graphs.labels.tolist() == [2, 1, 0]


def test_skip_invalid(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "smiles,label\nCCO,1\nnot a molecule,0\nCC,0\n")
    for _ in range(2):  # every time, cached or not
        with pytest.warns(DataWarning, match=r"1 of 3 SMILES cannot be read, the first at 3 \('not a molecule'\)"):
            graphs = load(path, skip_invalid=True)
    assert graphs == from_smiles(["CCO", "CC"], [1, 0])
    assert (graphs.rows, graphs.left_out) == ([0, 2], (1,))
    assert graphs.to("cpu").rows == [0, 2]
    save_packed(graphs, tmp_path / "packed.safetensors")
    assert load(tmp_path / "packed.safetensors").rows == [0, 2]


def test_a_table_remembers_how_its_labels_were_read(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "smiles,solubility\nC,1.25\nCC,2.0\nCCC,3.0000001\n")
    for _ in range(2):  # read, and from the cache
        graphs = load(path, threshold="median")
        assert (graphs.label_column, graphs.threshold) == ("solubility", 2.0)
    assert load(path).threshold is None
    assert load(path, unlabelled=True).label_column == ""


MISTAKES = {
    "bad smiles": ("smiles,label\nCCO,1\nC(,0\n", 3, {}, "1 of 2 SMILES cannot be read.*skip_invalid=True"),
    "empty smiles": ("smiles,label\nCCO,1\n,0\n", 3, {}, "1 of 2 SMILES cannot be read"),
    "no label": ("smiles,label\nCCO,1\nCC,\n", 3, {}, "no value in the column 'label'"),
    "one class": ("smiles,label\nCCO,1\nCC,1\n", 2, {}, "same label, 1"),
    "short line": ("smiles,label\nCCO,1\nCC\n", 3, {}, "1 instead of 2 fields"),
    "no smiles column": ("a,b\nCCO,1\nCC,0\n", 1, {}, "columns are 'a', 'b'.*smiles="),
    "no label column": ("smiles,a,b\nCCO,1,2\nCC,0,1\n", 1, {}, "columns are 'a', 'b'.*--label"),
    "unknown column": ("smiles,a\nCCO,1\nCC,0\n", 1, {"label": "z"}, "no column 'z'"),
    "same column twice": ("smiles,a,a\nCCO,1,2\n", 1, {}, "two columns have the same name"),
    "no rows": ("smiles,label\n", None, {}, "no rows"),
    "nothing": ("", None, {}, "no rows"),
    "not a number": ("smiles,label\nCCO,1\nCC,high\n", 3, {"threshold": 1.0}, "'high' is not a finite number"),
    "nan": ("smiles,label\nCCO,1\nCC,nan\n", 3, {"threshold": "median"}, "'nan' is not a finite number"),
    "open quote": ('smiles,label\nCCO,1\n"CC,0\n', 3, {}, "cannot be read"),
    "null": ("smiles,label\nCCO,\0\n", None, {}, "null bytes"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_name_file_line_and_remedy(tmp_path: Path, mistake: str) -> None:
    text, line, keywords, message = MISTAKES[mistake]
    path = write(tmp_path / "t.csv", text)
    assert_refused(path, path, line, message, **keywords)


def test_files_of_other_encodings_and_damaged_ones(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("smiles,label\nCCO,gut\nCC,schön\n".encode("latin-1"))
    assert_refused(path, path, 3, "not UTF-8.*save it as UTF-8")
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1 nothing PAR1")
    assert_refused(path, path, None, "cannot be read")
    path = tmp_path / "absent.csv"
    assert_refused(path, path, None, "no such file")


def test_measurements_taken_for_classes() -> None:
    smiles = ["C" * k for k in range(1, 61)]
    with pytest.raises(DataError, match=r'60 different values for 60 molecules.*threshold="median"'):
        from_smiles(smiles, [k / 7 for k in range(60)])


def test_lists_of_different_lengths() -> None:
    with pytest.raises(DataError, match="2 molecules and 1 labels"):
        from_smiles(["C", "CC"], [1])


def test_a_table_without_labels(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("name,mass,smiles\na,46,CCO\nb,30,CC\n")
    with pytest.raises(DataError, match="not clear which column has the labels"):
        load(path)
    graphs = load(path, unlabelled=True)
    assert graphs.classes == ("unknown",)
    assert graphs.labels.tolist() == [0, 0]
    path.write_text("name,smiles,label\na,CCO,x\nb,CC,y\n")
    assert load(path, unlabelled=True).classes == ("x", "y")
    with pytest.raises(DataError, match="no column 'z'"):
        load(path, label="z", unlabelled=True)
