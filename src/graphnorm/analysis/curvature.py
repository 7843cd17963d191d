"""Extreme eigenvalues of the Hessian of a loss, by Lanczos iterations with Hessian-vector products.

The Hessian H (P × P, for P parameters) is never formed: a product Hv is the derivative of vᵀ∇L, and costs about two
backward passes.
Its extreme eigenvalues come out long before the number of products reaches P (:mod:`graphnorm.analysis.lanczos`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from graphnorm.analysis.lanczos import RitzValues, lanczos
from graphnorm.errors import GraphnormError

__all__ = ["hessian_spectrum", "module_loss"]

Loss = Callable[[dict[str, Tensor]], Tensor]


def hessian_spectrum(
    loss: Loss,
    parameters: Mapping[str, Tensor],
    *,
    max_steps: int = 100,
    tolerance: float = 1e-3,
    seed: int = 0,
) -> RitzValues:
    """Compute the extreme eigenvalues of the Hessian of ``loss`` at ``parameters``.

    - loss: from a dict of parameters to a scalar; for a module see :func:`module_loss`. It must be twice
      differentiable, give the same value each time (no fresh dropout masks), and not change its parameters.
    - parameters: where the Hessian is taken, by name. They are not changed. float64 gives more digits.
    - max_steps: products at most; each takes as long as about two backward passes, and keeps one vector of the size
      of all parameters in float64.
    - tolerance: stop when the residuals of both ends are below this multiple of the largest absolute eigenvalue.

    >>> quadratic = lambda p: (torch.tensor([1.0, 5.0, -2.0]) * p["w"] ** 2).sum() / 2
    >>> result = hessian_spectrum(quadratic, {"w": torch.zeros(3)})
    >>> round(result.smallest, 4), round(result.largest, 4)
    (-2.0, 5.0)
    """
    at = {name: value.detach().clone().requires_grad_() for name, value in parameters.items()}
    if not at:
        raise GraphnormError("there are no parameters", remedy="pass dict(model.named_parameters())")
    leaves = list(at.values())
    with torch.enable_grad():
        value = loss(at)
        if value.ndim:
            raise GraphnormError(f"the loss has shape {tuple(value.shape)}", remedy="give one number, such as its mean")
        gradients = torch.autograd.grad(value, leaves, create_graph=True, materialize_grads=True)
        gradient = _flat(gradients)

    def product(vector: Tensor) -> Tensor:
        if not gradient.requires_grad:  # a loss that is linear in its parameters
            return torch.zeros_like(vector)
        rows = torch.autograd.grad(
            gradient, leaves, vector.to(gradient.dtype), retain_graph=True, materialize_grads=True
        )
        return _flat(rows).to(torch.float64)

    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(gradient.numel(), generator=generator, dtype=torch.float64).to(gradient.device)
    return lanczos(product, start, max_steps=max_steps, tolerance=tolerance)


def module_loss(module: torch.nn.Module, loss: Callable[[torch.nn.Module], Tensor]) -> Loss:
    """Turn ``loss(module)`` into a function of the module's parameters; buffers are left as they are.

    >>> model = torch.nn.Linear(3, 1)
    >>> x, y = torch.randn(8, 3), torch.randn(8, 1)
    >>> f = module_loss(model, lambda m: (m(x) - y).square().mean())
    >>> hessian_spectrum(f, dict(model.named_parameters())).smallest > 0
    True
    """

    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self) -> Tensor:
            return loss(self.module)

    holder = Holder()

    def function(parameters: dict[str, Tensor]) -> Tensor:
        state = {f"module.{name}": value for name, value in parameters.items()}
        state |= {f"module.{name}": buffer.clone() for name, buffer in module.named_buffers()}
        value: Tensor = torch.func.functional_call(holder, state, ())
        return value

    return function


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
