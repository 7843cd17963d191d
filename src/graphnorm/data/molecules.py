"""Molecules written as SMILES: tables of the user, and the one that ships with RDKit.

Atoms and bonds get OGB's nine and three categorical features, computed with RDKit.
"""

from __future__ import annotations

import csv
import io
import statistics
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm.data.archive import Place, decoding
from graphnorm.data.build import RawGraphs, by_graph, join_edges, pack
from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import DataError, DataWarning, need

__all__ = [
    "ATOM_FEATURES",
    "BOND_FEATURES",
    "TABLE_SUFFIXES",
    "UNKNOWN",
    "Table",
    "are_molecules",
    "cardinalities",
    "find_smiles_column",
    "from_smiles",
    "molecules",
    "read_smiles",
    "read_table",
    "to_rdkit",
]

UNKNOWN = "unknown"
"""The only class of graphs without labels."""
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
SMILES_COLUMNS = ("smiles", "smi", "canonical_smiles", "molecule", "mol")
LABEL_COLUMNS = ("label", "labels", "class", "y", "target", "active", "activity")
Threshold = float | Literal["median"] | None

MISC = "misc"
Vocabulary = dict[str, tuple[int | bool | str, ...]]
ATOM_FEATURES: Vocabulary = {
    "atomic number": (*range(1, 119), MISC),
    "chirality": ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER", MISC),
    "degree": (*range(11), MISC),
    "formal charge": (*range(-5, 6), MISC),
    "hydrogens": (*range(9), MISC),
    "radical electrons": (*range(5), MISC),
    "hybridization": ("SP", "SP2", "SP3", "SP3D", "SP3D2", MISC),
    "aromatic": (False, True),
    "in a ring": (False, True),
}
"""OGB's atom features. The category is the index in the list; a value that is not in the list has the last one."""
BOND_FEATURES: Vocabulary = {
    "type": ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC", MISC),
    "stereo": ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY"),
    "conjugated": (False, True),
}


def cardinalities(vocabulary: Vocabulary) -> tuple[int, ...]:
    """The number of values of each feature.

    >>> cardinalities(BOND_FEATURES)
    (5, 6, 2)
    """
    return tuple(len(values) for values in vocabulary.values())


def read_smiles(
    path: Path,
    *,
    smiles: str | None = None,
    label: str | None = None,
    threshold: Threshold = None,
    skip_invalid: bool = False,
    unlabelled: bool = False,
) -> PackedGraphs:
    """Read a CSV, TSV or Parquet table with a column of SMILES and a column of labels.

    smiles, label: names of the columns. By default the usual names are searched for.
    threshold: the labels are measurements, and the classes are "above" the threshold and "not above". ``"median"``
        makes the classes equally large.
    skip_invalid: leave out molecules that RDKit cannot read, with a :class:`DataWarning`, instead of an error.
    unlabelled: also accept a table whose label column is absent or not filled in everywhere. All molecules then have
        the class ``"unknown"``. Also accept labels that are all the same.
    """
    columns, lines = read_table(path)
    smiles_column = find_smiles_column(columns, smiles, path)
    others = [name for name in columns if name != smiles_column]
    label_column = None
    if not unlabelled or label is not None or any(name.strip().casefold() in LABEL_COLUMNS for name in others):
        label_column = _find_column(others, label, LABEL_COLUMNS, "label", path)
    labels = [""] if label_column is None else [value.strip() for value in columns[label_column]]
    if not all(labels):
        if not unlabelled:
            raise DataError(
                f"the molecule has no value in the column {label_column!r}",
                where=path,
                line=lines[labels.index("")],
                remedy="fill it in, or remove the line",
            )
        labels, threshold = [UNKNOWN] * len(lines), None
    graphs = _pack(
        path.stem,
        [text.strip() for text in columns[smiles_column]],
        labels,
        lambda g: {"where": str(path), "line": lines[g]},
        threshold,
        skip_invalid,
        one_class=unlabelled,
    )
    return replace(graphs, label_column=label_column or "")


