"""The Triton kernels of standardization. Symbols as in the docstring of :mod:`graphnorm.ops.standardize.reference`.

A call launches one kernel, or two where some segment is too long for one program:

* :func:`forward_short`, or :func:`backward_short`, or :func:`backward_tiles` where every segment fits into registers;
* where segments are long, then :func:`long_apply` or :func:`long_gradient`, or, where a member is a single long
  segment, :func:`whole_apply` or :func:`whole_gradient`.

A *short* segment is done by one program. It reads it tile by tile, once for its sums and once more, from the cache, for
the output, so each element crosses the memory bus once each way. Backward, where every segment fits one tile, it stays
in registers instead; a program goes through a run of segments and adds up the gradients of the parameters, and the last
program adds up those of all runs. A program has a block of channels; blocks of the same segments are neighbours in the
grid, since they share sectors of memory.

A *long* segment is shared by all processors. Rows are cut at fixed windows, so that the host need not know the sizes. A
segment is long when it has more rows than a window; a window then meets at most two long segments, the one that owns
its first row and the one that owns its last. These are its two *slots*. Statistics are computed per slot, by further
programs of the first kernel; the last program to finish a segment joins its slots, in the order of the windows. They
are applied by the second kernel, over the slots of finer windows, last window first, while the cache still holds it.
The slot in which a segment begins is its *home*. No window is home to two long segments.

Arguments that are ``None`` (parameters, order, residual) are resolved at compile time. CHANNELS is a compile-time
constant, so that the compiler knows how rows are aligned. Positions are 64-bit throughout.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphnorm.ops.tiles_gpu import tile_mask

try:
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
except ImportError:  # a Triton for other devices, where no kernel is EARLY
    gdc_launch_dependents = gdc_wait = None

# Integer arguments, which Triton must not compile in: they change from batch to batch.
SIZES = (
    "rows", "segments", "ptr_stride", "order_stride", "runs", "run", "limit", "slots", "plane", "window", "windows",
    "slot_plane", "fine_window", "fine_windows", "shorts", "adds", "tiles", "high", "low",
)  # fmt: skip

GROUP = tl.constexpr(64)
"""Shares of the parameters' gradients that one program adds up; the last one adds up the sums of the groups."""
SHARES_AT_A_TIME = tl.constexpr(32)
ADDED = tl.constexpr(8)
"""Channels of the parameters' gradients that one program of :func:`long_gradient` adds up."""


@triton.jit
def release_next_kernel(EARLY: tl.constexpr):
    """Let the next kernel start on the multiprocessors that this one leaves free, to wait there for its end.

    It starts when all programs of this one have called this, so none of them is delayed: each calls it at once.
    """
    if EARLY:
        gdc_launch_dependents()


@triton.jit
def wait_for_previous_kernel(EARLY: tl.constexpr):
    """Wait until the previous kernel has ended and its writes are visible."""
    if EARLY:
        gdc_wait()


@triton.jit
def bounds(ptr, ptr_stride, member, g, rows):
    """Positions [first, last) of segment g, clamped to the member whatever ptr holds."""
    if ptr is None:
        first = rows * 0
        last = rows
    else:
        at = ptr + member * ptr_stride + g
        first = tl.minimum(tl.maximum(tl.load(at), 0), rows)
        last = tl.minimum(tl.maximum(tl.load(at + 1), first), rows)
    return first, last


@triton.jit
def boundary(ptr, ptr_stride, member, g, rows):
    """ptr[g] of a member, clamped to it whatever ptr holds."""
    return tl.minimum(tl.maximum(tl.load(ptr + member * ptr_stride + g), 0), rows)


@triton.jit
def run_of(order, order_stride, member, first, last):
    """Whether positions [first, last) of one segment are consecutive rows, and the distance from position to row then.

    `order` rises within a segment, so its two ends tell. Most unsorted batches consist of such runs, and sorted ones
    of nothing else.
    """
    if order is None:
        consecutive = True
        shift = first * 0
    else:
        at = order + member * order_stride
        here = first < last
        begin = tl.load(at + first, mask=here, other=0)
        end = tl.load(at + last - 1, mask=here, other=0)
        consecutive = end - begin == last - 1 - first
        shift = begin - first
    return consecutive, shift


@triton.jit
def offsets(
    order, order_stride, member, rows, consecutive, shift, position, inside, channel, CHANNELS: tl.constexpr
):  # fmt: skip
    """Offsets in x of the rows at `position` of a member: a tile (positions, channels)."""
    row = position + shift
    if order is not None:
        if not consecutive:
            row = tl.load(order + member * order_stride + position, mask=inside, other=0)
    return (member * rows + row)[:, None] * CHANNELS + channel[None, :]


@triton.jit
def load(x, at, mask, ACC: tl.constexpr):
    """A tile in the type it is computed in; 0 outside."""
    return tl.load(x + at, mask=mask, other=0.0).to(ACC)


@triton.jit
def load_first(x, at, mask, ACC: tl.constexpr):
    """As :func:`load`, for a tile that will be read again: asks the cache to keep it."""
    return tl.load(x + at, mask=mask, other=0.0, eviction_policy="evict_last").to(ACC)


@triton.jit
def parameter(pointer, at, mask, otherwise, ACC: tl.constexpr, BC: tl.constexpr):
    """A parameter of a block of channels, or its neutral value."""
    if pointer is None:
        value = tl.full((BC,), otherwise, ACC)
    else:
        value = tl.load(pointer + at, mask=mask, other=otherwise).to(ACC)
    return value


@triton.jit
def split(mean, ACC: tl.constexpr):
    """A wide mean as its value in ACC and the rest."""
    centre = mean.to(ACC)
    return centre, (mean - centre.to(mean.dtype)).to(ACC)


