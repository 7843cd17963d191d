"""What is to be predicted, found from columns of values: one class, binary targets, or real targets.

| columns | task |
|---|---|
| one column of words, of two values, or of at most ten whole numbers without wide gaps | ``classes`` |
| several columns of 0 and 1, with missing values or without | ``binary`` |
| one or several columns of other numbers | ``values`` |

``nan``, ``NA``, ``None``, ``null``, ``inf`` and blanks are missing values. ``1`` and ``1.0`` are one class.
"""

from __future__ import annotations

import re
import reprlib
import shlex
import statistics
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from functools import partial
from typing import Any, Literal, NamedTuple, NoReturn, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphnorm.data.archive import Place
from graphnorm.data.packed import UNKNOWN
from graphnorm.data.splits import WORDS
from graphnorm.data.table import listed
from graphnorm.errors import DataError, listing, require, unknown
from graphnorm.settings import TaskName

__all__ = ["Targets", "Threshold", "as_columns", "dense", "find_targets", "missing_rows"]

Threshold = float | Literal["median"] | None
Array = npt.NDArray[Any]
MISSING = re.compile(r"|[+-]?nan|#?na|#?n/a|<na>|nat|none|null|[+-]?inf(?:inity)?", re.IGNORECASE)
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
OTHER_NUMBER = re.compile(r"(?=\D*\d)[^\w]*[\d.,_'\s]+[^\w]*")
"""A number as other programs or languages write it: 0,5 and 1'000 and 12% and <3."""
EXACT = 2**53
"""Double precision does not tell larger whole numbers apart."""
SURELY_IDS = 10
"""So many whole numbers in a row are no measurements."""
MANY_WORDS = 50
MANY_NUMBERS = 10
ROUNDING = 0.01
"""The largest share of the standard deviation of real targets that rounding them to single precision may have."""


class Targets(NamedTuple):
    """The targets of G graphs."""

    task: TaskName
    labels: Array
    """(G,) int64."""
    classes: tuple[str, ...]
    targets: Array | None = None
    """(G, T) float32, NaN where a value is missing."""
    names: tuple[str, ...] = ()
    """(T,)."""
    threshold: float | None = None
    notes: tuple[str, ...] = ()
    """What the user should know about how the columns were read."""


class _Column(NamedTuple):
    name: str
    numbers: npt.NDArray[np.float64]
    """NaN where the value is missing or a word."""
    words: list[str] | None
    """All values as text, empty where missing; None if all values are numbers or missing."""
    missing: npt.NDArray[np.bool_]
    place: Callable[[int], Place]
    """The place of a row, for errors."""

    def error(self, row: int, problem: str, remedy: str) -> DataError:
        return DataError(problem, **self.place(row), remedy=remedy)

    @property
    def distinct(self) -> npt.NDArray[np.float64]:
        return np.unique(self.numbers[~np.isnan(self.numbers)])

    def select(self, rows: npt.NDArray[np.intp]) -> _Column:
        words = None if self.words is None else [self.words[row] for row in rows]
        return _Column(self.name, self.numbers[rows], words, self.missing[rows], lambda k: self.place(int(rows[k])))


