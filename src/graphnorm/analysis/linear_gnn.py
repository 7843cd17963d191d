"""The paper's example of a linear GNN that the shift makes converge faster (Appendix A.2), as a simulation.

A sample is a graph of n nodes with features X (n × n, as many features as nodes), an aggregation Q, weights p of
the nodes for the readout, and a label y. The model is f = wᵀXQp, with the shift f = wᵀXQNp. With the combined
features z = XQp, or z = XQNp, as columns of Z, the square loss is ½‖Zᵀw − y‖². Gradient descent from w = 0 with
step 1/σ_max(ZZᵀ) converges to w* = (ZZᵀ)⁺Zy at the rate ρ = 1 − σ_min⁺/σ_max of ZZᵀ, where σ_min⁺ is the
smallest positive eigenvalue. With the shift ρ is smaller, if noise is small and samples are many.

**The data here** satisfies the assumptions by construction, for any noise level s in [0, 1):

- Q = (1 + ξ)I + (1 − s)A + sA′ is GIN's aggregation on a weighted graph: A is one fixed circulant graph of degree
  r, A′ is drawn anew for each sample by renaming its nodes at random. All rows sum to 1 + ξ + r.
- X = X̄ + sPE with independent uniform entries of E in [−1, 1], and X̄ such that E[XQ] = X̄Q̄ = Y.
- Y is one fixed matrix with singular values evenly from 2 to 8, whose singular vectors on both sides have the same
  overlap with 1: each has 1ᵀv = 1.
- P projects along u = Y⁻ᵀ1, so that uᵀX = uᵀX̄ for every sample.
- The entries of p are ±1 with equal chance: E p = 0, E ppᵀ = I.
- y = wᵀXQp for one fixed w, plus s times uniform noise. w has a part in every eigenvector of YYᵀ, so that the
  slowest of them is there to be seen.

**Two misprints.** The paper assumes 1ᵀY⁻¹XQ = 0, which cannot be: its mean is 1ᵀ. What its proof uses is
1ᵀY⁻¹XQN = 0, no information in that direction *after the shift*; this is what holds here. And for strict
inequality no eigenvector of YᵀY may be orthogonal to 1 (the paper writes YYᵀ): YNYᵀ = YYᵀ − Y11ᵀYᵀ/n, and
Y1 is orthogonal to an eigenvector of YYᵀ exactly if 1 is to that of YᵀY. The assumption as printed holds too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from graphnorm.analysis.measurement import Floats, Integers, Measurement
from graphnorm.errors import GraphnormError

__all__ = ["Assumptions", "LinearTask", "RateStudy", "check_assumptions", "descend", "linear_task", "rate_study"]

RANK_TOLERANCE = 1e-9


class LinearTask(NamedTuple):
    """m samples of the example, with what is fixed for all of them; n nodes and features."""

    features: Floats
    """(m, n, n): X."""
    aggregation: Floats
    """(m, n, n): Q."""
    readout: Floats
    """(m, n): p."""
    labels: Floats
    """(m,): y."""
    mean: Floats
    """(n, n): Y = E[XQ]."""
    second_moment: Floats
    """(n, n): E[XQ(XQ)ᵀ], in closed form."""
    second_moment_shifted: Floats
    """(n, n): E[XQN(XQ)ᵀ], in closed form."""

    def combined(self, shift: bool) -> Floats:
        """Z, (n, m): XQp of every sample, or XQNp."""
        readout = self.readout - self.readout.mean(1, keepdims=True) if shift else self.readout
        return np.squeeze(self.features @ (self.aggregation @ readout[:, :, None]), 2).T


@dataclass(frozen=True)
class Assumptions(Measurement):
    """How far a sample of the task is from the assumptions of the theorem."""

    mean_rank_gap: float
    """The smallest singular value of Y over the largest: Y has full rank where it is positive."""
    information_lost: float
    """The largest entry of 1ᵀY⁻¹XQN of any sample, relative to ‖1ᵀY⁻¹‖·‖XQ‖_F: 0 up to rounding."""
    noise: float
    """δ₁: the largest eigenvalue of E[(XQ − Y)(XQ − Y)ᵀ], which bounds the one with N."""
    overlap: float
    """The smallest 1ᵀv/√n, in absolute value, of any eigenvector v of YᵀY: positive."""
    overlap_as_printed: float
    """The same with YYᵀ."""
    bound: float
    """The largest ‖X‖_F‖Q‖_F‖p‖ of any sample, which bounds √b from above."""
    readout_mean: float
    """The largest entry of the samples' mean of p, in standard errors."""
    readout_covariance: float
    """The largest entry of the samples' mean of ppᵀ − I, in standard errors."""

    @property
    def hold(self) -> bool:
        """Whether all of them hold; statistics of p may stray by five standard errors."""
        return (
            min(self.mean_rank_gap, self.overlap, self.overlap_as_printed) > 1e-6
            and self.information_lost < 1e-10
            and np.isfinite(self.bound)
            and max(self.readout_mean, self.readout_covariance) < 5
        )