@triton.jit
def statistics_of(mean, var, at, mask, ACC: tl.constexpr):
    """The stored statistics of a segment: centre, rest, variance."""
    centre, rest = split(tl.load(mean + at, mask=mask, other=0.0).to(tl.float64), ACC)
    return centre, rest, tl.load(var + at, mask=mask, other=1.0).to(ACC)


@triton.jit
def coefficients(
    centre, rest, var, weight, bias, mean_scale, at, mask, EPS: tl.constexpr, ACC: tl.constexpr, BC: tl.constexpr
):
    """alpha, kept, r, and scale, offset of  z = scale * (x - centre) + offset."""
    alpha = parameter(mean_scale, at, mask, 1.0, ACC, BC)
    kept = (1.0 - alpha) * centre
    r = 1.0 / tl.sqrt(var + kept * kept + EPS)
    scale = parameter(weight, at, mask, 1.0, ACC, BC) * r
    offset = parameter(bias, at, mask, 0.0, ACC, BC) + scale * (kept - rest)
    return alpha, kept, r, scale, offset


@triton.jit
def stored_affine(
    mean, var, stored, weight, bias, mean_scale, of_member, mask, EPS: tl.constexpr, ACC: tl.constexpr, BC: tl.constexpr
):
    """centre, scale, offset of  z = scale * (x - centre) + offset  by a segment's statistics, at `stored`."""
    centre, rest, spread = statistics_of(mean, var, stored, mask, ACC)
    _a, _k, _r, scale, offset = coefficients(
        centre, rest, spread, weight, bias, mean_scale, of_member, mask, EPS, ACC, BC
    )  # fmt: skip
    return centre, scale, offset


@triton.jit
def finish(y, residual, at, mask, z, RELU: tl.constexpr, ACC: tl.constexpr):
    """Activation, residual, store."""
    if RELU:
        z = tl.where(z < 0.0, 0.0, z)
    if residual is not None:
        z += load(residual, at, mask, ACC)
    tl.store(y + at, z, mask=mask)


@triton.jit
def before_relu(dy, d, scale, offset, RELU: tl.constexpr):
    """dz: dy where the output was not clipped. At exactly 0 it was not, unless RELU is 2: then as torch has it."""
    if RELU == 2:
        dy = tl.where(scale[None, :] * d + offset[None, :] <= 0.0, 0.0, dy)
    elif RELU:
        dy = tl.where(scale[None, :] * d + offset[None, :] < 0.0, 0.0, dy)
    return dy


@triton.jit
def gradient_coefficients(P, Q, n, centre, rest, var, alpha, kept, r, scale, EPS: tl.constexpr, LIVE: tl.constexpr):
    """slope, constant of  dx = scale * ((dz + constant) - slope * (x - centre)), and dweight, dmean_scale."""
    count = tl.maximum(n, 1).to(P.dtype)
    p = P / count
    q = (Q - rest * P) / count
    along = q + kept * p
    through = r * r * ((var + EPS) * p - kept * q)
    if LIVE:
        slope = r * r * along
        constant = (1.0 - alpha) * through - p + slope * rest
    else:
        slope = along * 0.0
        constant = along * 0.0
    return slope, constant, count * r * along, -count * centre * scale * through


@triton.jit
def gradient_of(dy, d, scale, offset, slope, constant, RELU: tl.constexpr):
    """dx of a tile, given d = x - centre."""
    dz = before_relu(dy, d, scale, offset, RELU)
    return scale[None, :] * ((dz + constant[None, :]) - slope[None, :] * d)


@triton.jit
def store_shares(shares, plane, at, mask, dweight, dbias, dmean_scale):
    """One slot's share of the parameters' gradients, into shares (3, members, slots, channels)."""
    tl.store(shares + at, dweight, mask=mask)
    tl.store(shares + plane + at, dbias, mask=mask)
    tl.store(shares + 2 * plane + at, dmean_scale, mask=mask)


@triton.jit
def store_gradients(dweight, dbias, dmean_scale, at, mask, of_weight, of_bias, of_mean_scale):
    """The gradients of those parameters that are wanted."""
    if dweight is not None:
        tl.store(dweight + at, of_weight, mask=mask)
    if dbias is not None:
        tl.store(dbias + at, of_bias, mask=mask)
    if dmean_scale is not None:
        tl.store(dmean_scale + at, of_mean_scale, mask=mask)


@triton.jit
def sum_of_shares(shares, plane, begin, end, channel, mask, CHANNELS: tl.constexpr, BS: tl.constexpr, BC: tl.constexpr):
    """The sums (double) of slots [begin, end) of shares, BS at a time, in order."""
    of_weight = tl.zeros((BC,), tl.float64)
    of_bias = tl.zeros((BC,), tl.float64)
    of_mean_scale = tl.zeros((BC,), tl.float64)
    for start in range(begin, end, BS):
        slot = start + tl.arange(0, BS)
        at = shares + slot[:, None] * CHANNELS + channel[None, :]
        there = (slot < end)[:, None] & mask[None, :]
        weights = tl.load(at, mask=there, other=0.0, cache_modifier=".cg")
        biases = tl.load(at + plane, mask=there, other=0.0, cache_modifier=".cg")
        mean_scales = tl.load(at + 2 * plane, mask=there, other=0.0, cache_modifier=".cg")
        of_weight += tl.sum(weights.to(tl.float64), 0)
        of_bias += tl.sum(biases.to(tl.float64), 0)
        of_mean_scale += tl.sum(mean_scales.to(tl.float64), 0)
    return of_weight, of_bias, of_mean_scale


@triton.jit
def arrived_last(counter, total):
    """Whether all others of the `total` programs that count here came before; their stores are visible then.

    The counter begins at 0, and is 0 again for the next launch.
    """
    tl.debug_barrier()
    is_last = tl.atomic_add(counter, 1) == total - 1
    if is_last:
        tl.store(counter, 0)
    return is_last


