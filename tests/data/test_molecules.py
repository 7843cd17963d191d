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
    assert load(named, smiles="a", target="b") == expected
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


def test_tasks_of_tables(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,smiles,A,B\nm1,CCO,1,\nm2,CC,0.0,NA\nm3,C,,1\n")
    with pytest.warns(DataWarning, match="'id' is taken for a name"):
        graphs = load(path)
    assert (graphs.task, graphs.target_names, graphs.classes) == ("binary", ("A", "B"), ("unknown",))
    assert graphs.targets is not None
    assert str(graphs.targets.tolist()) == "[[1.0, nan], [0.0, nan], [nan, 1.0]]"
    assert load(path, target="A,B") == graphs
    assert load(path, target=["A", "B"]) == graphs
    with pytest.warns(DataWarning, match="1 of 3 rows have no target"):
        assert load(path, target="A", skip_unlabelled=True, task="classes").rows == [0, 1]
    real = write(tmp_path / "b.csv", 'smiles,"E, 1",f\nCCO,1.5,2\nCC,-3,\nC,0.25,1e-3\n')
    with pytest.warns(DataWarning, match="3 different numbers in 'E, 1'"):
        assert load(real, target="E, 1").target_names == ("E, 1",)
    assert load(real, target='"E, 1",f').task == "values"
    classes = load(real, target="E, 1", task="classes")
    assert (classes.task, classes.classes, classes.label_column) == ("classes", ("-3", "0.25", "1.5"), "E, 1")


def test_one_and_one_point_nought_are_one_class(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "smiles,label\nCCO,1\nCC,1.0\nC,0\nCCC,+0.0\n")
    graphs = load(path)
    assert (graphs.classes, graphs.labels.tolist()) == (("0", "1"), [1, 1, 0, 0])


def test_rounded_measurements_are_not_classes() -> None:
    smiles = ["C" * (1 + k) for k in range(70)]
    for count, step in ((14, 0.5), (40, 1)):
        with pytest.warns(DataWarning, match=f"the {count} different numbers in 'target' are taken as measurements"):
            assert from_smiles(smiles, [float(k % count) * step for k in range(70)]).task == "values"
    assert from_smiles(smiles, [float(k % 10) for k in range(70)]).num_classes == 10
    with pytest.warns(DataWarning, match="the 10 whole numbers from -8 to 1 in 'target' are taken as classes"):
        assert from_smiles(smiles, [float(k % 10 - 8) for k in range(70)]).num_classes == 10


def test_duplicates_are_groups_and_contradictions_are_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "smiles,label\nCCO,1\nOCC,0\nC,0\nC(O)C,1\nCC,1\n")
    for _ in range(2):  # read, and from the cache
        with pytest.warns(
            DataWarning, match=r"2 of 5 molecules are duplicates.*; 1 with another label .* line 2 and line 3"
        ):
            graphs = load(path)
        assert graphs.groups is not None
        assert graphs.groups.tolist() == [0, 0, 2, 0, 4]
    assert from_smiles(["C", "CC"], [0, 1]).groups is None


def test_skip_unlabelled(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "smiles,label\nCCO,1\nCCCC,\nC,0\nX,1\n")
    with pytest.warns(DataWarning) as caught:
        graphs = load(path, skip_unlabelled=True, skip_invalid=True)
    assert (graphs.rows, graphs.left_out) == ([0, 2], (1, 3))
    assert "1 of 4 rows have no target, the first in line 3" in str(caught[0].message)


def test_skip_invalid(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "smiles,label\nCCO,1\nnot a molecule,0\nCC,0\n")
    for _ in range(2):  # every time, cached or not
        with pytest.warns(DataWarning, match=r"1 of 3 SMILES cannot be read, the first at 3 \('not a molecule'\)"):
            graphs = load(path, skip_invalid=True)
    assert graphs == from_smiles(["CCO", "CC"], [1, 0])
    assert (graphs.rows, graphs.left_out) == ([0, 2], (1,))
    assert graphs.to("cpu").rows == [0, 2]
    save_packed(graphs, tmp_path / "packed.safetensors")
    with pytest.warns(DataWarning, match="1 of 3 SMILES"):
        assert load(tmp_path / "packed.safetensors").rows == [0, 2]


