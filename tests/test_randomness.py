"""Numbers that are a function of key and place."""

from __future__ import annotations

import torch

from graphnorm.randomness import bits, derive, uniform


def test_the_reference_sequence():
    """SplitMix64 seeded with 0, as its authors' program prints it."""
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    got = bits(torch.tensor(0), torch.arange(3)).tolist()
    assert [value % 2**64 for value in got] == expected
    assert [derive(0, counter) for counter in range(3)] == got
    assert [int(bits(torch.tensor(0), counter)) for counter in range(3)] == got


def test_paths_are_keys_in_turn():
    assert derive(5, 1, 2) == derive(derive(5, 1), 2)
    assert derive(5, 1, 2) != derive(5, 2, 1)


def test_uniform_numbers_are_uniform():
    numbers = uniform(torch.tensor(3), torch.arange(100_000))
    assert 0 <= numbers.min() < 1e-3
    assert 1 - 1e-3 < numbers.max() < 1
    counts = torch.histc(numbers, 20, 0, 1)
    assert (counts - 5000).abs().max() < 400
    neighbours = torch.corrcoef(torch.stack([numbers[:-1], numbers[1:]]))[0, 1]
    assert neighbours.abs() < 0.02
