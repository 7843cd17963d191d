"""Settings: every option of a training is declared once, with its type, default, bounds and help.

The command-line parsers, the signatures of :func:`graphnorm.compare` and :func:`graphnorm.search`, grids in TOML files,
the JSON of results and the keys of stored trials are derived from the fields of these classes.
"""

from __future__ import annotations

import difflib
import itertools
import math
import os
import re
import reprlib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from graphnorm.errors import GraphnormError, StudyError, require, unknown
from graphnorm.files import read_text

__all__ = [
    "DEFAULT_NORMS",
    "GRIDS",
    "Grid",
    "Hyperparameters",
    "Loading",
    "Option",
    "Running",
    "Settings",
    "TaskName",
    "find_grid",
    "nearest",
    "option",
    "options_of",
    "seconds",
]

DEFAULT_NORMS = ("none", "layer", "batch", "instance", "graph")
"""The five normalizations of the paper's Figure 2."""
TaskName = Literal["classes", "binary", "values"]
OTHER_NAMES = {
    "learning_rate": "lr", "l2": "weight_decay", "hidden_channels": "hidden", "width": "hidden", "depth": "layers",
    "n_splits": "folds", "cv": "folds", "random_state": "seeds", "n_jobs": "workers", "scoring": "metric",
    "normalization": "norms", "normalizations": "norms", "label": "target", "labels": "target", "y": "target",
    "output": "out",
}  # fmt: skip
"""Options by the names that they have elsewhere."""
METRIC_NAMES = ("accuracy", "balanced-accuracy", "roc-auc", "average-precision", "f1", "mae", "rmse", "r2")
QUICK_EPOCHS = 12
"""Default epochs of ``compare``: enough to see which normalization trains fastest."""


@dataclass(frozen=True)
class Option:
    """The type, default, help and bounds of an option."""

    kind: type
    default: Any
    help: str
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    is_time: bool = False
    """Whether it is a time: in seconds, or a text such as ``"5m"``."""

    def check(self, name: str, value: Any) -> Any:
        """Convert a value to the option's type, or raise an error that says which values are allowed.

        >>> options_of(Hyperparameters)["epochs"].check("epochs", 4.0)
        4
        """
        if self.kind is tuple:
            return _names(name, value)
        if isinstance(value, list | tuple):
            number = "several values" if value else "no value"
            raise GraphnormError(
                f"{name} has {number}", remedy="give one; compare and search tune settings of the model"
            )
        if self.is_time and isinstance(value, str):
            value = seconds(name, value)
        if self.kind is bool:
            require(name, value, bool, "True or False")
        elif self.kind in (int, float):
            if isinstance(value, bool):
                raise TypeError(f"{name} must be a number, got {value}")
            require(name, value, Real, "a number")
            whole = self.kind is int
            if not self.low <= value <= self.high or not math.isfinite(value) or (whole and value != int(value)):
                raise GraphnormError(f"{name} is {value}", remedy=f"give {self.meaning}")
        else:
            require(name, value, (str, os.PathLike), f"the name of a {name}")
            if not str(value):
                raise GraphnormError(f"{name} is empty", remedy="give a name, or leave it out")
            if self.choices and value not in self.choices:
                raise unknown(name, str(value), self.choices)
        return self.kind(value) or self.kind()  # not -0.0

    def check_all(self, name: str, values: Sequence[Any]) -> tuple[Any, ...]:
        """Check several values of the option, which must differ.

        >>> options_of(Hyperparameters)["lr"].check_all("lr", [1, 0.1])
        (1.0, 0.1)
        """
        if not values:
            raise GraphnormError(f"{name} has no value", remedy=f"give {self.meaning}")
        checked = tuple(self.check(name, value) for value in values)
        if len(set(checked)) < len(checked):
            raise GraphnormError(f"{name} has a value twice: {reprlib.repr(values)}", remedy="remove one of them")
        return checked

    @property
    def meaning(self) -> str:
        """The allowed values, in words.

        >>> options_of(Hyperparameters)["layers"].meaning
        'a whole number of 2 or more, up to 1,000'
        """
        if self.kind is bool:
            return "true or false"
        if self.choices:
            return " or ".join(map(repr, self.choices))
        number = "a whole number" if self.kind is int else "a number"
        above = f"of {self.low:g} or more" if self.low == 0 or self.kind is int else "above 0"
        below = "" if math.isinf(self.high) else ", below 1" if self.high < 1 else f", up to {self.high:,.0f}"
        return f"{number} {above}{below}"


