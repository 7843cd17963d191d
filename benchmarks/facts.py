"""The facts in every file of results (date, device, versions), and tables of results."""

from __future__ import annotations

import csv
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from graphnorm._version import exact_version
from graphnorm.training.devices import device_name

__all__ = ["RESULTS", "announce", "facts", "write_table"]

RESULTS = Path(__file__).parent / "results"


def facts(device: str | torch.device = "cpu", *packages: str) -> dict[str, Any]:
    """Date, device, cores and versions; ``packages`` name others whose version counts."""
    found: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": device_name(torch.device(device)),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "graphnorm": exact_version(),
        "torch": torch.__version__,
    }
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def announce(device: torch.device, *packages: str) -> dict[str, Any]:
    """Print and return the facts of a table; a CPU is named with its threads."""
    made = facts(device, *packages)
    if device.type == "cpu":
        made["device"] = f"cpu-{torch.get_num_threads()}-threads"
    print(", ".join(f"{key} {value}" for key, value in made.items()), flush=True)
    return made


def write_table(kind: str, rows: Sequence[Mapping[str, Any]], made: Mapping[str, Any], out: Path | None) -> None:
    """Write rows, each with the facts of their making, to ``out`` or ``benchmarks/results/KIND-DEVICE.csv``."""
    path = out or RESULTS / f"{kind}-{made['device'].replace(' ', '-')}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(key for row in rows for key in [*row, *made]))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows({**row, **made} for row in rows)
    print(f"wrote {path}")
