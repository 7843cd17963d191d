"""Molecules written as SMILES: tables of the user, and the one that ships with RDKit.

Atoms and bonds get OGB's nine and three categorical features, computed with RDKit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm.data.archive import Integers, Place
from graphnorm.data.build import RawGraphs, by_graph, join_edges, pack
from graphnorm.data.packed import UNKNOWN, PackedGraphs, announce
from graphnorm.data.splits import WORDS, notes_on_split, scaffold_split, split_by_words
from graphnorm.data.table import TARGET_COLUMNS, InputTable, listed, named_columns, one_column
from graphnorm.data.targets import MISSING, NUMBER, Targets, Threshold, as_columns, find_targets, missing_rows
from graphnorm.errors import DataError, need, require
from graphnorm.settings import TaskName

__all__ = [
    "ATOM_FEATURES",
    "BOND_FEATURES",
    "are_molecules",
    "cardinalities",
    "find_smiles_column",
    "from_smiles",
    "from_table",
    "molecules",
    "to_rdkit",
]

SMILES_COLUMNS = ("smiles", "smi", "canonical_smiles", "molecule", "mol")
LONGEST = 3_000
"""The longest SMILES that is given to RDKit, whose parser is recursive and whose canonical order is slow."""
MANY = 5_000
"""Reading more molecules shows its progress."""

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


def from_table(
    table: InputTable,
    name: str,
    where: str,
    *,
    smiles: str | None = None,
    target: str | Sequence[str] | None = None,
    task: TaskName | None = None,
    threshold: Threshold = None,
    split: str | None = None,
    skip_invalid: bool = False,
    skip_unlabelled: bool = False,
    unlabelled: bool = False,
) -> PackedGraphs:
    """Pack the molecules of a table with a column of SMILES and columns of targets.

    smiles, target: names of the columns, several targets as ``"A,B"`` or a list. By default the usual names are
        searched for; without a usual name, all other columns are targets.
    task: ``"classes"``, ``"binary"`` or ``"values"``, if the guess of :mod:`~graphnorm.data.targets` is not what is
        meant.
    threshold: the labels are measurements, and the classes are "above" the threshold and "not above". ``"median"``
        makes the classes equally large.
    split: ``"scaffold"``, see :func:`~graphnorm.data.splits.scaffold_split`; a column of the words train, valid and
        test; or ``"random"``, which gives no parts, as None does, but expects no column of them.
    skip_invalid: leave out molecules that RDKit cannot read, with a :class:`DataWarning`, instead of an error.
    skip_unlabelled: leave out rows without any target, with a :class:`DataWarning`.
    unlabelled: also accept a table whose targets are absent or not filled in everywhere, or labels that are all the
        same. Without labels all molecules have the class ``"unknown"``.
    """
    columns, lines = table

    def place(row: int) -> Place:
        return {"where": where, "line": lines[row]}

    smiles_column = find_smiles_column(columns, smiles, where)
    others = [column for column in columns if column != smiles_column]
    notes: tuple[str, ...] = ()
    split_column = None
    if split not in (None, "scaffold", "random"):
        split_column = one_column(others, split, "split", where)
    parts = [column for column in others if _looks_like_parts(columns[column])]
    names = () if target is None else named_columns(others, target, where)
    if not names:
        rest = [column for column in others if column != split_column and column not in parts]
        names, notes = _target_columns(columns, rest, where, unlabelled)
    if split is None and parts and not unlabelled:
        notes += (f"the column {parts[0]!r} looks like a split, but is not used; --split {parts[0]} uses it",)
    targets: dict[str, Any] = {column: columns[column] for column in names}
    drop = missing_rows(targets) if skip_unlabelled else []
    if drop:
        notes += (f"{len(drop)} of {len(lines)} rows have no target, the first in line {lines[drop[0]]}; left out",)
    graphs = _pack(
        name,
        [text.strip() if isinstance(text, str) else "" for text in columns[smiles_column]],
        targets,
        place,
        task=task,
        threshold=threshold,
        skip_invalid=skip_invalid,
        unlabelled=unlabelled,
        drop=drop,
        scaffolds=split == "scaffold",
        parts=None if split_column is None else columns[split_column],
        notes=notes,
    )
    label_column = names[0] if graphs.task == "classes" and names else ""
    return replace(graphs, smiles_column=smiles_column, label_column=label_column)


def from_smiles(
    smiles: Sequence[str],
    labels: Any,
    *,
    name: str = "smiles",
    task: TaskName | None = None,
    threshold: Threshold = None,
    skip_invalid: bool = False,
) -> PackedGraphs:
    """Pack a list of SMILES with a label each, or with numbers; see :func:`from_table` for the options.

    labels: (G,) whole numbers or words, which are classes; (G,) or (G, T) other numbers, None or NaN where one is
        missing.
    """
    require("smiles", None if isinstance(smiles, str) else smiles, Collection, "a list of SMILES")
    for g, text in enumerate(smiles):
        require(f"smiles[{g}]", text, str, "a SMILES")
    columns, found = as_columns(labels, len(smiles)) if len(smiles) else ({}, None)
    graphs = _pack(
        name,
        smiles,
        columns,
        lambda g: {"where": f"molecule {g}"},
        task=task or (None if threshold is not None else found),
        threshold=threshold,
        skip_invalid=skip_invalid,
    )
    announce(graphs)
    return graphs


def molecules(split: str | None = None) -> PackedGraphs:
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
    return _pack(
        "molecules",
        [smiles for smiles, _ in rows],
        {"activity": [by_name[name] for _, name in rows]},
        lambda g: {"where": str(table), "line": g + 1},
        threshold="median",
        scaffolds=split == "scaffold",
    )


def _pack(
    name: str,
    smiles: Sequence[str],
    columns: dict[str, Any],
    place: Callable[[int], Place],
    *,
    task: TaskName | None = None,
    threshold: Threshold = None,
    skip_invalid: bool = False,
    unlabelled: bool = False,
    drop: Sequence[int] = (),
    scaffolds: bool = False,
    parts: Sequence[str] | None = None,
    notes: tuple[str, ...] = (),
) -> PackedGraphs:
    """columns: of targets; without any, all molecules have the class ``"unknown"``. drop: rows to be left out."""
    if not len(smiles):
        raise DataError("there are no molecules", remedy="give at least two")
    read, invalid = _parse(smiles, set(drop), scaffolds)
    if invalid:
        notes += (_about_invalid(invalid, smiles, place, skip_invalid),)
    kept = list(read)
    if not kept:
        raise DataError("no molecule is left", **place(0), remedy="check the columns of SMILES and targets")

    def place_kept(g: int) -> Place:
        return place(kept[g])

    if columns:
        chosen = {column: _select(values, kept) for column, values in columns.items()}
        targets = find_targets(
            chosen,
            place_kept,
            task=task,
            threshold=threshold,
            unlabelled=unlabelled,
            remedy="fill it in, or leave out rows without a target: skip_unlabelled=True (--skip-unlabelled)",
        )
    else:
        targets = Targets("classes", np.zeros(len(kept), np.int64), (UNKNOWN,))
    found = list(read.values())
    groups, note = _duplicates([molecule.canonical for molecule in found], targets, place_kept)
    sizes = np.array([len(molecule.atoms) for molecule in found])
    ends = join_edges([molecule.bonds for molecule in found], sizes)
    splits: dict[str, Integers] = {}
    if scaffolds:
        splits = scaffold_split([molecule.scaffold for molecule in found], place(0)["where"])
    elif parts is not None:
        splits = split_by_words(_select(parts, kept), place_kept)
    raw = RawGraphs(
        name=name,
        locate=by_graph(place_kept, sizes, ends[:, 0]),
        sizes=sizes,
        row=ends[:, 0],
        col=ends[:, 1],
        targets=targets,
        tags=np.concatenate([molecule.atoms for molecule in found]),
        cardinalities=cardinalities(ATOM_FEATURES),
        edge_tags=np.concatenate([molecule.bond_tags for molecule in found]),
        edge_cardinalities=cardinalities(BOND_FEATURES),
        groups=groups,
        splits=splits,
        source=place(0)["where"],
        notes=(*notes, *((note,) if note else ()), *notes_on_split(groups, splits, len(found))),
    )
    return replace(pack(raw), left_out=tuple(sorted({*invalid, *drop})))


def _about_invalid(invalid: Sequence[int], smiles: Sequence[str], place: Callable[[int], Place], skip: bool) -> str:
    """A note about SMILES that are left out; an error unless that is wanted."""
    shown = []
    for g in invalid[:5]:
        length = f" … of {len(smiles[g]):,} characters" if len(smiles[g]) > LONGEST else ""
        shown.append(f"{place(g).get('line', g)} ({smiles[g][:30]!r}{length})")
    problem = f"{len(invalid)} of {len(smiles)} SMILES cannot be read, the first at {', '.join(shown)}"
    if not skip:
        raise DataError(
            problem,
            **place(invalid[0]),
            remedy="correct them, or load with skip_invalid=True (--skip-invalid) to leave them out",
        )
    return f"{problem}; left out"


def _select(values: Any, kept: Sequence[int]) -> Any:
    return values[np.asarray(kept, np.int64)] if isinstance(values, np.ndarray) else [values[g] for g in kept]


class _Molecule(NamedTuple):
    atoms: npt.NDArray[np.int16]
    """(n, 9)."""
    bonds: npt.NDArray[np.int64]
    """(2m, 2): both directions."""
    bond_tags: npt.NDArray[np.int16]
    """(2m, 3)."""
    canonical: str
    scaffold: str


def _parse(smiles: Sequence[str], dropped: set[int], scaffolds: bool) -> tuple[dict[int, _Molecule], list[int]]:
    """The molecules by their rows, and the rows that cannot be read."""
    chem = need("rdkit.Chem", "reading molecules", "chem")
    murcko = need("rdkit.Chem.Scaffolds.MurckoScaffold", "reading molecules", "chem")
    read, invalid = {}, []
    rows: Iterable[int] = range(len(smiles))
    if len(smiles) > MANY:
        tqdm = need("tqdm.auto", "reading many molecules", "chem").tqdm
        rows = tqdm(rows, desc="reading molecules", unit="", disable=None, leave=False)  # None: only on a terminal
    with need("rdkit.rdBase", "reading molecules", "chem").BlockLogs():  # our error says it all
        for row in rows:
            if row in dropped:
                continue
            text = smiles[row].encode("utf-8", "replace").decode()  # RDKit takes no lone surrogate
            molecule = chem.MolFromSmiles(text) if text and len(text) <= LONGEST else None
            if molecule is None or molecule.GetNumAtoms() == 0:
                invalid.append(row)
                continue
            scaffold = murcko.MurckoScaffoldSmiles(mol=molecule, includeChirality=False) if scaffolds else ""
            read[row] = _Molecule(*_featurize(molecule), chem.MolToSmiles(molecule), scaffold)
    return read, invalid


def _duplicates(
    canonical: Sequence[str], targets: Targets, place: Callable[[int], Place]
) -> tuple[Integers | None, str | None]:
    """Groups of molecules with the same canonical SMILES, None if each is there once; and a note about them."""
    first: dict[str, int] = {}
    groups = np.array([first.setdefault(text, g) for g, text in enumerate(canonical)], np.int64)
    repeated = np.flatnonzero(groups != np.arange(len(groups)))
    if not repeated.size:
        return None, None
    values = targets.labels[:, None] if targets.targets is None else targets.targets
    ours, theirs = values[repeated], values[groups[repeated]]
    differ = repeated[((ours != theirs) & ~np.isnan(ours) & ~np.isnan(theirs)).any(1)]
    number, more = len(repeated), len(repeated) > 1
    note = (
        f"{number:,} of {len(groups):,} molecules {'are duplicates' if more else 'is a duplicate'} of "
        f"{'others' if more else 'another'}, by canonical SMILES; folds keep duplicates on one side"
    )
    if differ.size:
        pairs = [(place(int(groups[g])), place(int(g))) for g in differ[:3]]
        shown = ", ".join(
            " and ".join(f"line {at['line']}" if "line" in at else str(at["where"]) for at in pair) for pair in pairs
        )
        what = "label" if targets.task == "classes" else "target"
        note += f"; {differ.size:,} with another {what} than the first copy, for example {shown}"
    return groups, note


Index = dict[Any, int]
_ATOM_INDICES: list[Index] = [{value: k for k, value in enumerate(values)} for values in ATOM_FEATURES.values()]
_BOND_INDICES: list[Index] = [{value: k for k, value in enumerate(values)} for values in BOND_FEATURES.values()]


@lru_cache(1 << 16)  # a dataset has few kinds of atoms and bonds
def _categories(values: tuple[Any, ...]) -> list[int]:
    tables = _ATOM_INDICES if len(values) == len(_ATOM_INDICES) else _BOND_INDICES
    return [index.get(value, len(index) - 1) for index, value in zip(tables, values, strict=True)]


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
            )
        )
        for atom in molecule.GetAtoms()
    ]
    ends, tags = [], []
    for bond in molecule.GetBonds():
        pair = (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())
        values = (bond.GetBondType().name, bond.GetStereo().name, bond.GetIsConjugated())
        ends += [pair, pair[::-1]]
        tags += [_categories(values)] * 2
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


def find_smiles_column(columns: Collection[str], wanted: str | None, where: str | Path) -> str:
    """The column of SMILES: the wanted one, or one with a usual name."""
    if wanted is not None:
        return one_column(columns, wanted, "smiles", where)
    usual = [name for name in columns if name.strip().casefold() in SMILES_COLUMNS]
    usual = usual or (list(columns) if len(columns) == 1 else [])
    if len(usual) != 1:
        raise DataError(
            f"it is not clear which column has the SMILES; the columns are {listed(columns)}",
            where=where,
            line=1,
            remedy='name it: smiles="…" (--smiles)',
        )
    return usual[0]


def _target_columns(
    columns: Mapping[str, Sequence[Any]], others: Sequence[str], where: str, unlabelled: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The column with a usual name, or all ``others`` that do not look like names of the molecules; and notes."""
    usual = [name for name in others if name.strip().casefold() in TARGET_COLUMNS]
    if unlabelled and not usual:
        return (), ()
    if len(usual) == 1 or len(others) == 1:
        return tuple(usual or others), ()
    names = [name for name in others if not _looks_like_names(name, columns[name])]
    if len(usual) > 1 or not names:
        raise DataError(
            f"it is not clear which columns are the targets; the columns are {listed(columns)}",
            where=where,
            line=1,
            remedy='name them: target="A" or target="A,B" (--target A,B)',
        )
    ids = [name for name in others if name not in names]
    note = f"{listed(ids, 5)} is taken for a name of the molecules, not for a target; --target names the targets"
    return tuple(names), (note,) if ids else ()


def _looks_like_parts(values: Sequence[Any]) -> bool:
    words = {str(value).strip().casefold() for value in values[:100]}
    return len(words) > 1 and words <= WORDS.keys()


def _looks_like_names(column: str, values: Sequence[Any]) -> bool:
    plain = column.strip().casefold().replace("_", " ")
    if plain in ("", "id", "name", "index", "cid", "inchi", "inchikey") or plain.endswith((" id", " name")):
        return True
    texts = {str(value).strip() for value in values}
    words = [text for text in texts if not NUMBER.fullmatch(text) and not MISSING.fullmatch(text)]
    return len(words) > 2 and len(words) > 0.5 * len(values)
