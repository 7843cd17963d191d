"""Many models of one shape, whose parameters are stacked: the forward pass runs under ``torch.func.vmap``.

Models that ``vmap`` cannot take are trained one by one, on the same stacked parameters.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.utils._pytree import tree_map

from graphnorm.training.adam import AdamState, adam_step

__all__ = ["OneByOne", "Stack"]

Inputs = Callable[..., dict[str, Any]]
Loss = Callable[[Tensor, Tensor], Tensor]
_READ_AT_ONCE = 4  # float32 entries in the 16 bytes of a GPU's widest load


class Stack:
    """M models of equal shape.

    One flat array holds all parameters, and the optimizer is one pass over it. Each stacked parameter, of shape
    (M, *shape), is a contiguous view of it. Parameters of odd sizes come last, so that the others begin at addresses
    where a GPU reads four entries at a time. Parameters that need no gradient are kept with the buffers.
    """

    one_by_one: ClassVar[bool] = False

    def __init__(self, models: Sequence[nn.Module], device: torch.device) -> None:
        stacked, buffers = stack_module_state(list(models))
        frozen = [name for name, value in models[0].named_parameters() if not value.requires_grad]
        buffers |= {name: stacked.pop(name).detach() for name in frozen}
        stacked = dict(sorted(stacked.items(), key=lambda item: item[1].numel() % _READ_AT_ONCE != 0))
        names = {id(value): name for name, value in (*models[0].named_parameters(), *models[0].named_buffers())}
        entries = models[0].state_dict(keep_vars=True)
        self._entries = {entry: names[id(value)] for entry, value in entries.items() if id(value) in names}
        """The name here of each entry of a model's state: one name for two entries that share a tensor."""
        self.members = len(models)
        self.flat = torch.cat([value.detach().reshape(-1) for value in stacked.values()]).to(device)
        self.parameters = {name: view.requires_grad_() for name, view in self._views(self.flat, stacked).items()}
        self.buffers = {name: value.to(device) for name, value in buffers.items()}
        self.moments = AdamState.zeros(self.flat.numel(), self.members, device)
        owners = [torch.arange(self.members).repeat_interleave(p[0].numel()) for p in stacked.values()]
        self._owner = torch.cat(owners).to(device, torch.int32)
        self._take(models)

    def _take(self, models: Sequence[nn.Module]) -> None:
        """Keep what the forward pass needs of the models."""
        self._skeleton = copy.deepcopy(models[0]).to("meta")  # the structure; its own values are never used

    def _views(self, flat: Tensor, like: dict[str, Any]) -> dict[str, Tensor]:
        """Views of a flat array, one for each parameter."""
        parts = torch.split_with_sizes(flat, [value.numel() for value in like.values()])
        return {name: part.view(value.shape) for (name, value), part in zip(like.items(), parts, strict=True)}

    def forward(self, inputs: Inputs, *arguments: Any, training: bool, stacked: bool) -> Tensor:
        """Every member's scores: ``model(**inputs(*arguments))``, stacked along a new first dimension.

        inputs: makes a model's keyword arguments from one member's part of ``arguments``.
        stacked: whether the arguments have a leading M. If not, all members get the same.
        """

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], *own: Any) -> Any:
            return functional_call(self._skeleton, (parameters, buffers), (), inputs(*own))

        self._skeleton.train(training)
        dims = (0, 0, *(0 if stacked else None for _ in arguments))
        scores: Tensor = vmap(one, in_dims=dims)(self.parameters, self.buffers, *arguments)
        return scores

    def gradients(self, inputs: Inputs, loss: Loss, wanted: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
        """Each member's loss in training, (M,), and all gradients, as flat as the parameters.

        loss: computes (M,) losses from (M, B, K) scores and what is wanted of the B graphs; for any number of members.
        arguments: as in :meth:`forward`, with a leading M.
        """
        losses = loss(self.forward(inputs, *arguments, training=True, stacked=True), wanted)
        gradients = torch.autograd.grad(losses.sum(), list(self.parameters.values()), materialize_grads=True)
        return losses.detach(), torch.cat([part.reshape(-1) for part in gradients])

    def descend(self, gradient: Tensor, lr: Tensor, decay: Tensor, active: Tensor) -> None:
        """Take one step of Adam; gradient is as flat as the parameters, lr, decay and active are (M,)."""
        adam_step(self.flat, gradient, self.moments, self._owner, lr, decay, active)

    def member(self, index: int) -> dict[str, Tensor]:
        """One member's ``state_dict``, on the CPU."""
        everything = {**self.parameters, **self.buffers}
        return {entry: everything[name][index].detach().cpu().clone() for entry, name in self._entries.items()}

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


class OneByOne(Stack):
    """M models of equal shape that take a step one after another, without ``vmap``.

    Their parameters and buffers are views of the stacked ones. A buffer that a model replaces, as in ``self.mean = …``,
    is copied back when the state is read.
    """

    one_by_one = True

    def _take(self, models: Sequence[nn.Module]) -> None:
        self._models = models
        self._attach()
        named = [dict(model.named_parameters()) for model in models]
        self._own = [[of_member[name] for name in self.parameters] for of_member in named]

    def _attach(self) -> None:
        """Make the models' parameters and buffers views of the stacked ones."""
        stacked = self.parameters | self.buffers
        for k, model in enumerate(self._models):
            for name, value in (*model.named_parameters(), *model.named_buffers()):
                value.data = stacked[name].detach()[k]

    def _collect(self) -> None:
        """Copy back the buffers that models have replaced."""
        for k, model in enumerate(self._models):
            for name, value in model.named_buffers():
                self.buffers[name][k] = value.detach()

    def forward(self, inputs: Inputs, *arguments: Any, training: bool, stacked: bool) -> Tensor:
        assert not stacked, "gradients() calls each model with its own batch"
        return torch.stack([_in_mode(model, training)(**inputs(*arguments)) for model in self._models])

    def gradients(self, inputs: Inputs, loss: Loss, wanted: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
        each, parts = [], []
        for k, (model, own) in enumerate(zip(self._models, self._own, strict=True)):
            scores = _in_mode(model, True)(**inputs(*tree_map(lambda value: value[k], arguments)))  # noqa: B023
            # The batch of a member may have fewer graphs than those of others, or none.
            scores = nn.functional.pad(scores, (0, 0, 0, wanted.shape[1] - len(scores)))
            losses = loss(scores[None], wanted[k : k + 1])
            if losses.requires_grad:
                parts.append(torch.autograd.grad(losses.sum(), own, materialize_grads=True))
            else:
                parts.append(tuple(map(torch.zeros_like, own)))
            each.append(losses.detach())
        by_name = zip(*parts, strict=True)
        return torch.cat(each), torch.cat([part.reshape(-1) for members in by_name for part in members])

    def member(self, index: int) -> dict[str, Tensor]:
        self._collect()
        return super().member(index)

    def state_dict(self) -> dict[str, dict[str, Tensor] | Tensor]:
        self._collect()
        return super().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._attach()


def _in_mode(model: nn.Module, training: bool) -> nn.Module:
    return model if model.training is training else model.train(training)
