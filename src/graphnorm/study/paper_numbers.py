"""The paper's numbers as data: what its Tables 1 and 2 print, mean ± standard deviation in percent.

Table 1's caption names GIN and GCN, but its rows are those of GIN: for GCN the paper prints numbers on ogbg-molhiv
alone. The statistics of the dataset table are those of :data:`graphnorm.data.CATALOG`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from graphnorm.data.catalog import CATALOG, PaperStatistics
from graphnorm.settings import GRIDS

__all__ = ["BASELINES", "BASELINE_NAMES", "GIN", "MOLHIV", "MOLHIV_BASELINES", "REPETITIONS", "TABLE_2", "TU"]
__all__ += ["Reported", "dataset_table", "reported", "unlike_the_paper"]

TU = ("MUTAG", "PTC", "PROTEINS", "NCI1", "IMDB-BINARY", "REDDIT-BINARY", "COLLAB")
"""The datasets of Table 1, in its order."""
MOLHIV = "ogbg-molhiv"
"""The dataset of Table 2."""
FOLDS = 10
REPETITIONS = {1: FOLDS, 2: 10}
"""Over how many folds or seeds the numbers of each table are averages."""


class Reported(NamedTuple):
    """A cell of the paper's tables, in percent."""

    mean: float
    std: float | None
    table: int

    @property
    def error(self) -> float | None:
        """The standard error of the mean: the standard deviation over √n folds or seeds.

        >>> round(Reported(91.6, 6.5, 1).error, 2)
        2.06
        """
        return None if self.std is None else self.std / math.sqrt(REPETITIONS[self.table])

    def __str__(self) -> str:
        if self.std is None:
            return f"{self.mean}"
        digits = max(len(f"{value}".partition(".")[2]) for value in (self.mean, self.std))
        return f"{self.mean:.{digits}f} ± {self.std:.{digits}f}"


_Cell = tuple[float, float] | float | None


def _row(*cells: _Cell) -> dict[str, Reported]:
    """A row of Table 1, by dataset, without those that the table leaves out."""
    values = {name: cell for name, cell in zip(TU, cells, strict=True) if cell is not None}
    return {
        name: Reported(*cell, table=1) if isinstance(cell, tuple) else Reported(cell, None, 1)
        for name, cell in values.items()
    }


GIN: dict[str, dict[str, Reported]] = {
    "layer": _row((82.4, 6.4), (62.8, 9.3), (76.2, 3.0), (78.3, 1.7), (74.5, 4.4), (82.8, 7.7), (80.1, 0.8)),
    "batch": _row((89.4, 5.6), (64.6, 7.0), (76.2, 2.8), (82.7, 1.7), (75.1, 5.1), (92.4, 2.5), (80.2, 1.9)),
    "instance": _row((90.5, 7.8), (64.7, 5.9), (76.5, 3.9), (81.2, 1.8), (74.8, 5.0), (93.2, 1.7), (80.0, 2.1)),
    "graph": _row((91.6, 6.5), (64.9, 7.5), (77.4, 4.9), (81.4, 2.4), (76.0, 3.7), (93.5, 2.1), (80.2, 1.0)),
}
"""Table 1: accuracy of GIN under the protocol ``paper``, by normalization and dataset."""

BASELINES: dict[str, dict[str, Reported]] = {
    "WL subtree": _row((90.4, 5.7), (59.9, 4.3), (75.0, 3.1), (86.0, 1.8), (73.8, 3.9), (81.0, 3.1), (78.9, 1.9)),
    "DCNN": _row(67.0, 56.6, 61.3, 62.6, 49.1, None, 52.1),
    "DGCNN": _row(85.8, 58.6, 75.5, 74.4, 70.0, None, 73.7),
    "AWL": _row((87.9, 9.8), None, None, None, (74.5, 5.9), (87.9, 2.5), (73.9, 1.9)),
}
"""Table 1: other methods."""
BASELINE_NAMES = {"wl": "WL subtree", "dcnn": "DCNN", "dgcnn": "DGCNN", "awl": "AWL"}
"""The paper's names, by ours."""

TABLE_2: dict[str, dict[str, Reported]] = {
    "molhiv-gcn": {
        "layer": Reported(75.04, 0.48, 2),
        "batch": Reported(76.22, 0.95, 2),
        "instance": Reported(78.18, 0.42, 2),
        "graph": Reported(78.30, 0.69, 2),
    },
    "molhiv-gin": {
        "layer": Reported(74.79, 0.92, 2),
        "batch": Reported(76.61, 0.97, 2),
        "instance": Reported(77.54, 1.27, 2),
        "graph": Reported(77.73, 1.29, 2),
    },
}
"""Table 2: test ROC-AUC on ogbg-molhiv under the protocol ``given``, by model and normalization."""

MOLHIV_BASELINES: dict[str, Reported] = {"GCN": Reported(76.06, 0.97, 2), "GIN": Reported(75.58, 1.40, 2)}
"""Table 2: OGB's own models."""


def reported(dataset: str, model: str, norm: str, protocol: str) -> Reported | None:
    """The paper's number for a cell; None if it has none under this protocol. A baseline has no normalization.

    dataset: the catalogue's name.

    >>> str(reported("MUTAG", "gin", "graph", "paper")), str(reported("MUTAG", "wl", "none", "paper"))
    ('91.6 ± 6.5', '90.4 ± 5.7')
    """
    if dataset == MOLHIV and protocol == "given":
        ogb = {"ogb-gcn": "GCN", "ogb-gin": "GIN"}.get(model, "")
        return TABLE_2.get(model, {}).get(norm) or MOLHIV_BASELINES.get(ogb)
    if protocol != "paper":
        return None
    row = GIN.get(norm, {}) if model == "gin" else BASELINES.get(BASELINE_NAMES.get(model, ""), {})
    return row.get(dataset)


def dataset_table() -> dict[str, PaperStatistics]:
    """The paper's dataset table, by the catalogue's names.

    >>> dataset_table()["MUTAG"].avg_edges
    57.5
    """
    return {name: entry.paper for name, entry in CATALOG.items() if entry.paper is not None}


def unlike_the_paper(folds: int, epochs: int, configurations: int) -> list[str]:
    """A note for numbers that are compared with the paper's and have other settings."""
    theirs = (FOLDS, *GRIDS["paper"].axes["epochs"], len(GRIDS["paper"]))
    if (folds, epochs, configurations) == theirs:
        return []
    words = "{} folds, {} epochs and the best of {} configurations".format(*theirs)
    return [f"the paper's numbers are of {words}; these of {folds}, {epochs} and {configurations}"]
