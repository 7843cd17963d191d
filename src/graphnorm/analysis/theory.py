"""Statements of the paper as computations: a linear GNN, a gradient, Fact 1, Propositions 1 and 2.

**The linear GNN (Appendix A.2).** A sample is a graph of n nodes with features X (n × n, as many features as nodes),
an aggregation Q, weights p of the nodes in the readout, and a label y. The model is f = wᵀXQp, and f = wᵀXQNp with
the shift. Let the columns of Z be the combined features z = XQp, or z = XQNp. The square loss is ½‖Zᵀw − y‖².
Gradient descent from w = 0 with step 1/σ_max(ZZᵀ) converges to w* = (ZZᵀ)⁺Zy at the rate ρ = 1 − σ_min⁺/σ_max of ZZᵀ,
where σ_min⁺ is the smallest positive eigenvalue. The theorem: with the shift ρ is smaller, if the noise is small and
the samples are many.

:func:`linear_task` draws data that satisfies the assumptions by construction, for any noise level s in [0, 1):

- Q = (1 + ξ)I + (1 − s)A + sA′ is GIN's aggregation on a weighted graph. A is one fixed circulant graph of degree r.
  A′ is A with its nodes permuted at random, for each sample. All rows sum to 1 + ξ + r.
- X = X̄ + sPE with independent uniform entries of E in [−1, 1], and X̄ such that E[XQ] = X̄Q̄ = Y.
- Y is one fixed matrix with singular values evenly spaced from 2 to 8. Its singular vectors on both sides have the
  same overlap with 1: each has 1ᵀv = 1.
- P projects along u = Y⁻ᵀ1, so that uᵀX = uᵀX̄ for every sample.
- The entries of p are ±1 with equal probability: E p = 0, E ppᵀ = I.
- y = wᵀXQp for one fixed w, plus s times uniform noise. w has a component in every eigenvector of YYᵀ, so the slowest
  one shows.

*Two misprints.* The paper assumes 1ᵀY⁻¹XQ = 0, which is impossible: its mean is 1ᵀ. Its proof uses 1ᵀY⁻¹XQN = 0, no
information in that direction *after the shift*. This holds here. And for strict inequality no eigenvector of YᵀY may
be orthogonal to 1, where the paper has YYᵀ: YNYᵀ = YYᵀ − Y11ᵀYᵀ/n, and Y1 is orthogonal to an eigenvector of YYᵀ
exactly if 1 is orthogonal to that of YᵀY. The assumption as printed holds too.

**The gradient (Appendix A.5).** A layer with InstanceNorm computes Z = S(WHQ)N with W (c × f), H (f × n), Q and N (n
× n) and S = diag(1/σ), where σ are the standard deviations of the rows of WHQ over the graph's nodes. The paper gives

    ∂L/∂W = ((HQN)ᵀ ⊗ S) ∂L/∂Z

instead of ((HQ)ᵀ ⊗ I) ∂L/∂Z without normalization. With G = ∂L/∂Z, this is SG(HQN)ᵀ: the Kronecker product is the
derivative of vec Z by vec W (columns stacked), and the gradient takes its transpose. The formula holds S fixed. But σ
depends on W, and the whole gradient is

    ∂L/∂W = S (G − diag(mean(G ∘ Z)) Z) (HQN)ᵀ

with the mean over nodes. The part of G along each row of Z drops out, because scaling a row of W does not change Z.
In both formulas QN takes the place of Q.

**Propositions 1 and 2.** On a regular graph whose features are one-hot degrees, Norm(WHQ) = 0. On a complete graph
Q_GIN N = ξN; with the self-loops of the authors' data it is (1 + ξ)N.

**Fact 1.** No InstanceNorm equals a GraphNorm with α ≠ 1 on all inputs. Two graphs, x and x + c, show it: every
InstanceNorm gives both the same output, and GraphNorm does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from graphnorm.analysis.aggregation import Aggregation, dense_q, in_batches, sparse_q
from graphnorm.analysis.measurement import Booleans, Floats, Integers, Measurement
from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError
from graphnorm.layers.functional import graph_norm, instance_norm

__all__ = ["Assumptions", "ClosestInstanceNorm", "ConvergenceRates", "GradientCheck", "LinearTask"]
__all__ += ["check_assumptions", "check_weight_gradient", "closest_instance_norm", "convergence_rates"]
__all__ += ["gradient_descent", "left_on_complete_graphs", "left_on_regular_graphs", "linear_task", "weight_gradient"]

RANK_TOLERANCE = 1e-9


# ---- the linear GNN -------------------------------------------------------------------------------------------------


class LinearTask(NamedTuple):
    """m samples of n nodes and n features, and the exact moments of XQ."""

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
    """The assumptions of the theorem, checked on samples."""

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
        """Whether all assumptions hold. The statistics of p may be off by five standard errors."""
        return (
            min(self.mean_rank_gap, self.overlap, self.overlap_as_printed) > 1e-6
            and self.information_lost < 1e-10
            and np.isfinite(self.bound)
            and max(self.readout_mean, self.readout_covariance) < 5
        )


@dataclass(frozen=True, eq=False)
class ConvergenceRates(Measurement):
    """Rates ρ per step of K runs; (K, 2) arrays are without and with the shift."""

    noise: Floats
    """(K,): s."""
    samples: Integers
    """(K,): m."""
    seed: Integers
    """(K,)."""
    delta: Floats
    """(K,): δ₁."""
    measured: Floats
    """(K, 2): the ρ of gradient descent."""
    predicted: Floats
    """(K, 2): 1 − σ_min⁺/σ_max of ZZᵀ."""
    expected: Floats
    """(K, 2): the same of E[zzᵀ], the limit of many samples."""
    steps: Integers
    """(K, 2): gradient steps taken."""
    assumptions_hold: Booleans
    """(K,)."""

    @property
    def error(self) -> Floats:
        """(K, 2): the relative error of the predicted speed −log ρ.

        It compares speeds and not ρ, since near 1 any two ρ are within percents of each other.
        """
        return np.abs(np.log(self.measured) / np.log(self.predicted) - 1)

    @property
    def expected_error(self) -> Floats:
        """(K, 2): the same for the speed in the limit of many samples."""
        return np.abs(np.log(self.measured) / np.log(self.expected) - 1)

    @property
    def speedup(self) -> Floats:
        """(K,): steps without the shift over steps with it, for the same accuracy."""
        return np.log(self.measured[:, 1]) / np.log(self.measured[:, 0])

    def summary(self) -> dict[str, Any]:
        """The largest errors, and the number of runs in which the shift was faster."""
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
    """Draw samples. The seed alone decides Y and the true w, at any noise and for any number of samples."""
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

    # A permuted graph joins any two nodes with the same probability: E[A′] = r/(n−1)·(11ᵀ − I).
    mean_permuted = degree / (nodes - 1) * (1 - identity)
    own = (1 + xi) * identity + (1 - noise) * adjacency
    mean_q = own + noise * mean_permuted
    if np.linalg.cond(mean_q) > 1e8:
        raise GraphnormError(f"the mean aggregation is singular at ξ = {xi}", remedy="choose another ξ")
    mean_x = np.linalg.solve(mean_q, mean.T).T
    u = np.linalg.solve(mean.T, np.ones(nodes))
    projection = identity - np.outer(u, u) / (u @ u)

    order = random.permuted(np.tile(node, (samples, 1)), axis=1)
    permuted = adjacency[order[:, :, None], order[:, None, :]]
    aggregation = own + noise * permuted
    features = mean_x + noise * projection @ random.uniform(-1, 1, (samples, nodes, nodes))
    readout = random.choice([-1.0, 1.0], (samples, nodes))
    combined = np.squeeze(features @ (aggregation @ readout[:, :, None]), 2)
    labels = combined @ truth + noise * random.uniform(-1, 1, samples)

    def moment(middle: Floats) -> Floats:
        """E[XQM(XQ)ᵀ] for M = I or M = N. The cross terms have E[A′] only; E[A′MA′ᵀ] = a·I + b·11ᵀ by symmetry."""
        square = adjacency @ middle @ adjacency
        on = np.trace(square) / nodes
        off = (square.sum() - np.trace(square)) / (nodes * (nodes - 1))
        permuted_square = (on - off) * identity + off
        cross = own @ middle @ mean_permuted
        of_q = own @ middle @ own + noise * (cross + cross.T) + noise**2 * permuted_square
        # E[EME′] = tr(M)/3·I, since the entries of E are independent with variance 1/3.
        return np.asarray(mean_x @ of_q @ mean_x.T + noise**2 * np.trace(of_q) / 3 * projection)

    return LinearTask(features, aggregation, readout, labels, mean, moment(identity), moment(identity - 1 / nodes))


def _orthogonal_fixing_ones(random: np.random.Generator, nodes: int) -> Floats:
    """A random orthogonal matrix V with V1 = 1; each column v has 1ᵀv = 1."""
    rotation = np.eye(nodes)
    rotation[1:, 1:] = np.linalg.qr(random.standard_normal((nodes - 1, nodes - 1)))[0]
    v = np.full(nodes, 1 / np.sqrt(nodes))
    v[0] -= 1
    reflection = np.eye(nodes) - 2 * np.outer(v, v) / (v @ v)  # swaps 1/√n and the first axis
    return np.asarray(reflection @ rotation @ reflection)


def check_assumptions(task: LinearTask) -> Assumptions:
    """Check Assumptions 1 to 3 on the samples of a task."""
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


def convergence_rate(square: Floats) -> float:
    """ρ = 1 − σ_min⁺/σ_max of a positive semidefinite matrix."""
    values = np.linalg.eigvalsh(square)
    positive = values[values > RANK_TOLERANCE * values[-1]]
    return float(1 - positive[0] / positive[-1])


def gradient_descent(
    combined: Floats, labels: Floats, *, accuracy: float = 1e-12, max_steps: int = 200_000
) -> tuple[float, int]:
    """Run gradient descent on ½‖Zᵀw − y‖² from w = 0; return the rate of convergence and the number of steps.

    combined: Z, (n, m). The step is 1/σ_max(ZZᵀ). It stops at ‖w − w*‖ ≤ accuracy·‖w*‖. The rate is that of the last
        quarter of the steps, where only the slowest direction is left.
    """
    if not np.any(combined @ labels):
        raise GraphnormError("the labels do not depend on the features: w = 0 is optimal", remedy="give other labels")
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


def convergence_rates(
    noise: Sequence[float] = (0.0, 0.05, 0.1, 0.2),
    samples: Sequence[int] = (200, 1000, 5000),
    seeds: Sequence[int] = (0, 1, 2),
    *,
    progress: bool = False,
) -> ConvergenceRates:
    """Measure and predict rates of convergence with and without the shift, over a grid of noise, samples and seeds."""
    rows = []
    grid = [(s, m, seed) for s in noise for m in samples for seed in seeds]
    for s, m, seed in tqdm(grid, desc="linear GNN", unit=" runs", disable=not progress or None, delay=1.0):
        task = linear_task(m, s, seed=seed)
        assumptions = check_assumptions(task)
        both = [task.combined(shift) for shift in (False, True)]
        measured, steps = zip(*(gradient_descent(z, task.labels) for z in both), strict=True)
        predicted = [convergence_rate(z @ z.T) for z in both]
        expected = [convergence_rate(moment) for moment in (task.second_moment, task.second_moment_shifted)]
        rows.append((s, m, seed, assumptions.noise, measured, predicted, expected, steps, assumptions.hold))
    return ConvergenceRates(*map(np.array, zip(*rows, strict=True)))


# ---- the gradient ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradientCheck(Measurement):
    """The largest differences between formulas and autograd, relative to the largest entry of the gradient."""

    fixed_scale: float
    """The paper's formula against autograd through Z with σ held fixed."""
    whole: float
    """The whole formula against autograd."""
    kronecker: float
    """(HQN)ᵀ ⊗ S against the derivative of vec Z by vec W, σ held fixed."""
    without_norm: float
    """G(HQ)ᵀ against autograd through WHQ."""
    part_through_scale: float
    """The share of the gradient that the paper's formula leaves out: the norm of the difference over the whole norm."""


