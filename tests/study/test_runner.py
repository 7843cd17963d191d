"""The runner: everything is trained once, whatever fails, and an adaptive search drops the weaker half."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fakes import FakeFleet, rising, scattered
from graphnorm.data import PackedGraphs, synthetic
from graphnorm.errors import StoreError, StudyError
from graphnorm.settings import Grid, Running, Settings
from graphnorm.study import Callback, Result, Stopped, Store, Study, make_plan, run
from graphnorm.study.halving import Ladder
from graphnorm.study.plan import Plan, Rung
from graphnorm.study.store import work_folder
from graphnorm.training import Outcome, Progress, Trial

GRID = Grid("test", {"epochs": (16,), "lr": (0.1, 0.2, 0.3, 0.4)})
GRAPHS = synthetic.regular(num_graphs=30, seed=0)


@pytest.fixture(autouse=True)
def _small_steps(fleets: type[FakeFleet], monkeypatch: pytest.MonkeyPatch) -> None:
    fleets.values = staticmethod(scattered)
    monkeypatch.setattr("graphnorm.study.fleets.MOST_ON_CPU", 4)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # no power is cut here


class Log(Callback):
    """Keeps every event."""

    def __init__(self) -> None:
        self.epochs: Counter[str] = Counter()
        self.failures: list[tuple[int, str, bool]] = []
        self.begun: list[int] = []
        self.dropped: list[int] = []
        self.stops = 0
        self.finished: list[bool] = []

    def on_fleet(self, trials: Sequence[Trial], epoch: int) -> None:
        self.begun.append(epoch)

    def on_epoch(self, progress: Progress) -> None:
        for trial, valid in zip(progress.trials, progress.metrics["valid"], strict=True):
            assert valid == np.float32(scattered(trial, progress.epoch)["valid"])
            self.epochs[trial.key] += 1

    def on_dropped(self, trials: Sequence[Trial], epoch: int) -> None:
        self.dropped += [epoch] * len(trials)

    def on_failure(self, trials: Sequence[Trial], error: str, final: bool) -> None:
        self.failures.append((len(trials), error, final))

    def on_stop(self) -> None:
        self.stops += 1

    def on_end(self, finished: bool) -> None:
        self.finished.append(finished)


@dataclass
class Bench:
    """A store with one study of sixteen trials in four fleets."""

    store: Store
    plan: Plan = field(
        default_factory=lambda: make_plan(GRAPHS, Settings(norms=("graph", "batch"), folds=2), GRID, name="study")
    )
    log: Log = field(default_factory=Log)

    def run(self, plan: Plan | None = None, callbacks: Sequence[Callback] = (), **running: Any) -> Result:
        options = Running(**{"device": "cpu", "workers": 1, "checkpoint": 0.0} | running)
        return run(plan or self.plan, GRAPHS, self.store, options, callbacks=[*callbacks, self.log])

    @property
    def study(self) -> Study:
        return self.store.study("study")

    def check_curves(self) -> None:
        for record in self.store.records(self.plan, curves=["valid"]):
            true = [scattered(record.trial, epoch)["valid"] for epoch in range(1, record.epochs + 1)]
            assert np.array_equal(record.curves["valid"], np.array(true, np.float32))

    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in work_folder(self.store.path).rglob("*.checkpoint"))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Store(tmp_path / "graphnorm.db") as store:
        yield Bench(store)


def stop_in(epoch: int, bench: Bench, fleets: type[FakeFleet]) -> None:
    """Run until the first fleet reaches an epoch, and press Ctrl-C."""
    fleets.trouble = staticmethod(lambda fleet: fleet.epoch == epoch and signal.raise_signal(signal.SIGINT))
    with pytest.raises(Stopped):
        bench.run()
    fleets.trouble = staticmethod(lambda fleet: None)


def test_every_trial_once(bench: Bench, fleets: type[FakeFleet]) -> None:
    result = bench.run()
    assert result.counts == {"done": 16}
    assert set(bench.log.epochs.values()) == {16}
    assert len(bench.log.epochs) == 16
    assert len(fleets.made) == 4
    assert bench.checkpoints() == []
    bench.check_curves()
    again = bench.run()  # nothing is left to do
    assert again.to_dict() == result.to_dict()
    assert len(fleets.made) == 4
    assert bench.log.finished == [True]
    assert [session.ending for session in bench.store.sessions(bench.study)] == ["finished"]


def test_what_another_study_has_is_not_trained_again(bench: Bench) -> None:
    part = Plan("part", bench.plan.spec, bench.plan.trials[:3])
    bench.run(part)
    assert bench.run().counts == {"done": 16}
    assert set(bench.log.epochs.values()) == {16}


def test_normalizations_of_one_setting_are_trained_one_after_another(bench: Bench, fleets: type[FakeFleet]) -> None:
    """So that a study that is stopped half-way has normalizations to compare."""
    grid = Grid("sizes", {"epochs": (2,), "batch_size": (4, 8), "lr": (0.1, 0.2)})
    bench.run(make_plan(GRAPHS, Settings(norms=("graph", "batch"), folds=2), grid))
    trained = [(fleet.trials[0].batch_size, fleet.trials[0].norm) for fleet in fleets.made]
    assert trained == [(4, "graph"), (4, "batch"), (8, "graph"), (8, "batch")]


@pytest.mark.parametrize("after", range(1, 9))
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_study_goes_on_from_its_checkpoint(
    bench: Bench, fleets: type[FakeFleet], after: int, number: signal.Signals
) -> None:
    before = signal.getsignal(number)

    def stop(fleet: FakeFleet) -> None:
        if len(fleets.made) == 2 and fleet.epoch == after:
            signal.raise_signal(number)

    fleets.trouble = staticmethod(stop)
    with pytest.raises(Stopped, match="same command") as stopped:
        bench.run(checkpoint=1e9)
    assert signal.getsignal(number) is before
    assert stopped.value.signal == number
    assert stopped.value.result.counts == {"done": 4}
    assert bench.checkpoints() == ["fleet-1.checkpoint"]
    fleets.trouble = staticmethod(lambda fleet: None)
    assert bench.run().counts == {"done": 16}
    assert bench.log.finished == [False, True]
    assert set(bench.log.epochs.values()) == {16}  # no epoch was trained twice
    assert bench.log.begun == [0, 0, after + 1, 0, 0]
    assert [session.ending for session in bench.store.sessions(bench.study)] == ["interrupted", "finished"]
    bench.check_curves()


def test_a_signal_in_the_last_epoch_of_all_is_no_stop(bench: Bench, fleets: type[FakeFleet]) -> None:
    fleets.trouble = staticmethod(
        lambda fleet: (len(fleets.made), fleet.epoch) == (4, 15) and signal.raise_signal(signal.SIGINT)
    )
    assert bench.run().counts == {"done": 16}


def test_timeout_sends_its_signal_twice_which_counts_once(bench: Bench, fleets: type[FakeFleet]) -> None:
    def end(fleet: FakeFleet) -> None:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)

    fleets.trouble = staticmethod(end)
    with pytest.raises(Stopped):
        bench.run()
    assert bench.checkpoints() == ["fleet-0.checkpoint"]
    assert bench.log.stops == 1


def test_a_second_ctrl_c_ends_at_once(bench: Bench, fleets: type[FakeFleet], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphnorm.study.runner.SAME_SIGNAL_SECONDS", -1)

    def press_twice(fleet: FakeFleet) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    fleets.trouble = staticmethod(press_twice)
    with pytest.raises(KeyboardInterrupt) as stopped:
        bench.run()
    assert not isinstance(stopped.value, Stopped)
    assert bench.study.counts == {}


# Failures


def test_a_fleet_that_fails_is_tried_again_from_its_checkpoint(bench: Bench, fleets: type[FakeFleet]) -> None:
    def fail(fleet: FakeFleet) -> None:
        if fleet.epoch in (5, 9) and len(bench.log.failures) < 2 + (fleet.epoch == 9) * 2:
            raise RuntimeError("the device is gone")

    fleets.trouble = staticmethod(fail)
    assert bench.run().counts == {"done": 16}
    assert [final for _, _, final in bench.log.failures] == [False] * 4  # twice at either place
    assert bench.log.failures[0][1] == "RuntimeError: the device is gone"
    bench.check_curves()


def test_a_fleet_that_fails_three_times_is_recorded_and_the_study_goes_on(
    bench: Bench, fleets: type[FakeFleet]
) -> None:
    def fail(fleet: FakeFleet) -> None:
        if fleet.trials[0].key == bench.plan.trials[4].key and fleet.epoch == 7:
            raise RuntimeError("no convergence")

    fleets.trouble = staticmethod(fail)
    result = bench.run()
    assert [final for _, _, final in bench.log.failures] == [False, False, True]
    assert result.counts == {"done": 12, "failed": 4}
    assert result.errors == ("RuntimeError: no convergence",)
    (error,) = {record.error for record in bench.store.records(bench.plan) if record.status == "failed"}
    assert error is not None
    assert error.startswith("RuntimeError: no convergence\nTraceback")
    assert bench.run().counts == {"done": 12, "failed": 4}  # failed trials stay failed ...
    fleets.trouble = staticmethod(lambda fleet: None)
    assert bench.run(retry_failed=True).counts == {"done": 16}  # ... until they are asked for


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError])
def test_a_fleet_that_does_not_fit_is_split(bench: Bench, fleets: type[FakeFleet], error: type[Exception]) -> None:
    def refuse(fleet: FakeFleet) -> None:
        if len(fleet.trials) > 1:
            raise error("too many members")

    fleets.trouble = staticmethod(refuse)
    assert bench.run().counts == {"done": 16}
    assert {len(trials) for trials in bench.store.fleets(bench.study).values()} == {1}
    bench.check_curves()


def test_a_damaged_or_foreign_checkpoint_is_passed_over(bench: Bench, fleets: type[FakeFleet]) -> None:
    stop_in(3, bench, fleets)
    (file,) = work_folder(bench.store.path).rglob("*.checkpoint")
    data = file.read_bytes()
    file.with_name("fleet-1.checkpoint").write_bytes(data)  # that of other trials
    file.with_name("fleet-2.checkpoint").write_bytes(b"graphnorm-fleet-1\n nonsense")
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert bench.run().counts == {"done": 16}
    assert bench.log.begun == [0, 0, 0, 0, 0]
    bench.check_curves()


def test_a_checkpoint_of_other_code_is_passed_over(
    bench: Bench, fleets: type[FakeFleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_in(3, bench, fleets)
    monkeypatch.setattr("graphnorm.study.checkpoints.CODE", "graphnorm 99")
    bench.run()
    assert bench.log.begun == [0] * 5


def test_a_full_disk_ends_the_run_and_nothing_is_lost(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    save, saved = Store.save, list[int]()

    def full(store: Store, session: int, outcomes: Sequence[Outcome]) -> None:
        if len(saved) == 2:
            raise StoreError("the disk is full")
        saved.append(len(outcomes))
        save(store, session, outcomes)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "save", full)
        with pytest.raises(StoreError, match="full"):
            bench.run()
    assert bench.study.finished == 8
    assert bench.run().counts == {"done": 16}
    assert bench.log.begun == [0, 0, 0, 15, 0]


def test_a_callback_that_fails_is_left_out(bench: Bench) -> None:
    class Broken(Callback):
        calls = 0

        def on_epoch(self, progress: Progress) -> None:
            Broken.calls += 1
            raise OSError("the tracker is away")

    with pytest.warns(UserWarning, match="Broken is dropped"):
        bench.run(callbacks=[Broken()])
    assert Broken.calls == 1
    assert set(bench.log.epochs.values()) == {16}


def test_one_writer_at_a_time(bench: Bench) -> None:
    study = bench.store.add(bench.plan, [range(8), range(8, 16)])
    bench.store.begin_session(study, "local")
    with bench.store.lock(study), pytest.raises(StudyError, match=r"process \d+ on ") as caught:
        bench.run()
    assert "--wait" in (caught.value.remedy or "")
    assert bench.run(wait=True).counts == {"done": 16}


# Successive halving

RUNGS = (Rung(4, 2), Rung(8, 1))


def survivors_by_hand(plan: Plan, norm: str) -> list[Trial]:
    """Of each rung's configurations those whose mean over folds, at its best epoch so far, is highest."""
    groups: dict[tuple[Any, ...], list[Trial]] = {}
    for trial in plan.trials:
        if trial.norm == norm:
            groups.setdefault(trial.configuration, []).append(trial)

    def best(trials: Sequence[Trial], epoch: int) -> float:
        return max(float(np.mean([scattered(t, e)["valid"] for t in trials])) for e in range(1, epoch + 1))

    left = list(groups.values())
    for epoch, keep in RUNGS:
        left = sorted(left, key=lambda group: -best(group, epoch))[:keep]
    return left[0]