@triton.jit
def add_up(
    shares, counters, dweight, dbias, dmean_scale, member, slot, block, channel, runs, slots, plane,
    CHANNELS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The parameters' gradients from the shares of all runs, in order, by the program that comes last.

    `shares` (3, members, slots, channels) has for each member a slot per run, and one per GROUP of them.
    """
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    in_channels = channel < CHANNELS
    groups = (runs + GROUP - 1) // GROUP
    group = slot // GROUP
    counter = counters + (member * (groups + 1) + group) * blocks + block
    begin = member * slots + group * GROUP
    end = member * slots + tl.minimum(group * GROUP + GROUP, runs)
    of_member = member * CHANNELS + channel
    if arrived_last(counter, end - begin):
        of_weight, of_bias, of_mean_scale = sum_of_shares(
            shares, plane, begin, end, channel, in_channels, CHANNELS, SHARES_AT_A_TIME, BC
        )
        if groups == 1:
            store_gradients(dweight, dbias, dmean_scale, of_member, in_channels, of_weight, of_bias, of_mean_scale)
        else:
            of_groups = member * slots + runs
            at = (of_groups + group) * CHANNELS + channel
            store_shares(shares, plane, at, in_channels, of_weight, of_bias, of_mean_scale)
            if arrived_last(counters + (member * (groups + 1) + groups) * blocks + block, groups):
                of_weight, of_bias, of_mean_scale = sum_of_shares(
                    shares, plane, of_groups, of_groups + groups, channel, in_channels, CHANNELS, SHARES_AT_A_TIME, BC
                )
                store_gradients(dweight, dbias, dmean_scale, of_member, in_channels, of_weight, of_bias, of_mean_scale)


# ---- a range of a segment's rows, tile by tile -------------------------------------------------------------------


@triton.jit
def fill_outside(
    out, residual, order, order_stride, member, rows, first, last, channel,
    CHANNELS: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Positions [first, last) belong to no segment: they get the residual, or zero."""
    tile = tl.arange(0, BR)
    zero = tl.zeros((BR, BC), ACC)
    for start in range(first, last, BR):
        inside = start + tile < last
        at = offsets(order, order_stride, member, rows, False, 0, start + tile, inside, channel, CHANNELS)
        finish(out, residual, at, tile_mask(inside, channel, CHANNELS, BC), zero, False, ACC)


@triton.jit
def tile_statistics(values, mask, count):
    """Mean, in two parts, and m2 of a tile in registers: exact to rounding, however large the mean."""
    rough = tl.sum(values, 0) / count
    d = tl.where(mask, values - rough[None, :], 0.0)
    shift = tl.sum(d, 0) / count
    return rough, shift, tl.maximum(tl.sum(d * d, 0) - count * shift * shift, 0.0)


@triton.jit
def join_tile(base, above, m2, values, mask, start, n, ACC: tl.constexpr, BR: tl.constexpr):
    """Mean (base + above) and m2 of the first `start` of n rows, joined with those of the next tile."""
    here = tl.minimum(n - start, BR).to(ACC)
    before = (start + n * 0).to(ACC)
    rough, finer, tile_m2 = tile_statistics(values, mask, here)
    base = tl.where(start == 0, rough, base)
    gap = (rough - base) + finer - above
    return base, above + gap * (here / (before + here)), m2 + tile_m2 + gap * gap * (before * here / (before + here))


@triton.jit
def range_statistics(
    x, order, order_stride, member, rows, first, last, channel,
    CHANNELS: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Mean (double) and m2 of positions [first, last): tile by tile, joined about the first tile's mean."""
    consecutive, shift = run_of(order, order_stride, member, first, last)
    tile = tl.arange(0, BR)
    n = last - first
    base = tl.zeros((BC,), ACC)
    above = tl.zeros((BC,), ACC)
    m2 = tl.zeros((BC,), ACC)
    for start in range(0, n, BR):
        inside = start + tile < n
        at = offsets(
            order, order_stride, member, rows, consecutive, shift, first + start + tile, inside, channel, CHANNELS
        )  # fmt: skip
        mask = tile_mask(inside, channel, CHANNELS, BC)
        base, above, m2 = join_tile(base, above, m2, load_first(x, at, mask, ACC), mask, start, n, ACC, BR)
    return base.to(tl.float64) + above.to(tl.float64), m2


@triton.jit
def long_range_statistics(
    x, order, order_stride, member, rows, first, last, channel,
    CHANNELS: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """As :func:`range_statistics`: Σ d and Σ d² of d = x - the first tile's mean, which no tile has to wait for.

    |d| is at most the distance between values. The first tile is among them, so Σ d² is at most (last - first) / BR
    times as large as m2: so many roundings are lost at worst, and hardly any where rows are in random order.
    """
    consecutive, shift = run_of(order, order_stride, member, first, last)
    tile = tl.arange(0, BR)
    n = last - first
    inside = tile < n
    at = offsets(order, order_stride, member, rows, consecutive, shift, first + tile, inside, channel, CHANNELS)
    mask = tile_mask(inside, channel, CHANNELS, BC)
    values = load_first(x, at, mask, ACC)
    base = tl.sum(values, 0) / tl.minimum(n, BR).to(ACC)
    sums = tl.where(mask, values - base[None, :], 0.0)
    squares = sums * sums
    for start in range(BR, n, 2 * BR):  # two tiles in flight at a time
        position = first + start + tile
        inside = position < last
        inside2 = position + BR < last
        at = offsets(order, order_stride, member, rows, consecutive, shift, position, inside, channel, CHANNELS)
        at2 = offsets(order, order_stride, member, rows, consecutive, shift, position + BR, inside2, channel, CHANNELS)
        mask = tile_mask(inside, channel, CHANNELS, BC)
        mask2 = tile_mask(inside2, channel, CHANNELS, BC)
        values = load_first(x, at, mask, ACC)
        values2 = load_first(x, at2, mask2, ACC)
        d = tl.where(mask, values - base[None, :], 0.0)
        d2 = tl.where(mask2, values2 - base[None, :], 0.0)
        sums += d + d2
        squares += d * d + d2 * d2
    total = tl.sum(sums, 0)
    above = total / n.to(ACC)
    return base.to(tl.float64) + above.to(tl.float64), tl.maximum(tl.sum(squares, 0) - total * above, 0.0)


@triton.jit
def _tile_from(
    order, order_stride, member, rows, consecutive, shift, first, last, start, channel,
    CHANNELS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Offsets in x of the BR positions from first + start on, and which elements of that tile are before `last`."""
    tile = tl.arange(0, BR)
    inside = start + tile < last - first
    at = offsets(
        order, order_stride, member, rows, consecutive, shift, first + start + tile, inside, channel, CHANNELS
    )  # fmt: skip
    return at, tile_mask(inside, channel, CHANNELS, BC)


@triton.jit
def apply_range(
    x, y, residual, order, order_stride, member, rows, first, last, channel, centre, scale, offset,
    CHANNELS: tl.constexpr, RELU: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y of positions [first, last)."""
    consecutive, shift = run_of(order, order_stride, member, first, last)
    for start in range(0, last - first, BR):
        at, mask = _tile_from(
            order, order_stride, member, rows, consecutive, shift, first, last, start, channel, CHANNELS, BR, BC
        )  # fmt: skip
        z = scale[None, :] * (load(x, at, mask, ACC) - centre[None, :]) + offset[None, :]
        finish(y, residual, at, mask, z, RELU, ACC)


@triton.jit
def range_sums(
    x, dy, order, order_stride, member, rows, first, last, channel, centre, scale, offset,
    CHANNELS: tl.constexpr, RELU: tl.constexpr, APART: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """P = Σ dz and Q = Σ dz (x - centre) over positions [first, last).

    APART: whether each element of a tile has separate sums until the end, so that no tile waits for the sums of the one
    before. This takes twice the registers.
    """
    consecutive, shift = run_of(order, order_stride, member, first, last)
    kept: tl.constexpr = BR if APART else 1
    P = tl.zeros((kept, BC), ACC)
    Q = tl.zeros((kept, BC), ACC)
    for start in range(0, last - first, BR):
        at, mask = _tile_from(
            order, order_stride, member, rows, consecutive, shift, first, last, start, channel, CHANNELS, BR, BC
        )  # fmt: skip
        d = load_first(x, at, mask, ACC) - centre[None, :]
        dz = before_relu(load_first(dy, at, mask, ACC), d, scale, offset, RELU)
        if APART:
            P += dz
            Q += dz * d
        else:
            P += tl.sum(dz, 0)[None, :]
            Q += tl.sum(dz * d, 0)[None, :]
    return tl.sum(P, 0), tl.sum(Q, 0)


@triton.jit
def gradient_range(
    x, dy, dx, order, order_stride, member, rows, first, last, channel, centre, scale, offset,
    slope, constant, CHANNELS: tl.constexpr, RELU: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx of positions [first, last)."""
    consecutive, shift = run_of(order, order_stride, member, first, last)
    for start in range(0, last - first, BR):
        at, mask = _tile_from(
            order, order_stride, member, rows, consecutive, shift, first, last, start, channel, CHANNELS, BR, BC
        )  # fmt: skip
        d = load(x, at, mask, ACC) - centre[None, :]
        found = gradient_of(load(dy, at, mask, ACC), d, scale, offset, slope, constant, RELU)
        tl.store(dx + at, found, mask=mask)


# ---- forward: the first kernel of a call -------------------------------------------------------------------------


@triton.jit
def _forward_segment(
    x, y, residual, ptr, order, weight, bias, mean_scale, mean, var, index, channel,
    rows, segments, ptr_stride, order_stride, limit,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, GIVEN: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    member, g = index // segments, index % segments
    in_channels = channel < CHANNELS
    first, last = bounds(ptr, ptr_stride, member, g, rows)
    if ptr is not None:
        if g == 0:
            fill_outside(y, residual, order, order_stride, member, rows, 0, first, channel, CHANNELS, ACC, BR, BC)
        if g == segments - 1:
            fill_outside(y, residual, order, order_stride, member, rows, last, rows, channel, CHANNELS, ACC, BR, BC)
    stored = index * CHANNELS + channel
    if last - first <= limit:
        if not GIVEN:
            wide, m2 = range_statistics(
                x, order, order_stride, member, rows, first, last, channel, CHANNELS, ACC, BR, BC
            )
            centre, rest = split(wide, ACC)
            spread = m2 / tl.maximum(last - first, 1).to(ACC)
            if mean is not None:
                tl.store(mean + stored, wide, mask=in_channels)
                tl.store(var + stored, spread, mask=in_channels)
        else:
            centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
        of_member = member * CHANNELS + channel
        _a, _k, _r, scale, offset = coefficients(
            centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
        )
        apply_range(
            x, y, residual, order, order_stride, member, rows, first, last, channel,
            centre, scale, offset, CHANNELS, RELU, ACC, BR, BC,
        )  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def forward_short(
    x, y, residual, ptr, order, weight, bias, mean_scale, mean, var, slot_statistics, counters,
    rows, segments, ptr_stride, order_stride, limit, shorts, window, windows, slot_plane,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, GIVEN: tl.constexpr, PER: tl.constexpr,
    EARLY: tl.constexpr, ACC: tl.constexpr, BL: tl.constexpr, BW: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Forward: y of `shorts` segments, one program for each and block of channels; then statistics of long ones.

    PER: slots of a window, 0 where no segment is long. EARLY: whether the next kernel, which has the rest of the long
    ones, may begin to wait for this one. `counters` holds zeros before and after.
    """
    release_next_kernel(EARLY)
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    index = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    channel = block * BC + tl.arange(0, BC)
    if PER == 0 or index < shorts:
        _forward_segment(
            x, y, residual, ptr, order, weight, bias, mean_scale, mean, var, index, channel,
            rows, segments, ptr_stride, order_stride, limit, CHANNELS, EPS, RELU, GIVEN, ACC, BR, BC,
        )  # fmt: skip
    else:
        window_statistics(
            x, ptr, order, mean, var, slot_statistics, counters, index - shorts, block,
            rows, segments, ptr_stride, order_stride, window, windows, limit, slot_plane,
            PER, CHANNELS, ACC, BL, BW, BC,
        )  # fmt: skip


# ---- backward: the first kernel of a call ------------------------------------------------------------------------


@triton.jit
def _backward_tile(
    x, dy, dx, order, weight, bias, mean_scale, mean, var, member, g, first, last, channel,
    rows, segments, order_stride,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, LIVE: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx of a segment of at most BR rows, held in registers, and its share of the parameters' gradients."""
    in_channels = channel < CHANNELS
    tile = tl.arange(0, BR)
    inside = tile < last - first
    consecutive, shift = run_of(order, order_stride, member, first, last)
    at = offsets(order, order_stride, member, rows, consecutive, shift, first + tile, inside, channel, CHANNELS)
    mask = tile_mask(inside, channel, CHANNELS, BC)
    values = load(x, at, mask, ACC)
    grads = load(dy, at, mask, ACC)
    if mean is None:
        count = tl.maximum(last - first, 1).to(ACC)
        rough, finer, m2 = tile_statistics(values, mask, count)
        centre, rest = split(rough.to(tl.float64) + finer.to(tl.float64), ACC)
        spread = m2 / count
    else:
        stored = (member * segments + g) * CHANNELS + channel
        centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
    of_member = member * CHANNELS + channel
    alpha, kept, r, scale, offset = coefficients(
        centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
    )
    d = values - centre[None, :]
    dz = before_relu(grads, d, scale, offset, RELU)
    P = tl.sum(dz, 0)
    slope, constant, of_weight, of_mean_scale = gradient_coefficients(
        P, tl.sum(dz * d, 0), last - first, centre, rest, spread, alpha, kept, r, scale, EPS, LIVE
    )
    found = scale[None, :] * ((dz + constant[None, :]) - slope[None, :] * d)
    tl.store(dx + at, found, mask=mask)
    return of_weight, P, of_mean_scale


@triton.jit(do_not_specialize=SIZES)
def backward_tiles(
    x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, shares, counters, dweight, dbias, dmean_scale,
    rows, segments, ptr_stride, order_stride, runs, run, slots, plane,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, LIVE: tl.constexpr, ACC: tl.constexpr,
    HALF: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Backward where no segment has more than BR rows.

    HALF: whether segments that fit half a tile get one, so that fewer lanes are idle. Without `mean` the statistics are
    computed again from x, which is in registers anyway.
    """
    plane = plane.to(tl.int64)
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    member = place // runs
    g0 = place % runs * run
    g1 = tl.minimum(g0 + run, segments)
    block = tl.program_id(0) % blocks
    channel = block * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    first = boundary(ptr, ptr_stride, member, g0, rows)
    last = boundary(ptr, ptr_stride, member, g0 + 1, rows)
    if g0 == 0:
        fill_outside(dx, None, order, order_stride, member, rows, 0, first, channel, CHANNELS, ACC, BR, BC)
    all_weight = tl.zeros((BC,), ACC)
    all_bias = tl.zeros((BC,), ACC)
    all_mean_scale = tl.zeros((BC,), ACC)
    for g in range(g0, g1):
        following = boundary(ptr, ptr_stride, member, tl.minimum(g + 2, g1), rows)
        if HALF and last - first <= BR // 2:
            of_weight, P, of_mean_scale = _backward_tile(
                x, dy, dx, order, weight, bias, mean_scale, mean, var, member, g, first, last, channel,
                rows, segments, order_stride, CHANNELS, EPS, RELU, LIVE, ACC, BR // 2, BC,
            )  # fmt: skip
        else:
            of_weight, P, of_mean_scale = _backward_tile(
                x, dy, dx, order, weight, bias, mean_scale, mean, var, member, g, first, last, channel,
                rows, segments, order_stride, CHANNELS, EPS, RELU, LIVE, ACC, BR, BC,
            )  # fmt: skip
        all_weight += of_weight
        all_bias += P
        all_mean_scale += of_mean_scale
        first, last = last, following
    if g1 == segments:
        fill_outside(dx, None, order, order_stride, member, rows, first, rows, channel, CHANNELS, ACC, BR, BC)
    at_share = (member * slots + place % runs) * CHANNELS + channel
    store_shares(shares, plane, at_share, in_channels, all_weight, all_bias, all_mean_scale)
    add_up(
        shares, counters, dweight, dbias, dmean_scale, member, place % runs, block, channel,
        runs, slots, plane, CHANNELS, BC,
    )  # fmt: skip


@triton.jit
def _backward_run(
    x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, shares, member, slot, channel,
    rows, segments, ptr_stride, order_stride, limit, run, slots, plane,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, LIVE: tl.constexpr, APART: tl.constexpr,
    ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    in_channels = channel < CHANNELS
    of_member = member * CHANNELS + channel
    g0 = slot * run
    all_weight = tl.zeros((BC,), ACC)
    all_bias = tl.zeros((BC,), ACC)
    all_mean_scale = tl.zeros((BC,), ACC)
    for g in range(g0, tl.minimum(g0 + run, segments)):
        first, last = bounds(ptr, ptr_stride, member, g, rows)
        if ptr is not None:
            if g == 0:
                fill_outside(dx, None, order, order_stride, member, rows, 0, first, channel, CHANNELS, ACC, BR, BC)
            if g == segments - 1:
                fill_outside(dx, None, order, order_stride, member, rows, last, rows, channel, CHANNELS, ACC, BR, BC)
        if last - first <= limit:
            stored = (member * segments + g) * CHANNELS + channel
            centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
            alpha, kept, r, scale, offset = coefficients(
                centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
            )
            P, Q = range_sums(
                x, dy, order, order_stride, member, rows, first, last, channel,
                centre, scale, offset, CHANNELS, RELU, APART, ACC, BR, BC,
            )  # fmt: skip
            slope, constant, of_weight, of_mean_scale = gradient_coefficients(
                P, Q, last - first, centre, rest, spread, alpha, kept, r, scale, EPS, LIVE
            )
            gradient_range(
                x, dy, dx, order, order_stride, member, rows, first, last, channel,
                centre, scale, offset, slope, constant, CHANNELS, RELU, ACC, BR, BC,
            )  # fmt: skip
            all_weight += of_weight
            all_bias += P
            all_mean_scale += of_mean_scale
    at = (member * slots + slot) * CHANNELS + channel
    store_shares(shares, plane, at, in_channels, all_weight, all_bias, all_mean_scale)


@triton.jit(do_not_specialize=SIZES)
def backward_short(
    x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, shares, counters, dweight, dbias, dmean_scale,
    rows, segments, ptr_stride, order_stride, limit, runs, run, slots, plane, shorts,
    window, windows, slot_plane,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, LIVE: tl.constexpr, APART: tl.constexpr,
    PER: tl.constexpr, EARLY: tl.constexpr, ACC: tl.constexpr, BL: tl.constexpr, BW: tl.constexpr, BR: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """Backward: dx of `shorts` runs of segments, one program for each and block of channels; then sums of long ones.

    APART as in :func:`range_sums`, PER, EARLY and `counters` as in :func:`forward_short`. Where no segment is long
    the parameters' gradients are done as well.
    """
    release_next_kernel(EARLY)
    plane = plane.to(tl.int64)
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    channel = block * BC + tl.arange(0, BC)
    if PER == 0 or place < shorts:
        _backward_run(
            x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, shares, place // runs, place % runs, channel,
            rows, segments, ptr_stride, order_stride, limit, run, slots, plane,
            CHANNELS, EPS, RELU, LIVE, APART, ACC, BR, BC,
        )  # fmt: skip
        if PER == 0:
            add_up(
                shares, counters, dweight, dbias, dmean_scale, place // runs, place % runs, block, channel,
                runs, slots, plane, CHANNELS, BC,
            )  # fmt: skip
    else:
        window_sums(
            x, dy, ptr, order, weight, bias, mean_scale, mean, var, shares, counters,
            dweight, dbias, dmean_scale, place - shorts, block, rows, segments, ptr_stride, order_stride,
            window, windows, limit, runs, slots, plane, slot_plane,
            PER, CHANNELS, EPS, RELU, LIVE, APART, ACC, BL, BW, BC,
        )  # fmt: skip


# ---- long segments, and the second kernel of a call --------------------------------------------------------------


@triton.jit
def _owner(ptr, segments, position):
    """The last segment that begins at or before `position`: a search that halves 256-fold at each look."""
    looks = tl.arange(0, 256)
    g = position * 0
    span = g + segments
    while span > 1:
        stride = (span + 255) // 256
        begins = tl.load(ptr + g + looks * stride, mask=looks * stride < span, other=2**62)
        passed = (tl.maximum(tl.sum((begins <= position).to(tl.int32), 0), 1) - 1) * stride
        g += passed
        span = tl.minimum(stride, span - passed)
    return g


@triton.jit
def _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place, PER: tl.constexpr):
    """The long segment of one slot: member, segment, its first and last row, and those inside the window.

    `place` counts slots over all members: window w of member m has the PER slots from PER (m windows + w) on. PER is 2,
    or 1 where a member is a single segment. A slot without a long segment has no rows: the last two numbers are equal.
    """
    member = place // (PER * windows)
    low = place // PER % windows * window
    high = tl.minimum(low + window, rows)
    second = place % PER
    position = tl.where(second == 1, high - 1, low)
    g = position * 0
    if ptr is not None:
        g = _owner(ptr + member * ptr_stride, segments, position)
    first, last = bounds(ptr, ptr_stride, member, g, rows)
    mine = (first <= position) & (position < last) & (last - first > limit) & ((second == 0) | (first > low))
    begin = tl.maximum(first, low)
    return member, g, first, last, begin, tl.where(mine, tl.minimum(last, high), begin)


@triton.jit
def _slot_of(w, first, window, windows, member, PER: tl.constexpr):
    """The slot that a long segment beginning at `first` has in window w."""
    slot = PER * (member * windows + w)
    if PER == 2:
        slot += tl.where(first > w * window, 1, 0)
    return slot


@triton.jit
def _is_last(counters, first, last, window, windows, member, block, blocks, PER: tl.constexpr):
    """Whether all other windows of a segment are done with. One counter per slot and block, that of its home counts."""
    w0 = first // window
    home = _slot_of(w0, first, window, windows, member, PER)
    return arrived_last(counters + home * blocks + block, (last - 1) // window - w0 + 1)


@triton.jit
def window_statistics(
    x, ptr, order, mean, var, slot_statistics, counters, place, block, rows, segments, ptr_stride, order_stride,
    window, windows, limit, slot_plane,
    PER: tl.constexpr, CHANNELS: tl.constexpr, ACC: tl.constexpr, BL: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Mean and m2 of one slot, into slot_statistics (2, slots, channels); once all are there, those of the segment.

    BL rows, and BW windows, at a time.
    """
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    channel = block * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, g, first, last, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place, PER)
    if begin < end:
        here, m2 = long_range_statistics(
            x, order, order_stride, member, rows, begin, end, channel, CHANNELS, ACC, BL, BC
        )
        tl.store(slot_statistics + place * CHANNELS + channel, here, mask=in_channels)
        tl.store(slot_statistics + slot_plane + place * CHANNELS + channel, m2, mask=in_channels)
        if _is_last(counters, first, last, window, windows, member, block, blocks, PER):
            w1 = (last - 1) // window
            n = (last - first).to(tl.float64)
            home = _slot_of(first // window, first, window, windows, member, PER) * CHANNELS + channel
            base = tl.load(slot_statistics + home, mask=in_channels, other=0.0, cache_modifier=".cg")
            total = tl.zeros((BC,), tl.float64)
            square = tl.zeros((BC,), tl.float64)
            for start in range(first // window, w1 + 1, BW):
                w = start + tl.arange(0, BW)
                mask = (w <= w1)[:, None] & in_channels[None, :]
                at = _slot_of(w, first, window, windows, member, PER)[:, None] * CHANNELS + channel[None, :]
                count = (tl.minimum(last, (w + 1) * window) - tl.maximum(first, w * window)).to(tl.float64)[:, None]
                means = tl.load(slot_statistics + at, mask=mask, other=0.0, cache_modifier=".cg")
                squares = tl.load(slot_statistics + slot_plane + at, mask=mask, other=0.0, cache_modifier=".cg")
                gap = means - base[None, :]
                total += tl.sum(tl.where(mask, count * gap, 0.0), 0)
                square += tl.sum(tl.where(mask, squares + count * gap * gap, 0.0), 0)
            above = total / n
            stored = (member * segments + g) * CHANNELS + channel
            tl.store(mean + stored, base + above, mask=in_channels)
            tl.store(var + stored, (tl.maximum(square - total * above, 0.0) / n).to(ACC), mask=in_channels)


@triton.jit(do_not_specialize=SIZES)
def long_apply(
    x, y, residual, ptr, order, weight, bias, mean_scale, mean, var,
    rows, segments, ptr_stride, order_stride, window, windows, limit,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, EARLY: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y of each slot."""
    wait_for_previous_kernel(EARLY)
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    backwards = tl.num_programs(0) - 1 - tl.program_id(0)
    place = (backwards // blocks).to(tl.int64)
    channel = backwards % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, g, _f, _l, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place, 2)
    if begin < end:
        stored = (member * segments + g) * CHANNELS + channel
        of_member = member * CHANNELS + channel
        centre, scale, offset = stored_affine(
            mean, var, stored, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
        )
        apply_range(
            x, y, residual, order, order_stride, member, rows, begin, end, channel,
            centre, scale, offset, CHANNELS, RELU, ACC, BR, BC,
        )  # fmt: skip


@triton.jit
def window_sums(
    x, dy, ptr, order, weight, bias, mean_scale, mean, var, shares, counters, dweight, dbias, dmean_scale,
    place, block, rows, segments, ptr_stride, order_stride, window, windows, limit, runs, slots, plane, slot_plane,
    PER: tl.constexpr, CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, LIVE: tl.constexpr,
    APART: tl.constexpr, ACC: tl.constexpr, BL: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """P and Q of one slot; slope, constant and the parameters' gradients of the segment once all its slots are there.

    They are stored behind the shares, (4, slots, channels): P, Q and, at the homes, slope and constant. A segment's
    gradients are stored in the share of its home window, behind those of the short segments; or, where it is the only
    segment (PER = 1), directly in dweight, dbias and dmean_scale.
    """
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    channel = block * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, g, first, last, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place, PER)
    sums = shares + 3 * plane
    of_member = member * CHANNELS + channel
    if PER == 2:
        low = place // PER % windows * window
        is_home = (first >= low) & (first < low + window) & (last - first > limit)
        if (place % 2 == 1) & (is_home == 0):  # the second slot sees whether any segment has its home in this window
            at_share = (member * slots + runs + place // PER % windows) * CHANNELS + channel
            none = tl.zeros((BC,), ACC)
            store_shares(shares, plane, at_share, in_channels, none, none, none)
    if begin < end:
        stored = (member * segments + g) * CHANNELS + channel
        centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
        alpha, kept, r, scale, offset = coefficients(
            centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
        )
        P, Q = range_sums(
            x, dy, order, order_stride, member, rows, begin, end, channel,
            centre, scale, offset, CHANNELS, RELU, APART, ACC, BL, BC,
        )  # fmt: skip
        tl.store(sums + place * CHANNELS + channel, P, mask=in_channels)
        tl.store(sums + slot_plane + place * CHANNELS + channel, Q, mask=in_channels)
        if _is_last(counters, first, last, window, windows, member, block, blocks, PER):
            w0 = first // window
            w1 = (last - 1) // window
            all_P = tl.zeros((BC,), tl.float64)
            all_Q = tl.zeros((BC,), tl.float64)
            for start in range(w0, w1 + 1, BW):
                w = start + tl.arange(0, BW)
                mask = (w <= w1)[:, None] & in_channels[None, :]
                at = _slot_of(w, first, window, windows, member, PER)[:, None] * CHANNELS + channel[None, :]
                some_P = tl.load(sums + at, mask=mask, other=0.0, cache_modifier=".cg")
                some_Q = tl.load(sums + slot_plane + at, mask=mask, other=0.0, cache_modifier=".cg")
                all_P += tl.sum(some_P.to(tl.float64), 0)
                all_Q += tl.sum(some_Q.to(tl.float64), 0)
            of_bias = all_P.to(ACC)
            slope, constant, of_weight, of_mean_scale = gradient_coefficients(
                of_bias, all_Q.to(ACC), last - first, centre, rest, spread, alpha, kept, r, scale, EPS, LIVE
            )
            home = _slot_of(w0, first, window, windows, member, PER) * CHANNELS + channel
            tl.store(sums + 2 * slot_plane + home, slope, mask=in_channels)
            tl.store(sums + 3 * slot_plane + home, constant, mask=in_channels)
            if PER == 2:
                at_share = (member * slots + runs + w0) * CHANNELS + channel
                store_shares(shares, plane, at_share, in_channels, of_weight, of_bias, of_mean_scale)
            else:
                store_gradients(
                    dweight, dbias, dmean_scale, of_member, in_channels, of_weight, of_bias, of_mean_scale
                )  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def long_gradient(
    x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, shares, dweight, dbias, dmean_scale,
    rows, segments, ptr_stride, order_stride, fine_window, fine_windows, limit, window, windows, slots, plane,
    slot_plane, adds,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, EARLY: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx of each slot of the finer windows; slope and constant are at the home in the coarser ones.

    The first `adds` programs add up the shares of the parameters' gradients, :data:`ADDED` channels of a member each.
    """
    plane = plane.to(tl.int64)
    wait_for_previous_kernel(EARLY)
    if tl.program_id(0) >= adds:
        blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
        backwards = tl.num_programs(0) - 1 - tl.program_id(0)
        place = (backwards // blocks).to(tl.int64)
        channel = backwards % blocks * BC + tl.arange(0, BC)
        in_channels = channel < CHANNELS
        member, g, first, _l, begin, end = _slot(
            ptr, ptr_stride, segments, rows, fine_window, fine_windows, limit, place, 2
        )
        if begin < end:
            stored = (member * segments + g) * CHANNELS + channel
            of_member = member * CHANNELS + channel
            centre, scale, offset = stored_affine(
                mean, var, stored, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
            )
            sums = shares + 3 * plane + 2 * slot_plane
            home = _slot_of(first // window, first, window, windows, member, 2) * CHANNELS + channel
            slope = tl.load(sums + home, mask=in_channels, other=0.0)
            constant = tl.load(sums + slot_plane + home, mask=in_channels, other=0.0)
            gradient_range(
                x, dy, dx, order, order_stride, member, rows, begin, end, channel,
                centre, scale, offset, slope, constant, CHANNELS, RELU, ACC, BR, BC,
            )  # fmt: skip
    else:
        narrow: tl.constexpr = (CHANNELS + ADDED - 1) // ADDED
        member = (tl.program_id(0) // narrow).to(tl.int64)
        added = tl.program_id(0) % narrow * ADDED + tl.arange(0, ADDED)
        there = added < CHANNELS
        of_weight, of_bias, of_mean_scale = sum_of_shares(
            shares, plane, member * slots, (member + 1) * slots, added, there, CHANNELS, 128, ADDED
        )
        at = member * CHANNELS + added
        store_gradients(dweight, dbias, dmean_scale, at, there, of_weight, of_bias, of_mean_scale)


# ---- the second kernel where a member is one long segment --------------------------------------------------------

# There is nothing to search for. Each program has one tile of rows, loaded while it waits for the first kernel. Last
# rows first, while the cache holds them.


@triton.jit
def _whole_tile(rows, tiles, CHANNELS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    """Member, channels, where in x the program's tile lies, and which of its elements exist."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    backwards = tl.num_programs(0) - 1 - tl.program_id(0)
    place = (backwards // blocks).to(tl.int64)
    member = place // tiles
    channel = backwards % blocks * BC + tl.arange(0, BC)
    row = place % tiles * BR + tl.arange(0, BR)
    at = (member * rows + row)[:, None] * CHANNELS + channel[None, :]
    return member, channel, at, tile_mask(row < rows, channel, CHANNELS, BC)


@triton.jit(do_not_specialize=SIZES)
def whole_apply(
    x, y, residual, weight, bias, mean_scale, mean, var, rows, tiles,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, EARLY: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y of `tiles` tiles for each member."""
    member, channel, at, mask = _whole_tile(rows, tiles, CHANNELS, BR, BC)
    values = load(x, at, mask, ACC)
    wait_for_previous_kernel(EARLY)
    in_channels = channel < CHANNELS
    of_member = member * CHANNELS + channel
    centre, scale, offset = stored_affine(
        mean, var, of_member, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
    )
    z = scale[None, :] * (values - centre[None, :]) + offset[None, :]
    finish(y, residual, at, mask, z, RELU, ACC)


@triton.jit(do_not_specialize=SIZES)
def whole_gradient(
    x, dy, dx, weight, bias, mean_scale, mean, var, sums, rows, tiles, windows, slot_plane,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, EARLY: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx of `tiles` tiles for each member; slope and constant are behind the `sums` of its first window."""
    member, channel, at, mask = _whole_tile(rows, tiles, CHANNELS, BR, BC)
    values = load(x, at, mask, ACC)
    dy_values = load(dy, at, mask, ACC)
    wait_for_previous_kernel(EARLY)
    in_channels = channel < CHANNELS
    of_member = member * CHANNELS + channel
    centre, scale, offset = stored_affine(
        mean, var, of_member, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
    )
    home = sums + 2 * slot_plane + member * windows * CHANNELS + channel
    slope = tl.load(home, mask=in_channels, other=0.0)
    constant = tl.load(home + slot_plane, mask=in_channels, other=0.0)
    found = gradient_of(dy_values, values - centre[None, :], scale, offset, slope, constant, RELU)
    tl.store(dx + at, found, mask=mask)


# ---- running averages ------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=SIZES)
def move_averages(
    mean, var, running_mean, running_var, rows, high, low,
    CHANNELS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Running averages after a batch; the variance is that of a sample, n/(n-1) times the batch's.

    The batch's weight is a double, given as two integers: a schedule of it needs no new kernels.
    """
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    mask = channel < CHANNELS
    acc = running_mean.dtype.element_ty
    weight = ((high.to(tl.int64) << 32) | (low.to(tl.int64) & 0xFFFFFFFF)).to(tl.float64, bitcast=True).to(acc)
    unbias = rows.to(acc) / tl.maximum(rows - 1, 1).to(acc)
    new = tl.load(mean + channel, mask=mask, other=0).to(acc)
    old = tl.load(running_mean + channel, mask=mask, other=0)
    tl.store(running_mean + channel, old + weight * (new - old), mask=mask)
    new = unbias * tl.load(var + channel, mask=mask, other=0)
    old = tl.load(running_var + channel, mask=mask, other=0)
    tl.store(running_var + channel, old + weight * (new - old), mask=mask)
