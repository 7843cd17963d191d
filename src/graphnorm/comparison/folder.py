"""The folder of a comparison: what was trained, so that it can go on, and the result for people and programs.

::

    trained/NORM.safetensors   the members of a normalization, written as soon as they are trained
    curves.png, curves.svg     training and validation curves
    comparison.csv             a row for each normalization
    members.csv                a row for each fold and seed of each normalization
    curves.csv                 a row for each epoch of each curve
    comparison.json            everything; written last

Every file is there wholly or not at all.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphnorm.comparison.plots import plot_curves
from graphnorm.data.cache import replacing
from graphnorm.errors import GraphnormError, MissingDependencyError
from graphnorm.training.trial import Outcome, Trial

if TYPE_CHECKING:
    from graphnorm.comparison.result import Comparison

__all__ = ["Folder"]

FORMAT = "graphnorm-outcomes-1"


class Folder:
    """Where a comparison is kept; it is made, and found to be writable, before anything is trained.

    resume: go on with what is there. overwrite: begin anew whatever is there. With neither, a folder that holds a
    comparison is refused.
    """

    def __init__(self, path: Path, *, resume: bool = False, overwrite: bool = False) -> None:
        self.path, self._resume = path, resume
        if path.exists() and not path.is_dir():
            raise GraphnormError("this is a file, not a folder", where=path, remedy="name a folder")
        if not resume and not overwrite and any((path / name).exists() for name in ("comparison.json", "trained")):
            raise GraphnormError(
                "there is a comparison here already",
                where=path,
                remedy="go on with it (--resume), begin anew (--overwrite), or name another folder",
            )
        with replacing(path / "trained" / "writable"):
            pass
        (path / "trained" / "writable").unlink()
        if not resume:
            for file in [path / "comparison.json", *(path / "trained").glob("*.safetensors")]:
                file.unlink(missing_ok=True)

    def find(self, norm: str, trials: Sequence[Trial]) -> list[Outcome] | None:
        """Give the outcomes of exactly these trials, where an earlier run left them."""
        file = self._trained(norm)
        if not self._resume or not file.exists():
            return None
        try:
            outcomes = _read(file)
        except Exception:  # damaged, or of another version: trained anew
            return None
        return outcomes if [o.trial.key for o in outcomes] == [trial.key for trial in trials] else None

    def keep(self, norm: str, outcomes: Sequence[Outcome]) -> None:
        """Write the outcomes of a normalization."""
        with replacing(self._trained(norm)) as fresh:
            _write(fresh, outcomes)

    def write(self, comparison: Comparison) -> list[Path]:
        """Write the result for people and programs; gives the files."""
        figure = plot_curves(comparison)
        files = [self.path / name for name in ("curves.png", "curves.svg")]
        for file in files:
            with replacing(file) as fresh:
                figure.savefig(fresh, dpi=150)
        frame = comparison.to_frame()
        files += [self.path / name for name in ("comparison.csv", "members.csv", "curves.csv", "comparison.json")]
        with replacing(files[2]) as fresh:
            frame.to_csv(fresh, float_format="%.4f")
        content = comparison.to_dict()
        _write_rows(files[3], ("norm", "fold", "seed", "status", "epoch", "score"), _member_rows(content))
        _write_rows(files[4], ("norm", "curve", "epoch", "mean", "std"), _curve_rows(content))
        with replacing(files[5]) as fresh:
            fresh.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return files

    def _trained(self, norm: str) -> Path:
        return self.path / "trained" / f"{norm.replace(' ', '-')}.safetensors"


def _write(file: Path, outcomes: Sequence[Outcome]) -> None:
    safetensors = _safetensors()
    names = list(outcomes[0].curves)
    arrays = {name: np.stack([outcome.curves[name] for outcome in outcomes]) for name in names}
    members = [
        {"trial": o.trial.to_dict(), "status": o.status, "seconds": o.seconds, "device": o.device} for o in outcomes
    ]
    safetensors.save_file(arrays, file, {"graphnorm": json.dumps({"format": FORMAT, "members": members})})


def _read(file: Path) -> list[Outcome]:
    from safetensors import safe_open

    with safe_open(file, framework="np") as content:
        description = json.loads(content.metadata()["graphnorm"])
        arrays = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    if description["format"] != FORMAT:
        raise ValueError(f"the format is {description['format']}")
    return [
        Outcome(
            Trial(**member["trial"]),
            {name: values[place] for name, values in arrays.items()},
            member["status"],
            member["seconds"],
            member["device"],
        )
        for place, member in enumerate(description["members"])
    ]


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise MissingDependencyError("safetensors", "keeping what was trained", "study") from error
    return safetensors.numpy


def _write_rows(file: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with replacing(file) as fresh, fresh.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def _member_rows(content: dict[str, Any]) -> Iterable[list[object]]:
    for name, norm in content["norms"].items():
        for member in norm["members"]:
            yield [name, *member.values()]


def _curve_rows(content: dict[str, Any]) -> Iterable[list[object]]:
    for name, norm in content["norms"].items():
        for curve, values in norm["curves"].items():
            for epoch, (mean, std) in enumerate(zip(values["mean"], values["std"], strict=True), start=1):
                yield [name, curve, epoch, mean, std]
