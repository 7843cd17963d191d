"""The result of a study: scores, tests of their differences, a verdict, and what follows from it.

``compare``, ``search``, ``reproduce`` and ``report`` share this type; it is read from a store or from its JSON.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphnorm._version import exact_version
from graphnorm.errors import GraphnormError, need
from graphnorm.files import plain, read_text, replacing, write_text
from graphnorm.settings import Hyperparameters, options_of
from graphnorm.study import layout, notes, verdict
from graphnorm.study.protocol import Protocol, find_protocol
from graphnorm.study.render import Table
from graphnorm.study.score import DIGITS, Convergence, Score, Spread
from graphnorm.study.significance import ALPHA, CONFIDENCE, PairTest, compare_all
from graphnorm.study.store import UNFIT
from graphnorm.study.verdict import Finding
from graphnorm.training import Metric, find_metric

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

__all__ = ["FORMAT", "WRITTEN", "Result", "load_result", "write_result"]

FORMAT = "graphnorm-result-1"
"""Changes whenever the meaning of the JSON changes."""
WRITTEN = ("result.json", "result.csv", "scores.csv", "curves.csv", "curves.png", "curves.svg")
"""The files of a result in a folder."""


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
    """The first lines of the errors of failed trials, each once."""
    store: str = ""
    """The file of the store that keeps the trials; empty where none does, and in a result that is read from JSON."""

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
    def division(self) -> str:
        """How the graphs were divided, for titles: the label of the protocol, or the kind of split that was given."""
        return str(self.spec.get("split") or self.protocol.label)

    @property
    def metric(self) -> Metric:
        """The metric that selects and is reported."""
        return _metric_of(self.spec)

    @property
    def chance(self) -> float | None:
        """The score of guessing; None if unknown."""
        return self.spec.get("chance")

    @property
    def overlap(self) -> float:
        """See :meth:`Protocol.overlap`."""
        return self.protocol.overlap(int(self.spec["folds"]))

    @property
    def units(self) -> int:
        """Folds, or seeds under a given split, as planned."""
        return int(self.spec[f"{self.protocol.unit}s"])

    @property
    def axes(self) -> dict[str, list[Any]]:
        """The values of each setting in the grid."""
        return {name: values for name, values in self.spec.get("grid", {}).items() if name != "name"}

    def values_of(self, option: str) -> list[Any]:
        """The trained values of a setting."""
        return list(self.axes.get(option) or [self.spec.get(option, options_of(Hyperparameters)[option].default)])

    @cached_property
    def scores(self) -> dict[str, Score]:
        """Those of normalizations by name, and those of baselines as ``baseline NAME``."""
        return {**self.norms, **{f"baseline {name}": score for name, score in self.baselines.items()}}

    @cached_property
    def targets(self) -> dict[str, dict[str, Spread]]:
        """Of several targets, the metric of each: by the target's name, then as :attr:`scores`; empty for one target.

        A score of trainings that have no metric by target is left out.
        """
        names = self.spec.get("target_names") or ()
        known = {label: score.targets for label, score in self.scores.items() if len(score.targets) == len(names) > 1}
        if not known:
            return {}
        return {name: {label: spreads[k] for label, spreads in known.items()} for k, name in enumerate(names)}

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices of the selected trainings."""
        return tuple(sorted({device for score in self.scores.values() for device in score.devices}))

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Names of normalizations and baselines without a score."""
        return tuple(score.name for score in self.scores.values() if not score.choices)

    # Who is better

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

    @property
    def learned(self) -> bool:
        """Whether the best normalization is better than guessing."""
        return self.best is not None and self.metric.learned(self.norms[self.best].mean, self.chance)

    @cached_property
    def worse(self) -> list[str]:
        """The normalizations that are significantly worse than the best."""
        return [name for name in self.ranking if (test := self.against_best(name)) is not None and test.significant]

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The best normalization with those that are not significantly worse, and the others."""
        leaders = tuple(name for name in self.ranking if name not in self.worse)
        return tuple(filter(None, (leaders, tuple(self.worse))))

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
        return [*notes.cautions(self), *notes.explanations(self)]

    @property
    def findings(self) -> list[Finding]:
        """Labelled conclusions from the table; the last one says what to do next."""
        return verdict.findings(self)

    # Text, HTML, figure, data frame

    @property
    def title(self) -> str:
        """Dataset, model, protocol and size of the study, in one line."""
        return layout.title(self)

    @property
    def table(self) -> Table:
        """A row for each normalization and each baseline: the best first, then the others, group by group."""
        return layout.table(self)

    @property
    def target_table(self) -> Table:
        """A row for each of several targets, a column for each score, in the order of :attr:`table`."""
        return layout.target_table(self)

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, width: int = 80, *, colour: bool = False, command: Sequence[str] = ()) -> str:
        """For a terminal: the norms in groups, best first, and what follows from them.

        width: characters of a line. A column that does not fit is left out, the least important first.
        colour: mark labels and headings by ANSI codes.
        command: the words of the command that was run. The last line changes it to what is worth running next.
        """
        return layout.show(self, width=width, colour=colour, command=command)

    def __repr__(self) -> str:
        return f"Result({self.dataset}, {self.model}: {', '.join(self.norms)}; {self.verdict})"

    def _repr_html_(self) -> str:
        leaders = len(self.groups[0]) if self.learned else 0
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return (
            f"<p>{escape(self.title)}</p>{self.table.to_html([True] * leaders)}<p><b>{escape(self.verdict)}</b></p>"
            + (f"<ul>{notes}</ul>" if notes else "")
            + (f"<p>{layout.target_title(self)}</p>{self.target_table.to_html()}" if self.targets else "")
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
        for label, score in self.scores.items():
            test = self.against_best(label)
            behind = 0.0 if label == self.best else test and test.difference and self.metric.sign * test.difference
            rows.append(
                {
                    "norm": label,
                    "mean": score.mean,
                    "std": score.std,
                    "epoch": statistics.median(score.epochs) if score.epochs and score.kernel is None else None,
                    "epochs_to_target": self.convergence.epochs.get(label),
                    "area": self.convergence.area.get(label),
                    "seconds": score.seconds,
                    "diverged": score.diverged,
                    "configurations": score.compared,
                    "paper_mean": score.paper and score.paper.mean,
                    "paper_std": score.paper and score.paper.std,
                    "behind_best": behind,
                    "p_adjusted": test and test.p_adjusted,
                    "significantly_worse_than_best": label in self.worse,
                }
            )
        frame = pandas.DataFrame(rows).set_index("norm")
        whole = ("diverged", "configurations", "significantly_worse_than_best")
        return frame.astype({column: "float64" for column in frame.columns if column not in whole})

    # JSON

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON; the documentation explains each field."""
        written = {label: self._write_score(label, score) for label, score in self.scores.items()}
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
            "norms": {name: written[name] for name in self.norms},
            "baselines": {name: written[f"baseline {name}"] for name in self.baselines},
            "convergence": plain({"slowest": self.convergence.slowest, "target": self.convergence.target}, DIGITS),
            "significance": {
                "test": "paired t-test, corrected for overlapping training sets (Nadeau and Bengio)"
                if self.protocol.paired
                else "Welch's t-test",
                "paired_over": "folds" if self.protocol.paired else None,
                "overlap": self.overlap,
                "adjustment": "Holm",
                "level": ALPHA,
                "confidence": CONFIDENCE,
                "pairs": plain(self.tests, DIGITS),
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

    def _write_score(self, label: str, score: Score) -> dict[str, Any]:
        """A score, and what only the whole result knows of it."""
        written = score.to_dict()
        if label in self.norms:
            speed = {"epochs": self.convergence.epochs.get(label), "area": self.convergence.area.get(label)}
            written["convergence"] = plain(speed, DIGITS)
        if each := {target: of[label]._asdict() for target, of in self.targets.items() if label in of}:
            written["targets"] = plain(each, DIGITS)
        if score.kernel is not None:
            written["candidates"] = score.kernel.candidates
        return written

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Result:
        """Undo :meth:`to_dict`; a GraphnormError names what is wrong in other values."""
        try:
            if values["format"] != FORMAT:
                raise GraphnormError(f"the format is {values['format']!r}, not {FORMAT!r}", remedy="compare again")
            spec = dict(values["spec"])
            protocol, metric = find_protocol(spec["protocol"]), _metric_of(spec)
            norms, baselines = (
                {name: Score.from_dict(name, protocol, metric, one) for name, one in values[kind].items()}
                for kind in ("norms", "baselines")
            )
            if not norms:
                raise KeyError("norms")
            found = cls(
                str(values["study"]),
                spec,
                norms,
                baselines,
                int(values["trials"]),
                dict(values["counts"]),
                float(values["seconds"]),
                tuple(values["code"]),
                tuple(values["errors"]),
            )
            with np.errstate(over="raise"):
                _ = str(found), found.to_dict()  # a value that is missing or does not fit raises here
            return found
        except UNFIT as error:
            if isinstance(error, GraphnormError):
                raise
            raise GraphnormError(f"this is no result: {error!r}", remedy="compare again") from error


def _metric_of(spec: Mapping[str, Any]) -> Metric:
    return find_metric(find_protocol(spec["protocol"]).name, spec.get("task", ""), spec.get("metric", ""))


def write_result(result: Result, folder: Path) -> None:
    """Write the files of :data:`WRITTEN`, each completely or not at all; ``result.json`` comes last."""
    figure = result.plot()
    for name in ("curves.png", "curves.svg"):
        with replacing(folder / name) as fresh:
            figure.savefig(fresh, dpi=150)
    with replacing(folder / "result.csv") as fresh:
        result.to_frame().to_csv(fresh, float_format="%.6g")
    content = result.to_dict()
    columns, targets = ("fold", "seed", "status", "epoch", "score"), len(result.targets)
    scores = [
        [name, *(member[key] for key in columns), *member.get("targets", [None] * targets)[:targets]]
        for name, norm in content["norms"].items()
        for member in norm["members"]
    ]
    curves = [
        [name, curve, epoch, mean, std]
        for name, norm in content["norms"].items()
        for curve, values in norm["curves"].items()
        for epoch, (mean, std) in enumerate(zip(values["mean"], values["std"], strict=True), start=1)
    ]
    texts = {
        "scores.csv": Table(("norm", *columns, *(f"score {name}" for name in result.targets)), scores).to_csv(),
        "curves.csv": Table(("norm", "curve", "epoch", "mean", "std"), curves).to_csv(),
        "result.json": json.dumps(content, indent=1) + "\n",
    }
    for name, text in texts.items():
        write_text(folder / name, text)


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
