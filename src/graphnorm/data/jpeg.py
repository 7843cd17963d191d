"""Many small JPEGs that lie end to end, decoded by all cores.

Run as a script it decodes a part of them, from standard input to standard output. It imports numpy and Pillow alone, so
that such a process is there at once.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["decode"]

Pixels = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

WORTH_A_PROCESS = 2000


def decode(content: bytes, offsets: Offsets, shape: tuple[int, int, int]) -> Pixels:
    """(images, channels, height, width): image k lies from ``offsets[k]`` to ``offsets[k + 1]``."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = min(cores, (len(offsets) - 1) // WORTH_A_PROCESS)
    if processes > 1:
        cuts = np.linspace(0, len(offsets) - 1, processes + 1).astype(int).tolist()
        parts = [offsets[first : last + 1] for first, last in pairwise(cuts)]
        try:
            with ThreadPoolExecutor(processes) as threads:
                return np.concatenate(list(threads.map(lambda part: _aside(content, part, shape), parts)))
        except (OSError, subprocess.CalledProcessError):
            pass  # no process could be started, or an image is damaged: what follows says which
    return _decode(content, offsets, shape)


def _aside(content: bytes, offsets: Offsets, shape: tuple[int, int, int]) -> Pixels:
    """The same in a process of its own."""
    first, last = int(offsets[0]), int(offsets[-1])
    header = np.array([*shape, len(offsets)], np.int64)
    given = header.tobytes() + (offsets - first).astype(np.int64).tobytes() + content[first:last]
    made = subprocess.run([sys.executable, "-P", __file__], input=given, capture_output=True, check=True).stdout
    return np.frombuffer(made, np.uint8).reshape(-1, *shape)


def _decode(content: bytes, offsets: Offsets, shape: tuple[int, int, int]) -> Pixels:
    from PIL import Image

    images = np.empty((len(offsets) - 1, *shape), np.uint8)
    for k in range(len(images)):
        with Image.open(io.BytesIO(content[offsets[k] : offsets[k + 1]])) as image:
            images[k] = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    return images


def main() -> None:
    """Decode what :func:`_aside` sends."""
    given = sys.stdin.buffer.read()
    *shape, count = np.frombuffer(given, np.int64, 4).tolist()
    offsets = np.frombuffer(given, np.int64, count, offset=32)
    images = _decode(given[32 + 8 * count :], offsets, (shape[0], shape[1], shape[2]))
    sys.stdout.buffer.write(images.tobytes())


if __name__ == "__main__":
    main()
