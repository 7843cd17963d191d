"""Names of datasets, and the facts about them."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from graphnorm.data import CATALOG, DataError, DataWarning, DownloadError, UnknownDatasetError, find, load


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("MUTAG", "MUTAG"),
        ("mutag", "MUTAG"),
        ("PTC", "PTC"),
        ("PTC_MR", "PTC_MR"),
        ("ptc-mr", "PTC_MR"),
        ("IMDB-B", "IMDB-BINARY"),
        ("imdbbinary", "IMDB-BINARY"),
        ("RDT-B", "REDDIT-BINARY"),
        ("Reddit Binary", "REDDIT-BINARY"),
        ("ogbg_molhiv", "ogbg-molhiv"),
        ("molhiv", "ogbg-molhiv"),
        ("CIFAR10", "CIFAR-10"),
        ("regular", "synthetic:regular"),
    ],
)
def test_names_in_any_spelling(written: str, meant: str) -> None:
    assert find(written).name == meant


def test_the_papers_eight_datasets_have_all_facts() -> None:
    paper = [entry for entry in CATALOG.values() if entry.paper]
    assert len(paper) == 8
    for entry in paper:
        assert entry.counts is not None
        assert entry.paper is not None
        assert entry.counts.num_graphs == entry.paper.num_graphs
        assert entry.copy_sha256 is not None
    assert {e.name for e in paper if e.readout == "sum"} == {"MUTAG", "PTC", "PROTEINS", "NCI1"}


def test_a_name_that_is_like_no_other() -> None:
    for name in ("qqqqqqqq", "ENZYMES"):  # which is not "did you mean synthetic:trees"
        with pytest.raises(UnknownDatasetError, match=r"no such file or folder\. .*the zip of a TU dataset"):
            load(name)


def test_tables_of_moleculenet() -> None:
    metrics = {"classes": {"roc-auc"}, "binary": {"roc-auc", "average-precision"}, "values": {"rmse", "mae"}}
    tables = {name: entry for name, entry in CATALOG.items() if entry.table}
    assert len(tables) == 13
    for name, entry in tables.items():
        assert entry.url is not None
        assert f"{name}.csv.gz" in entry.files
        assert entry.metric in metrics[entry.task]
    assert find("ESOL").files[:4] == ("esol.csv.gz", "esol.csv", "delaney.csv.gz", "delaney.csv")
    assert find("hiv").name == "hiv"


@pytest.mark.parametrize(
    ("name", "facts", "note"),
    [
        ("bbbp", (2039, "classes", 0), "64 of 2,039 molecules are duplicates.*10 with another label"),
        ("esol", (1128, "values", 1), "duplicates"),
        ("tox21", (7823, "binary", 12), "8 of 7831 SMILES cannot be read"),
    ],
)
def test_molecules_of_moleculenet(archives: Path, name: str, facts: tuple[int, str, int], note: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        graphs = load(name, archives)
    assert (graphs.num_graphs, graphs.task, len(graphs.target_names)) == facts
    assert re.search(note, " ".join(str(warning.message) for warning in caught))
    sizes = {part: len(ids) for part, ids in graphs.splits.items()}
    assert sum(sizes.values()) == graphs.num_graphs
    assert abs(sizes["train"] - 0.8 * graphs.num_graphs) < 0.01 * graphs.num_graphs


def test_another_table_under_a_known_name_is_refused(archives: Path, tmp_path: Path) -> None:
    (tmp_path / "freesolv.csv.gz").write_bytes((archives / "moleculenet" / "bace.csv.gz").read_bytes())
    with pytest.raises(DataError, match=r"is not a number|this is not freesolv"):
        load("freesolv", tmp_path)
    with pytest.raises(DownloadError, match=r"put lipo\.csv\.gz into a folder"):
        load("lipo", tmp_path, download=False)
