"""The result of a study: scores by fold and seed, curves, tests, notes and a verdict.

``compare``, ``search``, ``reproduce`` and ``report`` share this type; it is read from a store or from its JSON.
Scores, means and curves are in percent, or for the errors of real values in the unit of the targets.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm._version import exact_version
from graphnorm.errors import GraphnormError, need
from graphnorm.files import read_text
from graphnorm.models import MODELS
from graphnorm.settings import Hyperparameters, options_of
from graphnorm.study import verdict
from graphnorm.study.findings import Finding, findings
from graphnorm.study.plan import Plan, role
from graphnorm.study.protocol import ALL_GRAPHS, Protocol, find_protocol
from graphnorm.study.render import NOTHING, Table, counted, short
from graphnorm.study.reported import Reported, reported, reported_baseline
from graphnorm.study.selection import Choice, choose, mean_and_std
from graphnorm.study.significance import ALPHA, CONFIDENCE, PairTest, compare_all
from graphnorm.study.store import UNFIT, Record, Store
from graphnorm.study.terminal import show
from graphnorm.training import Metric, Trial, find_metric, metric_of

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

__all__ = ["CURVES", "FORMAT", "Convergence", "Result", "Score", "load_result", "read"]

FORMAT = "graphnorm-result-1"
"""Changes whenever the meaning of the JSON changes."""
CURVES = ("loss", "train", "valid", "test")
DIGITS = 6
"""Decimal places of numbers in JSON; below 0.1 the digits."""

Curve = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Score:
    """The score of one normalization or baseline, with the epochs and configurations that the protocol selected."""

    name: str
    protocol: Protocol
    metric: Metric
    trials: int
    """Number of planned trials."""
    finished: int
    configurations: tuple[dict[str, Any], ...]
    """The settings of each configuration that differ between configurations."""
    choices: tuple[Choice, ...] = ()
    """One for every fold and seed; empty while nothing can be selected."""
    compared: int = 0
    """Number of configurations that the selection compared, in the fold with the fewest."""
    took_part: tuple[int, ...] = ()
    """Indices of the configurations that were compared in every fold."""
    curves: Mapping[str, tuple[Curve, Curve]] = field(default_factory=dict, repr=False)
    """Mean and standard deviation by epoch, over the selected trainings that did not diverge."""
    seconds: float = 0.0
    """Training time of the selected trainings."""
    devices: tuple[str, ...] = ()
    paper: Reported | None = None
    """The paper's number for the same table cell, if it has one."""

    @cached_property
    def scores(self) -> dict[int, float]:
        """Score by fold, or by seed under an official split; NaN where all trainings diverged.

        The seeds of a fold are averaged first, since they share its graphs.
        """
        units: dict[int, list[float]] = {}
        for choice in self.choices:
            units.setdefault(getattr(choice, self.protocol.unit), []).append(self.metric.scale * choice.score)
        return {unit: mean_and_std(values)[0] for unit, values in sorted(units.items())}

    @cached_property
    def mean(self) -> float:
        """Mean over folds or seeds; NaN without a score."""
        return mean_and_std(list(self.scores.values()))[0]

    @cached_property
    def std(self) -> float:
        """Sample standard deviation (n − 1) over folds or seeds; NaN for fewer than two."""
        return mean_and_std(list(self.scores.values()))[1]

    @property
    def epochs(self) -> list[int]:
        """The selected epochs of the trainings that did not diverge."""
        return [choice.epoch for choice in self.choices if choice.epoch is not None]

    @property
    def epoch(self) -> int | None:
        """The epoch, if all trainings share one."""
        return self.epochs[0] if len(set(self.epochs)) == 1 else None

    @property
    def diverged(self) -> int:
        """Number of selected trainings that diverged."""
        return sum(choice.epoch is None for choice in self.choices)

    @property
    def chosen(self) -> dict[str, Any] | None:
        """The configuration, if all folds selected the same."""
        places = {choice.configuration for choice in self.choices}
        return self.configurations[places.pop()] if len(places) == 1 else None

    @property
    def members(self) -> int:
        """Planned folds times seeds."""
        return self.trials // max(len(self.configurations), 1)

    @property
    def shown(self) -> str:
        """Mean ± standard deviation, as text."""
        if not math.isfinite(self.mean):
            return NOTHING if not self.choices else "diverged"
        spread = f" ± {self.metric.text(self.std, like=self.mean)}" if math.isfinite(self.std) else ""
        return self.metric.text(self.mean) + spread

    @property
    def chosen_epoch(self) -> str:
        """The selected epoch or range of epochs, as text; a kernel's epochs are its candidate settings."""
        kernel = MODELS[self.name].kernel if self.name in MODELS else None
        if not self.epochs:
            return NOTHING
        if kernel is not None:
            return "varies" if self.epoch is None else kernel.describe(self.epoch)
        return str(self.epoch) if self.epoch is not None else f"{min(self.epochs)}–{max(self.epochs)}"

    @property
    def chosen_settings(self) -> str:
        """The selected configuration, as text."""
        if not self.choices:
            return NOTHING
        if self.chosen is None:
            return "varies by fold"
        return ", ".join(f"{name}={short(value)}" for name, value in self.chosen.items()) or "the only one"

    def to_dict(self) -> dict[str, Any]:
        scale = self.metric.scale
        members = [
            choice._asdict() | {"score": scale * choice.score, "status": "diverged" if choice.epoch is None else "done"}
            for choice in self.choices
        ]
        values = {
            "mean": self.mean,
            "std": self.std,
            "epoch": self.epoch,
            "scores": list(self.scores.values()),
            "trials": self.trials,
            "finished": self.finished,
            "diverged": self.diverged,
            "configurations": [dict(one) for one in self.configurations],
            "compared": self.compared,
            "took_part": list(self.took_part),
            "members": members,
            "seconds": self.seconds,
            "devices": list(self.devices),
            "paper": None if self.paper is None else self.paper._asdict(),
            "curves": {name: {"mean": m.tolist(), "std": s.tolist()} for name, (m, s) in self.curves.items()},
        }
        plain: dict[str, Any] = _rounded(values)
        return plain

    @classmethod
    def from_dict(cls, name: str, protocol: Protocol, metric: Metric, values: Mapping[str, Any]) -> Score:
        """Undo :meth:`to_dict`; wrong values raise KeyError or TypeError."""
        choices = [
            Choice(
                **{k: v for k, v in member.items() if k != "status"}
                | {"score": _number(member["score"]) / metric.scale}
            )
            for member in values["members"]
        ]
        return cls(
            name,
            protocol,
            metric,
            trials=int(values["trials"]),
            finished=int(values["finished"]),
            configurations=tuple(dict(one) for one in values["configurations"]),
            choices=tuple(choices),
            compared=int(values["compared"]),
            took_part=tuple(values["took_part"]),
            curves={
                curve: (np.array(both["mean"], np.float64), np.array(both["std"], np.float64))
                for curve, both in values["curves"].items()
            },
            seconds=_number(values["seconds"]),
            devices=tuple(values["devices"]),
            paper=None if values["paper"] is None else Reported(**values["paper"]),
        )


