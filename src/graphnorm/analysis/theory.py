"""Two statements of the paper as computations: the gradient of a layer's weights, and Fact 1.

**The gradient (Appendix A.5).** A layer with InstanceNorm computes Z = S(WHQ)N with W (c × f), H (f × n), Q and N
(n × n) and S = diag(1/σ), σ the standard deviations of the rows of WHQ over the graph's nodes. The paper gives

    ∂L/∂W = ((HQN)ᵀ ⊗ S) ∂L/∂Z

in place of ((HQ)ᵀ ⊗ I) ∂L/∂Z without normalization. Written out: with G = ∂L/∂Z it is SG(HQN)ᵀ. The Kronecker
product is the derivative of vec Z by vec W (columns stacked), so the gradient takes its transpose. It holds S
fixed. But σ depends on W; the whole gradient is

    ∂L/∂W = S (G − diag(mean(G ∘ Z)) Z) (HQN)ᵀ

with the mean over nodes: the part of G along each row of Z drops out, because scaling a row of W does not change
Z. Either way QN takes the place of Q.

**Fact 1.** No InstanceNorm equals a GraphNorm with α ≠ 1 on all inputs. A witness are two graphs, x and x + c: every
InstanceNorm gives both the same output, GraphNorm does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphnorm.analysis.measurement import Floats, Measurement
from graphnorm.errors import GraphnormError
from graphnorm.layers.functional import graph_norm

__all__ = ["GradientCheck", "Witness", "check_weight_gradient", "instance_norm_witness", "weight_gradient"]


@dataclass(frozen=True)
class GradientCheck(Measurement):
    """Largest differences between formulas and autograd, relative to the largest entry of each gradient."""

    fixed_scale: float
    """The paper's formula against autograd through Z with σ held fixed."""
    whole: float
    """The whole formula against autograd."""
    kronecker: float
    """(HQN)ᵀ ⊗ S against the derivative of vec Z by vec W, σ held fixed."""
    without_norm: float
    """G(HQ)ᵀ against autograd through WHQ."""
    part_through_scale: float
    """How much of the whole gradient the paper's formula leaves out: the norm of the difference over its own."""


@dataclass(frozen=True, eq=False)
class Witness(Measurement):
    """Inputs on which no InstanceNorm agrees with a GraphNorm."""

    x: Floats
    """(2, n): one feature of the nodes of two graphs."""
    graph_norm: Floats
    """(2, n): GraphNorm's output."""
    closest: Floats
    """(2, n): the output of the InstanceNorm, of all γ′ and β′, that is closest to it over both graphs."""
    distance: float
    """The root mean square difference: 0 if and only if some InstanceNorm agrees on these inputs."""


def weight_gradient(
    weight: Tensor, h: Tensor, q: Tensor, gradient: Tensor, *, through_scale: bool = True, eps: float = 0.0
) -> Tensor:
    """Compute ∂L/∂W (c, f) by the formula, from G = ∂L/∂Z (c, n).

    weight: (c, f); h: (f, n); q: (n, n). ``through_scale=False`` is the paper's formula, which holds σ fixed.
    """
    hqn = _shifted(h @ q)
    raw = weight @ hqn
    scale = (raw.square().mean(1, keepdim=True) + eps).rsqrt()
    if through_scale:
        z = scale * raw
        gradient = gradient - (gradient * z).mean(1, keepdim=True) * z
    return scale * gradient @ hqn.T


def check_weight_gradient(channels: int = 3, features: int = 4, nodes: int = 7, seed: int = 0) -> GradientCheck:
    """Compare the formulas with autograd, in float64, on a random graph and L = ½‖Z − T‖² with a random T."""
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


def instance_norm_witness(alpha: float, *, nodes: int = 8, shift: float = 3.0, seed: int = 0) -> Witness:
    """Give two graphs on which no InstanceNorm agrees with GraphNorm at this α (for α = 1 the distance is 0).

    >>> instance_norm_witness(0.5).distance > 0.1, instance_norm_witness(1.0).distance < 1e-9
    (True, True)
    """
    if nodes < 2 or shift == 0:
        raise GraphnormError("the two graphs are alike", remedy="take two nodes or more and a shift other than 0")
    draw = torch.Generator().manual_seed(seed)
    one = torch.randn(nodes, generator=draw, dtype=torch.float64)
    x = torch.stack([one, one + shift])
    mean_scale = torch.tensor([alpha], dtype=torch.float64)
    output = torch.stack([graph_norm(row[:, None], mean_scale=mean_scale, eps=0.0)[:, 0] for row in x]).numpy()
    centred = (x - x.mean(1, keepdim=True)).numpy()
    standardized = centred / centred.std(1, keepdims=True)
    # Every InstanceNorm is γ′·standardized + β′; the closest one is a least-squares fit over both graphs.
    design = np.stack([standardized.reshape(-1), np.ones(x.numel())], 1)
    closest = (design @ np.linalg.lstsq(design, output.reshape(-1), rcond=None)[0]).reshape(output.shape)
    return Witness(x.numpy(), output, closest, float(np.sqrt(np.mean((output - closest) ** 2))))


def _shifted(rows: Tensor) -> Tensor:
    """Rows · N."""
    return rows - rows.mean(1, keepdim=True)


def _relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())
