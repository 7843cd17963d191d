"""Random numbers without state: each is a function of a key and a counter.

With a generator, the numbers of a fleet's member would depend on the device and on the members that draw before it.
Here a number is a hash of (key, counter). It is the same on CPU and GPU, in any fleet, and in any order of calls.
The hash is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014), a bijection of 64-bit integers that passes the
usual statistical tests.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

__all__ = ["bits", "derive", "seeded", "uniform"]

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = (1 << 64) - 1


def _signed(value: int) -> int:
    """A 64-bit word as an int64, by two's complement."""
    value &= _WORD
    return value - (1 << 64) if value >> 63 else value


def derive(key: int, *path: int) -> int:
    """Derive a key from another, as in ``derive(seed, EPOCH, 3)``. It equals :func:`bits` and runs on the host.

    >>> derive(0, 1) == int(bits(torch.tensor(0), 1))
    True
    """
    for counter in path:
        word = (key + (counter + 1) * _GOLDEN) & _WORD
        word = ((word ^ (word >> 30)) * _FIRST) & _WORD
        word = ((word ^ (word >> 27)) * _SECOND) & _WORD
        key = word ^ (word >> 31)
    return _signed(key)


_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def seeded(seed: int, gpus: Sequence[torch.device] = ()) -> Iterator[None]:
    """Seed the generators of torch, Python and NumPy, and restore them afterwards.

    All threads share these generators, so one thread at a time may do this. It takes 0.07 ms; a step of a small model
    takes 4.

    gpus: the GPUs whose generators are seeded, beside those of the CPU.
    """
    with _ONE_AT_A_TIME, torch.random.fork_rng(gpus):
        of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
        try:
            random.seed(seed % 2**64)  # it would drop a sign
            np.random.seed(seed % 2**32)  # noqa: NPY002
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every GPU
            for gpu in gpus:
                with torch.cuda.device(gpu):
                    torch.cuda.manual_seed(seed)
            yield
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)  # noqa: NPY002


def _shifted(word: Tensor, places: int) -> Tensor:
    """Shift right and fill with zeros; torch's own shift copies the sign."""
    return (word >> places) & ((1 << (64 - places)) - 1)


def bits(key: Tensor, counter: Tensor | int) -> Tensor:
    """64 random bits, as int64, for each key and counter (int64, broadcast)."""
    if isinstance(counter, int):
        word = key + _signed((counter + 1) * _GOLDEN)
    else:
        word = key + (counter + 1) * _signed(_GOLDEN)
    word = (word ^ _shifted(word, 30)) * _signed(_FIRST)
    word = (word ^ _shifted(word, 27)) * _signed(_SECOND)
    return word ^ _shifted(word, 31)


def uniform(key: Tensor, counter: Tensor) -> Tensor:
    """float32 numbers in [0, 1) with 24 bits. They are exact, so all devices give the same.

    >>> uniform(torch.tensor(7), torch.arange(3))
    tensor([0.3898, 0.0168, 0.9008])
    """
    return _shifted(bits(key, counter), 40).to(torch.float32) * 2.0**-24
