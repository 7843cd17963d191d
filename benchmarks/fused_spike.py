"""A throwaway spike: a GIN convolution with GraphNorm in one launch forward and one backward, over tiles of whole graphs.

``python -m benchmarks.fused_spike --out FILE.csv`` measures it on NCI1 against today's fleet (on a GPU).
``TRITON_INTERPRET=1 python -m benchmarks.fused_spike --check`` compares it with plain torch in float64 on a CPU.

A tile has 64 or 128 rows and holds whole graphs, rows in order, padded rows last. Activations are stored tile by tile.
Two kinds of products: ``mm`` of floats, and ``sums``, of a 0/1 matrix (adjacency, same graph) with floats.
PRECISION of mm: ieee, tf32x3, tf32 (Triton's), or half3: operands scaled by a power of two and split into two float16
(22 bits), three products. SUMS: half2 (two float16, scaled), bf16x3 (three bfloat16, all 24 bits), tf32 (one product).
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any, NamedTuple

START = time.perf_counter()

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

DEVICE = torch.device("cuda")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
BF16 = tl.float32 if INTERPRETED else tl.bfloat16
EPS = 1e-5
C = 64
P_SIZE = 2 * C * C + 10 * C  # gradients of a convolution's weights; the layout of its parameters is the same
# parameters of a convolution, flat: W1 (out, in), W2, then rows of C: b1 gamma1 beta1 alpha1 b2 gamma2 beta2 alpha2 xi(0) –


@triton.jit
def binary_scale(x):
    """A power of two that brings the largest |x| to 2^14 … 2^15, and its inverse."""
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
    """a·Wᵀ if T, else a·W. half3: weights are (high, low) float16 parts, made by split_weights, and scales."""
    at = tl.arange(0, C)[:, None] * C + tl.arange(0, C)[None, :]
    if PRECISION == "half3":
        bh = tl.load(weights + which * 2 * C * C + at)
        bl = tl.load(weights + which * 2 * C * C + C * C + at)
        ah, al, sa = halves(a)
        factor = sa * tl.load(scales + which)
        if T:
            out = three(ah, al, tl.trans(bh), tl.trans(bl)) * factor
        else:
            out = three(ah, al, bh, bl) * factor
    else:
        w = tl.load(weights + which * C * C + at)
        if T:
            w = tl.trans(w)
        out = tl.dot(a, w, input_precision=PRECISION)
    return out


@triton.jit
def sums(matrix, v, factor, SUMS: tl.constexpr, BF16: tl.constexpr):
    """matrix·v·factor, of a bool matrix; factor: 1 or (R, 1)."""
    if SUMS == "half2":
        high, low, down = halves(v)
        m = matrix.to(tl.float16)
        out = tl.dot(m, low)
        out = tl.dot(m, high, out) * (down * factor)
    elif SUMS == "bf16x3":
        m = matrix.to(BF16)
        high = v.to(BF16)
        rest = v - high.to(tl.float32)
        middle = rest.to(BF16)
        low = (rest - middle.to(tl.float32)).to(BF16)
        out = tl.dot(m, low)
        out = tl.dot(m, middle, out)
        out = tl.dot(m, high, out) * factor
    else:
        out = tl.dot(matrix.to(tl.float32), v, input_precision=SUMS) * factor
    return out


@triton.jit
def split_weights(parameters, halved, scales, C: tl.constexpr, P: tl.constexpr):
    """Both matrices of each (convolution, member) as two float16 parts and a scale."""
    one = tl.program_id(0)
    at = tl.arange(0, C)[:, None] * C + tl.arange(0, C)[None, :]
    for which in range(2):
        high, low, down = halves(tl.load(parameters + one * P + which * C * C + at))
        tl.store(halved + one * (4 * C * C) + which * 2 * C * C + at, high)
        tl.store(halved + one * (4 * C * C) + which * 2 * C * C + C * C + at, low)
        tl.store(scales + one * 2 + which, down)


@triton.jit
def adjacency(bits, tile, R: tl.constexpr):
    """The tile's (R, R) matrix of 0 and 1, from R·R bits."""
    words: tl.constexpr = R // 32
    at = tile * (R * words) + tl.arange(0, R)[:, None] * words + tl.arange(0, words)[None, :]
    word = tl.load(bits + at)
    spread = (word[:, :, None] >> tl.arange(0, 32)[None, None, :]) & 1
    return tl.reshape(spread, (R, R)) != 0


@triton.jit
def features(x, category, where, row, first, tile, C: tl.constexpr, R: tl.constexpr):
    """The convolution's input: rows of x or, of the first convolution, one-hot categories."""
    if first:
        h = (tl.load(category + tile * R + row)[:, None] == tl.arange(0, C)[None, :]).to(tl.float32)
    else:
        h = tl.load(x + where)
    return h


