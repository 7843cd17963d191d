"""Where models are trained."""

from __future__ import annotations

import torch

from graphnorm.errors import GraphnormError, require

__all__ = ["default_device", "device_name"]


def default_device(device: torch.device | str | None = None) -> torch.device:
    """The device asked for; by default a GPU if there is one."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    require("device", device, (str, torch.device), "the name of a device, such as 'cpu'")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise GraphnormError(f"there is no device {device!r}", remedy="name cpu, cuda or cuda:N") from None
    if chosen.type not in ("cpu", "cuda"):
        raise GraphnormError(f"models are trained on cpu or cuda, not {chosen.type}", remedy="name one of these")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise GraphnormError(f"this machine has no device {chosen}", remedy="leave the device out, or name cpu")
    return chosen


def device_name(device: torch.device) -> str:
    """The device's name, and whether torch rounds matrix products to TF32 on it."""
    if device.type != "cuda":
        return "cpu"
    rounded = torch.get_float32_matmul_precision() != "highest"
    return torch.cuda.get_device_name(device) + (" (TF32)" if rounded else "")