def option(default: Any, help: str, *, kind: type | None = None, later: bool = False, **bounds: Any) -> Any:  # noqa: A002
    """Declare a dataclass field as an option.

    kind: its type, if the default is None.
    later: for options that older stored trials lack. A trial's key includes them only if they differ from the default.
    """
    about = Option(kind or type(default), default, help, **bounds)
    return field(default=default, metadata={"option": about, "later": later})


def options_of(*classes: type) -> dict[str, Option]:
    return {item.name: item.metadata["option"] for one in classes for item in fields(one) if "option" in item.metadata}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The option that is meant by a wrong name: the one that others call so, or one spelled like it.

    >>> nearest("learning_rate", ["lr", "epochs"]), nearest("--n-splits", ["--folds"]), nearest("epoch", ["epochs"])
    ('lr', '--folds', 'epochs')
    """
    names = {option.lstrip("-").replace("-", "_"): option for option in known}
    plain = name.lstrip("-").replace("-", "_")
    close = [OTHER_NAMES.get(plain, ""), *difflib.get_close_matches(plain, names, n=1)]
    return next((names[option] for option in close if option in names), None)


def seconds(name: str, text: str) -> float:
    """Read a time: seconds, or a number with the unit s, m, h or d.

    >>> seconds("budget", "10m"), seconds("budget", "1.5")
    (600.0, 1.5)
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd]?)", text)
    if not found:
        raise GraphnormError(f"{name} is {text!r}, which is no time", remedy="write 90s, 10m, 2h or 1d")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


def _names(option_name: str, given: Any) -> tuple[str, ...]:
    """Names as a sequence or a comma-separated text, without repetitions."""
    require(option_name, given, Iterable, 'names, as in ["batch", "graph"] or "batch,graph"')
    names = given.split(",") if isinstance(given, str) else list(given)
    for name in names:
        require(f"each of {option_name}", name, str, "a name")
    return tuple(dict.fromkeys(name.strip() for name in names))


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """How one model is built and trained. The defaults are those of the paper's training curves."""

    VARIED: ClassVar = ("lr", "weight_decay", "dropout")
    """Settings in which the members of a fleet may differ."""

    model: str = option(
        "gin",
        "gin, gcn, molecular-gin, molecular-gcn, molhiv-gin, molhiv-gcn, molhiv-gin-last-instance, "
        "molhiv-gcn-last-instance or molhiv-gcn-leaderboard; pyg:GCN, pyg:GIN, pyg:GAT, pyg:PNA or "
        "pyg:GraphSAGE of PyTorch Geometric; or your own, FILE.py:NAME "
        "(default: gin; molecular-gin for molecules with a split of their own; for ogbg-molhiv molhiv-gin, with its "
        "settings of the paper's Table 2)",
        metavar="NAME",
    )
    epochs: int = option(
        400,
        "passes over the training graphs (default: compare 12, train 100, search the grid's)",
        low=1,
        high=1e6,
        metavar="E",
    )
    batch_size: int = option(128, "graphs in a batch (default: 128)", low=1, high=1e9, metavar="B")
    last_batch: str = option(
        "keep",
        "graphs left over at the end of an epoch: keep them as a smaller batch, drop them, or even out all batches "
        "(default: keep under the protocol paper, otherwise even)",
        later=True,
        choices=("keep", "drop", "even"),
        metavar="NAME",
    )
    lr: float = option(
        1e-2,
        "initial learning rate; it decays to 0 (default: 0.01); several, as in 0.01,0.001, are tuned like a grid",
        low=math.nextafter(0, 1),
        high=1e6,
        metavar="LR[,LR…]",
    )
    weight_decay: float = option(0.0, "weight decay (default: 0)", low=0, high=1e6, metavar="W")
    dropout: float = option(
        0.5,
        "dropout rate of the class scores; in the molecular models of every convolution's output (default: 0.5)",
        low=0,
        high=math.nextafter(1, 0),
        metavar="P",
    )
    hidden: int = option(64, "width of hidden layers (default: 64)", low=1, high=65_536, metavar="WIDTH")
    layers: int = option(
        5, "number of convolutions, plus one for the linear head (default: 5)", low=2, high=1000, metavar="L"
    )
    readout: str = option(
        "sum", "sum or mean over the nodes (default: the dataset's, or sum)", choices=("sum", "mean"), metavar="NAME"
    )
    self_loops: bool = option(False, "add a self-loop to every node, as in the authors' data: Q = A + (2+ξ)I")
    as_authors: bool = option(
        False,
        "as in the authors' code: ξ stays 0, ε is 1e-6 in InstanceNorm and GraphNorm, GCN starts by Glorot's rule",
        later=True,
    )