@pytest.mark.parametrize("stop_after", [None, 2, 5, 9, 13, 22, 30])
def test_halving_keeps_the_best_however_often_it_is_interrupted(
    bench: Bench, fleets: type[FakeFleet], stop_after: int | None
) -> None:
    bench.plan = replace(bench.plan, spec={**bench.plan.spec, "rungs": [list(rung) for rung in RUNGS]})
    count = 0

    def stop(fleet: FakeFleet) -> None:
        nonlocal count
        count += 1
        if count == stop_after:
            signal.raise_signal(signal.SIGINT)

    fleets.trouble = staticmethod(stop)
    if stop_after is not None:
        with pytest.raises(Stopped):
            bench.run()
    assert bench.run().counts == {"done": 4, "dropped": 12}
    expected = {trial.key for norm in ("graph", "batch") for trial in survivors_by_hand(bench.plan, norm)}
    statuses = bench.store.statuses(bench.study)
    assert {key for key, status in statuses.items() if status == "done"} == expected
    assert sum(bench.log.epochs.values()) == 2 * 2 * Ladder(4, RUNGS).cost(16)
    assert Counter(bench.log.dropped) == {4: 8, 8: 4}
    assert bench.checkpoints() == []
    bench.check_curves()


# Probes


class Probe:
    """Sees how many epochs a model has behind it, and how many graphs there are."""

    at = (0, 3, 16)

    def look(self, model: Any, graphs: PackedGraphs) -> dict[str, Any]:
        return {"behind": model.weight.item(), "graphs": np.full(2, graphs.num_graphs)}


