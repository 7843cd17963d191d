"""Random numbers as a function of a key and a place, with no state.

A generator that keeps state makes a member of a fleet depend on who else drew before it, and on the device. Here a
number is a hash of (key, counter): the same on a CPU and on a GPU, alone or beside hundreds of others, in whatever
order it is asked for. The hash is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014), a bijection of 64-bit
integers that passes the usual batteries of tests.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["bits", "derive", "uniform"]

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = (1 << 64) - 1


def _signed(value: int) -> int:
    """The two's complement of a 64-bit word: what an int64 tensor holds."""
    value &= _WORD
    return value - (1 << 64) if value >> 63 else value


def derive(key: int, *path: int) -> int:
    """A key for a part of a stream: ``derive(seed, EPOCH, 3)``. As :func:`bits`, on the host.

    >>> derive(0, 1) == int(bits(torch.tensor(0), 1))
    True
    """
    for counter in path:
        word = (key + (counter + 1) * _GOLDEN) & _WORD
        word = ((word ^ (word >> 30)) * _FIRST) & _WORD
        word = ((word ^ (word >> 27)) * _SECOND) & _WORD
        key = word ^ (word >> 31)
    return _signed(key)


def _shifted(word: Tensor, places: int) -> Tensor:
    """A shift to the right that brings in zeros; torch's own copies the sign."""
    return (word >> places) & ((1 << (64 - places)) - 1)


def bits(key: Tensor, counter: Tensor | int) -> Tensor:
    """64 random bits for each pair of a key and a counter (int64, broadcast against each other), as int64."""
    if isinstance(counter, int):
        word = key + _signed((counter + 1) * _GOLDEN)
    else:
        word = key + (counter + 1) * _signed(_GOLDEN)
    word = (word ^ _shifted(word, 30)) * _signed(_FIRST)
    word = (word ^ _shifted(word, 27)) * _signed(_SECOND)
    return word ^ _shifted(word, 31)


def uniform(key: Tensor, counter: Tensor) -> Tensor:
    """Numbers in [0, 1) with 24 bits, float32: exact, hence the same on every device.

    >>> uniform(torch.tensor(7), torch.arange(3))
    tensor([0.3898, 0.0168, 0.9008])
    """
    return _shifted(bits(key, counter), 40).to(torch.float32) * 2.0**-24
