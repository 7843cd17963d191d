"""The datasets that graphnorm knows by name, and all facts about them."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from graphnorm.errors import UnknownDatasetError, listing
from graphnorm.settings import TaskName

__all__ = ["CATALOG", "Counts", "Entry", "FeatureRule", "PaperStatistics", "find"]

FeatureRule = Literal["auto", "labels", "degree", "constant"]
"""The rule for the node features of a dataset.

``labels``: the categorical node labels of the source. ``degree``: the index of the node's degree among the sorted
distinct degrees of the dataset, without self-loops. ``constant``: one feature that is the same everywhere. ``auto``:
all node features of the source, or ``degree`` if it has none.
"""

TU_SITE = "https://www.chrsmrrs.com/graphkerneldatasets"
DEEPCHEM = "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets"
QM8 = tuple(f"{part}-{method}" for method in ("CC2", "PBE0", "CAM") for part in ("E1", "E2", "f1", "f2"))


class PaperStatistics(NamedTuple):
    """A column of the paper's dataset table, as printed."""

    num_graphs: int
    num_classes: int
    avg_nodes: float
    avg_edges: float
    avg_degree: float


class Counts(NamedTuple):
    """The size of every copy of a dataset. Edges are directed and without self-loops."""

    num_graphs: int
    num_nodes: int
    num_edges: int


class TableFacts(NamedTuple):
    """The size and the targets of a table of molecules. Copies differ in names of columns, and by a few rows."""

    rows: int
    num_targets: int
    targets: tuple[str, ...] = ()
    """The columns of the targets, in all their spellings; empty if all columns of numbers are targets."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One dataset of the catalogue."""

    name: str
    about: str
    format: Literal["tu", "ogb", "smiles", "images", "molecules", "synthetic"]
    task: TaskName = "classes"
    split: Literal["scaffold"] | None = None
    """The split of most papers; None for folds at random, or for the official split."""
    table: TableFacts | None = None
    aliases: tuple[str, ...] = ()
    url: str | None = None
    """Address of the official file; None if there is none, or nothing has to be downloaded."""
    sha256: str | None = None
    """Checksum of the file at ``url``, if it is known."""
    copy_sha256: str | None = None
    """Checksum of a known copy with the same graphs."""
    files: tuple[str, ...] = ()
    """Names that its archive or folder may have in a data folder, the preferred one first."""
    max_bytes: int = 1 << 30
    """A larger download is refused."""
    features: FeatureRule = "auto"
    readout: Literal["sum", "mean"] = "mean"
    metric: str = ""
    """The metric that the field uses for it, if it is not the default of its task."""
    counts: Counts | None = None
    paper: PaperStatistics | None = None
    note: str = ""
    """A remark about the numbers of this dataset."""
    where_else: str = ""
    """Where to get a dataset that has no ``url``."""


def _molecules(name: str, about: str, file: str, table: TableFacts, **facts: Any) -> Entry:
    """A table of MoleculeNet; ``file`` is its name at DeepChem, from where the field downloads it."""
    stems = (name, *facts.get("aliases", ()), file.partition(".")[0])
    files = [f"{stem}{suffix}" for stem in stems for suffix in (".csv.gz", ".csv")]
    defaults: dict[str, Any] = {"url": f"{DEEPCHEM}/{file}", "split": "scaffold", "max_bytes": 1 << 26}
    facts = defaults | facts
    return Entry(name=name, about=about, format="smiles", table=table, files=tuple(dict.fromkeys(files)), **facts)


def _tu(name: str, about: str, **facts: object) -> Entry:
    defaults: dict[str, object] = {"url": f"{TU_SITE}/{name}.zip", "files": (f"{name}.zip", name)}
    return Entry(name=name, about=about, format="tu", **(defaults | facts))  # type: ignore[arg-type]