def from_smiles(
    smiles: Sequence[str],
    labels: Sequence[int | str | float],
    *,
    name: str = "smiles",
    threshold: Threshold = None,
    skip_invalid: bool = False,
) -> PackedGraphs:
    """Pack a list of SMILES; see :func:`read_smiles` for the options."""
    if len(smiles) != len(labels):
        raise DataError(f"there are {len(smiles)} molecules and {len(labels)} labels", remedy="give one label each")
    texts = [str(label) for label in labels]
    return _pack(name, smiles, texts, lambda g: {"where": f"molecule {g}"}, threshold, skip_invalid)


def molecules() -> PackedGraphs:
    """1,017 molecules with measured activities (CHEMBL2321810) that ship with RDKit.

    The classes are "above the median activity" and "not above", with 508 and 509 molecules.
    """
    folder = Path(need("rdkit.RDConfig", "reading molecules", "chem").RDContribDir) / "FreeWilson" / "data"
    table, activities = folder / "CHEMBL2321810.smi", folder / "CHEMBL2321810_act.csv"
    for path in (table, activities):
        if not path.exists():
            raise DataError(
                "this RDKit comes without its Contrib data",
                where=path,
                remedy="install RDKit from PyPI: pip install rdkit",
            )
    by_name = dict(line.split(",") for line in activities.read_text().splitlines()[1:])
    rows = [line.split() for line in table.read_text().splitlines()]
    smiles, labels = [smiles for smiles, _ in rows], [by_name[name] for _, name in rows]
    return _pack("molecules", smiles, labels, lambda g: {"where": str(table), "line": g + 1}, "median", False)


def _pack(
    name: str,
    smiles: Sequence[str],
    labels: Sequence[str],
    place: Callable[[int], Place],
    threshold: Threshold,
    skip_invalid: bool,
    *,
    one_class: bool = False,
) -> PackedGraphs:
    chem = need("rdkit.Chem", "reading molecules", "chem")
    with need("rdkit.rdBase", "reading molecules", "chem").BlockLogs():  # our error says it all
        parsed = [chem.MolFromSmiles(text) if text else None for text in smiles]
    invalid = [g for g, molecule in enumerate(parsed) if molecule is None or molecule.GetNumAtoms() == 0]
    if invalid:
        some = ", ".join(f"{place(g).get('line', g)} ({smiles[g][:30]!r})" for g in invalid[:5])
        problem = f"{len(invalid)} of {len(smiles)} SMILES cannot be read, the first at {some}"
        if not skip_invalid or len(invalid) == len(smiles):
            raise DataError(
                problem,
                **place(invalid[0]),
                remedy="correct them, or load with skip_invalid=True (--skip-invalid) to leave them out",
            )
        warnings.warn(f"{place(invalid[0])['where']}: {problem}; left out", DataWarning, stacklevel=4)
    left_out = set(invalid)
    kept = [g for g in range(len(smiles)) if g not in left_out]

    def place_kept(g: int) -> Place:
        return place(kept[g])

    classes, numbers, cut = _classes([labels[g] for g in kept], threshold, place_kept, one_class)
    atoms, bonds, bond_tags = zip(*(_featurize(parsed[g]) for g in kept), strict=True)
    sizes = np.array([len(tags) for tags in atoms])
    ends = join_edges(bonds, sizes)
    raw = RawGraphs(
        name=name,
        locate=by_graph(place_kept, sizes, ends[:, 0]),
        sizes=sizes,
        row=ends[:, 0],
        col=ends[:, 1],
        labels=np.array(numbers),
        classes=classes,
        tags=np.concatenate(atoms),
        cardinalities=cardinalities(ATOM_FEATURES),
        edge_tags=np.concatenate(bond_tags),
        edge_cardinalities=cardinalities(BOND_FEATURES),
        source=place(0)["where"],
    )
    return replace(pack(raw), threshold=cut, left_out=tuple(invalid))