def weight_gradient(
    weight: Tensor, h: Tensor, q: Tensor, gradient: Tensor, *, through_scale: bool = True, eps: float = 0.0
) -> Tensor:
    """∂L/∂W, (c, f), by the formula, from G = ∂L/∂Z, (c, n).

    weight: (c, f); h: (f, n); q: (n, n). ``through_scale=False`` is the paper's formula, which holds σ fixed.
    """
    hqn = _shifted(h @ q)
    raw = weight @ hqn
    scale = (raw.square().mean(1, keepdim=True) + eps).rsqrt()
    if through_scale:
        z = scale * raw
        gradient = gradient - (gradient * z).mean(1, keepdim=True) * z
    return scale * gradient @ hqn.T


def check_weight_gradient(seed: int = 0) -> GradientCheck:
    """Compare the formulas with autograd, in float64, on a random graph and L = ½‖Z − T‖² with a random T."""
    channels, features, nodes = 3, 4, 7
    draw = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    upper = torch.triu((torch.rand(nodes, nodes, generator=draw) < 0.5).double(), 1)
    q = upper + upper.T + 1.1 * torch.eye(nodes, dtype=torch.float64)
    h, target = random(features, nodes), random(channels, nodes)
    weight = random(channels, features).requires_grad_()

    def normalized(w: Tensor, hold_scale: bool) -> Tensor:
        shifted = _shifted(w @ h @ q)
        deviation = shifted.square().mean(1, keepdim=True).sqrt()
        return shifted / (deviation.detach() if hold_scale else deviation)

    def by_autograd(z: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient of W, and G."""
        (of_weight,) = torch.autograd.grad((z - target).square().sum() / 2, weight)
        return of_weight, (z - target).detach()

    plain = weight.detach()
    whole, g = by_autograd(normalized(weight, False))
    fixed, _ = by_autograd(normalized(weight, True))
    bare, bare_g = by_autograd(weight @ h @ q)

    hqn = _shifted(h @ q)
    scale = torch.diag((plain @ hqn).square().mean(1).rsqrt())
    # vec stacks columns: entry (i, j) is at place j·rows + i, hence the transposes.
    jacobian = torch.func.jacrev(lambda flat: (scale @ flat.reshape(features, channels).T @ hqn).T.reshape(-1))(
        plain.T.reshape(-1)
    )
    return GradientCheck(
        fixed_scale=_relative(weight_gradient(plain, h, q, g, through_scale=False), fixed),
        whole=_relative(weight_gradient(plain, h, q, g), whole),
        kronecker=_relative(torch.kron(hqn.T.contiguous(), scale), jacobian),
        without_norm=_relative(bare_g @ (h @ q).T, bare),
        part_through_scale=float((whole - fixed).norm() / whole.norm()),
    )


def _shifted(rows: Tensor) -> Tensor:
    """Rows · N."""
    return rows - rows.mean(1, keepdim=True)


def _relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


# ---- Fact 1 ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ClosestInstanceNorm(Measurement):
    """Two graphs on which no InstanceNorm agrees with a GraphNorm."""

    x: Floats
    """(2, n): one feature of the nodes of two graphs."""
    graph_norm: Floats
    """(2, n): GraphNorm's output."""
    closest: Floats
    """(2, n): the output of the closest InstanceNorm, over all γ′ and β′."""
    distance: float
    """The root mean square difference: 0 if and only if an InstanceNorm agrees on these inputs."""


def closest_instance_norm(alpha: float, *, shift: float = 3.0, seed: int = 0) -> ClosestInstanceNorm:
    """Find the InstanceNorm that is closest to GraphNorm with this α, on two graphs of 8 nodes, x and x + ``shift``.

    >>> closest_instance_norm(0.5).distance > 0.1, closest_instance_norm(1.0).distance < 1e-9
    (True, True)
    """
    if shift == 0:
        raise GraphnormError("InstanceNorm and GraphNorm agree on equal graphs", remedy="take a shift other than 0")
    draw = torch.Generator().manual_seed(seed)
    one = torch.randn(8, generator=draw, dtype=torch.float64)
    x = torch.stack([one, one + shift])
    mean_scale = torch.tensor([alpha], dtype=torch.float64)
    output = torch.stack([graph_norm(row[:, None], mean_scale=mean_scale, eps=0.0)[:, 0] for row in x]).numpy()
    centred = (x - x.mean(1, keepdim=True)).numpy()
    standardized = centred / centred.std(1, keepdims=True)
    # An InstanceNorm is γ′·standardized + β′; the closest one is a least-squares fit over both graphs.
    design = np.stack([standardized.reshape(-1), np.ones(x.numel())], 1)
    closest = (design @ np.linalg.lstsq(design, output.reshape(-1), rcond=None)[0]).reshape(output.shape)
    return ClosestInstanceNorm(x.numpy(), output, closest, float(np.sqrt(np.mean((output - closest) ** 2))))


# ---- Propositions 1 and 2 -------------------------------------------------------------------------------------------

CHANNELS = 8


def left_on_regular_graphs(graphs: PackedGraphs, *, seed: int = 0) -> Floats:
    """Proposition 1: max abs(Norm(WHQ)) on each regular graph, with one-hot degrees as H and a random W.

    A normalized channel has the standard deviation 1, or nothing at all.

    >>> from graphnorm.data import synthetic
    >>> bool((left_on_regular_graphs(synthetic.regular(20)) < 1e-9).all())
    True
    """
    lowest, highest = _degree_range(graphs)
    ids = np.flatnonzero(lowest == highest)
    random, found = np.random.default_rng(seed), [np.empty(0)]
    for batch in in_batches(graphs, ids) if len(ids) else ():
        degree = batch.degree.numpy()
        weight = random.standard_normal((int(degree.max()) + 1, CHANNELS))
        mixed = torch.from_numpy(sparse_q(batch, Aggregation()) @ weight[degree])
        output = instance_norm(mixed, batch.batch).abs().amax(dim=1).numpy()
        largest = np.zeros(batch.num_graphs)
        np.maximum.at(largest, batch.batch.numpy(), output)
        found.append(largest)
    return np.concatenate(found)


def left_on_complete_graphs(graphs: PackedGraphs, xi: float) -> Floats:
    """Proposition 2: ‖QN − ξN‖ / ‖Q‖ on each complete graph, with GIN's Q.

    >>> import networkx
    >>> from graphnorm.data import from_networkx
    >>> graphs = from_networkx([networkx.complete_graph(5), networkx.path_graph(5)], labels=[0, 1])
    >>> left = left_on_complete_graphs(graphs, 0.1)
    >>> len(left), bool(left.max() < 1e-12)
    (1, True)
    """
    found = []
    lowest, _ = _degree_range(graphs)
    for graph in np.flatnonzero(lowest == graphs.sizes.cpu().numpy() - 1).tolist():
        q = dense_q(graphs.batch([graph]).to("cpu"), Aggregation(xi=xi))
        shift = np.eye(len(q)) - 1 / len(q)
        found.append(float(np.linalg.norm(q @ shift - xi * shift) / np.linalg.norm(q)))
    return np.array(found)


def _degree_range(graphs: PackedGraphs) -> tuple[Integers, Integers]:
    """(G,) each: the smallest and the largest degree of every graph."""
    degree, begin = graphs.degree.cpu().numpy(), graphs.node_ptr[:-1].cpu().numpy()
    return np.minimum.reduceat(degree, begin), np.maximum.reduceat(degree, begin)
