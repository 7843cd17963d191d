"""What the Triton kernels for short and for long segments share. Symbols as in the reference's docstring.

Arguments that are ``None`` (parameters, order, residual) are resolved at compile time. CHANNELS is a compile-time
constant, so that the compiler sees how rows are aligned. Positions are 64-bit throughout.
"""

from __future__ import annotations

import triton
import triton.language as tl

try:
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
except ImportError:  # a Triton for other devices, where no kernel is EARLY
    gdc_launch_dependents = gdc_wait = None

SIZES = (
    "rows", "segments", "ptr_stride", "order_stride", "runs", "run", "limit", "slots", "plane", "window", "windows",
    "slot_plane", "fine_window", "fine_windows", "shorts", "adds", "tiles",
)  # fmt: skip
"""Integer arguments of kernels. They change from batch to batch, so none is compiled for a value of its own."""

GROUP = tl.constexpr(64)
"""Shares of the parameters' gradients that one program adds up; the last one adds up the sums of the groups."""
AT_A_TIME = tl.constexpr(32)
"""Of those."""


@triton.jit
def let_the_next_begin(EARLY: tl.constexpr):
    """The kernel launched after this one may take what room it leaves, to wait there for its end.

    It begins when all programs of this one have come here, so each may do so at once: none is kept from its place.
    """
    if EARLY:
        gdc_launch_dependents()


@triton.jit
def wait_for_the_one_before(EARLY: tl.constexpr):
    """Go on when the kernel launched before this one has ended, and all that it wrote can be seen."""
    if EARLY:
        gdc_wait()


@triton.jit
def bounds(ptr, ptr_stride, member, g, rows):
    """Positions [first, last) of segment g, kept inside the member whatever ptr says."""
    if ptr is None:
        first = rows * 0
        last = rows
    else:
        at = ptr + member * ptr_stride + g
        first = tl.minimum(tl.maximum(tl.load(at), 0), rows)
        last = tl.minimum(tl.maximum(tl.load(at + 1), first), rows)
    return first, last


@triton.jit
def run_of(order, order_stride, member, first, last):
    """Whether positions [first, last) of one segment are consecutive rows, and how far rows lie from positions then.

    `order` rises within a segment, so its two ends tell. Most batches that come unsorted are of such runs, and those
    that come sorted have nothing else.
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
    """Where the rows at `position` of a member lie in x: a tile (positions, channels)."""
    row = position + shift
    if order is not None:
        if not consecutive:
            row = tl.load(order + member * order_stride + position, mask=inside, other=0)
    return (member * rows + row)[:, None] * CHANNELS + channel[None, :]


@triton.jit
def tile_mask(inside, channel, CHANNELS: tl.constexpr, BC: tl.constexpr):
    """Which elements of a tile exist; the channels are looked at only where the last block is not full."""
    if CHANNELS % BC == 0:
        mask = inside[:, None]
    else:
        mask = inside[:, None] & (channel < CHANNELS)[None, :]
    return mask


@triton.jit
def load(x, at, mask, ACC: tl.constexpr):
    """A tile in the type it is computed in; 0 outside."""
    return tl.load(x + at, mask=mask, other=0.0).to(ACC)


@triton.jit
def load_first(x, at, mask, ACC: tl.constexpr):
    """As :func:`load`, of a tile that will be read again: the cache is asked to keep it."""
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
    """centre, scale, offset of  z = scale * (x - centre) + offset  by a segment's statistics, which lie at `stored`."""
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
def before_tail(dy, d, scale, offset, RELU: tl.constexpr):
    """dz: dy where the output was not clipped."""
    if RELU:
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
    """dx of a tile, of which d = x - centre."""
    dz = before_tail(dy, d, scale, offset, RELU)
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
    """Whether all others of the `total` programs that count here came before; what they stored can be read then.

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
    """The parameters' gradients from the shares of all runs, in order, by whoever comes last.

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
            shares, plane, begin, end, channel, in_channels, CHANNELS, AT_A_TIME, BC
        )
        if groups == 1:
            store_gradients(dweight, dbias, dmean_scale, of_member, in_channels, of_weight, of_bias, of_mean_scale)
        else:
            of_groups = member * slots + runs
            at = (of_groups + group) * CHANNELS + channel
            store_shares(shares, plane, at, in_channels, of_weight, of_bias, of_mean_scale)
            if arrived_last(counters + (member * (groups + 1) + groups) * blocks + block, groups):
                of_weight, of_bias, of_mean_scale = sum_of_shares(
                    shares, plane, of_groups, of_groups + groups, channel, in_channels, CHANNELS, AT_A_TIME, BC
                )
                store_gradients(dweight, dbias, dmean_scale, of_member, in_channels, of_weight, of_bias, of_mean_scale)