def _read(name: str, values: Sequence[Any] | Array, place: Callable[[int], Place], truth: bool = False) -> _Column:
    """truth: the words true and false are the numbers 1 and 0, as they are beside numbers."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        numbers = values.astype(np.float64)
        missing = ~np.isfinite(numbers)
        return _Column(name, np.where(missing, np.nan, numbers), None, missing, place)
    known: dict[str, tuple[str, float]] = {}
    texts, found = [], np.empty(len(values))
    for k, value in enumerate(values):
        if isinstance(value, (complex, np.complexfloating)) or _is_several(value):
            problem = f"a value in {name!r} is {reprlib.repr(value)}"
            raise DataError(problem, remedy="give each graph a word or a real number")
        text = "" if value is None else str(value)
        if text not in known:
            word = text.strip()
            word = "" if MISSING.fullmatch(word) else word
            if truth and word.casefold() in ("true", "false"):
                word = str(int(word.casefold() == "true"))
            number = float(word) if NUMBER.fullmatch(word) else np.nan
            known[text] = word, np.nan if np.isinf(number) else number
        word, found[k] = known[text]
        texts.append(word)
    others = {word.casefold() for word, number in known.values() if word and number != number}
    if not truth and others and others <= {"true", "false"} and not np.isnan(found).all():
        return _read(name, values, place, truth=True)
    missing = np.array([not word for word in texts])
    all_numbers = all(not word or number == number for word, number in known.values())
    return _Column(name, found, None if all_numbers else texts, missing, place)


def _is_several(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, (str, bytes))


def missing_rows(columns: Mapping[str, Sequence[Any] | Array]) -> list[int]:
    """The rows in which all columns are missing."""
    read = [_read(name, values, lambda row: {}).missing for name, values in columns.items()]
    return [int(k) for k in np.flatnonzero(np.logical_and.reduce(read))] if read else []


def find_targets(
    columns: Mapping[str, Sequence[Any] | Array],
    place: Callable[[int], Place],
    *,
    task: TaskName | None = None,
    threshold: Threshold = None,
    unlabelled: bool = False,
    remedy: str = "fill it in, or leave the graph out",
) -> Targets:
    """The task and the targets of columns of equal length.

    task: overrules what the values suggest.
    threshold: the values of the only column are measurements, and the classes are "above" it and "not above".
    unlabelled: labels may be missing or all the same. A graph whose class is missing has the class ``"unknown"``.
    place: the place of a row, for errors.
    remedy: what to do about a missing label.

    >>> find_targets({"solubility": ["0.5", "NA", "1.25", "3"]}, lambda row: {}).task
    'values'
    """
    if task is not None and task not in get_args(TaskName):
        raise unknown("task", str(task), get_args(TaskName), DataError)
    truth = len(columns) > 1 or task == "binary"
    found = [_read(name, values, place, truth) for name, values in columns.items()]
    if len(found) != 1 and (threshold is not None or task == "classes"):
        raise DataError(
            f"{'a threshold' if threshold is not None else 'the task classes'} needs one column of labels, "
            f"but there are {len(found)}: {listed(list(columns), 8)}",
            **place(0),
            remedy='name one: target="…" (--target)',
        )
    for column in found:
        if column.missing.all() and not unlabelled:
            raise column.error(0, f"the column {column.name!r} has no values", "leave it out, or fill it in")
    if threshold is not None:
        if task not in (None, "classes"):
            problem = f"a threshold makes classes, which is not the task {task!r}"
            raise found[0].error(0, problem, "leave one of them out")
        split = partial(_split, threshold=threshold, unlabelled=unlabelled, remedy=remedy)
        return _of_known(found[0], split, unlabelled)
    chosen, note = (task, None) if task else _guess(found)
    if chosen == "classes":
        classes = partial(_classes, unlabelled=unlabelled, remedy=remedy, given=task is not None)
        return _of_known(found[0], classes, unlabelled)._replace(notes=(note,) if note else ())
    for column in found:
        if column.words is not None:
            _refuse_word(column, found if len(found) > 1 else ())
    arrays = [_binary(column) if chosen == "binary" else _values(column, unlabelled) for column in found]
    targets = np.stack(arrays, axis=1)
    notes = [note] if note else []
    if (bare := int(np.isnan(targets).all(axis=1).sum())) and not unlabelled:
        notes.append(f"{bare:,} of {len(targets):,} graphs have no target: they neither teach nor count in a score")
    labels = np.zeros(len(targets), np.int64)
    return Targets(chosen, labels, (UNKNOWN,), targets, tuple(column.name for column in found), notes=tuple(notes))


def _guess(columns: Sequence[_Column]) -> tuple[TaskName, str | None]:
    """The task of columns, and a note if the user may have meant another."""
    if len(columns) > 1:
        for column in columns:
            if column.words is not None:
                _refuse_word(column, columns)
        binary = [any(np.isin(column.distinct, pair).all() for pair in ((0, 1), (-1, 1))) for column in columns]
        if all(binary):
            return "binary", None
        if any(binary):
            kinds = ["binary" if one else "real" for one in binary]
            some = listing([f"{c.name!r} ({kind})" for c, kind in list(zip(columns, kinds, strict=True))[:4]])
            raise columns[0].error(
                0,
                f"some of the {len(columns)} columns of targets have 0 and 1, others real numbers, such as {some}",
                'name those of one kind, target="A,B" (--target A,B), or say task="values" (--task values)',
            )
        ids = [repr(column.name) for column in columns if _counts_rows(column)]
        return "values", f"{listing(ids)} counts the rows; if it is no target, name the others" if ids else None
    (column,) = columns
    distinct = column.distinct
    if column.words is not None:
        words = [word for word in column.words if word]
        if 2 * int((~np.isnan(column.numbers)).sum()) > len(words):
            _refuse_word(column)
        if len(set(words)) > 2 and 2 * sum(map(_is_other_number, words)) > len(words):
            _refuse_word(column)
        return "classes", _alike(column)
    if len(distinct) <= 2:
        return "classes", None
    whole = bool((distinct == np.round(distinct)).all())
    if whole and len(distinct) <= MANY_NUMBERS and distinct[-1] - distinct[0] < 2 * len(distinct):
        if abs(distinct[0]) <= 1:
            return "classes", None
        return "classes", (
            f"the {len(distinct)} whole numbers from {distinct[0]:g} to {distinct[-1]:g} in {column.name!r} are taken "
            "as classes; if they are measurements, say task='values' (--task values)"
        )
    if len(distinct) > MANY_WORDS:
        return "values", None
    return "values", (
        f"the {len(distinct)} different numbers in {column.name!r} are taken as measurements, and regression is the "
        "task; if each is a class, say task='classes' (--task classes)"
    )


def _counts_rows(column: _Column) -> bool:
    """Whether the values are those of an id: whole numbers in a row, in their order."""
    return len(column.numbers) >= SURELY_IDS and bool((np.diff(column.numbers) == 1).all())


def _is_other_number(word: str) -> bool:
    """
    >>> [_is_other_number(word) for word in ("0,5", "12%", "<3", "a1", "2020-01-31")]
    [True, True, True, False, False]
    """
    return len(word) < 40 and OTHER_NUMBER.fullmatch(word) is not None


def _alike(column: _Column) -> str | None:
    """A note about classes whose names differ in capitals alone, or in how Unicode writes them."""
    words = sorted(set(column.words or ()))
    plain = [unicodedata.normalize("NFKC", word).casefold() for word in words]
    times = Counter(plain)
    some = [repr(word[:40]) for word, own in zip(words, plain, strict=True) if times[own] > 1]
    return f"{listing(some[:4])} in {column.name!r} are different classes, though they look alike" if some else None


def _refuse_word(column: _Column, columns: Sequence[_Column] = ()) -> NoReturn:
    """columns: all targets, if there are several."""
    assert column.words is not None
    row = next(k for k, word in enumerate(column.words) if word and np.isnan(column.numbers[k]))
    word = column.words[row]
    words = sorted({word for word in column.words if word})
    if {word.casefold() for word in words} <= WORDS.keys():
        raise column.error(
            row,
            f"the column {column.name!r} names the parts of a split ({listing(list(map(repr, words)))})",
            f"give it as the split, and name the targets: --split {column.name} --target … (split=, target=)",
        )
    if len(words) > 1 and np.isnan(column.numbers).all() and not any(map(_is_other_number, words)):
        coded = f"write 0 for {words[0]!r} and 1 for {words[1]!r}, or " if len(words) == 2 else ""
        numbers = [other.name for other in columns if other.words is None][:3]
        others = f"if it is no target, name those that are, such as --target {shlex.quote(','.join(numbers))}; else "
        alone = f"predict it by itself, as classes (--target {shlex.quote(column.name)})"
        if not columns:
            alone = "name another column (--target), or leave out --task and --threshold: words are classes"
        raise column.error(
            row,
            f"the column {column.name!r} holds words ({listing(list(map(repr, words[:3])))}), not numbers",
            f"{others if numbers else ''}{coded}{alone}",
        )
    remedy = "correct or remove it, or name other columns (--target)"
    if re.fullmatch(r"[+-]?\d+,\d+", word):
        remedy = "write decimals with a point"
    elif _is_other_number(word):
        remedy = "write numbers like 0.5; or, if each is a class, say task='classes' (--task classes)"
    raise column.error(row, f"{word[:40]!r} in the column {column.name!r} is not a number", remedy)


def _of_known(column: _Column, make: Callable[[_Column], Targets], unlabelled: bool) -> Targets:
    """Classes of a column. If labels may be missing, those that are there decide, and the others are unknown."""
    rows = np.flatnonzero(~column.missing)
    if not unlabelled or len(rows) == len(column.missing):
        return make(column)
    labels = np.zeros(len(column.missing), np.int64)
    if not len(rows):
        return Targets("classes", labels, (UNKNOWN,))
    found = make(column.select(rows))
    if UNKNOWN in found.classes:  # which are the data's own
        return Targets("classes", labels, (UNKNOWN,))
    labels[:] = len(found.classes)
    labels[rows] = found.labels
    return found._replace(labels=labels, classes=(*found.classes, UNKNOWN))


def _refuse_missing(column: _Column, what: str, remedy: str) -> None:
    if column.missing.any():
        row, count = int(column.missing.argmax()), int(column.missing.sum())
        problem = f"the {what} in the column {column.name!r} is missing (in {count} of {len(column.missing)} rows)"
        raise column.error(row, problem, remedy)


def _classes(column: _Column, unlabelled: bool, remedy: str, given: bool) -> Targets:
    _refuse_missing(column, "label", remedy)
    large = np.abs(column.numbers) >= EXACT
    if large.any():
        row = int(large.argmax())
        raise column.error(
            row,
            f"the label {column.numbers[row]:g} in {column.name!r} is too large to be told from its neighbours",
            "number the classes from 0, or give them names with letters",
        )
    pairs = zip(column.numbers.tolist(), column.words or [""] * len(column.numbers), strict=True)
    # Numbers by value and before words, so that 1 and 1.0 are one class and no order depends on hashes.
    keys = [(0, number, "") if number == number else (1, 0.0, word) for number, word in pairs]
    ordered = sorted(set(keys))
    names = tuple(word if kind else _numeral(number) for kind, number, word in ordered)
    if len(names) > MANY_WORDS and len(names) > len(keys) / 4 and not given:
        raise column.error(
            0,
            f"the labels in {column.name!r} have {len(names)} different values for {len(keys)} graphs",
            "name the column of the labels: target=... (--target); or say task='classes' (--task classes)",
        )
    if len(names) < 2 and not unlabelled:
        problem = f"all {len(keys)} graphs have the same label, {names[0]}"
        raise column.error(0, problem, "there is nothing to tell apart; check the column or file of labels")
    index = {key: k for k, key in enumerate(ordered)}
    return Targets("classes", np.array([index[key] for key in keys], np.int64), names)


def _numeral(number: float) -> str:
    """
    >>> _numeral(1.0), _numeral(0.25)
    ('1', '0.25')
    """
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else repr(number)


def _split(column: _Column, threshold: Threshold, unlabelled: bool, remedy: str) -> Targets:
    if threshold != "median" and not isinstance(threshold, (int, float)):
        raise DataError(f"the threshold is {threshold!r}", remedy='give a number, or "median"')
    _refuse_missing(column, "measurement", remedy)
    if column.words is not None:
        _refuse_word(column)
    values = column.numbers.tolist()
    cut = statistics.median(values) if threshold == "median" else float(threshold)
    above = (column.numbers > cut).astype(np.int64)
    names = (f"not above {cut:g}", f"above {cut:g}")
    if len(set(above.tolist())) < 2 and not unlabelled:
        problem = f"all {len(above)} graphs have the same label, {names[above[0]]}"
        raise column.error(0, problem, "classification needs at least two classes; check the threshold")
    return Targets("classes", above, names, threshold=cut)


def _binary(column: _Column) -> Array:
    """(G,) 0 and 1, or -1 and 1. Other pairs of values do not say which of them is 1."""
    wrong = ~np.isin(column.numbers, (-1, 0, 1)) & ~column.missing
    if not wrong.any() and np.isin((-1, 0), column.numbers).all():
        wrong = column.numbers == -1
    if wrong.any():
        row = int(wrong.argmax())
        problem = f"{_numeral(float(column.numbers[row]))} in the column {column.name!r} is not 0 or 1"
        raise column.error(row, problem, "write 0 and 1; or name other columns (--target), or another task (--task)")
    return np.where(column.missing, np.nan, column.numbers > 0).astype(np.float32)


def _values(column: _Column, unlabelled: bool) -> Array:
    with np.errstate(over="ignore"):
        values = column.numbers.astype(np.float32)
    large = np.isinf(values)
    if large.any():
        row = int(large.argmax())
        problem = f"{column.numbers[row]:g} in {column.name!r} is too large for single precision"
        raise column.error(row, problem, "use another unit, or its logarithm")
    known = column.numbers[~column.missing]
    if len(known) > 1 and not unlabelled:
        largest = np.abs(known).max() or 1.0
        scaled, rounding = known / largest, (values[~column.missing] - known) / largest  # squares of tiny numbers are 0
        if scaled.min() == scaled.max():
            problem = f"all {len(known)} values in {column.name!r} are {known[0]:g}"
            raise column.error(0, problem, "there is nothing to predict: leave the column out")
        if rounding.std() > ROUNDING * scaled.std():
            problem = f"the values in {column.name!r} differ by less than single precision can tell apart"
            raise column.error(0, problem, "subtract their mean, or use another unit")
    return values


def as_columns(values: Any, count: int | None = None) -> tuple[dict[str, Any], TaskName | None]:
    """Labels that are given in Python as named columns, and the task if their types tell it.

    values: (G,) labels or numbers, or (G, T) of them, as lists, arrays or tensors; or columns of (G,) by their names,
        as a mapping or a DataFrame. Whole numbers and words are classes.
    count: G, if the number of graphs is known.
    """
    wanted = "a list or an array with a label, or with numbers, for each graph"
    if hasattr(values, "itertuples"):  # a DataFrame
        if not values.columns.is_unique:
            raise DataError("two columns of the labels have the same name", remedy="rename one")
        values = {str(name): column for name, column in values.items()}
    several = values.values() if isinstance(values, Mapping) else (values,)
    for given in several:
        ordered = None if isinstance(given, Set) else given
        require("labels", ordered if getattr(given, "ndim", 1) else given.item(), Collection, wanted)
        if count not in (None, len(given)):
            raise DataError(f"there are {count} graphs and {len(given)} labels", remedy="give one label each")
    if isinstance(values, Mapping):
        for name in values:
            require("each name of the targets", name, str, "a text")
        if len(values) > 1:
            return {name: _array(column) for name, column in values.items()}, None
    name, values = next(iter(values.items()), ("", [])) if isinstance(values, Mapping) else ("target", values)
    array = _array(values)
    if isinstance(array, np.ndarray):
        columns: list[Any] = [array] if array.ndim < 2 else list(array.reshape(len(array), -1).T)
    else:
        rows = [value.tolist() if hasattr(value, "tolist") else value for value in array]
        columns = [rows]
        if any(isinstance(row, (list, tuple)) for row in rows):
            rows = [row if isinstance(row, (list, tuple)) else [row] for row in rows]
            widths = {len(row) for row in rows}
            if len(widths) > 1:
                problem = f"the graphs have {min(widths)} to {max(widths)} targets"
                other = next(g for g, row in enumerate(rows) if len(row) != len(rows[0]))
                place = f"graph {other} of the list"
                raise DataError(problem, where=place, remedy="give each graph as many, None where one is missing")
            columns = [list(column) for column in zip(*rows, strict=True)]
    if not columns or not len(columns[0]):
        raise DataError("the graphs have no targets", remedy="give each graph a label or a number")
    names = [name] if len(columns) == 1 else [f"{name} {k + 1}" for k in range(len(columns))]
    first = columns[0].tolist() if isinstance(columns[0], np.ndarray) else columns[0]
    kinds = (str, bool, int, np.integer, np.bool_, np.str_)
    whole = len(columns) == 1 and all(isinstance(value, kinds) for value in first)
    return dict(zip(names, columns, strict=True)), "classes" if whole else None


def _array(values: Any) -> Any:
    """Anything with dimensions as an array, without values where it is masked; all else as it is."""
    if isinstance(values, Tensor):
        values = dense(values, "labels")
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    if not hasattr(values, "ndim"):
        return values
    array: Array = np.asarray(values)
    if isinstance(values, np.ma.MaskedArray):
        array = array.astype(object)
        array[np.ma.getmaskarray(values)] = None
    return array.astype(np.int64) if array.dtype == bool and array.ndim > 1 else array


def dense(tensor: Any, name: str, **place: Any) -> Tensor:
    """The values of a tensor on the CPU; refuses tensors that have none to be read."""
    if not isinstance(tensor, Tensor):
        raise DataError(f"{name} is a {type(tensor).__name__}", **place, remedy="give a tensor: torch.as_tensor(…)")
    if (
        tensor.layout != torch.strided
        or tensor.is_quantized
        or tensor.is_meta
        or tensor.is_nested
        or tensor.is_complex()
    ):
        kind = "complex" if tensor.is_complex() else "sparse, quantized, nested or without values"
        raise DataError(f"{name} is {kind}", **place, remedy="give a dense tensor of real numbers")
    return tensor.detach().cpu()