def _classes(
    labels: Sequence[str], threshold: Threshold, place: Callable[[int], Place], one_class: bool
) -> tuple[tuple[str, ...], list[int], float | None]:
    """Names of the classes, the class of each label, and the threshold as a number."""
    cut = None
    if threshold is not None:
        if threshold != "median" and not isinstance(threshold, (int, float)):
            raise DataError(f"the threshold is {threshold!r}", remedy='give a number, or "median"')
        values = []
        for g, label in enumerate(labels):
            try:
                values.append(float(label))
            except ValueError:
                values.append(float("nan"))
            if not np.isfinite(values[-1]):
                problem = f"the measurement {label!r} is not a finite number"
                raise DataError(problem, **place(g), remedy="correct or remove the line")
        cut = statistics.median(values) if threshold == "median" else float(threshold)
        names: tuple[str, ...] = (f"not above {cut:g}", f"above {cut:g}")
        numbers = [int(value > cut) for value in values]
    else:
        names = tuple(sorted(set(labels), key=_by_value))
        if len(names) > 50 and len(names) > len(labels) / 4:
            raise DataError(
                f"the labels have {len(names)} different values for {len(labels)} molecules",
                **place(0),
                remedy='if they are measurements, split them: threshold="median" (--threshold median)',
            )
        index = {value: k for k, value in enumerate(names)}
        numbers = [index[label] for label in labels]
    if len(set(numbers)) < 2 and not one_class:
        raise DataError(
            f"all {len(labels)} molecules have the same label, {names[numbers[0]]}",
            **place(0),
            remedy="classification needs at least two classes; check the label column or the threshold",
        )
    return names, numbers, cut


def _by_value(label: str) -> tuple[int, float, str]:
    """Sort numbers by value, and before words."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label


Index = dict[Any, int]
_ATOM_INDICES: list[Index] = [{value: k for k, value in enumerate(values)} for values in ATOM_FEATURES.values()]
_BOND_INDICES: list[Index] = [{value: k for k, value in enumerate(values)} for values in BOND_FEATURES.values()]


def _categories(values: Sequence[Any], indices: Sequence[Index]) -> list[int]:
    return [index.get(value, len(index) - 1) for index, value in zip(indices, values, strict=True)]


def _featurize(molecule: Any) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int64], npt.NDArray[np.int16]]:
    """(n, 9) atom features, (2m, 2) edges in both directions, (2m, 3) bond features."""
    atoms = [
        _categories(
            (
                atom.GetAtomicNum(),
                atom.GetChiralTag().name,
                atom.GetTotalDegree(),
                atom.GetFormalCharge(),
                atom.GetTotalNumHs(),
                atom.GetNumRadicalElectrons(),
                atom.GetHybridization().name,
                atom.GetIsAromatic(),
                atom.IsInRing(),
            ),
            _ATOM_INDICES,
        )
        for atom in molecule.GetAtoms()
    ]
    ends, tags = [], []
    for bond in molecule.GetBonds():
        pair = (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())
        values = (bond.GetBondType().name, bond.GetStereo().name, bond.GetIsConjugated())
        ends += [pair, pair[::-1]]
        tags += [_categories(values, _BOND_INDICES)] * 2
    return (
        np.array(atoms, np.int16),
        np.array(ends, np.int64).reshape(-1, 2),
        np.array(tags, np.int16).reshape(-1, len(BOND_FEATURES)),
    )


def are_molecules(graphs: PackedGraphs) -> bool:
    """Whether nodes and edges have OGB's features of atoms and bonds."""
    return graphs.cardinalities == cardinalities(ATOM_FEATURES) and graphs.edge_cardinalities == cardinalities(
        BOND_FEATURES
    )