_ENTRIES = (
    _tu(
        "MUTAG",
        "nitroaromatic compounds, mutagenic or not",
        features="labels",
        readout="sum",
        counts=Counts(188, 3371, 7442),
        paper=PaperStatistics(188, 2, 17.9, 57.5, 3.2),
        copy_sha256="538276bc020db32c92a45a8f7adbf420930705a89a6522cf466dd405550b469d",
    ),
    _tu(
        "PTC",
        "carcinogenicity of compounds for male rats, hydrogens written out (the paper's PTC)",
        url=None,
        where_else="The paper's PTC (344 graphs with hydrogens, 25.56 nodes, 19 labels) is not on the TU site; GIN and "
        "DGCNN ship it with their code. The TU site has PTC_MR, ANOTHER dataset (no hydrogens, 14.29 nodes, 18 labels) "
        "with other results; ask for PTC_MR by its name if you mean it",
        features="labels",
        readout="sum",
        counts=Counts(344, 8792, 17862),
        paper=PaperStatistics(344, 2, 25.5, 72.5, 3.0),
        copy_sha256="cfffc7432c8d3f0d928f756381f3bdcbc1af45e7e538e77801c0133e33f281bb",
        note="The paper's 72.5 edges do not follow from its own counting rule, which gives 77.5 here.",
    ),
    _tu(
        "PTC_MR",
        "the same compounds without hydrogens, as the TU site has them (not the paper's PTC)",
        features="labels",
        readout="sum",
        counts=Counts(344, 4915, 10108),
        copy_sha256="d94594b29c30236f37ad1df970954dcdd5938c3f572abb27baa303d400234925",
        note="NOT the PTC of the paper: no hydrogens, other node labels, another order of graphs.",
    ),
    _tu(
        "PROTEINS",
        "proteins as graphs of secondary structure, enzymes or not",
        features="labels",
        readout="sum",
        counts=Counts(1113, 43471, 162088),
        paper=PaperStatistics(1113, 2, 39.1, 184.7, 4.7),
        copy_sha256="8289c1f08e1c68ef308290ce832c37a59f5ade8a771c8ac81320e7ecb579fd62",
    ),
    _tu(
        "NCI1",
        "compounds screened against lung cancer cells",
        features="labels",
        readout="sum",
        counts=Counts(4110, 122747, 265506),
        paper=PaperStatistics(4110, 2, 29.8, 94.5, 3.1),
        copy_sha256="1b178730c63c519c78747c6a68f591333853fb1bdd6f09d68b2217a2cc43bbad",
    ),
    _tu(
        "IMDB-BINARY",
        "ego networks of actors, action or romance",
        aliases=("IMDB-B", "IMDBBINARY", "IMDB"),
        features="degree",
        counts=Counts(1000, 19773, 193062),
        paper=PaperStatistics(1000, 2, 19.8, 212.8, 10.7),
        copy_sha256="8fbefd25c05e9eeef2d4c714b614f2627e75b6fd582bd5cb98bba2d476d02c7a",
    ),
    _tu(
        "REDDIT-BINARY",
        "discussion threads, question-and-answer or discussion",
        aliases=("RDT-B", "REDDIT-B", "REDDITBINARY", "RDT"),
        features="constant",
        counts=Counts(2000, 859254, 1991016),
        paper=PaperStatistics(2000, 2, 429.6, 1425.1, 3.3),
        copy_sha256="966d044ac1ff91b09676afc88a5f230f62449329726e67cddcdd008655e9db2f",
    ),
    _tu(
        "COLLAB",
        "ego networks of researchers, by field of physics",
        features="degree",
        counts=Counts(5000, 372474, 24572158),
        paper=PaperStatistics(5000, 2, 74.5, 4989.5, 66.9),
        copy_sha256="7c2eb6314367e34a898762b777a4b4e844a539801000cb36df5dcb9c172c4524",
        note="Three classes; the paper's table says two. Its edges count the source's 2,837 self-loops.",
    ),
    Entry(
        name="ogbg-molhiv",
        about="compounds that inhibit HIV replication or not, with a scaffold split",
        format="ogb",
        aliases=("molhiv", "ogbgmolhiv"),
        url="http://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/hiv.zip",
        files=("ogbg_molhiv.zip", "ogbg_molhiv", "ogbg-molhiv", "hiv.zip", "hiv"),
        copy_sha256="41c6a1f70a0e23eda1138c423389e7c5b45a357baf104f27d8f54b10c178c857",
        counts=Counts(41127, 1049163, 2259376),
        paper=PaperStatistics(41127, 2, 25.5, 27.5, 2.1),
        note="The paper's 27.5 edges are undirected and without self-loops, unlike its other columns.",
    ),
    _molecules("tox21", "toxicity in 12 assays", "tox21.csv.gz", TableFacts(7831, 12), task="binary", metric="roc-auc"),
    _molecules(
        "toxcast",
        "toxicity in 617 assays",
        "toxcast_data.csv.gz",
        TableFacts(8576, 617),
        task="binary",
        metric="roc-auc",
    ),
    _molecules(
        "sider",
        "27 kinds of side effects of drugs",
        "sider.csv.gz",
        TableFacts(1427, 27),
        task="binary",
        metric="roc-auc",
    ),
    _molecules(
        "clintox",
        "drugs approved, and drugs that failed for toxicity",
        "clintox.csv.gz",
        TableFacts(1478, 2),
        task="binary",
        metric="roc-auc",
    ),
    _molecules(
        "muv",
        "17 virtual screens with few hits",
        "muv.csv.gz",
        TableFacts(93087, 17),
        task="binary",
        metric="average-precision",
    ),
    _molecules(
        "bace", "inhibitors of beta-secretase 1 or not", "bace.csv", TableFacts(1513, 1, ("Class",)), metric="roc-auc"
    ),
    _molecules(
        "bbbp",
        "penetration of the blood-brain barrier or not",
        "BBBP.csv",
        TableFacts(2039, 1, ("p_np",)),
        metric="roc-auc",
    ),
    _molecules(
        "hiv",
        "compounds that inhibit HIV replication or not",
        "HIV.csv",
        TableFacts(41127, 1, ("HIV_active",)),
        metric="roc-auc",
        note="The molecules of ogbg-molhiv, with features by your RDKit, which rejects a few.",
    ),
    _molecules(
        "esol",
        "solubility in water",
        "delaney-processed.csv",
        TableFacts(1128, 1, ("logSolubility", "measured log solubility in mols per litre")),
        aliases=("delaney",),
        task="values",
        metric="rmse",
    ),
    _molecules(
        "freesolv",
        "free energy of hydration",
        "SAMPL.csv",
        TableFacts(642, 1, ("freesolv", "expt")),
        task="values",
        metric="rmse",
    ),
    _molecules(
        "lipo",
        "octanol/water distribution coefficient",
        "Lipophilicity.csv",
        TableFacts(4200, 1, ("lipo", "exp")),
        aliases=("lipophilicity",),
        task="values",
        metric="rmse",
    ),
    _molecules(
        "qm7",
        "atomization energy",
        "qm7.csv",
        TableFacts(6830, 1, ("u0_atom",)),
        task="values",
        metric="mae",
        split=None,
    ),
    _molecules(
        "qm8",
        "excitations by three methods",
        "qm8.csv",
        TableFacts(21786, 12, QM8),
        task="values",
        metric="mae",
        split=None,
    ),
    Entry(
        name="CIFAR-10",
        about="images, for the comparison of batch noise only",
        format="images",
        aliases=("cifar10", "cifar"),
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        copy_sha256="79dc3db9fb2b671e632a65307618b117ad7d2a315c023cdd4eaa529770a2ad32",
        files=("cifar-10-python.tar.gz", "cifar-10-batches-py", "cifar10.npz"),
        note="cifar10.npz holds JPEGs: good for feature statistics, not for quoting an accuracy.",
    ),
    Entry(
        name="molecules",
        about="1,017 ChEMBL molecules inside the RDKit package, activity above or below the median",
        format="molecules",
        aliases=("chembl", "CHEMBL2321810"),
    ),
    Entry(
        name="synthetic:regular",
        about="regular graphs whose degree is the class: InstanceNorm cannot tell them apart",
        format="synthetic",
        aliases=("regular",),
        features="degree",
    ),
    Entry(
        name="synthetic:cliques",
        about="a hub in a few large or many small cliques, like ego networks",
        format="synthetic",
        aliases=("cliques",),
        features="degree",
    ),
    Entry(
        name="synthetic:trees",
        about="trees grown evenly or around hubs, like discussion threads",
        format="synthetic",
        aliases=("trees",),
        features="constant",
    ),
)

CATALOG: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


_BY_PLAIN_NAME = {_plain(name): entry for entry in _ENTRIES for name in (entry.name, *entry.aliases)}


def find(name: str) -> Entry:
    """The entry of a name, in any spelling.

    >>> find("imdb_b").name, find("RDT-B").name, find("ptc-mr").name, find("PTC").name
    ('IMDB-BINARY', 'REDDIT-BINARY', 'PTC_MR', 'PTC')
    """
    entry = _BY_PLAIN_NAME.get(_plain(name))
    if entry is None:
        close = difflib.get_close_matches(_plain(name), _BY_PLAIN_NAME, n=3, cutoff=0.75)
        known = list(dict.fromkeys(_BY_PLAIN_NAME[c].name for c in close))
        raise UnknownDatasetError(
            f"there is no dataset {name!r}, and no such file or folder"
            + (f"; did you mean {listing(known, 'or')}?" if known else ""),
            remedy="see `graphnorm datasets`, or give the path of your own graphs, such as the zip of a TU dataset",
        )
    return entry
