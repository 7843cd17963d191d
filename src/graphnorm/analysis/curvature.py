"""The curvature of the loss: extreme eigenvalues of its Hessian, by products with it alone, and along training.

"Smoother" means smaller eigenvalues of the Hessian of the loss. The loss is that of training on one fixed batch, with
the statistics that each layer uses in training and without dropout. Gradient descent with learning rate η is stable
only if the largest eigenvalue is below 2/η. The smallest one is negative where the loss curves down.

A normalized layer ignores the scale of its weights, and the Hessian falls with the square of that scale. So compare
eigenvalues only together with the loss.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphnorm.analysis.along_training import (
    Arrays,
    chosen_epochs,
    log_spaced_epochs,
    model_inputs,
    run_probe,
    trial_on_all,
)
from graphnorm.analysis.measurement import Booleans, Floats, Integers, Measurement
from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError, need
from graphnorm.models import Dropout
from graphnorm.settings import DEFAULT_NORMS
from graphnorm.training import TASKS

__all__ = ["Curvature", "CurvatureProbe", "RitzValues", "curvature_along_training", "hessian_spectrum", "lanczos"]
__all__ += ["module_loss"]

Loss = Callable[[dict[str, Tensor]], Tensor]
NEGLIGIBLE = 1e-4
"""An eigenvalue below this share of the largest needs no relative accuracy of its own."""


# ---- of any loss ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RitzValues(Measurement):
    """Approximate eigenvalues of a symmetric matrix after k Lanczos steps."""

    eigenvalues: Floats
    """(k,): ascending; the outermost are close to those of the matrix."""
    residuals: Floats
    """(k,): an eigenvalue of the matrix lies within this distance of each."""
    weights: Floats
    """(k,): they sum to 1. Averaged over random starts, Σ weight·f(eigenvalue) estimates the mean of f over the whole
    spectrum (stochastic Lanczos quadrature)."""
    converged: bool
    """Whether the residuals at both ends are within the tolerance, see :func:`lanczos`."""

    @property
    def largest(self) -> float:
        """The largest eigenvalue; of a loss's Hessian, the sharpness."""
        return float(self.eigenvalues[-1])

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue; of a loss's Hessian, negative where the loss curves down."""
        return float(self.eigenvalues[0])

    @property
    def steps(self) -> int:
        """k: products with the matrix."""
        return len(self.eigenvalues)


def hessian_spectrum(
    loss: Loss, parameters: Mapping[str, Tensor], *, max_steps: int = 100, tolerance: float = 1e-3, seed: int = 0
) -> RitzValues:
    """Compute the extreme eigenvalues of the Hessian of ``loss`` at ``parameters``.

    The Hessian H (P × P, for P parameters) is never formed. A product Hv is the derivative of vᵀ∇L, and costs about two
    backward passes. The extreme eigenvalues come out long before the number of products reaches P.

    - loss: from a dict of parameters to a scalar; for a module see :func:`module_loss`. It must be twice
      differentiable, give the same value each time (no fresh dropout masks), and not change its parameters.
    - parameters: where the Hessian is taken, by name. They are not changed. float64 gives more digits.
    - max_steps: the largest number of products. Each keeps one vector of the size of all parameters in float64.
    - tolerance: how exact both ends must be, see :func:`lanczos`.

    >>> quadratic = lambda p: (torch.tensor([1.0, 5.0, -2.0]) * p["w"] ** 2).sum() / 2
    >>> result = hessian_spectrum(quadratic, {"w": torch.zeros(3)})
    >>> round(result.smallest, 4), round(result.largest, 4)
    (-2.0, 5.0)
    """
    at = {name: value.detach().clone().requires_grad_() for name, value in parameters.items()}
    if not at:
        raise GraphnormError("there are no parameters", remedy="pass dict(model.named_parameters())")
    leaves = list(at.values())

    def flat(tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([tensor.reshape(-1) for tensor in tensors])

    with torch.enable_grad():
        value = loss(at)
        if value.ndim:
            raise GraphnormError(f"the loss has shape {tuple(value.shape)}", remedy="give one number, such as its mean")
        gradient = flat(torch.autograd.grad(value, leaves, create_graph=True, materialize_grads=True))

    def product(vector: Tensor) -> Tensor:
        if not gradient.requires_grad:  # the loss is linear in its parameters
            return torch.zeros_like(vector)
        vector = vector.to(gradient.dtype)
        rows = torch.autograd.grad(gradient, leaves, vector, retain_graph=True, materialize_grads=True)
        return flat(rows).to(torch.float64)

    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(gradient.numel(), generator=generator, dtype=torch.float64).to(gradient.device)
    return lanczos(product, start, max_steps=max_steps, tolerance=tolerance)


def module_loss(module: nn.Module, loss: Callable[[nn.Module], Tensor]) -> Loss:
    """Turn ``loss(module)`` into a function of the module's parameters; buffers are left as they are.

    >>> model = torch.nn.Linear(3, 1)
    >>> x, y = torch.randn(8, 3), torch.randn(8, 1)
    >>> f = module_loss(model, lambda m: (m(x) - y).square().mean())
    >>> hessian_spectrum(f, dict(model.named_parameters())).smallest > 0
    True
    """

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self) -> Tensor:
            return loss(self.module)

    holder = Holder()

    def function(parameters: dict[str, Tensor]) -> Tensor:
        state = {name: buffer.clone() for name, buffer in module.named_buffers()} | parameters
        state = {f"module.{name}": value for name, value in state.items()}
        value: Tensor = torch.func.functional_call(holder, state, ())
        return value

    return function


