"""Measure a fused GIN convolution with GraphNorm against today's training step, to decide whether to build it.

    GRAPHNORM_DATA=folder python -m benchmarks.fused_spike --out FILE.csv
    GRAPHNORM_DATA=folder TRITON_INTERPRET=1 python -m benchmarks.fused_spike --check

The first command needs a GPU. It checks every variant, times all four convolutions of a GIN on NCI1 (batches of 128),
and puts the fastest in place of the convolutions in a fleet's step. It is worth building if a step of ten members then
takes at most half of today's time. A step of 300 members is measured as well, but does not decide. The second command
compares two variants with plain torch in float64, on a CPU.

One launch does a whole convolution forward, another one backward. A program works on tiles of 64 or 128 rows. A tile
holds whole graphs, their rows in order, then padding. Activations are stored tile by tile. There are two kinds of
products, and variants differ in how they reach the precision of float32:

- PRECISION, of two float matrices. half3: scale each by a power of two, split it into two float16 (22 bits), and take
  three products. tf32x3: Triton's three products of TF32.
- SUMS, of a 0/1 matrix (neighbours, or rows of the same graph) with floats. half2: two scaled float16. bf16x3: three
  bfloat16 (all 24 bits).
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl
from torch import Tensor

from benchmarks.facts import announce, write_table
from benchmarks.fleet import setting, step_seconds
from graphnorm.backends import interpreted
from graphnorm.data import PackedGraphs, load
from graphnorm.training import Fleet
from graphnorm.training.cuda_graph import record_cuda_graph

BAR = 2.0  # worth building from this gain on
EPS = 1e-5
BF16 = tl.float32 if interpreted() else tl.bfloat16
C = 64
# The parameters of a convolution, flat: W1 (out, in), W2, then rows of C values:
# b1, gamma1, beta1, alpha1, b2, gamma2, beta2, alpha2, xi (in the first place), unused. Their gradients likewise.
P = 2 * C * C + 10 * C
VECTORS = ("b1", "gamma1", "beta1", "alpha1", "b2", "gamma2", "beta2", "alpha2")


@triton.jit
def binary_scale(x):
    """A power of two that brings the largest |x| between 2^14 and 2^15, and its inverse."""
    exponent = tl.minimum(tl.maximum(tl.max(tl.abs(x)).to(tl.int32, bitcast=True) >> 23, 80), 220)
    up = ((268 - exponent) << 23).to(tl.float32, bitcast=True)
    down = ((exponent - 14) << 23).to(tl.float32, bitcast=True)
    return up, down


@triton.jit
def halves(x):
    """x·scale as two float16, and 1/scale."""
    up, down = binary_scale(x)
    x = x * up
    high = x.to(tl.float16)
    low = (x - high.to(tl.float32)).to(tl.float16)
    return high, low, down


@triton.jit
def three(ah, al, bh, bl):
    """(ah + al)·(bh + bl) without al·bl."""
    out = tl.dot(al, bh)
    out = tl.dot(ah, bl, out)
    return tl.dot(ah, bh, out)


@triton.jit
def transposed_times(a, b, PRECISION: tl.constexpr):
    """aᵀ·b."""
    if PRECISION == "half3":
        ah, al, sa = halves(a)
        bh, bl, sb = halves(b)
        out = three(tl.trans(ah), tl.trans(al), bh, bl) * (sa * sb)
    else:
        out = tl.dot(tl.trans(a), b, input_precision=PRECISION)
    return out


@triton.jit
def times_weight(a, weights, scales, which: tl.constexpr, T: tl.constexpr, C: tl.constexpr, PRECISION: tl.constexpr):
    """a·Wᵀ if T, else a·W. For half3, split_weights has made the weights' float16 parts and scales."""
    at = tl.arange(0, C)[:, None] * C + tl.arange(0, C)[None, :]
    if PRECISION == "half3":
        bh = tl.load(weights + which * 2 * C * C + at)
        bl = tl.load(weights + which * 2 * C * C + C * C + at)
        ah, al, sa = halves(a)
        factor = sa * tl.load(scales + which)
        if T:
            bh, bl = tl.trans(bh), tl.trans(bl)
        out = three(ah, al, bh, bl) * factor
    else:
        w = tl.load(weights + which * C * C + at)
        if T:
            w = tl.trans(w)
        out = tl.dot(a, w, input_precision=PRECISION)
    return out


@triton.jit
def sums(matrix, v, factor, SUMS: tl.constexpr, BF16: tl.constexpr):
    """matrix·v·factor. matrix: bool; factor: 1 or (R, 1)."""
    if SUMS == "half2":
        high, low, down = halves(v)
        m = matrix.to(tl.float16)
        out = tl.dot(m, low)
        out = tl.dot(m, high, out) * (down * factor)
    else:
        m = matrix.to(BF16)
        high = v.to(BF16)
        rest = v - high.to(tl.float32)
        middle = rest.to(BF16)
        low = (rest - middle.to(tl.float32)).to(BF16)
        out = tl.dot(m, low)
        out = tl.dot(m, middle, out)
        out = tl.dot(m, high, out) * factor
    return out


@triton.jit
def split_weights(parameters, halved, scales, C: tl.constexpr, P: tl.constexpr):
    """Write both matrices of one convolution of a member as two float16 parts and a scale."""
    one = tl.program_id(0)
    at = tl.arange(0, C)[:, None] * C + tl.arange(0, C)[None, :]
    for which in range(2):
        high, low, down = halves(tl.load(parameters + one * P + which * C * C + at))
        tl.store(halved + one * (4 * C * C) + which * 2 * C * C + at, high)
        tl.store(halved + one * (4 * C * C) + which * 2 * C * C + C * C + at, low)
        tl.store(scales + one * 2 + which, down)


