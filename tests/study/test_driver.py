"""The driver: everything is trained once, whatever fails, and an adaptive search gives up the weaker half."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from fakes import FakeFleet, value

from graphnorm.data import PackedGraphs, synthetic
from graphnorm.errors import StoreError
from graphnorm.study import driver as driver_module
from graphnorm.study.callbacks import Callback
from graphnorm.study.checkpoint import CheckpointFolder
from graphnorm.study.driver import Driver
from graphnorm.study.engines.local import InProcess
from graphnorm.study.grid import Grid
from graphnorm.study.halving import Ladder, Rung, losers, make_ladder
from graphnorm.study.lock import work_folder
from graphnorm.study.plan import group_candidates, make_plan
from graphnorm.study.store import Store, Study
from graphnorm.training import Outcome, Progress, Trial, plan_fleets

GRID = Grid("test", {"epochs": (16,), "lr": (0.1, 0.2, 0.3, 0.4)})


@pytest.fixture(scope="module")
def graphs() -> PackedGraphs:
    return synthetic.regular(num_graphs=30, seed=0)


@pytest.fixture(autouse=True)
def _fake_fleets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphnorm.study.work.Fleet", FakeFleet)
    monkeypatch.setattr(driver_module, "STEP_SECONDS", 1e-9)  # one epoch for each question, and a checkpoint
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # no power is cut here
    monkeypatch.setattr(FakeFleet, "trouble", staticmethod(lambda fleet: None))
    FakeFleet.made.clear()


class Log(Callback):
    """Keeps every event."""

    def __init__(self) -> None:
        self.epochs: Counter[str] = Counter()
        self.failures: list[tuple[int, str, bool]] = []
        self.begun: list[int] = []
        self.dropped: list[int] = []
        self.finished: list[bool] = []

    def on_fleet(self, trials: Sequence[Trial], epoch: int) -> None:
        self.begun.append(epoch)

    def on_epoch(self, progress: Progress) -> None:
        for trial, valid in zip(progress.trials, progress.metrics["valid"], strict=True):
            assert valid == np.float32(value(trial, progress.epoch))
            self.epochs[trial.key] += 1

    def on_dropped(self, trials: Sequence[Trial], epoch: int) -> None:
        self.dropped += [epoch] * len(trials)

    def on_failure(self, trials: Sequence[Trial], error: str, final: bool) -> None:
        self.failures.append((len(trials), error, final))

    def on_end(self, finished: bool) -> None:
        self.finished.append(finished)


class Bench:
    """A store with one study, and drivers over it."""

    def __init__(self, path: Path, graphs: PackedGraphs, protocol: str = "paper") -> None:
        self.graphs = graphs
        self.plan = make_plan(graphs, GRID, norms=["graph", "batch"], protocol=protocol, folds=2)
        fleets = [range(start, start + 4) for start in range(0, 16, 4)]
        self.store = Store(path / "graphnorm.db")
        self.study = self.store.add_study("study", self.plan.spec, self.plan.trials, fleets)
        self.log = Log()

    def driver(self, **options: object) -> Driver:
        options = {"checkpoint_seconds": 0.0} | options
        return Driver(
            self.store, self.study, self.graphs, InProcess(self.graphs, "cpu"), callbacks=[self.log], **options
        )  # type: ignore[arg-type]

    def run(self, **options: object) -> bool:
        return self.driver(**options).run()

    def now(self) -> Study:
        return self.store.study("study")

    def check_curves(self) -> None:
        for record in self.store.records(self.study, curves=["valid"]):
            true = np.array([value(record.trial, epoch) for epoch in range(1, record.epochs + 1)], np.float32)
            assert np.array_equal(record.curves["valid"], true)

    def files(self) -> list[str]:
        return sorted(path.name for path in work_folder(self.store, self.study).iterdir())


@pytest.fixture
def bench(tmp_path: Path, graphs: PackedGraphs) -> Iterator[Bench]:
    made = Bench(tmp_path, graphs)
    yield made
    made.store.close()


def test_every_trial_once(bench: Bench) -> None:
    assert bench.run()
    assert bench.now().counts == {"done": 16}
    assert set(bench.log.epochs.values()) == {16}
    assert len(bench.log.epochs) == 16
    assert bench.files() == []
    bench.check_curves()
    assert bench.run()  # nothing is left to do
    assert set(bench.log.epochs.values()) == {16}
    assert bench.log.finished == [True, True]


def test_what_another_study_has_is_not_trained_again(bench: Bench) -> None:
    other = bench.store.add_study("other", {}, bench.plan.trials[:3], [range(3)])
    bench.run()
    Driver(bench.store, other, bench.graphs, InProcess(bench.graphs, "cpu"), callbacks=[bench.log]).run()
    assert set(bench.log.epochs.values()) == {16}


def test_normalizations_of_one_setting_are_trained_one_after_another(tmp_path: Path, graphs: PackedGraphs) -> None:
    grid = Grid("sizes", {"epochs": (2,), "batch_size": (4, 8), "lr": (0.1, 0.2)})
    plan = make_plan(graphs, grid, norms=["graph", "batch"], folds=2)
    with Store(tmp_path / "graphnorm.db") as store:
        study = store.add_study("study", plan.spec, plan.trials, plan_fleets(graphs, plan.trials, "cpu"))
        Driver(store, study, graphs, InProcess(graphs, "cpu")).run()
    trained = [(fleet.trials[0].batch_size, fleet.trials[0].norm) for fleet in FakeFleet.made]
    assert trained == [(4, "graph"), (4, "batch"), (8, "graph"), (8, "batch")]


@pytest.mark.parametrize("after", range(1, 9))
def test_stopping_keeps_a_checkpoint_and_the_next_run_goes_on(bench: Bench, after: int) -> None:
    driver = bench.driver(checkpoint_seconds=1e9)

    def stop(fleet: FakeFleet) -> None:
        if len(FakeFleet.made) == 2 and fleet.epoch == after:
            driver.stop()

    FakeFleet.trouble = staticmethod(stop)
    assert not driver.run()
    FakeFleet.trouble = staticmethod(lambda fleet: None)
    assert bench.now().finished == 4
    assert bench.files() == ["fleet-1.checkpoint"]
    assert bench.run()
    assert bench.log.finished == [False, True]
    assert set(bench.log.epochs.values()) == {16}  # no epoch was trained twice
    assert bench.log.begun == [0, 0, after + 1, 0, 0]
    assert bench.now().counts == {"done": 16}
    bench.check_curves()


def test_a_fleet_that_fails_is_tried_again_from_its_checkpoint(bench: Bench) -> None:
    def fail(fleet: FakeFleet) -> None:
        if fleet.epoch in (5, 9) and len(bench.log.failures) < 2 + (fleet.epoch == 9) * 2:
            raise RuntimeError("the device is gone")

    FakeFleet.trouble = staticmethod(fail)
    assert bench.run()
    assert [final for _, _, final in bench.log.failures] == [False] * 4  # twice at either place
    assert bench.log.failures[0][1] == "RuntimeError: the device is gone"
    assert bench.now().counts == {"done": 16}
    bench.check_curves()


def test_a_fleet_that_fails_three_times_is_recorded_and_the_study_goes_on(bench: Bench) -> None:
    def fail(fleet: FakeFleet) -> None:
        if fleet.trials[0].key == bench.plan.trials[4].key and fleet.epoch == 7:
            raise RuntimeError("no convergence")

    FakeFleet.trouble = staticmethod(fail)
    assert bench.run()
    assert [final for _, _, final in bench.log.failures] == [False, False, True]
    assert bench.now().counts == {"done": 12, "failed": 4}
    errors = {record.error for record in bench.store.records(bench.study) if record.status == "failed"}
    (error,) = errors
    assert error is not None
    assert error.startswith("RuntimeError: no convergence\nTraceback")
    assert bench.run()  # failed trials stay failed ...
    assert bench.now().counts == {"done": 12, "failed": 4}
    FakeFleet.trouble = staticmethod(lambda fleet: None)
    assert bench.run(retry_failed=True)  # ... until they are asked for
    assert bench.now().counts == {"done": 16}


def test_a_fleet_that_does_not_fit_is_split(bench: Bench) -> None:
    def refuse(fleet: FakeFleet) -> None:
        if len(fleet.trials) > 1:
            raise MemoryError("too many members")

    FakeFleet.trouble = staticmethod(refuse)
    assert bench.run()
    assert bench.now().counts == {"done": 16}
    assert {len(trials) for trials in bench.store.fleets(bench.study).values()} == {1}
    bench.check_curves()


def test_a_damaged_or_foreign_checkpoint_is_passed_over(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CheckpointFolder(work_folder(bench.store, bench.study))
    folder.write(0, b"graphnorm-fleet-1\n nonsense")
    driver = bench.driver()

    def stop(fleet: FakeFleet) -> None:
        if fleet.epoch == 3:
            driver.stop()

    FakeFleet.trouble = staticmethod(stop)
    assert not driver.run()
    FakeFleet.trouble = staticmethod(lambda fleet: None)
    (data,) = [folder.read(0)]
    assert data is not None
    folder.write(1, data)  # that of other trials
    folder.write(0, data[:-1] + bytes([data[-1] ^ 1]))
    assert bench.run()
    assert bench.log.begun == [0, 0, 0, 0, 0]
    bench.check_curves()


def test_a_full_disk_ends_the_run_and_nothing_is_lost(bench: Bench) -> None:
    save = bench.store.save
    saved: list[int] = []

    def full(session: int, outcomes: Sequence[Outcome]) -> None:
        if len(saved) == 2:
            raise StoreError("the disk is full")
        saved.append(len(outcomes))
        save(session, outcomes)

    bench.store.save = full  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="full"):
        bench.run()
    bench.store.save = save  # type: ignore[method-assign]
    assert bench.now().finished == 8
    assert bench.run()
    assert bench.now().counts == {"done": 16}
    assert bench.log.begun == [0, 0, 0, 15, 0]


def test_a_callback_that_fails_is_left_out(bench: Bench) -> None:
    class Broken(Callback):
        calls = 0

        def on_epoch(self, progress: Progress) -> None:
            Broken.calls += 1
            raise OSError("the tracker is away")

    driver = Driver(
        bench.store, bench.study, bench.graphs, InProcess(bench.graphs, "cpu"), callbacks=[Broken(), bench.log]
    )
    with pytest.warns(UserWarning, match="Broken is left out from here on: OSError: the tracker is away"):
        assert driver.run()
    assert Broken.calls == 1
    assert set(bench.log.epochs.values()) == {16}


# Successive halving


def test_ladders() -> None:
    assert make_ladder(4, 16, 64) == Ladder(4, ())
    assert make_ladder(4, 16, 63) == Ladder(4, (Rung(8, 2),))
    assert make_ladder(4, 16, 32) == Ladder(4, (Rung(4, 2), Rung(8, 1)))
    assert make_ladder(4, 16, 16) == Ladder(1, ())
    for budget in range(400, 24000, 100):
        ladder = make_ladder(60, 400, budget)
        assert ladder.cost(400) <= budget
        assert all(rung.epoch >= 4 for rung in ladder.rungs)
    assert make_ladder(60, 400, 2000).configurations == 60
    with pytest.raises(ValueError, match="it takes one"):
        make_ladder(60, 400, 399)


def best(trials: Sequence[Trial], epoch: int) -> float:
    """The mean over trials, at the best epoch so far."""
    return max(float(np.mean([value(t, e) for t in trials])) for e in range(1, epoch + 1))


RUNGS = (Rung(4, 2), Rung(8, 1))


def survivors_by_hand(plan_trials: Sequence[Trial], norm: str) -> list[Trial]:
    groups = [[plan_trials[place] for place in places] for places in group_candidates(plan_trials)[norm]]
    for epoch, keep in RUNGS:
        groups = sorted(groups, key=lambda group: -best(group, epoch))[:keep]
    return groups[0]


@pytest.mark.parametrize("stop_after", [None, 2, 5, 9, 13, 22, 30])
def test_halving_keeps_the_best_however_often_it_is_interrupted(bench: Bench, stop_after: int | None) -> None:
    driver = bench.driver(rungs=RUNGS)
    count = 0

    def stop(fleet: FakeFleet) -> None:
        nonlocal count
        count += 1
        if count == stop_after:
            driver.stop()

    FakeFleet.trouble = staticmethod(stop)
    if not driver.run():
        assert bench.run(rungs=RUNGS)
    expected = {t.key for norm in ("graph", "batch") for t in survivors_by_hand(bench.plan.trials, norm)}
    statuses = bench.store.statuses(bench.study)
    assert {key for key, status in statuses.items() if status == "done"} == expected
    assert bench.now().counts == {"done": 4, "dropped": 12}
    assert sum(bench.log.epochs.values()) == 2 * 2 * Ladder(4, RUNGS).cost(16)
    assert Counter(bench.log.dropped) == {4: 8, 8: 4}
    assert bench.files() == []
    bench.check_curves()


def test_under_a_nested_protocol_each_fold_decides_for_itself(graphs: PackedGraphs) -> None:
    trials = make_plan(graphs, GRID, norms=["graph"], protocol="fair", folds=2).trials
    valid = {t.key: np.array([value(t, 1), value(t, 2)], np.float32) for t in trials}
    lost = losers(trials, valid, keep=1)
    for fold in (0, 1):
        mine = [t for t in trials if t.fold == fold]
        (kept,) = [t for t in mine if t not in lost]
        assert valid[kept.key].max() == max(valid[t.key].max() for t in mine)
    # What happens in one fold has no part in what is decided in the other.
    changed = {t.key: 1 - valid[t.key] if t.fold else valid[t.key] for t in trials}
    assert [t for t in losers(trials, changed, keep=1) if t.fold == 0] == [t for t in lost if t.fold == 0]


def test_a_diverged_configuration_loses() -> None:
    trials = [Trial(dataset="x", lr=lr, fold=fold) for lr in (0.1, 0.2) for fold in range(2)]
    valid = {t.key: np.array([0.9 if t.lr == 0.1 else 0.1], np.float32) for t in trials}
    assert losers(trials, valid, keep=1) == trials[2:]
    valid[trials[0].key] = np.array([np.nan], np.float32)
    assert losers(trials, valid, keep=1) == trials[:2]


def test_the_lock(bench: Bench) -> None:
    from graphnorm.errors import StudyError
    from graphnorm.study.lock import study_lock

    bench.store.begin_session(bench.study, "local")
    with (
        study_lock(bench.store, bench.study),
        pytest.raises(StudyError, match=r"is being written: process \d+ on "),
        study_lock(bench.store, bench.study),
    ):
        pass
    with study_lock(bench.store, bench.study, wait=True):
        pass