def check_seen(bench: Bench) -> None:
    for trial in bench.plan.trials:
        seen = bench.store.seen(trial)
        assert seen["epochs"].tolist() == seen["behind"].tolist() == [0, 3, 16]
        assert seen["graphs"].tolist() == [[30, 30]] * 3


@pytest.mark.parametrize("stop_after", [None, 2, 3, 5])
def test_a_probe_looks_once_at_each_of_its_epochs(
    bench: Bench, fleets: type[FakeFleet], stop_after: int | None
) -> None:
    bench.plan = replace(bench.plan, probe=Probe())
    if stop_after is not None:
        stop_in(stop_after, bench, fleets)
    bench.run()
    assert set(bench.log.epochs.values()) == {16}
    check_seen(bench)
    bench.check_curves()


def test_what_a_probe_has_not_seen_is_trained_again(bench: Bench) -> None:
    bench.run()
    assert bench.store.seen(bench.plan.trials[0]) == {}
    probed = Plan("probed", bench.plan.spec, bench.plan.trials[:4], probe=Probe())
    bench.run(probed)
    assert Counter(bench.log.epochs.values()) == {32: 4, 16: 12}
    bench.plan = probed
    check_seen(bench)
    bench.run(probed)
    assert Counter(bench.log.epochs.values()) == {32: 4, 16: 12}


def test_weights_are_handed_over_where_they_are_asked_for(bench: Bench, fleets: type[FakeFleet]) -> None:
    kept: dict[bool, list[dict[str, Any]]] = {True: [], False: []}

    class Keep(Callback):
        def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
            kept[wanted].extend(outcome.state for outcome in outcomes)

    fleets.values = staticmethod(rising)
    for wanted in kept:
        plan = make_plan(GRAPHS, Settings(norms=("graph",), folds=2, epochs=2 + wanted))
        run(plan, GRAPHS, bench.store, Running(workers=1, device="cpu"), callbacks=[Keep()], keep_state=wanted)
    assert [state["weight"].item() for state in kept[True]] == [3.0, 3.0]
    assert kept[False] == [{}, {}]
