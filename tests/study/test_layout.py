"""A result as text: it fits the terminal, keeps its order, and its last line is a command that runs."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from fakes import LEVEL, FakeFleet, compare, rising
from graphnorm.data import load
from graphnorm.study.layout import grouped, sparkline, wrapped

TREES = load("synthetic:trees")
OFFICIAL = replace(
    TREES, splits=dict(zip(("train", "valid", "test"), torch.arange(400).split([320, 40, 40]), strict=True))
)

pytestmark = pytest.mark.usefixtures("fleets")


def found(text: str, kind: str) -> list[str]:
    """The lines with a label, each with those that continue it."""
    lines = re.findall(rf"^{kind} +(.*(?:\n {{9}}.*)*)", text, flags=re.M)
    return [" ".join(line.split()) for line in lines]


def test_norms_stand_in_groups_best_first() -> None:
    result = compare()
    lines = result.to_text().splitlines()
    rows = [line.split()[0] for line in lines[2:10] if line.strip()]
    assert rows == ["norm", "best", "graph", "significantly", "instance", "batch", "layer", "none"]
    assert result.groups == (("graph",), ("instance", "batch", "layer", "none"))
    (best,), (avoid,), (speed,) = (found(result.to_text(), kind) for kind in ("BEST", "AVOID", "SPEED"))
    assert best.startswith(f"graph: {result.norms['graph'].shown} %")
    assert f"none ({result.metric.worse_by(result.pair('graph', 'none').difference)})" in avoid
    assert speed.endswith(", ".join(f"{name} {result.convergence.epochs[name]}" for name in result.ranking))


def test_speeds_that_do_not_differ_are_not_listed() -> None:
    result = compare(norms="batch,instance")
    result.convergence.epochs.update(batch=3, instance=4)
    assert len(found(str(result), "SPEED")) == 1
    result.convergence.epochs.update(batch=3, instance=3)
    assert found(str(result), "SPEED") == []


def test_ties_are_named() -> None:
    result = compare(norms="batch,instance", protocol="fair")
    assert result.groups == (("instance", "batch"),)
    assert found(str(result), "TIED") == ["instance and batch: within 1.5 points; 10 folds do not tell them apart"]
    assert "tied for the best" in str(result)
    assert found(str(result), "AVOID") == []


def test_without_a_test_nothing_is_called_a_tie() -> None:
    single = str(compare(OFFICIAL, norms="batch,graph", seeds=1))
    assert found(single, "TIED") == ["graph and batch: too few seeds for a test"]
    assert "tied for the best" not in single


def test_guessing_is_no_victory(monkeypatch: pytest.MonkeyPatch) -> None:
    for norm in ("none", "graph"):
        monkeypatch.setitem(LEVEL, norm, 0.3)
    result = compare(norms="none,graph")
    assert not result.learned
    assert found(str(result), "BEST") == found(str(result), "TIED") == []
    assert found(str(result), "CAUTION")[0] == result.verdict
    assert found(str(result), "NEXT") == ["train longer: --epochs 100"]


@pytest.mark.parametrize(("guessing", "advice"), [(["none"], "--seeds 3"), (["none", "layer"], "--epochs 100")])
def test_where_half_of_the_norms_guess_they_train_longer(
    fleets: type[FakeFleet], monkeypatch: pytest.MonkeyPatch, guessing: list[str], advice: str
) -> None:
    fleets.values = staticmethod(lambda trial, epoch: rising(trial, trial.epochs))  # best at once
    for norm in guessing:
        monkeypatch.setitem(LEVEL, norm, 0.3)
    (command,) = found(str(compare(norms="none,layer,batch,instance")), "NEXT")
    assert command.endswith(advice)


def test_the_best_is_named_only_by_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no better than chance is doubted, but only a test proves it worse."""
    monkeypatch.setitem(LEVEL, "none", 0.3)
    result = compare(OFFICIAL, norms="none,graph", seeds=1)
    assert result.groups == (("graph", "none"),)
    assert found(str(result), "BEST") == found(str(result), "AVOID") == []
    assert found(str(result), "TIED") == ["graph and none: too few seeds for a test"]
    assert any(text.startswith("none: no better than chance") for text in found(str(result), "CAUTION"))


def test_no_heading_ranks_what_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two norms below chance may differ significantly; neither is called the best."""
    monkeypatch.setitem(LEVEL, "none", 0.1)
    monkeypatch.setitem(LEVEL, "graph", 0.3)
    result = compare(norms="none,graph")
    assert result.worse
    assert not result.learned
    assert grouped(result) == [("", result.ranking)]


@pytest.mark.parametrize("width", [50, 80, 100])
def test_it_fits(width: int) -> None:
    result = compare(baselines="wl", folds=3, norms="none,graph")
    plain = result.to_text(width, command=["graphnorm", "compare", "a-name-of-some-length", "--out", "folder"])
    assert max(map(len, plain.splitlines())) <= width
    assert ("against graph [95 %]" in plain) == (width >= 80)  # the curves take less
    assert "validation" in plain
    marked = result.to_text(width, colour=True)
    assert "\033[" not in plain
    assert re.sub(r"\033\[[\d;]*m", "", marked) == result.to_text(width)


def test_words_stay_whole() -> None:
    assert wrapped("graphnorm compare --batch-size 134", 20) == ["graphnorm compare", "--batch-size 134"]


def test_the_next_command() -> None:
    """It changes the one that was run; another folder holds what it writes."""
    result = compare(norms="batch,instance", folds=4)
    words = ["graphnorm", "compare", "my graphs", "--epochs", "20", "--out", "a"]
    (command,) = found(result.to_text(200, command=words), "NEXT")
    change = "--epochs 100" if "longer" in command else "--seeds 3"
    assert command.endswith(change)
    assert "compare 'my graphs'" in command
    assert f"--out a-{change.strip('-').replace(' ', '-')}" in command


def test_baselines_and_what_has_no_score(fleets: type[FakeFleet]) -> None:
    fleets.diverging = frozenset(("none", fold) for fold in range(3))
    lines = str(compare(norms="none,graph", folds=3, baselines="wl")).splitlines()
    titles = [line for line in lines if line in ("without a score", "baselines, not ranked")]
    assert titles == ["without a score", "baselines, not ranked"]
    assert lines[lines.index("without a score") + 1].split()[0] == "none"
    assert lines[lines.index("baselines, not ranked") + 1].split()[0] == "wl"


def test_curves() -> None:
    assert sparkline([float("nan"), 0.0, 1.0, 9.0], 0, 1, width=4) == " ▁██"
    assert sparkline([3, 3], 3, 3, width=8) == "▁▁"