@triton.jit
def adjacency(bits, tile, R: tl.constexpr):
    """The tile's (R, R) bool matrix, from R·R bits."""
    words: tl.constexpr = R // 32
    at = tile * (R * words) + tl.arange(0, R)[:, None] * words + tl.arange(0, words)[None, :]
    word = tl.load(bits + at)
    spread = (word[:, :, None] >> tl.arange(0, 32)[None, None, :]) & 1
    return tl.reshape(spread, (R, R)) != 0


@triton.jit
def features(x, category, where, row, first, tile, C: tl.constexpr, R: tl.constexpr):
    """The input of the convolution: rows of x, or one-hot categories if it is the first."""
    if first:
        h = (tl.load(category + tile * R + row)[:, None] == tl.arange(0, C)[None, :]).to(tl.float32)
    else:
        h = tl.load(x + where)
    return h


@triton.jit
def vector_at(parameters, which: tl.constexpr, C: tl.constexpr):
    """The vector in row ``which`` after both matrices, (1, C)."""
    return tl.load(parameters + 2 * C * C + which * C + tl.arange(0, C))[None, :]


@triton.jit
def live_norm(
    z, same, inv_n, parameters, which: tl.constexpr, mean_at, r_at, keep,
    C: tl.constexpr, EPS: tl.constexpr, SUMS: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    """GraphNorm. Stores the mean and r = 1/σ of each graph, for the backward pass."""
    mean = sums(same, z, inv_n, SUMS, BF16)
    tl.store(mean_at, mean, mask=keep)
    s = z - vector_at(parameters, which + 3, C) * mean
    r = tl.rsqrt(sums(same, s * s, inv_n, SUMS, BF16) + EPS)
    tl.store(r_at, r, mask=keep)
    return vector_at(parameters, which + 1, C) * (s * r) + vector_at(parameters, which + 2, C)


@triton.jit(do_not_specialize=("tiles", "per_program", "graphs", "first"))
def conv_forward(
    x, category, bits, graph, inverse, number, parameters, weights, scales, out, stats,
    tiles, per_program, graphs, first,
    R: tl.constexpr, C: tl.constexpr, P: tl.constexpr, EPS: tl.constexpr,
    PRECISION: tl.constexpr, SUMS: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    """Work on ``per_program`` tiles of one member.

    graph: each row's graph in the batch, -1 for padding.
    stats: (M, graphs, 4, C), written: mean and r of both norms.
    """
    member = tl.program_id(1)
    parameters += member * P
    weights += member * (4 * C * C if PRECISION == "half3" else P)
    scales += member * 2
    begin = tl.program_id(0) * per_program
    end = tl.minimum(begin + per_program, tl.load(number + member))
    row = tl.arange(0, R)
    channel = tl.arange(0, C)
    for local in range(begin, end):
        tile = (member * tiles + local).to(tl.int64)
        where = tile * (R * C) + row[:, None] * C + channel[None, :]
        g = tl.load(graph + tile * R + row)
        g_across = tl.load(graph + tile * R + tl.arange(0, R))
        before = tl.load(graph + tile * R + row - 1, mask=row > 0, other=-1)
        real = (g >= 0)[:, None]
        keep = (g != before)[:, None] & real
        same = (g[:, None] == g_across[None, :]) & real
        inv_n = tl.load(inverse + tile * R + row)[:, None]
        stat = stats + (member * graphs + g[:, None]) * (4 * C) + channel[None, :]
        h = features(x, category, where, row, first, tile, C, R)
        own = 1.0 + tl.load(parameters + 2 * C * C + 8 * C)
        z = sums(adjacency(bits, tile, R), h, 1.0, SUMS, BF16) + own * h
        z = times_weight(z, weights, scales, 0, True, C, PRECISION) + vector_at(parameters, 0, C)
        z = live_norm(z, same, inv_n, parameters, 0, stat, stat + C, keep, C, EPS, SUMS, BF16)
        z = tl.where(real, tl.maximum(z, 0.0), 0.0)
        z = times_weight(z, weights, scales, 1, True, C, PRECISION) + vector_at(parameters, 4, C)
        z = live_norm(z, same, inv_n, parameters, 4, stat + 2 * C, stat + 3 * C, keep, C, EPS, SUMS, BF16)
        z = tl.where(real, tl.maximum(z, 0.0), 0.0)
        if first == 0:
            z += tl.load(x + where)
        tl.store(out + where, z)


@triton.jit
def norm_backward(
    g, s, same, inv_n, at, sums_at, real, keep, parameters, which: tl.constexpr,
    C: tl.constexpr, SUMS: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    """The gradient of a norm's input, from that of its output (g) and its normalized values (s).

    Stores each graph's means of g and of g·s, which give the gradients of all vectors.
    """
    alpha = vector_at(parameters, which + 3, C)
    mgs = sums(same, g * s, inv_n, SUMS, BF16)
    tl.store(sums_at + C, mgs, mask=keep)
    mg = sums(same, g, inv_n, SUMS, BF16)
    tl.store(sums_at, mg, mask=keep)
    r = tl.load(at + C, mask=real, other=0.0)
    mean = tl.load(at, mask=real, other=0.0)
    q = vector_at(parameters, which + 1, C) * r
    return q * (g - s * mgs - alpha * (mg - mgs * (r * (1 - alpha) * mean)))


@triton.jit(do_not_specialize=("tiles", "per_program", "graphs", "first"))
def conv_backward(
    x, category, bits, graph, inverse, number, parameters, weights, scales, dout, stats, dx, sums_out, partial,
    tiles, per_program, graphs, first,
    R: tl.constexpr, C: tl.constexpr, P: tl.constexpr,
    PRECISION: tl.constexpr, SUMS: tl.constexpr, BF16: tl.constexpr, REGISTERS: tl.constexpr,
):  # fmt: skip
    """Recompute the forward pass from the input and the statistics, then go back.

    partial: (programs, M, 2·C·C + C), written: each program's share of dW1, dW2 and dxi.
    sums_out: (M, graphs, 4, C), written: the means of g and of g·s of both norms.
    REGISTERS: add up dW over a program's tiles in registers, otherwise in its part of ``partial``.
    """
    member = tl.program_id(1)
    parameters += member * P
    weights += member * (4 * C * C if PRECISION == "half3" else P)
    scales += member * 2
    partial += (tl.program_id(0) * tl.num_programs(1) + member).to(tl.int64) * (2 * C * C + C)
    begin = tl.program_id(0) * per_program
    end = tl.minimum(begin + per_program, tl.load(number + member))
    row = tl.arange(0, R)
    channel = tl.arange(0, C)
    dw_at = partial + channel[:, None] * C + channel[None, :]
    dw1 = tl.zeros((C, C), tl.float32)
    dw2 = tl.zeros((C, C), tl.float32)
    dxi = 0.0
    own = 1.0 + tl.load(parameters + 2 * C * C + 8 * C)
    for local in range(begin, end):
        tile = (member * tiles + local).to(tl.int64)
        where = tile * (R * C) + row[:, None] * C + channel[None, :]
        g = tl.load(graph + tile * R + row)
        g_across = tl.load(graph + tile * R + tl.arange(0, R))
        before = tl.load(graph + tile * R + row - 1, mask=row > 0, other=-1)
        real = (g >= 0)[:, None]
        keep = (g != before)[:, None] & real
        same = (g[:, None] == g_across[None, :]) & real
        inv_n = tl.load(inverse + tile * R + row)[:, None]
        place = (member * graphs + g[:, None]) * (4 * C) + channel[None, :]
        stat = stats + place
        # forward again
        h = features(x, category, where, row, first, tile, C, R)
        mixed = sums(adjacency(bits, tile, R), h, 1.0, SUMS, BF16) + own * h
        s1 = times_weight(mixed, weights, scales, 0, True, C, PRECISION) + vector_at(parameters, 0, C)
        s1 -= vector_at(parameters, 3, C) * tl.load(stat, mask=real, other=0.0)
        s1 *= tl.load(stat + C, mask=real, other=0.0)
        a1 = tl.maximum(vector_at(parameters, 1, C) * s1 + vector_at(parameters, 2, C), 0.0)
        a1 = tl.where(real, a1, 0.0)
        s2 = times_weight(a1, weights, scales, 1, True, C, PRECISION) + vector_at(parameters, 4, C)
        s2 -= vector_at(parameters, 7, C) * tl.load(stat + 2 * C, mask=real, other=0.0)
        s2 *= tl.load(stat + 3 * C, mask=real, other=0.0)
        # backward
        positive = vector_at(parameters, 5, C) * s2 + vector_at(parameters, 6, C) > 0
        dy = tl.where(real & positive, tl.load(dout + where), 0.0)
        to = sums_out + place
        dz = norm_backward(dy, s2, same, inv_n, stat + 2 * C, to + 2 * C, real, keep, parameters, 4, C, SUMS, BF16)
        if REGISTERS:
            dw2 += transposed_times(dz, a1, PRECISION)
        else:
            share = transposed_times(dz, a1, PRECISION)
            if local > begin:
                share += tl.load(dw_at + C * C)
            tl.store(dw_at + C * C, share)
        dy = tl.where(a1 > 0, times_weight(dz, weights, scales, 1, False, C, PRECISION), 0.0)
        dz = norm_backward(dy, s1, same, inv_n, stat, to, real, keep, parameters, 0, C, SUMS, BF16)
        # load and mix again: keeping them takes too many registers
        h = features(x, category, where, row, first, tile, C, R)
        neighbours = adjacency(bits, tile, R)
        mixed = sums(neighbours, h, 1.0, SUMS, BF16) + own * h
        if REGISTERS:
            dw1 += transposed_times(dz, mixed, PRECISION)
        else:
            share = transposed_times(dz, mixed, PRECISION)
            if local > begin:
                share += tl.load(dw_at)
            tl.store(dw_at, share)
        dmixed = times_weight(dz, weights, scales, 0, False, C, PRECISION)
        dxi += tl.sum(tl.sum(dmixed * h, 1), 0)
        if first == 0:
            dh = sums(neighbours, dmixed, 1.0, SUMS, BF16) + own * dmixed + tl.load(dout + where)
            tl.store(dx + where, dh)
    if REGISTERS or begin >= end:
        tl.store(dw_at, dw1)
        tl.store(dw_at + C * C, dw2)
    tl.store(partial + 2 * C * C + channel, tl.where(channel == 0, dxi, 0.0))


@triton.jit(do_not_specialize=("programs", "members", "graphs"))
def finish(
    partial, stats, sums_in, count, parameters, gradient, programs, members, graphs,
    C: tl.constexpr, P: tl.constexpr, BLOCK: tl.constexpr, G: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the parameters of one convolution.

    Matrices and xi: the sum of all programs' shares. Other vectors: from the graphs' means.
    """
    conv, member = tl.program_id(1) // members, tl.program_id(1) % members
    one = tl.program_id(1).to(tl.int64)
    share: tl.constexpr = 2 * C * C + C
    blocks: tl.constexpr = 2 * C * C // BLOCK
    if tl.program_id(0) < blocks:
        entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        added = tl.zeros((BLOCK,), tl.float32)
        for k in range(programs):
            added += tl.load(partial + ((conv * programs + k) * members + member).to(tl.int64) * share + entry)
        tl.store(gradient + one * P + entry, added)
    else:
        c = tl.arange(0, C)
        for norm in range(2):
            v = 2 * C * C + norm * 4 * C
            gamma = tl.load(parameters + one * P + v + C + c)[None, :]
            alpha = tl.load(parameters + one * P + v + 3 * C + c)[None, :]
            db = tl.zeros((C,), tl.float32)
            dgamma = tl.zeros((C,), tl.float32)
            dbeta = tl.zeros((C,), tl.float32)
            dalpha = tl.zeros((C,), tl.float32)
            for begin in range(0, graphs, G):
                g = begin + tl.arange(0, G)
                n = tl.load(count + member * graphs + g, mask=g < graphs, other=0.0)[:, None]
                inside = n > 0
                at = ((one * graphs + g[:, None]) * 4 + norm * 2) * C + c[None, :]
                mean = tl.load(stats + at, mask=inside, other=0.0)
                r = tl.load(stats + at + C, mask=inside, other=0.0)
                mg = tl.load(sums_in + at, mask=inside, other=0.0)
                mgs = tl.load(sums_in + at + C, mask=inside, other=0.0)
                ds = n * gamma * r * (mg - mgs * (r * (1 - alpha) * mean))
                db += tl.sum((1 - alpha) * ds, 0)
                dgamma += tl.sum(n * mgs, 0)
                dbeta += tl.sum(n * mg, 0)
                dalpha -= tl.sum(ds * mean, 0)
            to = gradient + one * P + v + c
            tl.store(to, db)
            tl.store(to + C, dgamma)
            tl.store(to + 2 * C, dbeta)
            tl.store(to + 3 * C, dalpha)
        total = tl.zeros((C,), tl.float32)
        for k in range(programs):
            total += tl.load(partial + ((conv * programs + k) * members + member).to(tl.int64) * share + 2 * C * C + c)
        tl.store(gradient + one * P + 2 * C * C + 8 * C + c, total)


class Tiles(NamedTuple):
    """The tiles of one size, of M members. T is the largest number of tiles of any member."""

    rows: int  # R
    most: int  # T
    number: Tensor  # (M,) int32: how many tiles the member has
    graph: Tensor  # (M, T, R) int32: the graph's place in the batch, -1 for padding
    inverse: Tensor  # (M, T, R) float32: 1 / the graph's size, 0 for padding
    category: Tensor  # (M, T, R) int32, -1 for padding
    bits: Tensor  # (M, T, R, R / 32) int32
    source: Tensor  # (M, T, R) int64: the row in the member's plain batch, -1 for padding


def sizes_of(graphs: PackedGraphs) -> npt.NDArray[np.int64]:
    return np.diff(graphs.node_ptr.cpu().numpy())


def pack(sizes: npt.NDArray[np.int64], usual: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Assign graphs to tiles, first fit by falling size. Tiles have ``usual`` rows, or 128 if a graph is larger.

    Returns each graph's size of tile, tile among those, and first row in it.
    """
    kind, tile, first, room, rows, index = (np.zeros(len(sizes), np.int64) for _ in range(6))
    used = 0
    for k in np.argsort(-sizes, kind="stable"):
        fits = np.flatnonzero(room[:used] >= sizes[k])
        at = int(fits[0]) if len(fits) else used
        if at == used:
            rows[at] = room[at] = usual if sizes[k] <= usual else 128
            index[at] = (rows[:used] == rows[at]).sum()
            used += 1
        kind[k], tile[k], first[k] = rows[at], index[at], rows[at] - room[at]
        room[at] -= sizes[k]
    return kind, tile, first


def layout(graphs: PackedGraphs, ids: npt.NDArray[np.int64], usual: int, device: torch.device) -> list[Tiles]:
    """The tiles of M batches (M, B): those of ``usual`` rows and, for larger graphs, those of 128."""
    assert graphs.tags is not None
    node_ptr, rowptr, col = (t.cpu().numpy().astype(np.int64) for t in (graphs.node_ptr, graphs.rowptr, graphs.col))
    tags, sizes = graphs.tags[:, 0].cpu().numpy(), sizes_of(graphs)
    assigned = [pack(sizes[batch], usual) for batch in ids]
    kinds, tiles, firsts = (np.stack([one[k] for one in assigned]) for k in range(3))
    starts = np.cumsum(sizes[ids], 1) - sizes[ids]
    found = []
    for rows in sorted({usual, 128}):
        member, place = np.nonzero(kinds == rows)
        if not len(member):
            continue
        number = np.where(kinds == rows, tiles + 1, 0).max(1)
        most = int(number.max())
        shape = (len(ids), most, rows)
        # one entry for each node of these graphs
        which, first = ids[member, place], firsts[member, place]
        n = sizes[which]
        spread = np.repeat(np.arange(len(which)), n)
        local = np.arange(len(spread)) - np.repeat(np.cumsum(n) - n, n)
        row = ((member * most + tiles[member, place]) * rows + first)[spread] + local
        packed = node_ptr[which][spread] + local
        graph, category = np.full(shape, -1, np.int32), np.full(shape, -1, np.int32)
        inverse, source = np.zeros(shape, np.float32), np.full(shape, -1)
        graph.reshape(-1)[row] = place[spread]
        category.reshape(-1)[row] = tags[packed]
        inverse.reshape(-1)[row] = 1 / n[spread]
        source.reshape(-1)[row] = starts[member, place][spread] + local
        # one entry for each of their edges
        degree = rowptr[packed + 1] - rowptr[packed]
        within = np.arange(degree.sum()) - np.repeat(np.cumsum(degree) - degree, degree)
        column = np.repeat(first[spread], degree) + col[np.repeat(rowptr[packed], degree) + within]
        word = np.repeat(row, degree) * (rows // 32) + column // 32
        sums = np.bincount(word, weights=2.0 ** (column % 32), minlength=graph.size * rows // 32)
        bits = sums.astype(np.uint32).view(np.int32).reshape(*shape, rows // 32)
        arrays = (number.astype(np.int32), graph, inverse, category, bits, source)
        found.append(Tiles(rows, most, *(torch.from_numpy(a).to(device) for a in arrays)))
    return found


class Config(NamedTuple):
    """A variant."""

    rows: int
    precision: str
    sums: str
    registers: bool = False  # whether dW is added up in registers
    limit: int | None = None  # on the registers of a thread, for tiles of 64 rows

    def __str__(self) -> str:
        where = "registers" if self.registers else "memory"
        return f"{self.rows} rows, {self.precision}, {self.sums}, dW in {where}, limit {self.limit}"


VARIANTS = [
    Config(64, "half3", "half2"),
    Config(64, "half3", "half2", registers=True),
    Config(64, "half3", "half2", limit=168),
    Config(64, "half3", "half2", limit=128),
    Config(64, "half3", "bf16x3"),
    Config(128, "half3", "half2"),
    Config(64, "tf32x3", "bf16x3"),
    Config(128, "tf32x3", "bf16x3"),
]


class Launch(NamedTuple):
    """A launch of a kernel."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def __call__(self) -> None:
        self.kernel[self.grid](*self.arguments, **self.options)


class Problem(NamedTuple):
    """Random batches and parameters of M members, and the batches' tiles by size."""

    graphs: PackedGraphs
    ids: npt.NDArray[np.int64]  # (M, B)
    parameters: Tensor  # (4, M, P)
    tiles: dict[int, list[Tiles]]


class Fused:
    """Four convolutions of all members, forward and backward."""

    def __init__(self, config: Config, problem: Problem) -> None:
        self.config, self.problem, self.tiles = config, problem, problem.tiles[config.rows]
        self.members, self.graphs = problem.ids.shape
        device = problem.parameters.device
        new = partial(torch.zeros, device=device)
        self.size = torch.from_numpy(sizes_of(problem.graphs)[problem.ids].astype(np.float32)).to(device)
        self.halved = new(4, self.members, 2, 2, C, C, dtype=torch.float16)
        self.scales = new(4, self.members, 2)
        self.stats, self.sums = new(4, self.members, self.graphs, 4, C), new(4, self.members, self.graphs, 4, C)
        self.h, self.d = [], []  # for each size of tiles: the convolutions' outputs, and the gradients of these
        for part in self.tiles:
            shape = (self.members, part.most, part.rows, C)
            self.h.append([new(shape) for _ in range(4)])
            self.d.append([new(shape) for _ in range(4)])
            self.d[-1][3].copy_(torch.randn(shape, device=device) * (part.graph >= 0)[..., None])
        self.gradient = new(4, self.members, P)
        self.side = torch.cuda.Stream() if device.type == "cuda" else None
        self.cut(1)

    def cut(self, per_program: int) -> None:
        """Choose how many tiles a program takes. Of the few large tiles it takes at most two."""
        self.each = [per_program if k == 0 else min(per_program, 2) for k in range(len(self.tiles))]
        programs = [-(-part.most // each) for part, each in zip(self.tiles, self.each, strict=True)]
        self.bounds = [0, *np.cumsum(programs).tolist()]
        self.partial = torch.zeros(4, self.bounds[-1], self.members, 2 * C * C + C, device=self.size.device)

    def convolutions(self, k: int, backward: bool) -> list[Launch]:
        """The launches over tiles of one size."""
        part, config, half = self.tiles[k], self.config, self.config.precision == "half3"
        kernel = conv_backward if backward else conv_forward
        grid = (self.bounds[k + 1] - self.bounds[k], self.members)
        options: dict[str, Any] = {"num_warps": part.rows // 16, "num_stages": 1, "enable_fp_fusion": True}
        options |= {"R": part.rows, "C": C, "P": P, "PRECISION": config.precision, "SUMS": config.sums, "BF16": BF16}
        options |= {"REGISTERS": config.registers} if backward else {"EPS": EPS}
        if config.limit is not None and part.rows == 64:
            options["maxnreg"] = config.limit
        found = []
        for conv in reversed(range(4)) if backward else range(4):
            before, p = max(conv - 1, 0), self.problem.parameters[conv]
            of_tiles = (part.category, part.bits, part.graph, part.inverse, part.number)
            weights = (p, self.halved[conv] if half else p, self.scales[conv])
            arguments: tuple[Any, ...] = (self.h[k][before], *of_tiles, *weights)
            if backward:
                share = self.partial[conv, self.bounds[k] :]
                arguments += (self.d[k][conv], self.stats[conv], self.d[k][before], self.sums[conv], share)
            else:
                arguments += (self.h[k][conv], self.stats[conv])
            arguments += (part.most, self.each[k], self.graphs, int(conv == 0))
            found.append(Launch(kernel, grid, arguments, options))
        return found

    def before(self) -> list[Launch]:
        if self.config.precision != "half3":
            return []
        arguments = (self.problem.parameters, self.halved, self.scales)
        return [Launch(split_weights, (4 * self.members,), arguments, {"C": C, "P": P, "num_warps": 8})]

    def after(self) -> Launch:
        tensors = (self.partial, self.stats, self.sums, self.size, self.problem.parameters, self.gradient)
        arguments = (*tensors, self.bounds[-1], self.members, self.graphs)
        options = {"C": C, "P": P, "BLOCK": 1024, "G": 32, "num_warps": 4}
        return Launch(finish, (2 * C * C // 1024 + 1, 4 * self.members), arguments, options)

    def run(self, backward: bool = True) -> None:
        """One pass. Large tiles run on a stream of their own, beside the small ones."""
        work = [self.convolutions(k, False) for k in range(len(self.tiles))]
        if backward:
            work = [some + self.convolutions(k, True) for k, some in enumerate(work)]
        small, *large = work
        launch_all(self.before())
        if self.side is not None and large:
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                launch_all(large[0])
            launch_all(small)
            torch.cuda.current_stream().wait_stream(self.side)
        else:
            for some in work:
                launch_all(some)
        if backward:
            self.after()()

    def results(self, member: int) -> dict[str, Tensor]:
        """The output and the gradients of a member, rows in the order of its plain batch."""

        def gather(of: list[list[Tensor]], conv: int) -> Tensor:
            out = torch.zeros(int(self.size[member].sum()), C, device=self.size.device)
            for part, buffers in zip(self.tiles, of, strict=True):
                source = part.source[member].reshape(-1)
                out[source[source >= 0]] = buffers[conv][member].reshape(-1, C)[source >= 0]
            return out

        inner = {f"dh{conv + 1}": gather(self.d, conv) for conv in range(3)}
        return {"out": gather(self.h, 3), "dout": gather(self.d, 3)} | by_name(self.gradient[:, member]) | inner


def launch_all(launches: list[Launch]) -> None:
    for launch in launches:
        launch()


def by_name(gradient: Tensor) -> dict[str, Tensor]:
    """A member's gradients of its parameters, (4, P)."""
    rows = gradient[:, 2 * C * C :].reshape(4, 10, C)
    vectors = {f"d{name}": rows[:, k] for k, name in enumerate(VECTORS)}
    return {"dW": gradient[:, : 2 * C * C]} | vectors | {"dxi": rows[:, 8, 0]}


def make_problem(graphs: PackedGraphs, ids: npt.NDArray[np.int64], device: torch.device, seed: int = 0) -> Problem:
    """Random parameters: matrices and biases as torch initialises them, norms and xi around their usual values."""
    torch.manual_seed(seed)
    members = len(ids)
    p = (torch.rand(4, members, P) * 2 - 1) * C**-0.5
    rows = p[..., 2 * C * C :].view(4, members, 10, C)
    for norm in (0, 4):
        for k, usual in ((1, 1.0), (2, 0.0), (3, 1.0)):
            rows[:, :, norm + k] = usual + 0.3 * torch.randn(4, members, C)
    rows[:, :, 8:] = 0
    rows[:, :, 8, 0] = 0.1 * torch.randn(4, members)
    return Problem(graphs, ids, p.to(device), {usual: layout(graphs, ids, usual, device) for usual in (64, 128)})


def reference(problem: Problem, member: int, dout: Tensor | None, dtype: torch.dtype) -> dict[str, Tensor]:
    """A member in plain torch: output and gradients. ``nearest``: the smallest absolute value before a ReLU."""
    device, graphs = problem.parameters.device, problem.ids.shape[1]
    batch = problem.graphs.batch(problem.ids[member].tolist())
    assert batch.tags is not None
    edges, owner = batch.edge_index.to(device), batch.batch.to(device)
    n = torch.bincount(owner, minlength=graphs).to(dtype)[:, None]
    p = problem.parameters[:, member].to(dtype).requires_grad_()
    h = torch.nn.functional.one_hot(batch.tags[:, 0].long().to(device), C).to(dtype)
    nearest = torch.tensor(float("inf"), device=device, dtype=dtype)
    outputs = []

    def mean(x: Tensor) -> Tensor:
        return (torch.zeros(graphs, C, dtype=dtype, device=device).index_add(0, owner, x) / n)[owner]

    for conv in range(4):
        w, v = p[conv, : 2 * C * C].view(2, C, C), p[conv, 2 * C * C :].view(10, C)
        z = (1 + v[8, 0]) * h + torch.zeros_like(h).index_add(0, edges[1], h[edges[0]])
        for k in range(2):
            z = z @ w[k].T + v[4 * k]
            s = z - v[4 * k + 3] * mean(z)
            y = v[4 * k + 1] * s * (mean(s * s) + EPS).rsqrt() + v[4 * k + 2]
            nearest = torch.minimum(nearest, y.detach().abs().min())
            z = y.relu()
        h = z + h if conv else z
        outputs.append(h)
    found = {"out": h.detach(), "nearest": nearest}
    if dout is not None:
        gradient, *inner = torch.autograd.grad(h, [p, *outputs[:3]], dout.to(dtype))
        found |= by_name(gradient) | {f"dh{conv + 1}": t for conv, t in enumerate(inner)}
    return found


def compare(fused: Fused, member: int) -> tuple[str, float]:
    """Errors relative to float64, beside those of plain float32: in words, and the largest."""
    mine = fused.results(member)
    right, plain = (reference(fused.problem, member, mine["dout"], t) for t in (torch.float64, torch.float32))
    names = [name for name in mine if name != "dout"]
    off, usual = (
        {name: float((some[name].double() - right[name]).norm() / right[name].norm()) for name in names}
        for some in (mine, plain)
    )
    return " ".join(f"{name} {off[name]:.1e}/{usual[name]:.1e}" for name in names), max(off.values())


class Log:
    """Prints, and keeps the rows of the CSV file, which is written anew with each row."""

    def __init__(self, out: Path | None, seconds: float, device: torch.device) -> None:
        self.out, self.seconds, self.began = out, seconds, time.perf_counter()
        self.rows: list[dict[str, Any]] = []
        self.facts = announce(device, "triton")

    def say(self, text: str) -> None:
        print(f"[{time.perf_counter() - self.began:6.1f} s] {text}", flush=True)

    def left(self) -> float:
        return self.seconds - (time.perf_counter() - self.began)

    def row(self, **values: Any) -> None:
        self.rows.append(values)
        self.say(" ".join(f"{k}={v:.4f}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items()))
        if self.out:
            write_table("fused-spike", self.rows, self.facts, self.out)


def check(graphs: PackedGraphs, configs: list[Config], device: torch.device, number: int, log: Log) -> set[Config]:
    """Find the variants whose results on a few graphs are wrong, or differ from run to run.

    The graphs are chosen so that no value before a ReLU is so near 0 that rounding decides its sign.
    """
    sizes = sizes_of(graphs)
    large = np.flatnonzero(sizes > 64)
    for seed in range(50):
        random = np.random.default_rng(seed)
        ids = np.stack([random.permutation(len(sizes))[:number] for _ in range(2)])
        ids[:, 0] = large[seed]
        problem = make_problem(graphs, ids, device, seed)
        nearest = min(float(reference(problem, m, None, torch.float64)["nearest"]) for m in range(2))
        if nearest > 3e-6:
            break
    log.say(f"check: seed {seed}, the value nearest to 0 before a ReLU is {nearest:.1e}; errors: fused/plain float32")
    wrong = set()
    for config in configs:
        fused = Fused(config, problem)
        fused.cut(2)
        fused.run()
        first = fused.gradient.clone()
        fused.run()
        compared = [compare(fused, member) for member in range(2)]
        for member, (text, _) in enumerate(compared):
            log.say(f"{config}, member {member}: {text}")
        if not torch.equal(first, fused.gradient) or not all(worst < 1e-4 for _, worst in compared):
            log.say(f"WRONG: {config}: two runs differ, or an error is above 1e-4")
            wrong.add(config)
    return wrong


def replay_ms(work: Any, least_ms: float = 15.0) -> float:
    """The time of one replay of a CUDA graph of ``work``, median of five rounds."""
    graph = record_cuda_graph(work)
    graph.replay()
    torch.cuda.synchronize()

    def timed(times: int) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(times):
            graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / times

    times = int(min(50, max(2, least_ms / max(timed(2), 1e-3))))
    return float(np.median([timed(times) for _ in range(5)]))


def only_convolutions(self: Any, x: Any, adjacency: Any, segments: Any, key: Any) -> Any:
    """A classifier's ``score`` without its readout and head."""
    h = self.convolutions[0](x, adjacency, segments)
    for convolution in self.convolutions[1:]:
        h = convolution(h, adjacency, segments, residual=h)
    return h


def today(members: int, device: torch.device, log: Log) -> tuple[float, float]:
    """Today's fleet: a whole step, and its convolutions recorded alone, in ms of all members."""
    fleet = Fleet(*setting("NCI1", members, 400), device=device)
    fleet.advance(1)
    log.say(f"today, {members} members: set up")
    step = 1e3 * step_seconds(fleet)
    level = fleet._captured.bounds[int(fleet._captured._level[1, 0])] if fleet._captured else None
    fleet._ids.copy_(fleet._schedule.batches(1, 2)[0, 0])
    batch = fleet._model_inputs.batch(fleet._ids, bounds=level)
    stack, skeleton = fleet.stack, cast(Any, fleet.stack._skeleton)
    weights = [value for name, value in stack.parameters.items() if name.startswith("convolutions")]
    skeleton.score = MethodType(only_convolutions, skeleton)

    def forward() -> Tensor:
        return stack.forward(fleet._inputs, batch, fleet._keys, fleet._rate, training=True, stacked=True)

    def inference() -> None:
        with torch.no_grad():
            forward()

    with torch.no_grad():
        dout = torch.randn_like(forward())
    forward_ms = replay_ms(inference)
    both_ms = replay_ms(lambda: torch.autograd.grad(forward(), weights, dout, materialize_grads=True))
    log.row(
        what="today", members=members, step_ms_per_model=step / members,
        forward_ms_per_model=forward_ms / members, convolutions_ms_per_model=both_ms / members,
    )  # fmt: skip
    return step, both_ms


def compile_all(variants: list[Fused], log: Log) -> list[Fused]:
    """Compile side by side. Returns the variants that could be compiled."""
    jobs: dict[Any, tuple[Launch, list[int]]] = {}
    for k, one in enumerate(variants):
        passes = [one.convolutions(part, back)[0] for part in range(len(one.tiles)) for back in (False, True)]
        for launch in [*one.before(), *passes, one.after()]:
            same = (launch.kernel.fn.__name__, *sorted((name, str(v)) for name, v in launch.options.items()))
            jobs.setdefault(same, (launch, []))[1].append(k)

    def compile_one(job: tuple[Launch, list[int]]) -> set[int]:
        launch, users = job
        began = time.perf_counter()
        what = f"{launch.kernel.fn.__name__}, {variants[users[0]].config}, R {launch.options.get('R')}"
        try:
            torch.cuda.set_device(0)
            launch.kernel.warmup(*launch.arguments, grid=launch.grid, **launch.options)
        except Exception as error:
            log.say(f"NOT COMPILED: {what}: {type(error).__name__} {str(error)[:200]}")
            return set(users)
        log.say(f"compiled in {time.perf_counter() - began:.1f} s: {what}")
        return set()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        broken = set[int]().union(*pool.map(compile_one, jobs.values()))
    return [one for k, one in enumerate(variants) if k not in broken]


class Best(NamedTuple):
    """The fastest variant, its tiles per program, and the time of its forward and backward pass."""

    fused: Fused
    cut: int
    both: float


def sweep(variants: list[Fused], cuts: list[int], log: Log, reserve: float, best: Best | None = None) -> Best | None:
    """Time variants until only ``reserve`` seconds are left. Returns the fastest, ``best`` included."""
    for one in variants:
        for cut in cuts if one.config.precision == "half3" else cuts[1:2]:
            if log.left() < reserve:
                log.say("out of time: the sweep stops")
                return best
            try:
                one.cut(cut)
                one.run()
                torch.cuda.synchronize()
                forward, both = replay_ms(partial(one.run, False)), replay_ms(one.run)
            except Exception as error:
                log.say(f"FAILED: {one.config}, {cut} tiles a program: {type(error).__name__} {str(error)[:200]}")
                break
            log.row(
                what="fused", members=one.members, **one.config._asdict(), tiles_per_program=cut,
                forward_ms_per_model=forward / one.members, convolutions_ms_per_model=both / one.members,
            )  # fmt: skip
            if best is None or both < best.both:
                best = Best(one, cut, both)
    return best


def details(best: Best, log: Log) -> None:
    """The times of the best variant's launches, and its errors on whole batches.

    A value before a ReLU may be so near 0 here that rounding decides its sign, in plain float32, too.
    """
    one = best.fused
    one.cut(best.cut)
    one.run()
    for member in (0, one.members - 1):
        log.say(f"{one.config}, member {member} of {one.members}: {compare(one, member)[0]}")
    for k, part in enumerate(one.tiles):
        for name, backward in (("forward", False), ("backward", True)):
            times = [1e3 * replay_ms(launch, 3.0) for launch in one.convolutions(k, backward)[:2]]
            log.say(f"{name}, {part.most} tiles of {part.rows} rows: {times[0]:.1f} and {times[1]:.1f} µs a launch")
    ends = [1e3 * replay_ms(launch, 3.0) for launch in [*one.before(), one.after()]]
    log.say("splitting weights, finishing gradients: " + ", ".join(f"{end:.1f} µs" for end in ends))


def summary(members: int, now: tuple[float, float], best: Best, log: Log) -> float:
    """The gain of a step with the best variant in place of today's convolutions."""
    step, convolutions = now
    new = step - convolutions + best.both
    log.row(
        what="projected", members=members, **best.fused.config._asdict(), tiles_per_program=best.cut,
        step_ms_per_model=new / members, convolutions_ms_per_model=best.both / members, gain=step / new,
        gain_of_convolutions=convolutions / best.both,
    )  # fmt: skip
    return step / new


def batches(graphs: PackedGraphs, members: int, device: torch.device) -> Problem:
    """Random batches of 128 graphs."""
    random = np.random.default_rng(0)
    ids = np.stack([random.permutation(graphs.num_graphs)[:128] for _ in range(members)])
    return make_problem(graphs, ids, device)


def measure(graphs: PackedGraphs, device: torch.device, log: Log) -> bool:
    """All measurements on a GPU, what decides first. Returns whether no variant was wrong."""
    problem = batches(graphs, 10, device)
    for parts in problem.tiles.values():
        kinds = (f"{t.most} tiles of {t.rows} at most, {t.number.float().mean():.1f} on average" for t in parts)
        log.say("a member has " + "; ".join(kinds))
    compiled = compile_all([Fused(config, problem) for config in VARIANTS], log)
    wrong = check(graphs, [one.config for one in compiled], device, 12, log)
    right = [one for one in compiled if one.config not in wrong]
    log.say(f"checked; wrong: {[str(config) for config in wrong]}")
    best = sweep(right[:1], [1, 2, 4], log, 0)
    now = today(10, device, log)
    if best is not None:
        summary(10, now, best, log)
    best = sweep(right[1:], [1, 2, 4], log, 15, best)
    if best is None:
        log.say("no variant works: not worth building")
        return False
    gain = summary(10, now, best, log)
    log.say(f"gain of a step of ten members: {gain:.2f}: {'' if gain >= BAR else 'not '}worth building")
    if log.left() > 15:
        details(best, log)
    if log.left() > 15:
        now = today(300, device, log)
        torch.cuda.empty_cache()
        problem, large = batches(graphs, 300, device), None
        log.say("batches of 300 members: made")
        for config in sorted((one.config for one in right), key=lambda config: config != best.fused.config):
            if log.left() < 15 and large is not None:
                break
            large = sweep([Fused(config, problem)], [1, 2, 4, 8], log, 5, large)
            torch.cuda.empty_cache()
        if large is not None:
            summary(300, now, large, log)
            details(large, log)
    return not wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a CSV file of all times, written anew with each of them")
    parser.add_argument("--seconds", type=float, default=90.0, help="after imports; ends at most 8 later (default: 90)")
    parser.add_argument("--check", action="store_true", help="a few graphs, in Triton's interpreter on a CPU")
    options = parser.parse_args()
    device = torch.device("cpu" if options.check else "cuda")
    log = Log(options.out, options.seconds, device)
    graphs = load("NCI1")
    if options.check:
        sys.exit(bool(check(graphs, [VARIANTS[0], Config(128, "tf32x3", "bf16x3", True)], device, 5, log)))
    watch = threading.Timer(log.left() + 8, os._exit, (2,))  # what was measured by then has been written
    watch.daemon = True
    watch.start()
    right = measure(graphs, device, log)
    log.say("done")
    os._exit(not right)  # at once, whatever threads are left


if __name__ == "__main__":
    main()