@dataclass(frozen=True, eq=False)
class RateStudy(Measurement):
    """Rates of K runs; ρ are per step, and (K, 2) arrays are without and with the shift."""

    noise: Floats
    """(K,): s."""
    samples: Integers
    """(K,): m."""
    seed: Integers
    """(K,)."""
    delta: Floats
    """(K,): δ₁."""
    measured: Floats
    """(K, 2): ρ at which gradient descent was seen to converge."""
    predicted: Floats
    """(K, 2): 1 − σ_min⁺/σ_max of ZZᵀ."""
    expected: Floats
    """(K, 2): the same of E[zzᵀ]: what infinitely many samples give."""
    steps: Integers
    """(K, 2): gradient steps taken."""
    assumptions_hold: Any
    """(K,) bool."""

    @property
    def error(self) -> Floats:
        """(K, 2): relative error of the measured speed −log ρ against the predicted one.

        The speed, not ρ: where ρ is near 1 any two rates are within percents of each other.
        """
        return np.abs(np.log(self.measured) / np.log(self.predicted) - 1)

    @property
    def expected_error(self) -> Floats:
        """(K, 2): the same against the speed for infinitely many samples."""
        return np.abs(np.log(self.measured) / np.log(self.expected) - 1)

    @property
    def speedup(self) -> Floats:
        """(K,): how many times fewer steps the shift needs for the same accuracy."""
        return np.log(self.measured[:, 1]) / np.log(self.measured[:, 0])

    def summary(self) -> dict[str, Any]:
        """Give the largest errors, and on how many runs the shift was faster."""
        return {
            "runs": len(self.noise),
            "assumptions_hold": int(np.sum(self.assumptions_hold)),
            "largest_error_of_speed": float(self.error.max()),
            "largest_error_of_rate": float(np.abs(self.measured / self.predicted - 1).max()),
            "shift_faster": int((self.speedup > 1).sum()),
            "median_speedup": float(np.median(self.speedup)),
        }


