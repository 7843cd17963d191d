"""A throwaway spike: a GIN convolution with GraphNorm in one launch forward and one backward, over tiles of whole graphs.

``python -m benchmarks.fused_spike --out FILE.csv`` measures it on NCI1 against today's fleet (on a GPU).
``TRITON_INTERPRET=1 python -m benchmarks.fused_spike --check`` compares it with plain torch in float64 on a CPU, and
``python -m benchmarks.fused_spike --compile`` compiles every variant for an H100 without one.

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
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MethodType
from typing import Any, NamedTuple

START = time.perf_counter()

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
BF16 = tl.constexpr(tl.float32 if INTERPRETED else tl.bfloat16)
EPS = 1e-5
C = 64
P_SIZE = 2 * C * C + 10 * C  # gradients of a convolution's weights; the layout of its parameters is the same
# parameters of a convolution, flat: W1 (out, in), W2, then rows of C: b1 gamma1 beta1 alpha1 b2 gamma2 beta2 alpha2 xi(0) –


@triton.jit
def binary_scale(x):
    """A power of two that brings the largest |x| to 2^14 … 2^15, and its inverse."""
    largest = tl.max(tl.max(tl.abs(x), 1), 0)
    exponent = tl.minimum(tl.maximum(largest.to(tl.int32, bitcast=True) >> 23, 64), 220)
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
def mm(a, b, PRECISION: tl.constexpr, TA: tl.constexpr, TB: tl.constexpr):
    """a·b; TA and TB: a, b are given transposed."""
    if PRECISION == "half3":
        ah, al, sa = halves(a)
        bh, bl, sb = halves(b)
        if TA:
            ah, al = tl.trans(ah), tl.trans(al)
        if TB:
            bh, bl = tl.trans(bh), tl.trans(bl)
        out = tl.dot(al, bh)
        out = tl.dot(ah, bl, out)
        out = tl.dot(ah, bh, out) * sa * sb
    else:
        if TA:
            a = tl.trans(a)
        if TB:
            b = tl.trans(b)
        out = tl.dot(a, b, input_precision=PRECISION)
    return out


@triton.jit
def sums(matrix, v, SUMS: tl.constexpr, BF16: tl.constexpr):
    """matrix·v, of a bool matrix."""
    if SUMS == "half2":
        high, low, down = halves(v)
        m = matrix.to(tl.float16)
        out = tl.dot(m, low)
        out = tl.dot(m, high, out) * down
    elif SUMS == "bf16x3":
        m = matrix.to(BF16)
        high = v.to(BF16)
        rest = v - high.to(tl.float32)
        middle = rest.to(BF16)
        low = (rest - middle.to(tl.float32)).to(BF16)
        out = tl.dot(m, low)
        out = tl.dot(m, middle, out)
        out = tl.dot(m, high, out)
    else:
        out = tl.dot(matrix.to(tl.float32), v, input_precision=SUMS)
    return out


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
def matrix_at(parameters, which: tl.constexpr, C: tl.constexpr):
    return tl.load(parameters + which * C * C + tl.arange(0, C)[:, None] * C + tl.arange(0, C)[None, :])


@triton.jit
def vector_at(parameters, which: tl.constexpr, C: tl.constexpr):
    return tl.load(parameters + 2 * C * C + which * C + tl.arange(0, C))[None, :]


@triton.jit
def live_norm(
    z, same, inv_n, parameters, which: tl.constexpr, mean_at, var_at, keep,
    C: tl.constexpr, EPS: tl.constexpr, SUMS: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    """GraphNorm; the mean and 1/σ of each graph are stored at its first row, for the backward pass."""
    mean = sums(same, z, SUMS, BF16) * inv_n
    tl.store(mean_at, mean, mask=keep)
    s = z - vector_at(parameters, which + 3, C) * mean
    r = tl.rsqrt(sums(same, s * s, SUMS, BF16) * inv_n + EPS)
    tl.store(var_at, r, mask=keep)
    return vector_at(parameters, which + 1, C) * (s * r) + vector_at(parameters, which + 2, C)


@triton.jit(do_not_specialize=("tiles", "per_program", "graphs", "first"))
def conv_forward(
    x, category, bits, graph, inverse, parameters, out, stats, tiles, per_program, graphs, first,
    R: tl.constexpr, C: tl.constexpr, P: tl.constexpr, EPS: tl.constexpr,
    PRECISION: tl.constexpr, SUMS: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    """``per_program`` tiles of one member. graph: each row's graph in the batch, -1: padding; stats: (M, graphs, 4, C)."""
    member = tl.program_id(1)
    parameters += member * P
    begin = tl.program_id(0) * per_program
    end = tl.minimum(begin + per_program, tiles)
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
        z = sums(adjacency(bits, tile, R), h, SUMS, BF16) + own * h
        z = mm(z, matrix_at(parameters, 0, C), PRECISION, False, True) + vector_at(parameters, 0, C)
        z = live_norm(z, same, inv_n, parameters, 0, stat, stat + C, keep, C, EPS, SUMS, BF16)
        z = tl.where(real, tl.maximum(z, 0.0), 0.0)
        z = mm(z, matrix_at(parameters, 1, C), PRECISION, False, True) + vector_at(parameters, 4, C)
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
    mgs = sums(same, g * s, SUMS, BF16) * inv_n
    tl.store(sums_at + C, mgs, mask=keep)
    mg = sums(same, g, SUMS, BF16) * inv_n
    tl.store(sums_at, mg, mask=keep)
    r = tl.load(at + C, mask=real, other=0.0)
    mean = tl.load(at, mask=real, other=0.0)
    q = vector_at(parameters, which + 1, C) * r
    return q * (g - s * mgs - alpha * (mg - mgs * (r * (1 - alpha) * mean)))