@dataclass(frozen=True, kw_only=True)
class Settings(Hyperparameters):
    """Everything, besides the graphs, that determines the result of ``compare``."""

    norms: tuple[str, ...] = option(
        DEFAULT_NORMS, "normalizations (default: none,layer,batch,instance,graph)", metavar="A,B,…"
    )
    baselines: tuple[str, ...] = option(
        (), "other methods on the same folds: wl, awl, mlp, dcnn, dgcnn, ogb-gin, ogb-gcn …", metavar="A,B,…"
    )
    protocol: str = option(
        "paper",
        "paper: cross-validation, the folds select the epoch and are reported; fair: a held-out tenth of each training "
        "part selects; given: the split that the data has, or that --split names (default: given if there is one, "
        "otherwise paper)",
        metavar="NAME",
    )
    metric: str | None = option(
        None,
        "what selects and is reported: accuracy, balanced-accuracy, roc-auc, average-precision or f1; mae, rmse or r2 "
        "for real values (default: the dataset's, or accuracy, rmse, and roc-auc for several binary targets or a small "
        "class)",
        kind=str,
        choices=METRIC_NAMES,
        metavar="NAME",
    )
    folds: int = option(10, "folds of the cross-validation (default: 10)", low=1, high=10_000, metavar="K")
    seeds: int = option(
        1, "seeds for each fold (default: 1; on one split 5, for ogbg-molhiv 10)", low=1, high=10_000, metavar="N"
    )


@dataclass(frozen=True, kw_only=True)
class Loading:
    """How your own graphs are loaded; see :func:`graphnorm.data.load`."""

    data_root: str | None = option(None, "folder of archives (or $GRAPHNORM_DATA)", kind=str, metavar="DIR")
    symmetrise: bool = option(False, "add the missing directions of edges")
    merge_duplicates: bool = option(False, "keep only the first of duplicate edges")
    smiles: str | None = option(None, "the table's column of SMILES", kind=str, metavar="COLUMN")
    target: str | None = option(
        None, "the table's columns of labels or numbers to be predicted", kind=str, metavar="COLUMN[,COLUMN…]"
    )
    task: str | None = option(
        None,
        "classes, binary (targets of 0 and 1) or values (real numbers); by default it is found from the data",
        kind=str,
        choices=get_args(TaskName),
        metavar="NAME",
    )
    threshold: float | str | None = option(
        None, "split measurements into two classes at a value, or at the 'median'", kind=str, metavar="VALUE"
    )
    split: str | None = option(
        None,
        "scaffold, a table's column of the words train, valid and test, a JSON or CSV file of them, or random "
        "(default: the data's own split, or random)",
        kind=str,
        metavar="NAME|COLUMN|FILE",
    )
    skip_invalid: bool = option(False, "leave out SMILES that cannot be read")
    skip_unlabelled: bool = option(False, "leave out rows of a table without a target")
    max_size: float | None = option(
        None,
        "most GiB that your files may unpack to (default: at most 16, and 200 times their size)",
        kind=float,
        low=0,
        high=1e6,
        metavar="GIB",
    )


@dataclass(frozen=True, kw_only=True)
class Running:
    """Where and how trainings run; these options do not change the result."""

    device: str | None = option(None, "cpu, cuda or cuda:N (default: a GPU if there is one)", kind=str)
    workers: int | None = option(
        None,
        "how many fleets (groups of equal trainings) run at a time (default: one per core, five on a GPU)",
        kind=int,
        low=1,
        high=4096,
        metavar="N",
    )
    engine: str = option("local", "local or ray (default: local)", choices=("local", "ray"), metavar="NAME")
    address: str | None = option(None, "address of a Ray cluster (default: start a local one)", kind=str)
    cpus_per_worker: float | None = option(
        None, "cores per Ray worker (default: 1)", kind=float, low=0, high=4096, metavar="X"
    )
    gpus_per_worker: float | None = option(
        None, "GPUs per Ray worker (default: 0)", kind=float, low=0, high=4096, metavar="X"
    )
    wait: bool = option(False, "wait if another process is writing to the same study")
    retry_failed: bool = option(False, "train failed trials again")
    checkpoint: float = option(
        50.0,
        "time between checkpoints, such as 90s or 5m (default: 50 s)",
        low=0,
        high=1e9,
        metavar="TIME",
        is_time=True,
    )
    tensorboard: str | None = option(None, "write the curves of every training to this folder", kind=str, metavar="DIR")


