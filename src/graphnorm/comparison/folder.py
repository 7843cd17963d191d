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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphnorm.comparison.plots import plot_curves
from graphnorm.errors import GraphnormError, MissingDependencyError
from graphnorm.files import replacing
from graphnorm.training.trial import Outcome, Trial

if TYPE_CHECKING:
    from graphnorm.comparison.result import Comparison
    from graphnorm.comparison.settings import Settings

__all__ = ["Folder"]

FORMAT = "graphnorm-outcomes-1"


class Folder:
    """Where a comparison is kept; it is made, and found to be writable, before anything is trained.

    resume: go on with what is there (see :meth:`refuse_others`). overwrite: begin anew whatever is there. With neither,
    a folder that holds a comparison is refused.
    """

    def __init__(self, path: Path, *, resume: bool = False, overwrite: bool = False) -> None:
        self.path, self._resume = path, resume
        if path.exists() and not path.is_dir():
            raise GraphnormError("this is a file, not a folder", where=path, remedy="name a folder")
        held = [path / "comparison.json", *(path / "trained").glob("*.safetensors")]
        if not resume and not overwrite and any(file.exists() for file in held):
            raise GraphnormError(
                "there is a comparison here already",
                where=path,
                remedy="go on with it (--resume), begin anew (--overwrite), or name another folder",
            )
        try:
            with replacing(path / "trained" / "writable"):
                pass
        except OSError as error:
            error.filename = str(path)
            raise
        (path / "trained" / "writable").unlink()
        if not resume:
            for file in held:
                file.unlink(missing_ok=True)

    def refuse_others(self, settings: Settings, trials: Mapping[str, Sequence[Trial]]) -> None:
        """Refuse to resume with other settings or graphs, or without a result that is there: it would be lost.

        trials: all that the comparison would train, by the name that each is kept under.
        """
        if not self._resume:
            return
        fingerprint = next(iter(trials.values()))[0].fingerprint
        differences = _differing_result(self.path / "comparison.json", settings, fingerprint)
        for name, wanted in trials.items():
            differences |= _differing_trials(_read_sound(self._trained(name)), wanted)
        if differences:
            raise GraphnormError(
                f"the comparison here is another one: {'; '.join(differences)}",
                where=self.path,
                remedy="ask for the same, begin anew (--overwrite), or name another folder (--out)",
            )

    def find(self, norm: str, trials: Sequence[Trial]) -> list[Outcome] | None:
        """Give the outcomes of exactly these trials, where an earlier run left them."""
        outcomes = _read_sound(self._trained(norm)) if self._resume else []
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


def _read_sound(file: Path) -> list[Outcome]:
    """Nothing where there is no file, or one that is damaged or of another version: that is trained anew."""
    try:
        return _read(file) if file.exists() else []
    except Exception:
        return []


def _differing_result(file: Path, settings: Settings, fingerprint: str) -> dict[str, None]:
    """In what a ``comparison.json`` differs from what is asked for now, normalizations that it lacks apart."""
    try:
        there: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        graphs, config = there["fingerprint"], there["config"]
        results = {kind: list(there[kind]) for kind in ("norms", "baselines")}
    except (FileNotFoundError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError):
        return {}  # it cannot tell; what was trained can
    asked = settings.to_dict()
    differences = {} if graphs == fingerprint else {f"its graphs ({there.get('dataset')}) are others": None}
    numbers = {name: (config[name], asked[name]) for name in asked.keys() & config.keys() if name not in results}
    differences |= _differing_values({name: numbers[name] for name in asked if name in numbers})
    for kind, names in results.items():
        if gone := [name for name in names if name not in asked[kind]]:
            differences[f"its {kind} {', '.join(gone)} are not asked for"] = None
    return differences


def _differing_trials(outcomes: Sequence[Outcome], trials: Sequence[Trial]) -> dict[str, None]:
    """In what trained members differ from the trials asked for now; nothing where there are none."""
    if not outcomes or [outcome.trial.key for outcome in outcomes] == [trial.key for trial in trials]:
        return {}
    there, asked = outcomes[0].trial.to_dict(), trials[0].to_dict()
    if there["fingerprint"] != asked["fingerprint"]:
        return {f"its graphs ({there['dataset']}) are others": None}
    return _differing_values({name: (there[name], asked[name]) for name in asked if name != "dataset"}) or (
        _differing_values({"seeds": (len(outcomes) // there["folds"], len(trials) // asked["folds"])})
    )


def _differing_values(values: Mapping[str, tuple[Any, Any]]) -> dict[str, None]:
    return {f"its {name} is {there}, not {asked}": None for name, (there, asked) in values.items() if there != asked}


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
