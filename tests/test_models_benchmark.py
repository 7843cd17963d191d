"""``make bench``: whole models, and README's table of speed."""

import csv
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
    cpu = torch.device("cpu")
    row = models.measure(models.prepare(CASE, model, norm, compiled=False, device=cpu), cpu, 0.0)
    assert min(row["pyg_ms"], row["ours_ms"], row["free_ms"], row["speedup"], row["limit"]) > 0
    gap = row["pyg_ms"] - row["free_ms"]
    rounding = 0.01 * abs(gap) + 0.001 * abs(row["share"]) + 0.01  # of the share, of the gap and of the times
    assert row["share"] * gap == pytest.approx(row["pyg_ms"] - row["ours_ms"], abs=rounding)


def test_a_layer_with_another_result_ends_the_measurement(monkeypatch):
    class Wrong(models.graphnorm.GraphNorm):
        def forward(self, *arguments):
            return 2 * super().forward(*arguments)

    monkeypatch.setattr(models.graphnorm, "GraphNorm", Wrong)
    with pytest.raises(SystemExit, match="GIN with GraphNorm: the losses differ"):
        models.prepare(CASE, "GIN", "GraphNorm", compiled=False, device=torch.device("cpu"))


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
    layers = [
        {"dtype": dtype, "case": case, "speedup_batch": 6, "speedup": 7, "speedup_deep": deep}
        for dtype, deep in (("float32", ""), ("bfloat16", 9))
        for case in readme.ALONE
    ]
    for name, content in (
        ("models-cpu-1-threads", rows),
        ("layers-cpu-2-threads", layers),
        ("layers-NVIDIA-H200", layers),
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
    assert "| graphs × nodes | NVIDIA H200, import changed | NVIDIA H200, with `Segments` | 2 CPU threads" in text
    assert "| 40,000 × 30, C=64 | 6.0× | 7.0× | 6.0× |" in text
    assert "Measured on one CPU thread" in text
    assert "With BatchNorm: 1.10× to 1.40×." in text
    assert text.startswith("before")
    assert text.endswith("after")
    assert "old" not in text


def test_the_numbers_in_the_readme():
    written = readme.README.read_text(encoding="utf-8")
    assert written.partition(readme.BEGIN)[2].partition(readme.END)[0].strip() == readme.table()


def test_the_numbers_of_whole_models_in_the_docs():
    page = (readme.README.parent / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    steps = {
        (row["model"], row["norm"], device, row["mode"]): f"{float(row['speedup']):.2f} ({float(row['limit']):.2f})"
        for device in readme.DEVICES[1:]
        for row in readme.read("models", device)
    }
    for model in models.MODELS:
        for norm in models.NORMS:
            ways = [(device, mode) for device in reversed(readme.DEVICES[1:]) for mode in ("eager", "compiled")]
            assert f"| {model}, {norm} | " + " | ".join(steps[model, norm, *way] for way in ways) + " |" in page
