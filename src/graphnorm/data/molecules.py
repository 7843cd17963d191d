"""Molecules written as SMILES: a table of the user's, and the one that ships with RDKit.

Atoms and bonds get OGB's categorical features (see :mod:`graphnorm.data.vocabulary`), computed with RDKit.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from graphnorm.data.build import ByGraph, Place, RawGraphs, pack
from graphnorm.data.packed import PackedGraphs
from graphnorm.data.tables import read_table
from graphnorm.data.vocabulary import ATOM_FEATURES, BOND_FEATURES, cardinalities
from graphnorm.errors import DataError, DataWarning, MissingDependencyError

__all__ = ["UNKNOWN", "DataWarning", "from_smiles", "molecules", "pick_smiles", "read_smiles"]

UNKNOWN = "unknown"
"""The one class of graphs without labels."""

SMILES_COLUMNS = ("smiles", "smi", "canonical_smiles", "molecule", "mol")
LABEL_COLUMNS = ("label", "labels", "class", "y", "target", "active", "activity")
Threshold = float | Literal["median"] | None


class _Row(NamedTuple):
    line: int
    smiles: str
    label: str


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

    smiles, label: the columns' names; where they are not given, the usual ones are looked for.
    threshold: labels are measurements, and the classes are "above" it and "not above"; ``"median"`` balances
        them.
    skip_invalid: leave molecules that RDKit cannot read out, with a :class:`DataWarning`, rather than refuse.
    unlabelled: take a table without a column of labels, or one that is not filled in everywhere, too; its molecules
        are of the class ``"unknown"``. All labels may then be the same.
    """
    columns, lines = read_table(path)
    header = list(columns)
    smiles_column = pick_smiles(header, smiles, path)
    others = [name for name in header if name != smiles_column]
    usual = any(name.strip().casefold() in LABEL_COLUMNS for name in others)
    label_column = None
    if not unlabelled or label is not None or usual:
        label_column = _pick(others, label, LABEL_COLUMNS, "labels", "label", path)
    if label_column is None or (unlabelled and not all(value.strip() for value in columns[label_column])):
        texts = [text.strip() for text in columns[smiles_column]]
        graphs = _pack(
            path.stem,
            texts,
            [UNKNOWN] * len(texts),
            lambda g: {"where": str(path), "line": lines[g]},
            None,
            skip_invalid,
            one_class=True,
        )
        return replace(graphs, label_column=label_column or "")
    rows = [
        _Row(line, text.strip(), value.strip())
        for line, text, value in zip(lines, columns[smiles_column], columns[label_column], strict=True)
    ]
    lacking = next((row for row in rows if not row.label), None)
    if lacking:
        raise DataError(
            f"the molecule has no value in the column {label_column!r}",
            where=path,
            line=lacking.line,
            remedy="fill it in, or take the line out",
        )
    graphs = _pack(
        path.stem,
        [row.smiles for row in rows],
        [row.label for row in rows],
        lambda g: {"where": str(path), "line": rows[g].line},
        threshold,
        skip_invalid,
        one_class=unlabelled,
    )
    return replace(graphs, label_column=label_column)


def from_smiles(
    smiles: Sequence[str],
    labels: Sequence[int | str | float],
    *,
    name: str = "smiles",
    threshold: Threshold = None,
    skip_invalid: bool = False,
) -> PackedGraphs:
    """Pack a list of SMILES; see :func:`read_smiles`."""
    if len(smiles) != len(labels):
        raise DataError(f"there are {len(smiles)} molecules and {len(labels)} labels", remedy="give one label each")
    texts = [str(label) for label in labels]
    return _pack(name, smiles, texts, lambda g: {"where": f"molecule {g}"}, threshold, skip_invalid)