# Grids


@dataclass(frozen=True)
class Grid:
    """Values of some settings; the configurations are all combinations, and the last setting varies fastest.

    >>> grid = Grid("mine", {"dropout": (0.0, 0.5), "lr": (1e-3, 1e-2)})
    >>> len(grid), grid.configurations()[1]
    (4, {'dropout': 0.0, 'lr': 0.01})
    """

    name: str
    axes: Mapping[str, tuple[Any, ...]]

    def __len__(self) -> int:
        return math.prod(len(values) for values in self.axes.values())

    def configurations(self) -> list[dict[str, Any]]:
        return [dict(zip(self.axes, values, strict=True)) for values in itertools.product(*self.axes.values())]

    def fixed(self, **settings: Any) -> Grid:
        """Fix some settings to one value each, or to several as a tuple."""
        given = {name: value if isinstance(value, tuple) else (value,) for name, value in settings.items()}
        return Grid(self.name, {**self.axes, **given})

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, **{axis: list(values) for axis, values in self.axes.items()}}


_CURVES = {"epochs": (400,), "batch_size": (128,), "dropout": (0.5,), "weight_decay": (0.0,), "lr": (1e-2,)}
GRIDS: dict[str, Grid] = {
    "paper": Grid(
        "paper",
        {
            "epochs": (400,),
            "batch_size": (64, 128),
            "dropout": (0.0, 0.5),
            "weight_decay": (0.0, 5e-5, 5e-4, 5e-3, 5e-2),
            "lr": (1e-4, 1e-3, 1e-2),
        },
    ),
    "curves": Grid("curves", _CURVES),
    "quick": Grid("quick", {"epochs": (100,), "batch_size": (128,), "dropout": (0.0, 0.5), "lr": (1e-3, 1e-2)}),
}
"""``paper``: the 60 configurations behind the paper's tables. ``curves``: the one of its training curves. ``quick``:
four, for a first look."""

VARIABLE = tuple(name for name in options_of(Hyperparameters) if name != "model")
"""The settings that a grid may vary."""


def find_grid(name: str | os.PathLike[str] | Grid) -> Grid:
    """Find a grid by its name, or read it from a TOML file, in which lists hold several values:

    .. code-block:: toml

        batch_size = [64, 128]
        lr = [1e-3, 1e-2]
        epochs = 200
    """
    if isinstance(name, Grid):
        return name
    require("grid", name, (str, os.PathLike), "the name of a grid or of a .toml file")
    if str(name) in GRIDS:
        return GRIDS[str(name)]
    path = Path(name)
    if path.suffix != ".toml" and not path.exists():
        raise StudyError(f"there is no grid {str(name)!r}", remedy=f"name {', '.join(GRIDS)} or a .toml file")
    try:
        settings = tomllib.loads(read_text(path, StudyError))
    except (ValueError, RecursionError) as error:
        if isinstance(error, StudyError):
            raise
        raise StudyError(f"this is not TOML: {error}", where=path, remedy=_EXAMPLE) from error
    if not settings:
        raise StudyError("the grid is empty", where=path, remedy=_EXAMPLE)
    grid = Grid(path.stem, {name: _axis(name, given, path) for name, given in settings.items()})
    if len(grid) > MOST_CONFIGURATIONS:
        raise StudyError(
            f"the grid has {len(grid):,} configurations",
            where=path,
            remedy=f"give fewer values; {MOST_CONFIGURATIONS:,} configurations are the most",
        )
    return grid


MOST_CONFIGURATIONS = 100_000
_EXAMPLE = "write lines like lr = [1e-3, 1e-2]"


def _axis(name: str, given: Any, path: Path) -> tuple[Any, ...]:
    """The values of a setting in a grid file."""
    if name not in VARIABLE:
        raise unknown("setting", name, VARIABLE, StudyError, where=path)
    about = options_of(Hyperparameters)[name]
    try:
        return about.check_all(name, given if isinstance(given, list) else [given])
    except GraphnormError as error:
        raise StudyError(error.problem, where=path, remedy=error.remedy) from error
    except TypeError as error:
        raise StudyError(str(error), where=path, remedy=f"give {about.meaning}") from error