def linear_task(
    samples: int, noise: float, *, nodes: int = 10, degree: int = 4, xi: float = 2.0, seed: int = 0
) -> LinearTask:
    """Draw samples of the example; the seed fixes Y and the true w too, whatever the noise and their number."""
    if not 0 <= noise < 1 or samples < 2 * nodes or degree % 2 or not 0 < degree < nodes:
        raise GraphnormError(
            f"{samples} samples of {nodes} nodes with degree {degree} and noise {noise} do not make the example",
            remedy="take noise from 0 to below 1, at least twice as many samples as nodes, an even degree below both",
        )
    fixed, random = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    identity, node = np.eye(nodes), np.arange(nodes)
    gap = np.abs(node[:, None] - node)
    gap = np.minimum(gap, nodes - gap)
    adjacency = ((gap > 0) & (gap <= degree // 2)).astype(np.float64)
    left, right = (_orthogonal_fixing_ones(fixed, nodes) for _ in range(2))
    mean = left * np.linspace(2, 8, nodes) @ right.T
    truth = left @ fixed.choice([-1.0, 1.0], nodes)

    # A renamed graph joins any two nodes with the same chance: E[A'] = r/(n-1)·(11ᵀ − I).
    mean_renamed = degree / (nodes - 1) * (1 - identity)
    own = (1 + xi) * identity + (1 - noise) * adjacency
    mean_q = own + noise * mean_renamed
    if np.linalg.cond(mean_q) > 1e8:
        raise GraphnormError(f"the mean aggregation is singular at ξ = {xi}", remedy="choose another ξ")
    mean_x = np.linalg.solve(mean_q, mean.T).T
    u = np.linalg.solve(mean.T, np.ones(nodes))
    projection = identity - np.outer(u, u) / (u @ u)

    order = random.permuted(np.tile(node, (samples, 1)), axis=1)
    renamed = adjacency[order[:, :, None], order[:, None, :]]
    aggregation = own + noise * renamed
    features = mean_x + noise * projection @ random.uniform(-1, 1, (samples, nodes, nodes))
    readout = random.choice([-1.0, 1.0], (samples, nodes))
    combined = np.squeeze(features @ (aggregation @ readout[:, :, None]), 2)
    labels = combined @ truth + noise * random.uniform(-1, 1, samples)

    # E[QMQᵀ] for M = I and M = N. The cross terms hold E[A'] only, and E[A'MA'ᵀ] = a·I + b·11ᵀ by symmetry.
    centre = identity - 1 / nodes

    def moment(middle: Floats) -> Floats:
        square = adjacency @ middle @ adjacency
        trace, total = np.trace(square) / nodes, square.sum()
        off_diagonal = (total - np.trace(square)) / (nodes * (nodes - 1))
        renamed_square = (trace - off_diagonal) * identity + off_diagonal
        cross = own @ middle @ mean_renamed
        of_q = own @ middle @ own + noise * (cross + cross.T) + noise**2 * renamed_square
        # E[EME'] = tr(M)/3·I for independent uniform entries E of variance 1/3, independent of Q.
        return np.asarray(mean_x @ of_q @ mean_x.T + noise**2 * np.trace(of_q) / 3 * projection)

    return LinearTask(features, aggregation, readout, labels, mean, moment(identity), moment(centre))


def check_assumptions(task: LinearTask) -> Assumptions:
    """Check Assumptions 1 to 3 of the example on the samples that were drawn."""
    samples, nodes = task.readout.shape
    mixed = task.features @ task.aggregation
    values = np.linalg.svd(task.mean, compute_uv=False)
    u = np.linalg.solve(task.mean.T, np.ones(nodes))
    along = u @ mixed
    along -= along.mean(axis=1, keepdims=True)
    ones = np.ones(nodes) / np.sqrt(nodes)

    def overlap(square: Floats) -> float:
        return float(np.abs(ones @ np.linalg.eigh(square)[1]).min())

    norms = [np.linalg.norm(matrix, axis=(1, 2)) for matrix in (task.features, task.aggregation)]
    covariance = np.einsum("mi,mj->ij", task.readout, task.readout) / samples - np.eye(nodes)
    return Assumptions(
        mean_rank_gap=float(values[-1] / values[0]),
        information_lost=float(np.abs(along).max() / (np.linalg.norm(u) * np.linalg.norm(mixed, axis=(1, 2)).max())),
        noise=float(np.linalg.eigvalsh(task.second_moment - task.mean @ task.mean.T)[-1]),
        overlap=overlap(task.mean.T @ task.mean),
        overlap_as_printed=overlap(task.mean @ task.mean.T),
        bound=float((norms[0] * norms[1] * np.linalg.norm(task.readout, axis=1)).max()),
        readout_mean=float(np.abs(task.readout.mean(0)).max() * np.sqrt(samples)),
        readout_covariance=float(np.abs(covariance).max() * np.sqrt(samples)),
    )


def rate(square: Floats) -> float:
    """Give ρ = 1 − σ_min⁺/σ_max of a positive semidefinite matrix."""
    values = np.linalg.eigvalsh(square)
    positive = values[values > RANK_TOLERANCE * values[-1]]
    return float(1 - positive[0] / positive[-1])


def descend(
    combined: Floats, labels: Floats, *, accuracy: float = 1e-12, max_steps: int = 200_000
) -> tuple[float, int]:
    """Run gradient descent on ½‖Zᵀw − y‖² and give the rate at which w was seen to converge, and the steps.

    combined: Z, (n, m). The step is 1/σ_max(ZZᵀ). It runs until ‖w − w*‖ ≤ accuracy·‖w*‖. The rate is that of
    the last quarter of the steps, in which the slowest direction is all that is left.
    """
    if not np.any(combined @ labels):
        raise GraphnormError("the labels have nothing to do with the features", remedy="w = 0 is the optimum already")
    goal = np.linalg.lstsq(combined.T, labels, rcond=RANK_TOLERANCE)[0]
    square, target = combined @ combined.T, combined @ labels
    step = 1 / np.linalg.eigvalsh(square)[-1]
    w = np.zeros(len(combined))
    length = float(np.linalg.norm(goal))
    distances = [length]
    while distances[-1] > accuracy * length and len(distances) <= max_steps:
        w = w - step * (square @ w - target)
        distances.append(float(np.linalg.norm(w - goal)))
    taken = len(distances) - 1
    window = max(1, taken // 4)
    return float((distances[-1] / distances[-1 - window]) ** (1 / window)), taken


def rate_study(
    noise: Sequence[float] = (0.0, 0.05, 0.1, 0.2),
    samples: Sequence[int] = (200, 1000, 5000),
    seeds: Sequence[int] = (0, 1, 2),
    *,
    nodes: int = 10,
    progress: bool = False,
) -> RateStudy:
    """Measure rates of convergence against predicted ones, with and without the shift, over a grid."""
    from tqdm import tqdm

    grid = [(s, m, seed) for s in noise for m in samples for seed in seeds]
    rows: dict[str, list[Any]] = {name: [] for name in ("delta", "hold", "measured", "predicted", "expected", "steps")}
    for s, m, seed in tqdm(grid, desc="linear GNN", unit=" runs", disable=not progress, delay=1.0):
        task = linear_task(m, s, nodes=nodes, seed=seed)
        assumptions = check_assumptions(task)
        rows["delta"].append(assumptions.noise)
        rows["hold"].append(assumptions.hold)
        both = [task.combined(shift) for shift in (False, True)]
        measured, steps = zip(*(descend(z, task.labels) for z in both), strict=True)
        rows["measured"].append(measured)
        rows["steps"].append(steps)
        rows["predicted"].append([rate(z @ z.T) for z in both])
        rows["expected"].append([rate(task.second_moment), rate(task.second_moment_shifted)])
    return RateStudy(
        noise=np.array([s for s, _, _ in grid]),
        samples=np.array([m for _, m, _ in grid]),
        seed=np.array([seed for _, _, seed in grid]),
        delta=np.array(rows["delta"]),
        measured=np.array(rows["measured"]),
        predicted=np.array(rows["predicted"]),
        expected=np.array(rows["expected"]),
        steps=np.array(rows["steps"]),
        assumptions_hold=np.array(rows["hold"]),
    )


def _orthogonal_fixing_ones(random: np.random.Generator, nodes: int) -> Floats:
    """A random orthogonal matrix V with V1 = 1, so that each of its columns v has 1ᵀv = 1."""
    rotation = np.eye(nodes)
    rotation[1:, 1:] = np.linalg.qr(random.standard_normal((nodes - 1, nodes - 1)))[0]
    v = np.full(nodes, 1 / np.sqrt(nodes))
    v[0] -= 1
    reflection = np.eye(nodes) - 2 * np.outer(v, v) / (v @ v)  # swaps 1/√n and the first axis
    return np.asarray(reflection @ rotation @ reflection)
