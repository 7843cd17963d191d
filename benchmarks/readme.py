"""Write README's table of speed from the files in ``benchmarks/results/``: the last step of ``make bench``."""

from __future__ import annotations

import csv
from pathlib import Path

from benchmarks.facts import RESULTS

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
DEVICES = ("NVIDIA-H200", "cpu-2-threads", "cpu-1-threads")
"""In the order of preference: the table shows the first that whole models were measured on."""


def read(kind: str, device: str) -> list[dict[str, str]]:
    """The rows of ``KIND-DEVICE.csv``; none where it is missing."""
    path = RESULTS / f"{kind}-{device}.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table() -> str:
    """Whole models first: what a user gains who changes the import and nothing else."""
    device, rows = next(((device, rows) for device in DEVICES if (rows := read("models", device))), ("", []))
    if not rows:
        raise SystemExit("no whole models were measured; run python -m benchmarks.models")
    case = rows[0]["case"]
    lines = ["| training step of | import changed, nothing else | and compiled |", "|---|---|---|"]
    for model in dict.fromkeys(row["model"] for row in rows):
        cells = [
            f"{float(row['speedup']):.2f}× (at most {float(row['limit']):.2f}×)"
            for mode in ("eager", "compiled")
            for row in rows
            if (row["model"], row["norm"], row["case"], row["mode"]) == (model, "GraphNorm", case, mode)
        ]
        lines.append(f"| {model} + GraphNorm, {case} | {' | '.join(cells)} |")
    alone = []
    for name in DEVICES:
        gains = [float(row["speedup_batch"]) for row in read("layers", name) if row["dtype"] == "float32"]
        alone += [f"{min(gains):.1f}× to {max(gains):.1f}× on {name.replace('-', ' ')}"] if gains else []
    lines += [
        "",
        f"Measured on {device.replace('-', ' ')}, torch {rows[0]['torch']}. *At most*: with normalization for free.",
        f"A layer alone, with a `batch` never seen before: {', '.join(alone)}. [Benchmarks](docs/benchmarks.md).",
    ]
    return "\n".join(lines)


def main() -> None:
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    README.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")
    print(f"wrote the table of speed into {README}")


if __name__ == "__main__":
    main()
