"""``make bench``: whole models, and README's table of speed."""

import csv
import re
import warnings

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch_geometric's own, at import
    pytest.importorskip("torch_geometric")
    from benchmarks import models, readme

CASE = models.Case(4, 2, 6, 3, 8, 2)


@pytest.mark.parametrize("model", models.MODELS)
@pytest.mark.parametrize("norm", models.NORMS)
def test_a_row_reports_times_ratios_and_the_share_of_the_gap(model, norm):
    row = models.measure(CASE, model, norm, compiled=False, device=torch.device("cpu"), seconds=0.0)
    assert min(row["pyg_ms"], row["ours_ms"], row["free_ms"], row["speedup"], row["limit"]) > 0
    gap = row["pyg_ms"] - row["free_ms"]
    assert row["share"] * gap == pytest.approx(row["pyg_ms"] - row["ours_ms"], abs=0.01 * abs(gap) + 0.01)


def test_a_layer_with_another_result_ends_the_measurement(monkeypatch):
    class Wrong(models.graphnorm.GraphNorm):
        def forward(self, *arguments):
            return 2 * super().forward(*arguments)

    monkeypatch.setattr(models.graphnorm, "GraphNorm", Wrong)
    with pytest.raises(SystemExit, match="GIN with GraphNorm: the losses differ"):
        models.measure(CASE, "GIN", "GraphNorm", compiled=False, device=torch.device("cpu"), seconds=0.0)


def test_the_table_in_the_readme(monkeypatch, tmp_path):
    monkeypatch.setattr(readme, "RESULTS", tmp_path)
    with pytest.raises(SystemExit, match=r"benchmarks\.models"):
        readme.table()
    rows = [
        {"model": model, "norm": norm, "case": "a", "mode": mode, "speedup": speedup, "limit": 1.5, "torch": "2.13"}
        for model in ("GIN", "GAT")
        for norm in ("GraphNorm", "BatchNorm")
        for mode, speedup in (("eager", 1.4), ("compiled", 1.1))
    ]
    for name, content in (
        ("models-cpu-1-threads", rows),
        ("layers-cpu-2-threads", [{"dtype": "float32", "speedup_batch": 6}, {"dtype": "bfloat16", "speedup_batch": 9}]),
    ):
        with (tmp_path / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, content[0])
            writer.writeheader()
            writer.writerows(content)
    page = tmp_path / "README.md"
    page.write_text(f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter", encoding="utf-8")
    monkeypatch.setattr(readme, "README", page)
    readme.main()
    text = page.read_text(encoding="utf-8")
    assert "| GIN with GraphNorm | 1.40× (at most 1.50×) | 1.10× (at most 1.50×) |" in text
    assert text.count("| G") == 2
    assert "6.0× on 2 CPU threads" in text
    assert "Measured on one CPU thread" in text
    assert "The same models with BatchNorm: 1.10× to 1.40×." in text
    assert text.startswith("before")
    assert text.endswith("after")
    assert "old" not in text


def test_the_numbers_in_the_readme():
    """Those of whole models where they were measured, else those of single layers."""
    written = readme.README.read_text(encoding="utf-8")
    table = written.partition(readme.BEGIN)[2].partition(readme.END)[0].strip()
    if any(readme.read("models", device) for device in readme.DEVICES):
        assert table == readme.table()
        return
    gpu, cpu = (
        {row["case"]: row for row in readme.read("layers", device) if row["dtype"] == "float32"}
        for device in ("NVIDIA-H200", "cpu-2-threads")
    )
    for case, columns in (
        ("128 x 18, C=64", ("speedup_batch_deep", "speedup_deep", "speedup_graph")),
        ("256 x 25, C=300", ("speedup_batch_deep", "speedup_deep", "speedup_graph")),
        ("40000 x 30, C=64", ("speedup_batch", "speedup")),
    ):
        measured = [float(gpu[case][column]) for column in columns] + [float(cpu[case]["speedup_batch"])]
        first = case.replace(" x ", " × ").replace("=", " = ").replace("40000", "40,000")
        (row,) = re.findall(rf"^\| {first} \| (.*) \|$", table, re.MULTILINE)
        assert [cell for cell in row.split(" | ") if cell != "–"] == [f"{gain:.1f}×" for gain in measured]
