"""Chosen splits: by scaffolds, by a column of words, or by a file; and the checks of every split."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphnorm.data.archive import Integers, Place, decoding, refuse_irregular
from graphnorm.data.table import read_table
from graphnorm.errors import DataError, listing

__all__ = ["PARTS", "check_parts", "notes_on_split", "read_split", "scaffold_split", "split_by_rows", "split_by_words"]

PARTS = ("train", "valid", "test")
WORDS = {
    "train": "train", "training": "train",
    "valid": "valid", "val": "valid", "validation": "valid", "dev": "valid",
    "test": "test", "testing": "test",
}  # fmt: skip
LARGEST_FILE = 1 << 28


def scaffold_split(scaffolds: Sequence[str], where: str = "molecules") -> dict[str, Integers]:
    """Split molecules 80/10/10 by their Bemis-Murcko scaffolds, as MoleculeNet and OGB do.

    Molecules of one scaffold stay together. The largest scaffolds come first and fill the training part, then the
    validation part; the rest is the test part. Of equally large ones, the one that appears last comes first.

    >>> {part: ids.tolist() for part, ids in scaffold_split(["a"] * 8 + ["b", "c"]).items()}
    {'train': [0, 1, 2, 3, 4, 5, 6, 7], 'valid': [9], 'test': [8]}
    """
    members: dict[str, list[int]] = {}
    for g, scaffold in enumerate(scaffolds):
        members.setdefault(scaffold, []).append(g)
    parts: dict[str, list[int]] = {part: [] for part in PARTS}
    for group in sorted(members.values(), key=lambda ids: (len(ids), ids[0]), reverse=True):
        train, valid = len(parts["train"]) + len(group), len(parts["train"]) + len(parts["valid"]) + len(group)
        part = "train" if train <= 0.8 * len(scaffolds) else "valid" if valid <= 0.9 * len(scaffolds) else "test"
        parts[part] += group
    split: dict[str, Integers] = {part: np.array(sorted(ids), np.int64) for part, ids in parts.items()}
    check_parts(split, len(scaffolds), {"where": where}, "give more molecules, or split at random (--split random)")
    return split


def split_by_words(words: Sequence[Any], place: Callable[[int], Place]) -> dict[str, Integers]:
    """The parts that the words train, valid and test name, a word for each graph."""
    parts: dict[str, list[int]] = {"train": [], "test": []}
    for g, word in enumerate(words):
        part = WORDS.get(str(word).strip().casefold())
        if part is None:
            raise DataError(f"{word!r} is no part of a split", **place(g), remedy="write train, valid or test")
        parts.setdefault(part, []).append(g)
    split: dict[str, Integers] = {part: np.array(ids, np.int64) for part, ids in parts.items()}
    check_parts(split, len(words), {"where": place(0)["where"]})
    return split


def read_split(path: Path, rows: Sequence[int], num_rows: int) -> dict[str, Integers]:
    """Read a split from a JSON or CSV file, in graph ids.

    JSON: ``{"train": [0, 1, …], "valid": […], "test": […]}``, where ``valid`` may be left out. CSV: a header and two
    columns, of a row and its part; or one, of the part of each row.

    rows: (G,) the row of each graph, from 0, by which the file counts.
    num_rows: the rows of the data, with those that are no graphs.
    """
    refuse_irregular(path)
    if path.is_dir() or path.stat().st_size > LARGEST_FILE:
        raise DataError("this is no file of a split", where=path, remedy="give a JSON or CSV file")
    parts = _read_json(path) if path.suffix.lower() == ".json" else _read_words(path, num_rows)
    return _of_graphs(parts, rows, num_rows, {"where": str(path)})


def split_by_rows(given: Mapping[str, Any], rows: Sequence[int], num_rows: int) -> dict[str, Integers]:
    """As :func:`read_split`, of rows that are given in Python, as ids or as masks.

    >>> split = split_by_rows({"train": [0, 1], "test": np.array([False, False, True])}, range(3), 3)
    >>> {part: ids.tolist() for part, ids in split.items()}
    {'train': [0, 1], 'test': [2]}
    """
    parts: dict[str, Integers] = {}
    for name, ids in given.items():
        if name not in WORDS or WORDS[name] in parts:
            raise DataError(f"{name!r} is no part of a split, or there twice", remedy="use train, valid, test")
        array = np.asarray(ids)
        if array.dtype == bool and array.shape == (num_rows,):
            array = np.flatnonzero(array)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            problem = f"the part {name!r} of the split is {array.dtype} of shape {array.shape}"
            raise DataError(problem, remedy="give the ids of its rows, from 0, or a mask of all rows")
        parts[WORDS[name]] = array.astype(np.int64)
    return _of_graphs(parts, rows, num_rows, {"where": "split"})


def _of_graphs(parts: dict[str, Integers], rows: Sequence[int], num_rows: int, place: Place) -> dict[str, Integers]:
    """A split of rows as one of those rows that are graphs, both checked."""
    check_parts(parts, num_rows, place)
    graph = np.full(num_rows, -1)
    graph[np.asarray(rows, np.int64)] = np.arange(len(rows))
    split = {part: np.sort(graph[ids][graph[ids] >= 0]) for part, ids in parts.items()}
    check_parts(split, len(rows), place)
    return split


class _Pairs(list[tuple[str, Any]]):
    """A JSON object, in which a name may be there twice."""


def _read_json(path: Path) -> dict[str, Integers]:
    with decoding(path):
        content = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_Pairs)
    if not isinstance(content, _Pairs):
        raise DataError("this is no split", where=path, remedy='write {"train": [0, 1], "valid": [2], "test": [3]}')
    parts: dict[str, Integers] = {}
    for name, ids in content:
        if name not in WORDS or WORDS[name] in parts:
            raise DataError(
                f"{name!r} is no part of a split, or there twice", where=path, remedy="use train, valid, test"
            )
        if not isinstance(ids, list) or not all(type(k) is int and abs(k) < 2**53 for k in ids):
            raise DataError(f"{name} is not a list of ids", where=path, remedy="give whole numbers, from 0")
        parts[WORDS[name]] = np.array(ids, np.int64)
    return parts


def _read_words(path: Path, num_rows: int) -> dict[str, Integers]:
    columns, lines = read_table(path)

    def place(k: int) -> Place:
        return {"where": str(path), "line": lines[k]}

    *ids, words = columns.values()
    if len(ids) > 1 or (not ids and len(words) != num_rows):
        raise DataError(
            f"there are {len(columns)} columns and {len(words)} rows for {num_rows} graphs",
            where=path,
            remedy="give two columns, of a row (from 0) and its part; or one, of the part of each row",
        )
    parts = split_by_words(words, place)
    if not ids:
        return parts
    numbers = []
    for k, text in enumerate(ids[0]):
        if not text.strip().isdecimal() or len(text) > 15:
            raise DataError(f"{text!r} is no row", **place(k), remedy="give whole numbers, from 0")
        numbers.append(int(text))
    return {part: np.array(numbers, np.int64)[places] for part, places in parts.items()}


def check_parts(
    parts: Mapping[str, Any], num_graphs: int, place: Place, remedy: str = "correct the split, or use --split random"
) -> None:
    """Refuse a split with parts that are missing or empty, that overlap, or with ids out of range.

    The part ``valid`` may be missing: protocols then take a tenth of the training part.
    """
    problem = None
    empty = [part for part in PARTS if (part in parts or part != "valid") and not len(parts.get(part, ()))]
    if empty:
        problem = f"the split has no graphs in the part {listing(empty)}"
    else:
        ids = np.concatenate([np.asarray(ids) for ids in parts.values()])
        times = np.bincount(ids) if ids.min() >= 0 and ids.max() < num_graphs else None
        if times is None:
            problem = f"the split has ids from {ids.min()} to {ids.max()}, but the graphs are 0 to {num_graphs - 1}"
        elif times.max() > 1:
            graph, count = int(times.argmax()), int((times > 1).sum())
            where = [part for part, ids in parts.items() if np.isin(graph, ids)]
            place_of = f"in the parts {listing(where)}" if len(where) > 1 else f"in the part {where[0]} more than once"
            in_all = f"; in all, {count:,} graphs are in the split more than once" if count > 1 else ""
            problem = f"graph {graph} is {place_of}{in_all}"
    if problem:
        raise DataError(problem, **place, remedy=remedy)


def notes_on_split(groups: Any, parts: Mapping[str, Any], num_graphs: int) -> tuple[str, ...]:
    """Notes about graphs that a chosen split leaves out, and about groups that it does not keep together.

    >>> notes_on_split(np.array([0, 0, 2]), {"train": np.array([0]), "test": np.array([1, 2])}, 3)
    ('1 of the 2 test graphs is a duplicate of one in another part of the split',)
    >>> notes_on_split(None, {"train": np.array([0]), "test": np.array([2])}, 3)
    ('1 of 3 graphs is in no part of the split, and not used',)
    """
    left = num_graphs - sum(map(len, parts.values())) if parts else 0
    unused = f"{left:,} of {num_graphs:,} graphs {'is' if left == 1 else 'are'} in no part of the split, and not used"
    return ((unused,) if left else ()) + _note_crossing(groups, parts)


def _note_crossing(groups: Any, parts: Mapping[str, Any]) -> tuple[str, ...]:
    if groups is None or "test" not in parts:
        return ()
    own = np.asarray(groups)[np.asarray(parts["test"])]
    others = [np.asarray(groups)[np.asarray(ids)] for part, ids in parts.items() if part != "test"]
    count = int(np.isin(own, np.concatenate(others)).sum())
    verb = "is a duplicate" if count == 1 else "are duplicates"
    return (f"{count:,} of the {len(own):,} test graphs {verb} of one in another part of the split",) if count else ()