def lanczos(
    product: Callable[[Tensor], Tensor], start: Tensor, *, max_steps: int = 100, tolerance: float = 1e-3
) -> RitzValues:
    """Approximate the extreme eigenvalues of a symmetric operator H on vectors (P,) of float64, from ``start``.

    After k products, with an orthonormal basis V of the Krylov space, VᵀHV = T is tridiagonal, and its extreme
    eigenvalues approach those of H from inside. With an eigenvector s of T, βₖ|sₖ| is the residual of an approximate
    eigenpair. The error of an eigenvalue is of the order of its residual squared.

    Each end has converged when its residual is at most ``tolerance`` times its absolute value, or times 1e-4 of the
    largest absolute value where that is more. The iteration stops when both ends have, or after ``max_steps``. So an
    end far below 1e-4 of the other may have no correct digit, but an eigenvalue lies within ``tolerance·1e-4`` of the
    largest. Singular matrices with many small eigenvalues take the most steps.

    The basis is orthogonalized in full, twice, in float64. Otherwise rounding makes extreme eigenvalues appear again
    and again.
    """
    # Not SciPy's eigsh. On 40 Hessians of GIN (MUTAG and PROTEINS, five norms) it needs 18 products on average against
    # 14. On singular Hessians without negative eigenvalues, as those of linear models, it needs two to forty times as
    # many and may miss the eigenvalue 0. Where it does not converge it returns nothing.
    if max_steps < 1:
        raise GraphnormError(f"max_steps is {max_steps}", remedy="allow one step or more")
    linalg = need("scipy.linalg", "eigenvalues of a Hessian", "analysis")
    limit = min(max_steps, start.numel())
    basis = start.new_empty(min(limit, 16), start.numel())
    vector = start / torch.linalg.vector_norm(start)
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    for step in range(limit):
        if step == len(basis):
            basis = torch.cat([basis, torch.empty_like(basis)])
        basis[step] = vector
        image = product(vector)
        diagonal.append(float(vector @ image))
        if not np.isfinite(diagonal[-1]):
            raise GraphnormError("a product with the matrix is not finite", remedy="look for NaN or infinity in it")
        known = basis[: step + 1]
        for _ in range(2):
            image = image - known.T @ (known @ image)
        length = float(torch.linalg.vector_norm(image))
        values, vectors = linalg.eigh_tridiagonal(diagonal, off_diagonal)
        residuals = length * np.abs(vectors[-1])
        # Where the Krylov space has ended, its eigenvalues are exact.
        ended = length <= np.finfo(np.float64).eps * len(diagonal) * max(map(abs, diagonal + off_diagonal))
        allowed = tolerance * np.maximum(np.abs(values), NEGLIGIBLE * np.abs(values).max())
        converged = step > 0 and residuals[0] <= allowed[0] and residuals[-1] <= allowed[-1]
        if ended or converged:
            break
        off_diagonal.append(length)
        vector = image / length
    return RitzValues(values, residuals, vectors[0] ** 2, bool(ended or converged))


