"""What every file of results says of its making: when, on what, with which versions."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

import graphnorm
from graphnorm.training.fleet import device_name

__all__ = ["facts"]


def facts(device: str | torch.device = "cpu", *packages: str) -> dict[str, Any]:
    """Date, device, cores and versions, those of other packages by their names."""
    found: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": device_name(torch.device(device)),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "graphnorm": graphnorm.__version__,
        "torch": torch.__version__,
    }
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
