"""``graphnorm search``: a grid, a dry run, a budget, and what a mistake is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes import FakeFleet, scattered
from graphnorm.data import save_packed, synthetic

Run = Callable[..., tuple[int, str, str]]
SEARCH = (
    *("search", "graphs.safetensors", "--grid", "quick", "--norms", "graph,batch", "--folds", "3"),
    *("--epochs", "16", "--device", "cpu", "--workers", "1"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fleets: type[FakeFleet]) -> Path:
    save_packed(synthetic.regular(num_graphs=60, seed=0), tmp_path / "graphs.safetensors")
    monkeypatch.chdir(tmp_path)
    fleets.values = staticmethod(scattered)
    return tmp_path


def test_a_search_and_its_store(folder: Path, run: Run, fleets: type[FakeFleet]) -> None:
    code, out, err = run(*SEARCH)
    assert code == 0, err
    assert "24 trials" in err
    made = len(fleets.made)
    again = run(*SEARCH, "--json")
    assert again[2] == ""
    assert len(fleets.made) == made  # nothing was trained
    result = json.loads(again[1])
    assert result["counts"] == {"done": 24}
    assert result["spec"]["grid"]["epochs"] == [16]  # --epochs replaces the grid's values
    graph = result["norms"]["graph"]
    assert (len(graph["members"]), graph["finished"], graph["compared"]) == (3, 12, 4)
    assert {frozenset(one) for one in map(tuple, graph["configurations"])} == {frozenset(["dropout", "lr"])}
    row = next(line for line in out.splitlines() if line.startswith("  graph "))
    assert f"{graph['mean']:.1f} ± {graph['std']:.1f}" in row
    assert result["study"] in out


def test_a_dry_run_trains_and_writes_nothing(folder: Path, run: Run) -> None:
    code, out, _ = run(*SEARCH, "--dry-run", "--json")
    assert code == 0
    plan = json.loads(out)
    assert (plan["trials"], plan["configurations"], plan["trials_done_before"]) == (24, 4, 0)
    assert plan["fleets"] == 4
    assert plan["estimated_seconds"] >= 0
    assert not (folder / "graphnorm.db").exists()
    run(*SEARCH)
    plan = json.loads(run(*SEARCH, "--dry-run", "--json")[1])
    assert (plan["fleets"], plan["trials_done_before"], plan["estimated_seconds"]) == (0, 24, 0.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="here a GPU can be measured")
def test_a_dry_run_for_gpus_that_are_elsewhere(folder: Path, run: Run) -> None:
    code, out, _ = run(*SEARCH, "--dry-run", "--engine", "ray", "--gpus-per-worker", "1", "--json")
    assert (code, json.loads(out)["estimated_seconds"]) == (0, None)


@pytest.mark.parametrize("protocol", ["paper", "fair"])
def test_an_adaptive_search_costs_what_it_may(folder: Path, run: Run, protocol: str) -> None:
    adaptive = (*SEARCH, "--protocol", protocol, "--trials", "12", "--json")
    code, out, err = run(*adaptive)
    assert code == 0, err
    result = json.loads(out)
    assert result["counts"] == {"done": 6, "dropped": 18}
    assert result["spec"]["rungs"] == [[4, 2], [8, 1]]
    assert run(*adaptive)[1] == out
    notes = "\n".join(result["notes"])
    assert "finished" not in notes  # those that were dropped are not missing
    assert "the search dropped 18 of 24 trainings early" in notes
    for norm in result["norms"].values():
        assert norm["finished"] == 3
        assert [member["fold"] for member in norm["members"]] == [0, 1, 2]
        assert norm["mean"] == pytest.approx(np.mean([member["score"] for member in norm["members"]]))
    chosen = {member["configuration"] for norm in result["norms"].values() for member in norm["members"]}
    assert protocol == "paper" or len(chosen) > 1  # under fair each fold has its own choice
    code, _, err = run(*SEARCH, "--trials", "5")
    assert code == 2
    assert "at least one is needed" in err
    planned = json.loads(run(*SEARCH, "--trials", "12", "--name", "another", "--dry-run", "--json")[1])
    assert planned["estimated_seconds"] >= 0
    assert len(planned["rungs"]) == 2


def test_a_budget_is_measured_once(folder: Path, run: Run, fleets: type[FakeFleet]) -> None:
    code, out, err = run(*SEARCH, "--budget", "9d", "--json")
    assert code == 0, err
    assert json.loads(out)["counts"] == {"done": 24}  # enough for the whole grid
    made = len(fleets.made)
    assert run(*SEARCH, "--budget", "9d", "--json")[1] == out
    assert len(fleets.made) == made


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--grid", "papper"], "name paper, curves, quick"),
        (["--norms", "grahp"], "did you mean 'graph'"),
        (["--model", "gim"], "did you mean 'gin'"),
        (["--folds", "100"], "too few for 100 folds"),
        (["--budget", "5m", "--trials", "9"], "give one of them"),
        (["--budget", "5m", "--engine", "ray"], "give --trials"),
        (["--trials", "0"], "trials is 0"),
        (["--workers", "-1"], "workers is -1"),
        (["--gpus-per-worker", "1"], "engine local"),
        (["--device", "gpu"], "no device 'gpu'"),
        (["--store", "graphs.safetensors"], "damaged"),
    ],
)
def test_mistakes(folder: Path, run: Run, fleets: type[FakeFleet], arguments: list[str], words: str) -> None:
    code, out, err = run(*SEARCH, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1
    assert not fleets.made
    assert not (folder / "graphnorm.db").exists()