# ---- along training -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Curvature(Measurement):
    """Extreme Hessian eigenvalues of K normalizations after E epochs, for each of S seeds: (K, E, S) arrays."""

    norms: tuple[str, ...]
    epochs: Integers
    """(E,)"""
    largest: Floats
    smallest: Floats
    loss: Floats
    """On the same graphs."""
    converged: Booleans
    """Whether both ends met the tolerance of :func:`lanczos`; if not, they lie inside the true range."""

    @classmethod
    def from_looks(cls, probe: CurvatureProbe, looks: Mapping[str, Sequence[Arrays]]) -> Curvature:
        """The result of a probe, from the stacked looks, (E,) by name, of each normalization and seed."""
        arrays = {
            name: np.array([[look[name] for look in seeds] for seeds in looks.values()]).swapaxes(1, 2)
            for name in ("largest", "smallest", "loss", "converged")
        }
        return cls(tuple(looks), np.array(probe.at), **arrays)

    def summary(self) -> dict[str, Any]:
        """For each normalization: medians over seeds after each epoch, and the median of all trained models."""
        return {
            norm: {
                "epochs": self.epochs,
                "largest": np.median(self.largest[k], axis=-1),
                "smallest": np.median(self.smallest[k], axis=-1),
                "loss": np.median(self.loss[k], axis=-1),
                "median_largest_when_trained": float(np.median(self.largest[k, self.epochs > 0])),
                "share_converged": float(self.converged[k].mean()),
            }
            for k, norm in enumerate(self.norms)
        }


@dataclass(frozen=True)
class CurvatureProbe:
    """Computes the extreme Hessian eigenvalues of the loss on one batch, in float64. A look has four numbers."""

    at: tuple[int, ...]
    batch: tuple[int, ...]
    """Ids of the graphs."""
    max_steps: int = 60
    tolerance: float = 1e-2

    def look(self, model: nn.Module, graphs: PackedGraphs) -> Arrays:
        model = copy.deepcopy(model).to(torch.float64).train()
        for module in model.modules():
            if isinstance(module, Dropout):
                module.eval()
        batch, inputs = model_inputs(model, graphs, np.array(self.batch))
        inputs["x"] = inputs["x"].to(torch.float64)

        def loss(model: nn.Module) -> Tensor:
            scores = model(**inputs)
            one_score = graphs.task == "classes" and scores.shape[-1] == 1
            task = TASKS["binary" if one_score else graphs.task]
            return task.loss(scores[None], task.wanted(batch)[None])[0]

        function = module_loss(model, loss)
        parameters: dict[str, Tensor] = dict(model.named_parameters())
        found = hessian_spectrum(function, parameters, max_steps=self.max_steps, tolerance=self.tolerance)
        with torch.no_grad():
            value = float(function(parameters))
        look = {"smallest": found.smallest, "largest": found.largest, "loss": value, "converged": found.converged}
        return {name: np.asarray(number) for name, number in look.items()}


def curvature_along_training(
    graphs: PackedGraphs,
    norms: Sequence[str] = DEFAULT_NORMS,
    *,
    epochs: int = 30,
    at: Iterable[int] | None = None,
    seeds: int = 1,
    batch_size: int = 128,
    ids: Integers | None = None,
    device: torch.device | str | None = None,
    progress: bool = False,
    **settings: Any,
) -> Curvature:
    """Train GIN with each normalization, and compute the extreme Hessian eigenvalues on one batch along the way.

    The batch is drawn at random, and is the same for all.

    at: the epochs; eight of them, dense at first, if left out.
    ids: which graphs; all if left out.
    settings: others of :class:`graphnorm.training.Trial`.
    """
    trials = [
        trial_on_all(graphs, **{"norm": norm, "epochs": epochs, "batch_size": batch_size} | settings) for norm in norms
    ]
    chosen = np.arange(graphs.num_graphs) if ids is None else ids
    batch = np.sort(np.random.default_rng(trials[0].seed).permutation(chosen)[:batch_size])
    at = log_spaced_epochs(epochs) if at is None else at
    probe = CurvatureProbe(chosen_epochs(at, epochs), tuple(batch.tolist()))
    looks = {
        trial.norm: run_probe(probe, graphs, trial, seeds=seeds, ids=ids, device=device, progress=progress)
        for trial in trials
    }
    return Curvature.from_looks(probe, looks)
