"""The last step of an epoch, which is made on the graphs that full batches leave over."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["about_last_batch", "last_batch"]

FEW = 8
"""A last batch is called small below one part in so many of a full one. A sixteenth was seen to hold training back."""


def last_batch(graphs: int, batch_size: int) -> int:
    """How many of the graphs the last step of an epoch has.

    >>> last_batch(3329, 128), last_batch(256, 128), last_batch(60, 128)
    (1, 128, 60)
    """
    return (graphs - 1) % batch_size + 1


def about_last_batch(sizes: Collection[int], batch_size: int) -> list[str]:
    """A note where the last step of an epoch has few graphs beside others; none where it has not.

    sizes: of the training sets.

    >>> print(*about_last_batch({3329}, 128))
    the last step of an epoch has 1 graph, others 128; so few can hold training back; 104 with --batch-size 129
    >>> about_last_batch({3699}, 128)
    []
    """
    fewest = _fewest(sizes, batch_size)
    if fewest * FEW >= batch_size or max(sizes) <= batch_size:
        return []
    better = _enough_left_over(sizes, batch_size)
    remedy = "" if better is None else f"; {_fewest(sizes, better)} with --batch-size {better}"
    few = f"{fewest} graph{'' if fewest == 1 else 's'}"
    return [f"the last step of an epoch has {few}, others {batch_size}; so few can hold training back{remedy}"]


def _fewest(sizes: Collection[int], batch_size: int) -> int:
    return min(last_batch(size, batch_size) for size in sizes)


def _enough_left_over(sizes: Collection[int], batch_size: int) -> int | None:
    """The next batch size, below a whole training set, that leaves at least half a batch for the last step."""
    some = range(-(-batch_size // 2), min(2 * batch_size, *sizes))
    nearest = sorted(some, key=lambda other: abs(other - batch_size))
    return next((other for other in nearest if 2 * _fewest(sizes, other) >= other), None)