def molecules() -> PackedGraphs:
    """1,017 molecules with measured activities (CHEMBL2321810), from inside the RDKit package.

    The classes are "above the median activity" and "not above": 508 and 509 molecules.
    """
    _chem()
    from rdkit import RDConfig

    folder = Path(RDConfig.RDContribDir) / "FreeWilson" / "data"
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
        [by_name[name] for _, name in rows],
        lambda g: {"where": str(table), "line": g + 1},
        "median",
        False,
    )


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
    chem = _chem()
    with _quiet():
        parsed = [chem.MolFromSmiles(text) if text else None for text in smiles]
    invalid = [g for g, molecule in enumerate(parsed) if molecule is None or molecule.GetNumAtoms() == 0]
    if invalid:
        some = ", ".join(f"{place(g).get('line', g)} ({smiles[g][:30]!r})" for g in invalid[:5])
        count = f"{len(invalid)} of {len(smiles)} SMILES cannot be read, the first at {some}"
        if not skip_invalid or len(invalid) == len(smiles):
            raise DataError(
                count,
                **place(invalid[0]),
                remedy="correct them, or load with skip_invalid=True (--skip-invalid) to leave them out",
            )
        warnings.warn(f"{place(invalid[0])['where']}: {count}; left out", DataWarning, stacklevel=4)
    left_out = set(invalid)
    kept = [g for g in range(len(smiles)) if g not in left_out]
    classes, numbers, cut = _classes([labels[g] for g in kept], threshold, lambda g: place(kept[g]), one_class)
    graphs = [_graph(parsed[g]) for g in kept]
    sizes = [len(atoms) for atoms, _, _ in graphs]
    first = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)
    ends = np.concatenate([bonds + start for (_, bonds, _), start in zip(graphs, first, strict=True)])
    bond_tags = np.concatenate([tags for _, _, tags in graphs])
    raw = RawGraphs(
        name=name,
        origin=ByGraph(lambda g: place(kept[g]), sizes, [len(bonds) for _, bonds, _ in graphs]),
        sizes=np.array(sizes),
        row=ends[:, 0],
        col=ends[:, 1],
        labels=np.array(numbers),
        classes=classes,
        tags=np.concatenate([atoms for atoms, _, _ in graphs]),
        cardinalities=cardinalities(ATOM_FEATURES),
        edge_tags=bond_tags,
        edge_cardinalities=cardinalities(BOND_FEATURES),
        source=place(0)["where"],
    )
    return replace(pack(raw), threshold=cut, left_out=tuple(invalid))


def _classes(
    labels: Sequence[str], threshold: Threshold, place: Callable[[int], Place], one_class: bool
) -> tuple[tuple[str, ...], list[int], float | None]:
    """Class names, the class of each label, and the number that the threshold came to."""
    cut = None
    if threshold is not None:
        values = []
        for g, label in enumerate(labels):
            try:
                values.append(float(label))
            except ValueError:
                raise DataError(
                    f"the measurement {label!r} is not a number",
                    **place(g),
                    remedy="correct or drop the line",
                ) from None
            if not np.isfinite(values[-1]):
                raise DataError(f"the measurement is {label}", **place(g), remedy="correct or drop the line")
        if threshold != "median" and not isinstance(threshold, (int, float)):
            raise DataError(f"the threshold is {threshold!r}", remedy='give a number, or "median"')
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
            remedy="classification needs two classes or more; check the label column or the threshold",
        )
    return names, numbers, cut


def _by_value(label: str) -> tuple[int, float, str]:
    """Sort numbers by value and before words."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label


def _indexer(values: Iterable[Any]) -> Callable[[Any], int]:
    index = {value: k for k, value in enumerate(values)}
    last = len(index) - 1
    return lambda value: index.get(value, last)


_ATOM = tuple(_indexer(values) for values in ATOM_FEATURES.values())
_BOND = tuple(_indexer(values) for values in BOND_FEATURES.values())


def _graph(molecule: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(n, 9) atom features, (2m, 2) edges of both directions, (2m, 3) bond features."""
    atoms = [
        [index(value) for index, value in zip(_ATOM, _atom_values(atom), strict=True)] for atom in molecule.GetAtoms()
    ]
    ends, tags = [], []
    for bond in molecule.GetBonds():
        pair = (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())
        values = (bond.GetBondType().name, bond.GetStereo().name, bond.GetIsConjugated())
        tag = [index(value) for index, value in zip(_BOND, values, strict=True)]
        ends += [pair, pair[::-1]]
        tags += [tag, tag]
    return (
        np.array(atoms, np.int16),
        np.array(ends, np.int64).reshape(-1, 2),
        np.array(tags, np.int16).reshape(-1, len(_BOND)),
    )


def _atom_values(atom: Any) -> tuple[Any, ...]:
    """What RDKit says of an atom, in the order of the vocabulary."""
    return (
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


def pick_smiles(header: list[str], wanted: str | None, path: Path) -> str:
    """Give the column of SMILES: the one wanted, or else one of the usual name."""
    return _pick(header, wanted, SMILES_COLUMNS, "SMILES", "smiles", path)


def _pick(header: list[str], wanted: str | None, usual: tuple[str, ...], what: str, argument: str, path: Path) -> str:
    """Give the column that is meant; an error that lists the columns where that is not clear."""
    if wanted is not None:
        found = [name for name in header if name == wanted]
    else:
        found = [name for name in header if name.strip().casefold() in usual]
        found = found or (header if len(header) == 1 else [])
    if len(found) == 1:
        return found[0]
    given = f"no column {wanted!r}" if wanted is not None else f"no one column that must be the {what}"
    raise DataError(
        f"there is {given}; the columns are {', '.join(map(repr, header))}",
        where=path,
        line=1,
        remedy=f'name it: {argument}="..." (--{argument})',
    )


def _chem() -> Any:
    try:
        from rdkit import Chem
    except ImportError as error:
        raise MissingDependencyError("rdkit", "reading molecules", "chem") from error
    return Chem


def _quiet() -> Any:
    """Keep RDKit from writing about each bad SMILES to the terminal; the error says it all."""
    from rdkit import rdBase

    return rdBase.BlockLogs()
