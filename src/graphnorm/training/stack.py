"""Many models of one shape: their parameters are stacked, and the forward pass runs under ``torch.func.vmap``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.utils._pytree import tree_map

from graphnorm.training.adam import Moments, adam_step

__all__ = ["Stack"]

_READ_AT_ONCE = 4  # float32 entries in the 16 bytes of a GPU's widest load


class Stack:
    """M models of equal shape.

    One flat array holds all parameters, and the optimizer is one pass over it. Each stacked parameter, of shape
    (M, *shape), is a contiguous view of it. Parameters of odd sizes come last, so that the others begin at addresses
    where a GPU reads four entries at a time. Parameters that need no gradient are kept with the buffers.

    one_by_one: whether to call the models one after another, without ``vmap``.
    """

    def __init__(self, models: Sequence[nn.Module], device: torch.device, *, one_by_one: bool = False) -> None:
        stacked, buffers = stack_module_state(list(models))
        frozen = [name for name, value in models[0].named_parameters() if not value.requires_grad]
        buffers |= {name: stacked.pop(name).detach() for name in frozen}
        stacked = dict(sorted(stacked.items(), key=lambda item: item[1].numel() % _READ_AT_ONCE != 0))
        self.members = len(models)
        self.one_by_one = one_by_one
        self._skeleton = copy.deepcopy(models[0]).to("meta")  # the structure; its own values are never used
        self.flat = torch.cat([value.detach().reshape(-1) for value in stacked.values()]).to(device)
        self.parameters = {name: view.requires_grad_() for name, view in self._views(self.flat, stacked).items()}
        self.buffers = {name: value.to(device) for name, value in buffers.items()}
        self.moments = Moments.zeros(self.flat.numel(), self.members, device)
        owners = [torch.arange(self.members).repeat_interleave(p[0].numel()) for p in stacked.values()]
        self._owner = torch.cat(owners).to(device, torch.int32)

    def _views(self, flat: Tensor, like: dict[str, Any]) -> dict[str, Tensor]:
        """Views of a flat array, one for each parameter."""
        parts = torch.split_with_sizes(flat, [value.numel() for value in like.values()])
        return {name: part.view(value.shape) for (name, value), part in zip(like.items(), parts, strict=True)}

    def forward(self, inputs: Callable[..., dict[str, Any]], *arguments: Any, training: bool, stacked: bool) -> Tensor:
        """Every member's scores: ``model(**inputs(*arguments))``, stacked along a new first dimension.

        inputs: makes a model's keyword arguments from one member's part of ``arguments``.
        stacked: whether the arguments have a leading M. If not, all members get the same.
        """

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], *own: Any) -> Any:
            return functional_call(self._skeleton, (parameters, buffers), (), inputs(*own))

        self._skeleton.train(training)
        if self.one_by_one:
            return self._forward_one_by_one(one, arguments, stacked)
        dims = (0, 0, *(0 if stacked else None for _ in arguments))
        scores: Tensor = vmap(one, in_dims=dims)(self.parameters, self.buffers, *arguments)
        return scores

    def _forward_one_by_one(self, one: Callable[..., Any], arguments: tuple[Any, ...], stacked: bool) -> Tensor:
        """The same without ``vmap``. Buffers are views, so a module's writes to them are kept."""
        scores = []
        for k in range(self.members):
            own = tree_map(lambda value: value[k], arguments) if stacked else arguments  # noqa: B023
            parameters, buffers = ({n: v[k] for n, v in group.items()} for group in (self.parameters, self.buffers))
            scores.append(one(parameters, buffers, *own))
        most = max(map(len, scores))  # the batch of a member may have fewer graphs than those of others
        return torch.stack([nn.functional.pad(own, (0, 0, 0, most - len(own))) for own in scores])

    def descend(self, losses: Tensor, lr: Tensor, decay: Tensor, active: Tensor) -> None:
        """Take one step of Adam on each member's own loss; losses, lr, decay and active are (M,)."""
        gradients = torch.autograd.grad(losses.sum(), list(self.parameters.values()), materialize_grads=True)
        gradient = torch.cat([part.reshape(-1) for part in gradients])
        adam_step(self.flat, gradient, self.moments, self._owner, lr, decay, active)

    def member(self, index: int) -> dict[str, Tensor]:
        """One member's ``state_dict``, on the CPU."""
        everything = {**self.parameters, **self.buffers}
        return {name: value[index].detach().cpu().clone() for name, value in everything.items()}

    def state_dict(self) -> dict[str, dict[str, Tensor] | Tensor]:
        """Everything that training changes, stacked: parameters, buffers and the optimizer's moments."""
        first, second = (self._views(moment, self.parameters) for moment in self.moments[:2])
        groups = {"parameters": self.parameters, "buffers": self.buffers, "first": first, "second": second}
        state: dict[str, Any] = {
            group: {name: value.detach().cpu().clone() for name, value in values.items()}
            for group, values in groups.items()
        }
        return state | {"steps": self.moments.steps.cpu().clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a :meth:`state_dict`, in place, so that captured CUDA graphs stay valid."""
        targets: dict[str, dict[str, Tensor]] = {
            "parameters": self._views(self.flat, self.parameters),
            "buffers": self.buffers,
            "first": self._views(self.moments.first, self.parameters),
            "second": self._views(self.moments.second, self.parameters),
        }
        for group, values in targets.items():
            for name, value in values.items():
                value.copy_(state[group][name])
        self.moments.steps.copy_(state["steps"])