def to_rdkit(graphs: PackedGraphs, graph_id: int) -> Any:
    """A molecule of RDKit with two-dimensional coordinates, from the features of atoms and bonds.

    Chirality is not known: OGB's feature depends on the order of the neighbours in the source.
    """
    chemistry = need("rdkit.Chem", "molecules", "chem")
    drawing = need("rdkit.Chem.Draw.rdMolDraw2D", "molecules", "chem")
    assert graphs.tags is not None and graphs.edge_tags is not None
    first, last = graphs.node_ptr[graph_id : graph_id + 2].tolist()
    molecule = chemistry.RWMol()
    for number, _, _, charge, hydrogens, radicals, _, aromatic, _ in graphs.tags[first:last].tolist():
        atom = chemistry.Atom(number + 1 if number < 118 else 0)
        atom.SetFormalCharge(charge - 5)
        atom.SetNumExplicitHs(hydrogens)
        atom.SetNumRadicalElectrons(radicals)
        atom.SetNoImplicit(True)
        atom.SetIsAromatic(bool(aromatic))
        molecule.AddAtom(atom)
    for node in range(first, last):
        start, end = graphs.rowptr[node : node + 2].tolist()
        for neighbour, (kind, *_) in zip(
            graphs.col[start:end].tolist(), graphs.edge_tags[start:end].tolist(), strict=True
        ):
            if neighbour < node - first:
                name = BOND_FEATURES["type"][kind]
                molecule.AddBond(neighbour, node - first, chemistry.BondType.names.get(name, chemistry.BondType.ZERO))
    try:
        return drawing.PrepareMolForDrawing(molecule, addChiralHs=False)
    except ValueError:  # of aromatic rings that have no Kekulé structure
        return drawing.PrepareMolForDrawing(molecule, kekulize=False, addChiralHs=False)


class Table(NamedTuple):
    """A table of text."""

    columns: dict[str, list[str]]
    """Columns by name, all of one length. A missing value is an empty text."""
    lines: list[int]
    """The line of each row in its file; for Parquet the row itself, from 1."""


def read_table(path: Path) -> Table:
    """Read a CSV, TSV or Parquet file with a header."""
    if not path.is_file():
        raise DataError("there is no such file", where=path, remedy="check the path")
    table = _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
    if not table.lines:
        raise DataError("the table has no rows", where=path, remedy="give a header and one row for each graph")
    return table


def _read_parquet(path: Path) -> Table:
    parquet = need("pyarrow.parquet", "reading Parquet", "chem")
    with decoding(path):
        table = parquet.read_table(path)
        columns = {
            name: ["" if value is None else str(value) for value in table[name].to_pylist()]
            for name in table.column_names
        }
    return Table(columns, list(range(1, table.num_rows + 1)))


def _read_csv(path: Path) -> Table:
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        problem = f"the text is not UTF-8: {error.reason}"
        raise DataError(problem, where=path, line=line, remedy="save it as UTF-8") from error
    if "\0" in text:
        raise DataError("the text has null bytes: it is binary or UTF-16", where=path, remedy="save it as UTF-8")
    delimiter = "\t" if path.suffix == ".tsv" else max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        problem = f"the table cannot be read: {error}"
        raise DataError(problem, where=path, line=reader.line_num, remedy="correct the quotes") from error
    header = rows[0][1] if rows else []
    if len(set(header)) != len(header):
        raise DataError("two columns have the same name", where=path, line=1, remedy="rename one")
    for line, row in rows:
        if len(row) != len(header):
            problem = f"the line has {len(row)} instead of {len(header)} fields"
            raise DataError(problem, where=path, line=line, remedy="complete or correct the line")
    del rows[:1]
    return Table({name: [row[k] for _, row in rows] for k, name in enumerate(header)}, [line for line, _ in rows])


def find_smiles_column(columns: Collection[str], wanted: str | None, path: Path) -> str:
    """The column of SMILES: the wanted one, or one with a usual name."""
    return _find_column(columns, wanted, SMILES_COLUMNS, "smiles", path)


def _find_column(
    columns: Collection[str], wanted: str | None, usual: Collection[str], option: Literal["smiles", "label"], path: Path
) -> str:
    if wanted is not None:
        found = [name for name in columns if name == wanted]
    else:
        found = [name for name in columns if name.strip().casefold() in usual]
        found = found or (list(columns) if len(columns) == 1 else [])
    if len(found) == 1:
        return found[0]
    what = {"smiles": "SMILES", "label": "labels"}[option]
    problem = f"there is no column {wanted!r}" if wanted is not None else f"it is not clear which column has the {what}"
    raise DataError(
        f"{problem}; the columns are {', '.join(map(repr, columns))}",
        where=path,
        line=1,
        remedy=f'name it: {option}="..." (--{option})',
    )