class Convergence(NamedTuple):
    """How fast normalizations train, by their mean training curves."""

    slowest: str | None = None
    """The normalization with the worst training metric at the end."""
    target: float | None = None
    """That metric; every curve reaches it."""
    epochs: Mapping[str, int] = {}
    """Number of epochs after which each curve reaches the target."""
    area: Mapping[str, float] = {}
    """Mean of each curve over its epochs."""

    @classmethod
    def of(cls, curves: Mapping[str, Curve], sign: int = 1) -> Convergence:
        """Compare training curves.

        sign: :attr:`Metric.sign`.

        >>> dict(Convergence.of({"a": np.array([0.5, 0.8, 0.9]), "b": np.array([0.4, 0.5, 0.7])}).epochs)
        {'a': 2, 'b': 3}
        """
        if not curves:
            return cls()
        slowest = min(curves, key=lambda name: sign * float(curves[name][-1]))
        target = float(curves[slowest][-1])
        epochs = {name: int((sign * curve >= sign * target).argmax()) + 1 for name, curve in curves.items()}
        return cls(slowest, target, epochs, {name: float(curve.mean()) for name, curve in curves.items()})


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Several normalizations trained alike on the same graphs, and the tests of their differences.

    Print it for the table and the verdict; a notebook shows it as HTML.
    """

    study: str
    """The name of the study."""
    spec: Mapping[str, Any]
    """See :attr:`Plan.spec`."""
    norms: Mapping[str, Score]
    """By name, in the order of the request."""
    baselines: Mapping[str, Score] = field(default_factory=dict)
    """Other methods on the same folds. They are neither ranked nor tested: each has its own settings."""
    trials: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    """Number of trials by status: done, diverged, dropped, failed."""
    seconds: float = 0.0
    """Training time of all trials."""
    code: tuple[str, ...] = ()
    """Versions of graphnorm and torch."""
    errors: tuple[str, ...] = ()
    """The first lines of the errors of failed trials."""

    @property
    def dataset(self) -> str:
        return str(self.spec["dataset"])

    @property
    def fingerprint(self) -> str:
        """The hash of the graphs' content."""
        return str(self.spec["fingerprint"])

    @property
    def model(self) -> str:
        return str(self.spec["model"])

    @property
    def protocol(self) -> Protocol:
        return find_protocol(self.spec["protocol"])

    @property
    def metric(self) -> Metric:
        """The metric that selects and is reported."""
        return find_metric(self.protocol.name, self.spec.get("task", ""), self.spec.get("metric", ""))

    @property
    def chance(self) -> float | None:
        """The score of guessing; None if unknown."""
        return self.spec.get("chance")

    @property
    def overlap(self) -> float:
        """See :meth:`Protocol.overlap`."""
        return self.protocol.overlap(int(self.spec["folds"]))

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices of the selected trainings."""
        return tuple(sorted({device for score in self._all() for device in score.devices}))

    def _all(self) -> list[Score]:
        return [*self.norms.values(), *self.baselines.values()]

    def _label(self, score: Score) -> str:
        return score.name if score is self.norms.get(score.name) else f"baseline {score.name}"

    def values_of(self, option: str) -> list[Any]:
        """The trained values of a setting."""
        grid = self.spec.get("grid", {})
        return list(grid.get(option) or [self.spec.get(option, options_of(Hyperparameters)[option].default)])

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Names of normalizations and baselines without a score."""
        return tuple(score.name for score in self._all() if not score.choices)

    @cached_property
    def ranking(self) -> list[str]:
        """Names of normalizations with a mean, best first."""
        known = [name for name, score in self.norms.items() if math.isfinite(score.mean)]
        return sorted(known, key=lambda name: -self.metric.sign * self.norms[name].mean)

    @property
    def best(self) -> str | None:
        """The normalization with the best mean, significant or not."""
        return self.ranking[0] if self.ranking else None

    @cached_property
    def tests(self) -> list[PairTest]:
        """Tests of every pair of normalizations, paired over folds or unpaired over seeds."""
        scores = {name: score.scores for name, score in self.norms.items() if score.choices}
        return compare_all(scores, overlap=self.overlap, paired=self.protocol.paired)

    def pair(self, first: str, second: str) -> PairTest:
        """The test of ``first`` minus ``second``."""
        for test in self.tests:
            if {test.first, test.second} == {first, second}:
                return test.seen_from(first)
        raise GraphnormError(f"there is no pair of {first} and {second}", remedy=f"name two of {', '.join(self.norms)}")

    def against_best(self, name: str) -> PairTest | None:
        """The test of the best normalization against another; None for the best itself, and without a score."""
        if self.best is None or name not in self.ranking[1:]:
            return None
        return self.pair(self.best, name)

    @cached_property
    def convergence(self) -> Convergence:
        curves = {name: score.curves["train"][0] for name, score in self.norms.items() if "train" in score.curves}
        lengths = {len(curve) for curve in curves.values()}
        return Convergence.of(curves, self.metric.sign) if len(lengths) == 1 else Convergence()

    @property
    def verdict(self) -> str:
        """One sentence: which normalization is best, and how certain that is."""
        return verdict.judge(self)

    @property
    def notes(self) -> list[str]:
        """Warnings and explanations for readers of the table."""
        return [*verdict.cautions(self), *self.explanations]

    @property
    def explanations(self) -> list[str]:
        """How to read the table."""
        return verdict.explanations(self)

    @property
    def findings(self) -> list[Finding]:
        """What follows from the table: labelled lines, the last of them says what to do next."""
        return findings(self)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The best normalization with those that are not significantly worse, and the others; best first.

        Where the best is better than guessing, those that are not belong to the others.
        """
        others = [name for name in self.ranking if self.is_worse(name) or (self.learned and self.guesses(name))]
        leaders = [name for name in self.ranking if name not in others]
        return tuple(tuple(group) for group in (leaders, others) if group)

    def is_worse(self, name: str) -> bool:
        """Whether a normalization is significantly worse than the best."""
        test = self.against_best(name)
        return test is not None and test.significant

    def guesses(self, name: str) -> bool:
        """Whether a normalization is no better than chance."""
        return not self.metric.learned(self.norms[name].mean, self.chance)

    @property
    def grouped(self) -> list[tuple[str, dict[str, Score]]]:
        """All scores in the order of the table: the titles of groups, and their scores by label."""
        proven = [self.is_worse(name) for group in self.groups[1:] for name in group]
        reasons = ["significantly worse"] * any(proven) + ["no better than chance"] * (not all(proven))
        titles = ["best", ", or ".join(reasons)]
        if self.groups and len(self.groups[0]) > 1:
            titles[0] = "tied for the best"
        if len(self.groups) == 1 and (not self.learned or all(test.p is None for test in self.tests)):
            titles[0] = ""
        shown = [
            (title, {name: self.norms[name] for name in group})
            for title, group in zip(titles, self.groups, strict=False)
        ]
        without = {name: score for name, score in self.norms.items() if name not in self.ranking}
        baselines = {f"baseline {name}": score for name, score in self.baselines.items()}
        shown += [("without a score", without)] if without else []
        return shown + ([("baselines, not ranked", baselines)] if baselines else [])

    @property
    def learned(self) -> bool:
        """Whether the best normalization is better than guessing."""
        return self.best is not None and not self.guesses(self.best)

    # Text, HTML, figure, data frame

    @property
    def title(self) -> str:
        """Dataset, model, protocol and size of the study, in one line."""
        spec = self.spec
        parts = [f"{self.dataset} ({spec['graphs']:,} graphs)" if spec.get("graphs") else self.dataset, self.model]
        parts += [f"protocol {self.protocol.name}"]
        if self.protocol is not ALL_GRAPHS:
            parts += [f"{spec['folds']} folds" if self.protocol.unit == "fold" else "official split"]
        parts += [f"{spec['seeds']} seeds"] if spec["seeds"] > 1 else []
        configurations = max((len(score.configurations) for score in self.norms.values()), default=1)
        parts += [counted(configurations, "configuration")] if configurations > 1 else []
        epochs = self.values_of("epochs")
        return ", ".join(parts + ([counted(epochs[0], "epoch")] if len(epochs) == 1 else []))

    @property
    def table(self) -> Table:
        """A row for each normalization and each baseline, in the order of :attr:`grouped`."""
        scores = {label: score for _, group in self.grouped for label, score in group.items()}
        convergence, metric = self.convergence, self.metric
        several = any(len(score.configurations) > 1 for score in scores.values())
        unfinished = any(score.finished < score.trials for score in scores.values())
        with_paper = any(score.paper is not None for score in scores.values())
        goal = "target" if convergence.target is None else metric.with_unit(convergence.target)
        columns = ["norm", metric.title, f"difference to {self.best} [95 %]", "p", "epoch"]
        columns += ["configuration"] if several else []
        columns += ["trials"] if unfinished else []
        columns += [f"epochs to {goal} in training", f"mean {metric.title} in training"]
        columns += ["paper"] if with_paper else []
        rows: list[list[str]] = []
        for label, score in scores.items():  # a baseline has no test and no convergence
            lost = f" ({score.diverged} diverged)" if score.diverged and math.isfinite(score.mean) else ""
            row = [label, score.shown + lost, self.shown_difference(label), self.shown_p(label), score.chosen_epoch]
            row += [score.chosen_settings] if several else []
            row += [f"{score.finished:,} of {score.trials:,}"] if unfinished else []
            area = convergence.area.get(label)
            row += [str(convergence.epochs.get(label, NOTHING)), NOTHING if area is None else metric.text(area)]
            row += [NOTHING if score.paper is None else str(score.paper)] if with_paper else []
            rows.append(row)
        return Table(tuple(columns), rows)

    def shown_difference(self, label: str) -> str:
        """The difference to the best with its interval, as text."""
        test = self.against_best(label)
        if test is None or test.difference is None:
            return NOTHING
        best = self.norms[test.first].mean
        low, high = (None if end is None else self.metric.signed(-end, best) for end in (test.high, test.low))
        return self.metric.signed(-test.difference, best) + ("" if low is None else f" [{low}, {high}]")

    def shown_p(self, name: str) -> str:
        """The adjusted p-value, with a star if the best is significantly better."""
        if name == self.best:
            return "best"
        test = self.against_best(name)
        if test is None or test.p_adjusted is None:
            return NOTHING
        return ("<0.001" if test.p_adjusted < 0.001 else f"{test.p_adjusted:.3f}") + (" *" if test.significant else "")

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, width: int = 80, *, colour: bool = False, command: Sequence[str] = ()) -> str:
        """For a terminal: the norms in groups, best first, and what follows from them.

        width: characters of a line. A column that does not fit is left out, the least important first.
        colour: mark labels and headings by ANSI codes.
        command: the words of the command that was run. The last line changes it to what is worth running next.
        """
        return show(self, width=width, colour=colour, command=command)

    def __repr__(self) -> str:
        return f"Result({self.dataset}, {self.model}: {', '.join(self.norms)}; {self.verdict})"

    def _repr_html_(self) -> str:
        from html import escape

        strong = [True] * len(self.groups[0]) if self.groups and self.learned else []
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return f"<p>{escape(self.title)}</p>{self.table.to_html(strong)}<p><b>{escape(self.verdict)}</b></p>" + (
            f"<ul>{notes}</ul>" if notes else ""
        )

    def plot(self) -> Figure:
        """Draw training and validation curves of all normalizations, with a band of one standard deviation.

        A dot marks the selected epoch, if all trainings share one.
        """
        from graphnorm.study.plots import plot_curves

        return plot_curves(self)

    def to_frame(self) -> pandas.DataFrame:
        """A row for each normalization and each baseline; unknown values are NaN."""
        need("pandas", "a data frame", "study")
        import pandas

        rows = []
        for score in self._all():
            label = self._label(score)
            test = self.against_best(label)
            behind = 0.0 if label == self.best else test and test.difference and self.metric.sign * test.difference
            kernel = score.name in MODELS and MODELS[score.name].kernel is not None
            rows.append(
                {
                    "norm": label,
                    "mean": score.mean,
                    "std": score.std,
                    "epoch": statistics.median(score.epochs) if score.epochs and not kernel else None,
                    "epochs_to_target": self.convergence.epochs.get(label),
                    "area": self.convergence.area.get(label),
                    "seconds": score.seconds,
                    "diverged": score.diverged,
                    "configurations": score.compared,
                    "paper_mean": None if score.paper is None else score.paper.mean,
                    "paper_std": None if score.paper is None else score.paper.std,
                    "behind_best": behind,
                    "p_adjusted": None if test is None else test.p_adjusted,
                    "significantly_worse_than_best": test is not None and test.significant,
                }
            )
        frame = pandas.DataFrame(rows).set_index("norm")
        whole = ("diverged", "configurations", "significantly_worse_than_best")
        return frame.astype({column: "float64" for column in frame.columns if column not in whole})

    # JSON

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON; the documentation explains each field."""
        convergence = self.convergence
        of_norms = {
            name: score.to_dict()
            | {"convergence": _rounded({"epochs": convergence.epochs.get(name), "area": convergence.area.get(name)})}
            for name, score in self.norms.items()
        }
        kernels = {name: MODELS[name].kernel for name in self.baselines}
        of_baselines = {
            name: score.to_dict() | ({"candidates": kernel.candidates} if (kernel := kernels[name]) else {})
            for name, score in self.baselines.items()
        }
        return {
            "format": FORMAT,
            "version": exact_version(),
            "study": self.study,
            "dataset": self.dataset,
            "fingerprint": self.fingerprint,
            "model": self.model,
            "protocol": self.protocol.name,
            "metric": self.metric.name,
            "unit": self.metric.unit,
            "higher_is_better": self.metric.higher_is_better,
            "chance": self.chance,
            "spec": dict(self.spec),
            "trials": self.trials,
            "counts": dict(self.counts),
            "seconds": round(self.seconds, 3),
            "code": list(self.code),
            "errors": list(self.errors),
            "norms": of_norms,
            "baselines": of_baselines,
            "convergence": _rounded({"slowest": convergence.slowest, "target": convergence.target}),
            "significance": {
                "test": "paired t-test, corrected for overlapping training sets (Nadeau and Bengio)"
                if self.protocol.paired
                else "Welch's t-test",
                "paired_over": "folds" if self.protocol.paired else None,
                "overlap": self.overlap,
                "adjustment": "Holm",
                "level": ALPHA,
                "confidence": CONFIDENCE,
                "pairs": [_rounded(test.to_dict()) for test in self.tests],
            },
            "ranking": self.ranking,
            "groups": [list(group) for group in self.groups],
            "verdict": self.verdict,
            "findings": [
                {"kind": kind, "text": text, "options": list(options)} for kind, text, options in self.findings
            ],
            "notes": self.notes,
            "unfinished": list(self.unfinished),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Result:
        """Undo :meth:`to_dict`; a GraphnormError names what is wrong in other values."""
        try:
            if values["format"] != FORMAT:
                raise GraphnormError(f"the format is {values['format']!r}, not {FORMAT!r}", remedy="compare again")
            protocol = find_protocol(values["spec"]["protocol"])
            spec = values["spec"]
            metric = find_metric(protocol.name, spec.get("task", ""), spec.get("metric", ""))
            norms, baselines = (
                {name: Score.from_dict(name, protocol, metric, one) for name, one in values[kind].items()}
                for kind in ("norms", "baselines")
            )
            found = cls(
                str(values["study"]),
                dict(values["spec"]),
                norms,
                baselines,
                int(values["trials"]),
                dict(values["counts"]),
                float(values["seconds"]),
                tuple(values["code"]),
                tuple(values["errors"]),
            )
            if not norms:
                raise KeyError("norms")
            with np.errstate(over="raise"):
                _ = str(found), found.to_dict()  # a value that is missing or does not fit raises here
            return found
        except UNFIT as error:
            if isinstance(error, GraphnormError):
                raise
            raise GraphnormError(f"this is no result: {error!r}", remedy="compare again") from error


def load_result(folder: str | os.PathLike[str]) -> Result:
    """Load the result from a folder that ``graphnorm compare --out`` wrote."""
    file = Path(folder) / "result.json"
    if not file.exists():
        raise GraphnormError("there is no result in it", where=folder, remedy="name the folder of compare --out")
    text = read_text(file)
    try:
        return Result.from_dict(json.loads(text))
    except GraphnormError as error:
        raise GraphnormError(error.problem, where=file, remedy=error.remedy) from error
    except (ValueError, RecursionError) as error:
        raise GraphnormError(f"this is no result: {error}", where=file, remedy="compare again") from error


def _rounded(value: Any) -> Any:
    """Round numbers for JSON; NaN and infinity become None."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return round(value, DIGITS) if abs(value) >= 0.1 else float(f"{value:.{DIGITS}g}")
    return value


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


# From a store


def read(store: Store, plan: Plan, *, partial: bool = False, among: Callable[[Trial], bool] | None = None) -> Result:
    """Read the result of a plan, as far as the store has its trials; it need not be a study of this store.

    partial: if no configuration is finished on all folds and seeds, use those of the configuration with the most.
    among: select only among configurations whose trials pass this filter.
    """
    records = {record.place: record for record in store.records(plan)}
    groups: dict[tuple[Literal["norms", "baselines"], str], dict[tuple[Any, ...], list[int]]] = {}
    for place, trial in enumerate(plan.trials):
        if among is None or among(trial):
            groups.setdefault(role(trial), {}).setdefault(trial.configuration, []).append(place)
    found: dict[str, dict[str, Score]] = {"norms": {}, "baselines": {}}
    for (kind, name), configurations in groups.items():
        found[kind][name] = _read_score(store, plan, name, list(configurations.values()), records, partial)
    return Result(
        plan.name,
        plan.spec,
        found["norms"],
        found["baselines"],
        trials=len(plan.trials),
        counts=dict(Counter(record.status for record in records.values())),
        seconds=sum(record.seconds for record in records.values()),
        code=tuple(sorted({record.code for record in records.values()})),
        errors=tuple(sorted({record.error.splitlines()[0] for record in records.values() if record.error})),
    )


def _read_score(
    store: Store, plan: Plan, name: str, groups: list[list[int]], records: dict[int, Record], partial: bool
) -> Score:
    examples = [plan.trials[group[0]] for group in groups]
    protocol = find_protocol(examples[0].protocol)
    varied = [
        option
        for option in options_of(Hyperparameters)
        if any(getattr(trial, option) != getattr(examples[0], option) for trial in examples)
    ]
    places = [place for group in groups for place in group]
    score = Score(
        name,
        protocol,
        metric_of(examples[0]),
        trials=len(places),
        finished=sum(records[p].status in ("done", "diverged") for p in places if p in records),
        configurations=tuple({option: getattr(trial, option) for option in varied} for trial in examples),
    )
    # Where all graphs train, nothing is held out to choose by.
    chosen = None if protocol is ALL_GRAPHS else choose(store, plan, groups, records, partial=partial)
    if chosen is None:
        return score
    of_choices = {
        (choice.fold, choice.seed): place
        for choice in chosen.choices
        for place in groups[choice.configuration]
        if (plan.trials[place].fold, plan.trials[place].seed) == (choice.fold, choice.seed)
    }
    members = store.records(plan, curves=CURVES, places=of_choices.values())
    trial = examples[0]
    paper = None
    if plan.spec.get("catalogued", True) and role(trial)[0] == "norms":
        paper = reported(trial.dataset, trial.model, trial.norm, protocol.name)
    elif plan.spec.get("catalogued", True):
        paper = reported_baseline(trial.dataset, trial.model, protocol.name)
    return replace(
        score,
        choices=chosen.choices,
        compared=chosen.compared,
        took_part=chosen.took_part,
        curves=_average([record for record in members if record.status == "done"], score.metric.scale),
        seconds=sum(record.seconds for record in members),
        devices=tuple(sorted({record.device for record in members if record.device})),
        paper=paper,
    )


def _average(members: Sequence[Record], scale: float) -> dict[str, tuple[Curve, Curve]]:
    """Mean and sample standard deviation by epoch of the curves that all members have."""
    curves = {}
    for name in CURVES:
        if members and all(name in record.curves for record in members):
            values = np.stack([record.curves[name] for record in members]).astype(np.float64)
            values = values * (1.0 if name == "loss" else scale)
            spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1], np.nan)
            curves[name] = values.mean(axis=0), spread
    return curves
