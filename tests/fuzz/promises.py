"""What every reader promises for any input: a right answer, or an error of ours that names a remedy.

No traceback, bounded memory and time, and nothing half-written. ``make test`` tries 40 inputs for each test of this
folder, ``make fuzz`` a thousand.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import strategies as st

from graphnorm.errors import GraphnormError

T = TypeVar("T")
SLOWEST = 10.0  # seconds of the processor that a small input may take
LARGEST = 512 << 20  # bytes by which it may raise the most memory that this process ever held


def answer_or_refusal(call: Callable[..., T], *arguments: Any, **keywords: Any) -> T | GraphnormError:
    """The result of a call, or its error of ours; anything else that is raised fails the test."""
    start, most = time.process_time(), _most_memory()
    result: T | GraphnormError
    try:
        result = call(*arguments, **keywords)
    except GraphnormError as error:
        result = error
    assert not isinstance(result, GraphnormError) or "Remedy: " in str(result), str(result)
    assert time.process_time() - start < SLOWEST
    assert _most_memory() - most < LARGEST
    return result


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def nothing_half_written(folder: Path) -> None:
    """No temporary file is left in a folder."""
    assert not [path for path in folder.rglob("*") if path.name.startswith(".")]


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """The content after one to four damages: flipped bits, other bytes, removed, doubled or swapped pieces, cuts."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.sampled_from((1, 2, 4, 16, 64))))
        kind = draw(st.integers(0, 7))
        if kind == 0 and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == 1:
            data[at:end] = draw(st.binary(min_size=end - at, max_size=end - at))
        elif kind == 2:
            del data[at:end]
        elif kind == 3:
            data[at:at] = data[at:end]
        elif kind == 4:
            del data[at:]
        elif kind == 5:
            data[at:end] = b"\xff" * (end - at)
        elif kind == 6:
            data[at:at] = draw(st.sampled_from(INSERTS))
        else:
            other = draw(st.integers(0, len(data)))
            data[at:end], data[other : other + 4] = data[other : other + 4], data[at:end]
    return bytes(data) or b"\n"


INSERTS = (b"\n", b",", b"-1", b"999999999", b"nan", b"inf", b"\0", b"1e5", b"1e300", b"\r", b" ", b'"', "é".encode())
