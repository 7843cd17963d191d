"""``make bench``: what a row reports, and that no time counts of a result that is wrong."""

import warnings

import pytest
import torch
from benchmarks.registry import Case

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch_geometric's own, at import
    pytest.importorskip("torch_geometric")
    from benchmarks import run

CASE = Case("2 x 5", 4, lambda graphs: torch.full((graphs,), 5), 2, 1, None, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_row_reports_speed_accuracy_and_memory(dtype):
    row = run.measure(CASE, torch.device("cpu"), dtype, 0.0)
    assert row["speedup"] == pytest.approx(row["pyg_us"] / row["ours_us"], rel=0.2)
    assert 0 < row["error_mean_0"] <= row["error_bar_0"]
    assert 0 < row["kept"] < row["pyg_kept"]
    assert ("error_mean_1e4" in row) == (dtype == torch.float32)
    assert (row["speedup_bar"] is None) == (dtype != torch.float32)
    assert row["case"] in run.summary(row)


def test_a_wrong_result_ends_the_measurement(monkeypatch):
    monkeypatch.setattr(run, "relative_errors", lambda *_: (float("nan"), 0.0))
    with pytest.raises(SystemExit, match=r"2 x 5, torch\.float32, mean 0: the relative error is nan, more than 1e-06"):
        run.measure(CASE, torch.device("cpu"), torch.float32, 0.0)