def test_a_table_remembers_how_its_labels_were_read(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "smiles,solubility\nC,1.25\nCC,2.0\nCCC,3.0000001\n")
    for _ in range(2):  # read, and from the cache
        graphs = load(path, threshold="median")
        assert (graphs.label_column, graphs.threshold) == ("solubility", 2.0)
    with pytest.warns(DataWarning, match="3 different numbers in 'solubility' are taken as measurements"):
        assert load(path).threshold is None
    assert load(path, unlabelled=True).target_names == ()


MISTAKES = {
    "bad smiles": ("smiles,label\nCCO,1\nC(,0\n", 3, {}, "1 of 2 SMILES cannot be read.*skip_invalid=True"),
    "empty smiles": ("smiles,label\nCCO,1\n,0\n", 3, {}, "1 of 2 SMILES cannot be read"),
    "no label": ("smiles,label\nCCO,1\nCC,\n", 3, {}, "label in the column 'label' is missing.*--skip-unlabelled"),
    "one class": ("smiles,label\nCCO,1\nCC,1\n", 2, {}, "same label, 1"),
    "short line": ("smiles,label\nCCO,1\nCC\n", 3, {}, "1 instead of 2 fields"),
    "no smiles column": ("a,b\nCCO,1\nCC,0\n", 1, {}, "columns are 'a', 'b'.*smiles="),
    "no label column": ("smiles,a,b\nC,A x,x\nCC,B,z\nN,C,y\n", 1, {}, "columns are 'smiles', 'a', 'b'.*--target"),
    "unknown column": ("smiles,a\nCCO,1\nCC,0\n", 1, {"target": "z"}, "no column 'z'"),
    "same column twice": ("smiles,a,a\nCCO,1,2\n", 1, {}, "two columns have the same name"),
    "no rows": ("smiles,label\n", None, {}, "no rows"),
    "nothing": ("", None, {}, "no rows"),
    "not a number": (
        "smiles,label\nCCO,1\nCC,high\n",
        3,
        {"threshold": 1.0},
        "'high' in the column 'label' is not a number",
    ),
    "no measurement": (
        "smiles,label\nCCO,1\nCC,nan\nC,\n",
        3,
        {"threshold": "median"},
        r"the measurement in the column 'label' is missing \(in 2 of 3 rows\)",
    ),
    "words as numbers": (
        "smiles,label\nCCO,a\nCC,b\nC,c\n",
        2,
        {"task": "values"},
        "holds words.*name another column.*leave out --task and --threshold: words are classes",
    ),
    "words beside numbers": (
        "smiles,p,q,set\nC,1,0,a\nCC,0,1,b\nN,1,1,c\nO,0,0,a\nF,1,0,b\nS,1,1,c\n",
        2,
        {},
        r"such as --target p,q; else predict it by itself, as classes \(--target set\)",
    ),
    "missing, as pandas and Excel write it": ("smiles,label\nC,a\nCC,#N/A\nN,b\nO,-NaN\n", 3, {}, "in 2 of 4 rows"),
    "missing, in words": ("smiles,label\nCCO,1\nCC,None\nC,NA\n", 3, {}, "is missing.*in 2 of 3 rows"),
    "a number and a word": ("smiles,label\nCCO,1\nCC,>3\nC,2.5\n", 3, {}, "'>3' in the column 'label' is not a number"),
    "only decimal commas": ("smiles;label\nCCO;1,5\nCC;0,3\nC;2,25\n", 2, {}, "write decimals with a point"),
    "per cent": ("smiles,label\nCCO,1%\nCC,3%\nC,5%\n", 2, {}, "'1%' in the column 'label' is not a number"),
    "large labels": (f"smiles,label\nCCO,1\nCC,{2**53}\nC,{2**53 + 1}\n", 3, {"task": "classes"}, "too large to be"),
    "escape": ("smiles,label\nCCO,\x1b[31m\nCC,b\n", None, {}, r"'\\x1b\[31m' is not plain text"),
    "decimal comma": ("smiles;label\nCCO;1\nCC;0,3\nC;2\n", 3, {}, "write decimals with a point"),
    "two kinds": ("smiles,a,b\nCCO,1,2.5\nCC,0,1\n", 2, {}, r"'a' \(binary\) and 'b' \(real\)"),
    "three values": ("smiles,a,b\nC,1,1\nCC,0,0\nN,2,1\n", 4, {"task": "binary"}, "2 in the column 'a' is not 0 or 1"),
    "words, and a name of two": (
        "smiles,b c,a\nC,1.5,x\nCC,2.5,y\n",
        2,
        {},
        "'x' and 'y'.*such as --target 'b c'; else",
    ),
    "words as 0 and 1": ("smiles,a\nC,no\nCC,on\nN,no\n", 2, {"task": "binary"}, r"'no' and 'on'\), not numbers"),
    "-1 and 0": ("smiles,a\nC,0\nCC,-1\nN,0\n", 3, {"task": "binary"}, "-1 in the column 'a' is not 0 or 1"),
    "one value": ("smiles,a,b\nC,5,1\nCC,5,3\nN,5,2\n", 2, {}, "all 3 values in 'a' are 5"),
    "too fine": ("smiles,a\nC,-1e6\nCC,-1000000.01\nN,-1000000.02\n", 2, {}, "less than single precision"),
    "too small": ("smiles,a\nC,1e-50\nCC,2e-50\nN,4e-50\n", 2, {}, "less than single precision"),
    "too large": ("smiles,a\nC,1\nCC,1e300\nN,2.5\n", 3, {}, "1e\\+300 in 'a' is too large"),
    "empty column": ("smiles,a,b\nC,,1\nCC,,0\n", 2, {}, "the column 'a' has no values"),
    "two labels": (
        "smiles,a,b\nC,1,1\nCC,0,0\n",
        2,
        {"task": "classes"},
        "needs one column of labels, but there are 2",
    ),
    "split of other words": ("smiles,a,s\nC,1,train\nCC,0,x\n", 3, {"split": "s"}, "'x' is no part of a split"),
    "split without test": ("smiles,a,s\nC,1,train\nCC,0,val\n", None, {"split": "s"}, "no graphs in the part test"),
    "long smiles": (f"smiles,label\nCCO,1\n{'C' * 131_073},0\n", 3, {}, "of 131,073 characters"),
    "open quote": ('smiles,label\nCCO,1\n"CC,0\n', 3, {}, "cannot be read"),
    "null": ("smiles,label\nCCO,\0\n", None, {}, "null bytes"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_name_file_line_and_remedy(tmp_path: Path, mistake: str) -> None:
    text, line, keywords, message = MISTAKES[mistake]
    path = write(tmp_path / "t.csv", text)
    assert_refused(path, path, line, message, **keywords)


def test_lists_of_smiles_of_every_kind() -> None:
    assert from_smiles(np.array(["CCO", "CC"]), np.array([0, 1])).num_nodes == 5  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a list of SMILES"):
        from_smiles("CO", [0, 1])
    with pytest.raises(DataError, match="1 of 2 SMILES cannot be read"):
        from_smiles(["C\ud800", "C"], [0, 1])


def test_labels_that_look_alike_are_noted(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "smiles,label\nCCO,Yes\nCC,yes\nC,no\n")
    with pytest.warns(DataWarning, match="'Yes' and 'yes' in 'label' are different classes, though they look alike"):
        assert load(path).classes == ("Yes", "no", "yes")


def test_files_of_other_encodings_and_damaged_ones(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("smiles,label\nCCO,gut\nCC,schön\n".encode("latin-1"))
    assert_refused(path, path, 3, "not UTF-8.*save it as UTF-8")
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1 nothing PAR1")
    assert_refused(path, path, None, "cannot be read")
    path = tmp_path / "absent.csv"
    assert_refused(path, path, None, "no such file")


def test_words_taken_for_classes(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "smiles,label\n" + "".join(f"{'C' * k},word {k}\n" for k in range(1, 61)))
    with pytest.raises(DataError, match=r"60 different values for 60 graphs.*--target"):
        load(path)
    assert load(path, task="classes").num_classes == 60


def test_lists_of_different_lengths() -> None:
    with pytest.raises(DataError, match="2 graphs and 1 labels"):
        from_smiles(["C", "CC"], [1])
    with pytest.raises(DataError, match="there are no molecules"):
        from_smiles([], [])


def test_a_table_without_labels(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("name,kind,smiles\na,A x,CCO\nb,B x,CC\nc,C x,C\n")
    with pytest.raises(DataError, match="not clear which columns are the targets"):
        load(path)
    graphs = load(path, unlabelled=True)
    assert graphs.classes == ("unknown",)
    assert graphs.labels.tolist() == [0, 0, 0]
    path.write_text("name,smiles,label\na,CCO,x\nb,CC,y\n")
    assert load(path, unlabelled=True).classes == ("x", "y")
    with pytest.raises(DataError, match="no column 'z'"):
        load(path, target="z", unlabelled=True)
