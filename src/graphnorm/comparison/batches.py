"""The last step of an epoch, which is made on the graphs that full batches leave over."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["about_last_batch", "last_batch"]

FEW = 8
"""A last batch is small below one part in so many of a full one."""


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
    the last step of an epoch has 1 graph, others 128, and its noise can hold training back; --batch-size 129 leaves 104
    >>> about_last_batch({3699}, 128)
    []
    """
    fewest = _fewest(sizes, batch_size)
    if fewest * FEW >= batch_size or max(sizes) <= batch_size:
        return []
    better = _enough_left_over(sizes, batch_size)
    remedy = "" if better is None else f"; --batch-size {better} leaves {_fewest(sizes, better)}"
    few = f"{fewest} graph{'' if fewest == 1 else 's'}"
    return [f"the last step of an epoch has {few}, others {batch_size}, and its noise can hold training back{remedy}"]


def _fewest(sizes: Collection[int], batch_size: int) -> int:
    return min(last_batch(size, batch_size) for size in sizes)


def _enough_left_over(sizes: Collection[int], batch_size: int) -> int | None:
    """The next batch size that leaves at least half a batch for the last step."""
    nearest = sorted(range(batch_size // 2, 2 * batch_size), key=lambda other: abs(other - batch_size))
    return next((other for other in nearest if 2 * _fewest(sizes, other) >= other), None)