@triton.jit
def vector_at(parameters, which: tl.constexpr, C: tl.constexpr):
    return tl.load(parameters + 2 * C * C + which * C + tl.arange(0, C))[None, :]


@triton.jit
def live_norm(
    z, same, inv_n, parameters, which: tl.constexpr, mean_at, var_at, keep,
    C: tl.constexpr, EPS: tl.constexpr, SUMS: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    """GraphNorm; the mean and 1/σ of each graph are stored at its first row, for the backward pass."""
    mean = sums(same, z, inv_n, SUMS, BF16)
    tl.store(mean_at, mean, mask=keep)
    s = z - vector_at(parameters, which + 3, C) * mean
    r = tl.rsqrt(sums(same, s * s, inv_n, SUMS, BF16) + EPS)
    tl.store(var_at, r, mask=keep)
    return vector_at(parameters, which + 1, C) * (s * r) + vector_at(parameters, which + 2, C)


@triton.jit(do_not_specialize=("tiles", "per_program", "graphs", "first"))
def conv_forward(
    x, category, bits, graph, inverse, number, parameters, weights, scales, out, stats, tiles, per_program, graphs, first,
    R: tl.constexpr, C: tl.constexpr, P: tl.constexpr, EPS: tl.constexpr,
    PRECISION: tl.constexpr, SUMS: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    """``per_program`` tiles of one member. graph: each row's graph in the batch, -1: padding; stats: (M, graphs, 4, C)."""
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
    """dz of a norm whose normalized values are s. Keeps each graph's means of g and g·s; all vectors' gradients follow."""
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
    """Recompute from the input and the statistics.

    partial: (programs, members, 2·C·C + C), this program's share of dW1, dW2 and dxi; sums_out: like stats, the means
    of g and g·s of both norms. REGISTERS: add up dW over a program's tiles in registers, else in its part of memory.
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
        dz = norm_backward(
            dy, s2, same, inv_n, stat + 2 * C, to + 2 * C, real, keep, parameters, 4, C, SUMS, BF16
        )
        if REGISTERS:
            dw2 += transposed_times(dz, a1, PRECISION)
        else:
            share = transposed_times(dz, a1, PRECISION)
            if local > begin:
                share += tl.load(dw_at + C * C)
            tl.store(dw_at + C * C, share)
        dy = tl.where(a1 > 0, times_weight(dz, weights, scales, 1, False, C, PRECISION), 0.0)
        dz = norm_backward(dy, s1, same, inv_n, stat, to, real, keep, parameters, 0, C, SUMS, BF16)
        # loaded and mixed again, which costs less than registers kept
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
    """Gradients of one convolution's parameters: the sum of all programs' shares, and the vectors' from graphs' means."""
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


# the plan, on the host


class Tiles(NamedTuple):
    """Tiles of all members; T is the largest number of any. In each: graphs' rows in order, then padding."""

    rows: int
    count: int  # T
    number: Tensor  # (M,) int32: the tiles that a member has
    graph: Tensor  # (M, T, R) int32: the graph's place in the batch, -1 for padding
    inverse: Tensor  # (M, T, R) float32: 1 / the graph's size, 0 for padding
    category: Tensor  # (M, T, R) int32, -1 for padding
    bits: Tensor  # (M, T, R, R / 32) int32
    source: Tensor  # (M, T, R) int64: the row in the member's plain batch, -1 for padding


def pack(sizes: np.ndarray, usual: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First fit by falling size, in tiles of ``usual`` rows, or of 128 for larger graphs, whose room others use.

    Each graph's rows of tile, tile among those, and first row in it.
    """
    kind, tile, first = (np.zeros(len(sizes), np.int64) for _ in range(3))
    room, rows, index = (np.zeros(len(sizes), np.int64) for _ in range(3))
    used = 0
    for k in np.argsort(-sizes, kind="stable"):
        fits = room[:used] >= sizes[k]
        at = int(fits.argmax()) if used and fits.any() else used
        if at == used:
            rows[at] = room[at] = usual if sizes[k] <= usual else 128
            index[at] = (rows[:used] == rows[at]).sum()
            used += 1
        kind[k], tile[k], first[k] = rows[at], index[at], rows[at] - room[at]
        room[at] -= sizes[k]
    return kind, tile, first


def layout(graphs: Any, ids: np.ndarray, usual: int, device: torch.device) -> list[Tiles]:
    """The tiles of M batches (M, B) of graphs: of ``usual`` rows and, for larger graphs, of 128."""
    node_ptr, rowptr, col = (t.cpu().numpy().astype(np.int64) for t in (graphs.node_ptr, graphs.rowptr, graphs.col))
    tags, all_sizes = graphs.tags[:, 0].cpu().numpy().astype(np.int64), np.diff(node_ptr)
    packed_all = [pack(all_sizes[batch], usual) for batch in ids]
    kinds, tiles, firsts = (np.stack([p[k] for p in packed_all]) for k in range(3))
    starts = np.cumsum(all_sizes[ids], 1) - all_sizes[ids]
    found = []
    for rows in sorted({usual, 128}):
        member, place = np.nonzero(kinds == rows)
        if not len(member):
            continue
        tile, first = tiles[member, place], firsts[member, place]
        number = np.where(kinds == rows, tiles + 1, 0).max(1)
        most = int(number.max())
        shape = (len(ids), most, rows)
        graph, inverse = np.full(shape, -1, np.int32), np.zeros(shape, np.float32)
        category, source = np.full(shape, -1, np.int32), np.full(shape, -1, np.int64)
        which = ids[member, place]
        n = all_sizes[which]
        spread = np.repeat(np.arange(len(which)), n)
        local = np.arange(len(spread)) - np.repeat(np.cumsum(n) - n, n)
        row = (member[spread] * most + tile[spread]) * rows + first[spread] + local
        graph.reshape(-1)[row] = place[spread]
        inverse.reshape(-1)[row] = 1.0 / n[spread]
        packed = node_ptr[which][spread] + local
        category.reshape(-1)[row] = tags[packed]
        source.reshape(-1)[row] = starts[member, place][spread] + local
        degree = rowptr[packed + 1] - rowptr[packed]
        within = np.arange(degree.sum()) - np.repeat(np.cumsum(degree) - degree, degree)
        column = np.repeat(first[spread], degree) + col[np.repeat(rowptr[packed], degree) + within]
        word = np.repeat(row, degree) * (rows // 32) + column // 32
        bits = np.bincount(word, weights=2.0 ** (column % 32), minlength=graph.size * rows // 32)
        bits = bits.astype(np.uint32).view(np.int32).reshape(*shape, rows // 32)
        arrays = (number.astype(np.int32), graph, inverse, category, bits, source)
        found.append(Tiles(rows, most, *(torch.from_numpy(a).to(device) for a in arrays)))
    return found


class Config(NamedTuple):
    rows: int
    precision: str
    sums: str
    registers: bool
    forward_registers: int | None = None
    backward_registers: int | None = None

    def __str__(self) -> str:
        of = "registers" if self.registers else "memory"
        limits = f"{self.forward_registers or 255}/{self.backward_registers or 255}"
        return f"rows {self.rows} {self.precision}/{self.sums} dW in {of} registers {limits}"


VARIANTS = [
    Config(64, "half3", "half2", False),
    Config(64, "half3", "half2", True),
    Config(64, "half3", "half2", False, 168, 168),
    Config(64, "half3", "half2", False, 128, 128),
    Config(64, "half3", "bf16x3", False),
    Config(128, "half3", "half2", False),
    Config(64, "tf32x3", "bf16x3", False),
    Config(128, "tf32x3", "bf16x3", False),
    Config(64, "tf32", "tf32", False),
    Config(64, "ieee", "bf16x3", False),  # forward alone: the backward pass spills 16 KiB a thread, and compiles for 30 s
]


class Fused:
    """Four convolutions of all members, forward and backward."""

    def __init__(self, config: Config, tiles: list[Tiles], count: Tensor, parameters: Tensor, seed: int = 0) -> None:
        self.config, self.tiles, self.count, self.parameters = config, tiles, count, parameters
        self.members, self.graphs = count.shape
        device = count.device
        new = partial(torch.zeros, device=device, dtype=torch.float32)
        self.halved = torch.zeros(4, self.members, 2, 2, C, C, dtype=torch.float16, device=device)
        self.scales = new(4, self.members, 2)
        self.stats, self.sums = new(4, self.members, self.graphs, 4, C), new(4, self.members, self.graphs, 4, C)
        shapes = [(self.members, part.count, part.rows, C) for part in tiles]
        self.h = [[new(shape) for _ in range(4)] for shape in shapes]  # each convolution's output
        self.d = [[new(shape) for _ in range(4)] for shape in shapes]  # the gradient with respect to it
        torch.manual_seed(seed)
        for part, d in zip(tiles, self.d, strict=True):
            d[3].copy_(torch.randn(d[3].shape, device=device) * (part.graph >= 0)[..., None])
        self.gradient = new(4, self.members, P_SIZE)
        self.side = torch.cuda.Stream() if device.type == "cuda" else None
        self.passes = ("forward",) if config.precision == "ieee" else ("forward", "backward")
        self.cut(1)

    def cut(self, per_program: int) -> None:
        """Choose how many tiles a program takes; of the few large tiles it takes at most two."""
        self.each = [per_program if k == 0 else min(per_program, 2) for k in range(len(self.tiles))]
        programs = [-(-part.count // each) for part, each in zip(self.tiles, self.each, strict=True)]
        self.bounds = [0, *np.cumsum(programs).tolist()]
        self.partial = torch.zeros(4, self.bounds[-1], self.members, 2 * C * C + C, device=self.count.device)

    def calls(self, k: int, which: str) -> list[tuple[Any, Any, Any, Any]]:
        """The launches over one kind of tiles."""
        part, config, half = self.tiles[k], self.config, self.config.precision == "half3"
        grid = (self.bounds[k + 1] - self.bounds[k], self.members)
        options = {"num_warps": part.rows // 16, "num_stages": 1, "enable_fp_fusion": True}
        sizes = (part.count, self.each[k], self.graphs)
        shared = {"R": part.rows, "C": C, "P": P_SIZE, "PRECISION": config.precision, "SUMS": config.sums, "BF16": BF16}
        found = []
        for conv in range(4) if which == "forward" else reversed(range(4)):
            p = self.parameters[conv]
            x = self.h[k][conv - 1] if conv else self.h[k][0]
            first = (x, part.category, part.bits, part.graph, part.inverse, part.number, p, self.halved[conv] if half else p)
            if which == "forward":
                more = {"EPS": EPS} | limit(config.forward_registers, part.rows)
                arguments = (*first, self.scales[conv], self.h[k][conv], self.stats[conv], *sizes, int(conv == 0))
                found.append((conv_forward, grid, arguments, shared | more | options))
            else:
                dx = self.d[k][conv - 1] if conv else self.d[k][0]
                share = self.partial[conv, self.bounds[k] :]
                arguments = (*first, self.scales[conv], self.d[k][conv], self.stats[conv], dx, self.sums[conv], share)
                more = {"REGISTERS": config.registers} | limit(config.backward_registers, part.rows)
                found.append((conv_backward, grid, (*arguments, *sizes, int(conv == 0)), shared | more | options))
        return found

    def before(self) -> list[tuple[Any, Any, Any, Any]]:
        if self.config.precision != "half3":
            return []
        arguments = (self.parameters, self.halved, self.scales)
        return [(split_weights, (4 * self.members,), arguments, {"C": C, "P": P_SIZE, "num_warps": 8})]

    def after(self) -> list[tuple[Any, Any, Any, Any]]:
        arguments = (self.partial, self.stats, self.sums, self.count, self.parameters, self.gradient)
        sizes = (self.bounds[-1], self.members, self.graphs)
        constants = {"C": C, "P": P_SIZE, "BLOCK": 1024, "G": 32, "num_warps": 4}
        return [(finish, (2 * C * C // 1024 + 1, 4 * self.members), arguments + sizes, constants)]

    def every(self) -> list[tuple[Any, Any, Any, Any]]:
        """One call of each kind, to be compiled."""
        kinds = [self.calls(k, which)[0] for k in range(len(self.tiles)) for which in self.passes]
        return self.before() + kinds + self.after()

    def run(self, *passes: str) -> None:
        launch(self.before())
        if self.side is not None and len(self.tiles) > 1:  # large tiles beside the small ones
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                for which in passes:
                    launch(self.calls(1, which))
            for which in passes:
                launch(self.calls(0, which))
            torch.cuda.current_stream().wait_stream(self.side)
        else:
            for which in passes:
                for k in range(len(self.tiles)):
                    launch(self.calls(k, which))
        if "backward" in passes:
            launch(self.after())


def limit(registers: int | None, rows: int) -> dict[str, int]:
    return {} if registers is None or rows > 64 else {"maxnreg": registers}


def launch(calls: list[tuple[Any, Any, Any, Any]]) -> None:
    for kernel, grid, arguments, options in calls:
        kernel[grid](*arguments, **options)


def random_parameters(members: int, device: torch.device, seed: int = 0, plain: bool = False) -> Tensor:
    """(4, M, P) as torch would initialise them; unless ``plain``, norms are random too."""
    torch.manual_seed(seed)
    p = torch.zeros(4, members, P_SIZE)
    bound = C**-0.5
    p[..., : 2 * C * C] = (torch.rand(4, members, 2 * C * C) * 2 - 1) * bound
    rows = p[..., 2 * C * C :].view(4, members, 10, C)
    for norm in (0, 4):
        rows[:, :, norm] = (torch.rand(4, members, C) * 2 - 1) * bound
        rows[:, :, norm + 1] = 1 if plain else 1 + 0.3 * torch.randn(4, members, C)
        rows[:, :, norm + 2] = 0 if plain else 0.3 * torch.randn(4, members, C)
        rows[:, :, norm + 3] = 1 if plain else 1 + 0.3 * torch.randn(4, members, C)
    if not plain:
        rows[:, :, 8, 0] = 0.1 * torch.randn(4, members)
    return p.to(device)


def reference(graphs: Any, ids: np.ndarray, parameters: Tensor, dout: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """One member, in plain torch, on the device of the parameters (4, P): output, its gradients, and the smallest |y|."""
    device = parameters.device
    batch = graphs.batch(ids.tolist())
    edges, owner = batch.edge_index.to(device), batch.batch.to(device)
    category = batch.tags[:, 0].long().to(device)
    n = torch.bincount(owner, minlength=len(ids)).to(dtype)[:, None]
    p = parameters.detach().to(dtype).requires_grad_()
    h = torch.nn.functional.one_hot(category, C).to(dtype)
    nearest = torch.tensor(float("inf"), device=device, dtype=dtype)
    inner = []

    def mean(x: Tensor) -> Tensor:
        return torch.zeros(len(ids), C, dtype=dtype, device=device).index_add(0, owner, x) / n

    for conv in range(4):
        w = p[conv, : 2 * C * C].view(2, C, C)
        v = p[conv, 2 * C * C :].view(10, C)
        z = (1 + v[8, 0]) * h + torch.zeros_like(h).index_add(0, edges[1], h[edges[0]])
        for k in range(2):
            z = z @ w[k].T + v[4 * k]
            s = z - v[4 * k + 3] * mean(z)[owner]
            y = v[4 * k + 1] * s * (mean(s * s) + EPS).rsqrt()[owner] + v[4 * k + 2]
            nearest = torch.minimum(nearest, y.detach().abs().min())
            z = y.relu()
        h = z + h if conv else z
        if conv < 3:
            h.retain_grad()
            inner.append(h)
    h.backward(dout.to(dtype))
    found = {"out": h.detach(), "nearest": nearest, "dW": p.grad[:, : 2 * C * C].contiguous()}
    rows = p.grad[:, 2 * C * C :].reshape(4, 10, C)
    names = ("b1", "gamma1", "beta1", "alpha1", "b2", "gamma2", "beta2", "alpha2")
    found |= {f"d{name}": rows[:, k] for k, name in enumerate(names)} | {"dxi": rows[:, 8, 0]}
    return found | {f"dh{k + 1}": t.grad for k, t in enumerate(inner)}


def fused_results(fused: Fused, member: int, number: int) -> dict[str, Tensor]:
    def gather(of: list[list[Tensor]], conv: int) -> Tensor:
        out = torch.zeros(number, C, device=fused.count.device)
        for part, buffers in zip(fused.tiles, of, strict=True):
            source = part.source[member].reshape(-1)
            out[source[source >= 0]] = buffers[conv][member].reshape(-1, C)[source >= 0]
        return out

    p = fused.gradient[:, member]
    rows = p[:, 2 * C * C :].reshape(4, 10, C)
    names = ("b1", "gamma1", "beta1", "alpha1", "b2", "gamma2", "beta2", "alpha2")
    found = {"out": gather(fused.h, 3), "dout": gather(fused.d, 3), "dW": p[:, : 2 * C * C]}
    found |= {f"d{name}": rows[:, k] for k, name in enumerate(names)} | {"dxi": rows[:, 8, 0]}
    return found | {f"dh{k + 1}": gather(fused.d, k) for k in range(3)}


def errors(mine: dict[str, Tensor], right: dict[str, Tensor]) -> dict[str, float]:
    names = [name for name in right if name in mine and name != "dout"]
    return {n: float((mine[n].double() - right[n].double()).norm() / right[n].double().norm()) for n in names}


def counts(graphs: Any, ids: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(np.diff(graphs.node_ptr.cpu().numpy())[ids].astype(np.float32)).to(device)


def check(graphs: Any, configs: list[Config], device: torch.device, number: int = 12) -> set[Config]:
    """A few graphs, chosen so that no value before a ReLU is so near 0 that rounding decides its sign."""
    sizes = np.diff(graphs.node_ptr.cpu().numpy())
    for seed in range(50):
        random = np.random.default_rng(seed)
        ids = np.stack([random.permutation(len(sizes))[:number] for _ in range(2)])
        ids[:, 0] = np.flatnonzero(sizes > 64)[seed % 50]  # a large one
        parameters = random_parameters(2, device, seed)
        probe = [reference(graphs, ids[m], parameters[:, m], torch.zeros(int(sizes[ids[m]].sum()), C, device=device), torch.float64) for m in range(2)]  # fmt: skip
        if min(float(p["nearest"]) for p in probe) > 3e-6:
            break
    wrong = set()
    print(f"check: seed {seed}, nearest to a kink {min(float(p['nearest']) for p in probe):.1e}", flush=True)
    for config in configs:
        fused = Fused(config, layout(graphs, ids, config.rows, device), counts(graphs, ids, device), parameters, seed)
        fused.cut(2)
        fused.run(*fused.passes)
        again = fused.gradient.clone()
        fused.run(*fused.passes)
        if not torch.equal(again, fused.gradient):
            print(f"FAILED {config}: two runs differ", flush=True)
            wrong.add(config)
        for m in range(2):
            mine = fused_results(fused, m, int(sizes[ids[m]].sum()))
            right = reference(graphs, ids[m], parameters[:, m], mine["dout"], torch.float64)
            plain = reference(graphs, ids[m], parameters[:, m], mine["dout"], torch.float32)
            off, usual = errors(mine, right), errors(plain, right)
            off = off if len(fused.passes) > 1 else {"out": off["out"]}
            text = " ".join(f"{n} {e:.1e}/{usual[n]:.1e}" for n, e in off.items())
            print(f"check {config} member {m}: fused/plain float32: {text}", flush=True)
            if config.precision != "tf32" and not max(off.values()) < 1e-4:
                print(f"FAILED {config}: errors above 1e-4", flush=True)
                wrong.add(config)
    return wrong


# measurements, on a GPU


def replay_ms(work: Any, least_ms: float = 15.0) -> float:
    """The median time of one replay of a CUDA graph of ``work``."""
    from graphnorm.training.fleet import record_cuda_graph

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
        return begin.elapsed_time(end) / times

    times = int(min(50, max(2, least_ms / max(timed(2), 1e-3))))
    return float(np.median([timed(times) for _ in range(5)]))


class Log:
    """Prints, and keeps rows for the CSV file, which is written anew each time."""

    def __init__(self, out: Path | None, seconds: float) -> None:
        self.out, self.seconds, self.rows = out, seconds, []

    def say(self, text: str) -> None:
        print(f"[{time.perf_counter() - START:6.1f} s] {text}", flush=True)

    def left(self) -> float:
        return self.seconds - (time.perf_counter() - START)

    def row(self, **values: Any) -> None:
        self.rows.append(values)
        self.say(" ".join(f"{k}={v:.4f}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items()))
        if self.out:
            names = list(dict.fromkeys(name for row in self.rows for name in row))
            with self.out.open("w", newline="") as file:
                writer = csv.DictWriter(file, names)
                writer.writeheader()
                writer.writerows(self.rows)


def only_convolutions(self: Any, x: Any, adjacency: Any, segments: Any, key: Any) -> Tensor:
    """A classifier's ``score`` without its readout and head."""
    h = self.convolutions[0](x, adjacency, segments)
    for convolution in self.convolutions[1:]:
        h = convolution(h, adjacency, segments, residual=h)
    return h


def today(members: int, log: Log) -> tuple[dict[str, float], Any]:
    """Today's fleet: its whole step, and its parts recorded alone, in ms of all members."""
    from benchmarks.fleet import setting, step_seconds
    from graphnorm.training import Fleet

    began = time.perf_counter()
    fleet = Fleet(*setting("NCI1", members, 400), device=DEVICE)
    fleet.advance(1)
    log.say(f"today, {members} members: set up in {time.perf_counter() - began:.1f} s")
    found = {"step": 1e3 * step_seconds(fleet)}
    log.say(f"today, {members} members: a step takes {found['step'] / members:.4f} ms per model")
    level = fleet._captured.bounds[int(fleet._captured._level[1, 0])] if fleet._captured else None
    fleet._ids.copy_(fleet._schedule.batches(1, 2)[0, 0])
    found["assembly"] = replay_ms(lambda: fleet._model_inputs.batch(fleet._ids, bounds=level))
    batch = fleet._model_inputs.batch(fleet._ids, bounds=level)
    stack = fleet.stack
    weights = [value for name, value in stack.parameters.items() if name.startswith("convolutions")]
    stack._skeleton.score = MethodType(only_convolutions, stack._skeleton)

    def forward() -> Tensor:
        return stack.forward(fleet._inputs, batch, fleet._keys, fleet._rate, training=True, stacked=True)

    def inference() -> None:
        with torch.no_grad():
            forward()

    with torch.no_grad():
        dout = torch.randn_like(forward())

    def both() -> None:
        torch.autograd.grad(forward(), weights, dout, materialize_grads=True)

    found["forward"] = replay_ms(inference)
    found["convolutions"] = replay_ms(both)
    del stack._skeleton.score
    log.row(what="today", members=members, rows_padded=level.max_nodes if level else 0, **{f"{k}_ms_per_model": v / members for k, v in found.items()})  # fmt: skip
    return found, fleet


def profile(fleet: Any, log: Log) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    batches, keys = fleet._schedule.batches(1, 2), fleet._schedule.dropout_keys(1, 2)
    with record(activities=[ProfilerActivity.CUDA]) as found:
        fleet._train_epoch(1, batches[0], keys[0])
        torch.cuda.synchronize()
    steps, members = fleet._schedule.steps, len(fleet.trials)
    events = [e for e in found.key_averages() if e.self_device_time_total > 0]
    events.sort(key=lambda e: -e.self_device_time_total)
    total = sum(e.self_device_time_total for e in events)
    number = sum(e.count for e in events)
    log.say(f"profile of a step, {members} members: {number / steps:.0f} launches, {total / steps:.0f} µs in kernels")
    for e in events[:25]:
        log.say(f"  {e.self_device_time_total / steps:8.1f} µs {e.count / steps:6.1f} × {e.key[:110]}")


def problem(graphs: Any, members: int, device: torch.device) -> tuple[np.ndarray, Tensor, Tensor, dict[int, list[Tiles]]]:
    """Random batches of 128 graphs of each member, tiled both ways."""
    random = np.random.default_rng(0)
    ids = np.stack([random.permutation(graphs.num_graphs)[:128] for _ in range(members)])
    tiles = {rows: layout(graphs, ids, rows, device) for rows in (64, 128)}
    return ids, counts(graphs, ids, device), random_parameters(members, device, plain=True), tiles


def compile_all(fused: list[Fused], log: Log) -> list[Fused]:
    """Compile side by side; gives those that could be compiled."""
    jobs = {}
    for k, one in enumerate(fused):
        for kernel, grid, arguments, options in one.every():
            same = (kernel.fn.__name__, *sorted((n, str(v)) for n, v in options.items()))
            jobs.setdefault(same, ((kernel, grid, arguments, options), []))[1].append(k)

    def compile_one(item: Any) -> set[int]:
        (kernel, grid, arguments, options), users = item
        began = time.perf_counter()
        try:
            torch.cuda.set_device(0)
            made = kernel.warmup(*arguments, grid=grid, **options)
        except Exception as error:
            log.say(f"{kernel.fn.__name__} {fused[users[0]].config}: not compiled: {type(error).__name__} {str(error)[:200]}")
            return set(users)
        log.say(
            f"compiled {kernel.fn.__name__} for {fused[users[0]].config} (R {options.get('R')}) in "
            f"{time.perf_counter() - began:.1f} s, {getattr(made.metadata, 'shared', '?')} bytes shared"
        )
        return set()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        broken = set().union(*pool.map(compile_one, jobs.values()))
    return [one for k, one in enumerate(fused) if k not in broken]


def sweep(fused: list[Fused], cuts: list[int], log: Log, reserve: float) -> tuple[Fused, int, float, float] | None:
    """Forward, and forward with backward, of each; the fastest as exact as float32."""
    best: tuple[Fused, int, float, float] | None = None
    for one in fused:
        config, own = one.config, cuts if one.config.precision == "half3" else cuts[1:2]
        for cut in own:
            if log.left() < reserve:
                log.say("out of time: the sweep stops")
                return best
            try:
                one.cut(cut)
                one.run(*one.passes)
                torch.cuda.synchronize()
                forward = replay_ms(partial(one.run, "forward"))
                both = replay_ms(partial(one.run, *one.passes)) if len(one.passes) > 1 else float("inf")
            except Exception as error:
                log.say(f"{config} cut {cut}: {type(error).__name__} {str(error)[:200]}")
                break
            log.row(
                what="fused", members=one.members, **config._asdict(), tiles_per_program=cut,
                forward_ms_per_model=forward / one.members, convolutions_ms_per_model=both / one.members,
            )  # fmt: skip
            if config.precision != "tf32" and (best is None or both < best[3]):
                best = one, cut, forward, both
    return best


def kernel_times(one: Fused, cut: int, log: Log) -> None:
    """Each launch's own time, of the best variant."""
    one.cut(cut)
    one.run("forward", "backward")
    for k, part in enumerate(one.tiles):
        for which in ("forward", "backward"):
            ms = [replay_ms(partial(launch, [call]), 3.0) for call in one.calls(k, which)[:2]]
            log.say(f"  {which} of one convolution, {part.count} tiles of {part.rows} rows: {1e3 * ms[0]:.1f}, {1e3 * ms[1]:.1f} µs")
    log.say(f"  before {1e3 * replay_ms(partial(launch, one.before()), 3.0) if one.before() else 0:.1f} µs, after {1e3 * replay_ms(partial(launch, one.after()), 3.0):.1f} µs")  # fmt: skip


def verify(graphs: Any, ids: np.ndarray, one: Fused, log: Log) -> None:
    """The best variant on a measured batch: here a sign may differ at a ReLU's kink, as it does in plain float32."""
    one.run("forward", "backward")
    for m in (0, one.members - 1):
        number = int(np.diff(graphs.node_ptr.cpu().numpy())[ids[m]].sum())
        mine = fused_results(one, m, number)
        right, plain = (reference(graphs, ids[m], one.parameters[:, m], mine["dout"], t) for t in (torch.float64, torch.float32))
        off, usual = errors(mine, right), errors(plain, right)
        text = " ".join(f"{n} {e:.1e}/{usual[n]:.1e}" for n, e in off.items() if n[:2] != "db" or n[2:] not in "12")
        log.say(f"{one.config} member {m} of {one.members}, batch 128: fused/plain float32: {text}")


def summary(members: int, now: dict[str, float], best: tuple[Fused, int, float, float] | None, log: Log) -> None:
    if best is None:
        return
    one, cut, forward, both = best
    new = now["step"] - now["convolutions"] + both
    log.row(
        what="projected", members=members, **one.config._asdict(), tiles_per_program=cut,
        step_ms_per_model=new / members, forward_ms_per_model=forward / members,
        convolutions_ms_per_model=both / members, today_ms_per_model=now["step"] / members,
        today_convolutions_ms_per_model=now["convolutions"] / members, gain=now["step"] / new,
        gain_of_convolutions=now["convolutions"] / both,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--check", action="store_true", help="a few graphs, in Triton's interpreter on a CPU")
    options = parser.parse_args()
    from graphnorm.data import load

    log = Log(options.out, options.seconds)
    if options.check:
        configs = [Config(64, "half3", "half2", False), Config(128, "ieee", "bf16x3", True)]
        sys.exit(bool(check(load("NCI1"), configs, torch.device("cpu"), 5)))
    watch = threading.Timer(options.seconds + 8, os._exit, (2,))  # the file has what was measured by then
    watch.daemon = True
    watch.start()
    device = DEVICE
    graphs = load("NCI1")
    log.say(f"torch {torch.__version__}, triton {triton.__version__}, {torch.cuda.get_device_name()}, {os.cpu_count()} cores")
    ids, count, parameters, tiles = problem(graphs, 10, device)
    rows = count.sum().item() / 10
    for parts in tiles.values():
        kinds = (f"{t.count} tiles of {t.rows} at most, {t.number.float().mean():.1f} on average" for t in parts)
        log.say(f"{rows:.0f} rows a member: " + "; ".join(kinds))
    every = compile_all([Fused(config, tiles[config.rows], count, parameters) for config in VARIANTS], log)
    wrong = check(graphs, [one.config for one in every], device)
    every = [one for one in every if one.config not in wrong]
    log.say(f"checked; wrong: {[str(config) for config in wrong]}")
    best = sweep(every[:1], [1, 2, 4], log, 0)
    now, fleet = today(10, log)
    summary(10, now, best, log)
    more = sweep(every[1:], [1, 2, 4], log, 50)
    best = min((b for b in (best, more) if b is not None), key=lambda b: b[3])
    summary(10, now, best, log)
    if log.left() > 15:
        kernel_times(best[0], best[1], log)
        verify(graphs, ids, best[0], log)
    if log.left() > 10:
        began = time.perf_counter()
        ids, count, parameters, tiles = problem(graphs, 300, device)
        log.say(f"planned 300 members in {time.perf_counter() - began:.1f} s")
        order = sorted(every, key=lambda one: one.config != best[0].config)
        del every, more
        best_large = None
        for one in order:
            if log.left() < 35 and best_large is not None:
                break
            found = sweep([Fused(one.config, tiles[one.config.rows], count, parameters)], [1, 2, 4, 8], log, 5)
            if found is not None and (best_large is None or found[3] < best_large[3]):
                best_large = found
            del found
            torch.cuda.empty_cache()
        if best_large is not None:
            kernel_times(best_large[0], best_large[1], log)
        if log.left() > 20:
            now_large = today(300, log)[0]
            torch.cuda.empty_cache()
        else:
            log.say("no time for today's step at 300 members; of benchmarks.fleet: 0.049 ms per model")
            now_large = None
        if now_large and best_large is not None:
            summary(300, now_large, best_large, log)
    if log.left() > 5:
        try:
            profile(fleet, log)
        except Exception as error:
            log.say(f"no profile: {error}")
    log.say("done")
    sys.stdout.flush()
    os._exit(bool(wrong))


if __name__ == "__main__":
    main()
