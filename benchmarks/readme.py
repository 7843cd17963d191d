"""Write README's table of speed from the files in ``benchmarks/results/``: the last step of ``make bench``."""

from __future__ import annotations

import csv
from pathlib import Path
from textwrap import wrap

from benchmarks.facts import RESULTS

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
DEVICES = ("NVIDIA-H200", "cpu-2-threads", "cpu-1-threads")
"""In the order of preference: the table shows the first that whole models were measured on."""
ALONE = ("128 x 18, C=64", "256 x 25, C=300", "40000 x 30, C=64")
"""The batches that a layer alone is shown for."""


def read(kind: str, device: str) -> list[dict[str, str]]:
    """The rows of ``KIND-DEVICE.csv``; none where it is missing."""
    path = RESULTS / f"{kind}-{device}.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def words(device: str) -> str:
    """A device as a reader writes it.

    >>> words("cpu-1-threads"), words("cpu-2-threads"), words("NVIDIA-H200")
    ('one CPU thread', '2 CPU threads', 'NVIDIA H200')
    """
    if not device.startswith("cpu-"):
        return device.replace("-", " ")
    threads = device.split("-")[1]
    return "one CPU thread" if threads == "1" else f"{threads} CPU threads"


def span(gains: list[float]) -> str:
    """
    >>> span([1.04, 1.2]), span([1.0])
    ('1.04× to 1.20×', '1.00×')
    """
    low, high = (f"{gain:.2f}×" for gain in (min(gains), max(gains)))
    return low if low == high else f"{low} to {high}"


def alone() -> list[str]:
    """A table of GraphNorm without a model around it; of a small batch, eight layers that share one ``batch``."""
    columns: dict[str, list[str]] = {}
    for device in DEVICES:
        rows = {row["case"]: row for row in read("layers", device) if row["dtype"] == "float32"}
        ways = {"import changed": "speedup_batch", "with `Segments`": "speedup"}
        for what, column in list(ways.items())[: 0 if not rows else 1 if device.startswith("cpu") else 2]:
            deep = f"{column}_deep"
            gains = [float(rows[case].get(deep) or rows[case][column]) for case in ALONE]
            columns[f"{words(device)}, {what}"] = [f"{gain:.1f}×" for gain in gains]
    if not columns:
        return []
    lines = ["", "GraphNorm alone, forward and backward:", "", f"| graphs × nodes | {' | '.join(columns)} |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    lines += [
        f"| {case.replace(' x ', ' × ').replace('40000', '40,000')} | {' | '.join(cells)} |"
        for case, *cells in zip(ALONE, *columns.values(), strict=True)
    ]
    return lines


def table() -> str:
    """Whole models first: what a user gains who changes the import and nothing else."""
    device, rows = next(((device, rows) for device in DEVICES if (rows := read("models", device))), ("", []))
    if not rows:
        raise SystemExit("no whole models were measured; run python -m benchmarks.models")
    case = rows[0]["case"]
    steps = {(row["model"], row["norm"], row["mode"]): row for row in rows if row["case"] == case}
    lines = [
        "A training step of a model of PyTorch Geometric in float32: its normalization against ours, in the same run.",
        "",
        f"| {case.replace(' x ', ' × ')} | import changed, nothing else | and compiled |",
        "|---|---|---|",
    ]
    for model in dict.fromkeys(row["model"] for row in rows):
        cells = [
            f"{float(row['speedup']):.2f}× (at most {float(row['limit']):.2f}×)"
            for mode in ("eager", "compiled")
            if (row := steps.get((model, "GraphNorm", mode)))
        ]
        lines.append(f"| {model} with GraphNorm | {' | '.join(cells)} |")
    others: dict[str, list[float]] = {}
    for (_, norm, _), row in steps.items():
        if norm != "GraphNorm":
            others.setdefault(norm, []).append(float(row["speedup"]))
    gains_of_others = " ".join(f"With {norm}: {span(gains)}." for norm, gains in others.items())
    measured = f"Measured on {words(device)}. *At most*: with normalization for free. {gains_of_others}"
    note = (
        "Small batches: eight layers that share one `batch`. On a CPU the last row has 4,000 graphs. What was "
        "measured, and how: [benchmarks](docs/benchmarks.md)."
    )
    lines += ["", *wrap(measured, 120), *alone(), "", *wrap(note, 120)]
    return "\n".join(lines)


def main() -> None:
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    README.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")
    print(f"wrote the table of speed into {README}")


if __name__ == "__main__":
    main()