@triton.jit(do_not_specialize=("tiles", "per_program", "graphs", "first"))
def conv_backward(
    x, category, bits, graph, inverse, parameters, dout, stats, dx, sums_out, partial,
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
    partial += (tl.program_id(0) * tl.num_programs(1) + member).to(tl.int64) * (2 * C * C + C)
    begin = tl.program_id(0) * per_program
    end = tl.minimum(begin + per_program, tiles)
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
        neighbours = adjacency(bits, tile, R)
        # forward again
        h = features(x, category, where, row, first, tile, C, R)
        mixed = sums(neighbours, h, SUMS, BF16) + own * h
        s1 = mm(mixed, matrix_at(parameters, 0, C), PRECISION, False, True) + vector_at(parameters, 0, C)
        s1 -= vector_at(parameters, 3, C) * tl.load(stat, mask=real, other=0.0)
        s1 *= tl.load(stat + C, mask=real, other=0.0)
        a1 = tl.maximum(vector_at(parameters, 1, C) * s1 + vector_at(parameters, 2, C), 0.0)
        a1 = tl.where(real, a1, 0.0)
        s2 = mm(a1, matrix_at(parameters, 1, C), PRECISION, False, True) + vector_at(parameters, 4, C)
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
            dw2 += mm(dz, a1, PRECISION, True, False)
        else:
            share = mm(dz, a1, PRECISION, True, False)
            if local > begin:
                share += tl.load(dw_at + C * C)
            tl.store(dw_at + C * C, share)
        dy = tl.where(a1 > 0, mm(dz, matrix_at(parameters, 1, C), PRECISION, False, False), 0.0)
        dz = norm_backward(dy, s1, same, inv_n, stat, to, real, keep, parameters, 0, C, SUMS, BF16)
        if REGISTERS:
            dw1 += mm(dz, mixed, PRECISION, True, False)
        else:
            share = mm(dz, mixed, PRECISION, True, False)
            if local > begin:
                share += tl.load(dw_at)
            tl.store(dw_at, share)
        dmixed = mm(dz, matrix_at(parameters, 0, C), PRECISION, False, False)
        dxi += tl.sum(tl.sum(dmixed * features(x, category, where, row, first, tile, C, R), 1), 0)
        if first == 0:
            dh = sums(neighbours, dmixed, SUMS, BF16) + own * dmixed + tl.load(dout + where)
            tl.store(dx + where, dh)
    if REGISTERS:
        tl.store(dw_at, dw1)
        tl.store(dw_at + C * C, dw2)
    tl.store(partial + 2 * C * C + channel, tl.where(channel == 0, dxi, 0.0))
