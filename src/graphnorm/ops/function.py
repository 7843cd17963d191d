"""How an operation becomes differentiable, compilable and stackable: :func:`define`.

An operation is two functions on tensors. ``forward`` computes it, ``backward`` computes its gradient, each by the
kernels that suit its arguments; neither knows of autograd. :func:`define` adds what is the same for all operations:

* *eager mode*: an ``autograd.Function`` with a quick ``apply``;
* *torch.compile*: custom operators ``graphnorm::NAME`` and ``graphnorm::NAME_backward``, which the compiler treats as
  black boxes;
* *vmap*: M stacked members become one more, leading dimension of the arguments, so that one call serves all;
* *gradients of gradients*: ``backward`` is an operation too, and its gradient is that of its reference.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch._functorch.utils import unwrap_dead_wrappers

try:  # private names, which another torch may lack
    from torch._C import _functorch as functorch
    from torch._functorch.autograd_function import VmapInfo
    from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack

    _NEEDED = ("CVmapInterpreterPtr", "TransformType", "_add_batch_dim", "_unwrap_batched", "peek_interpreter_stack")
    _QUICK_VMAP = all(hasattr(functorch, name) for name in (*_NEEDED, "unwrap_if_dead"))
except ImportError:
    _QUICK_VMAP = False

__all__ = ["Op", "define"]

Stacking = tuple[int | None, bool]
"""Of an argument: its dimensions without members, ``None`` for an option; and whether members may share it."""


class Op:
    """A differentiable operation, called with the arguments of its ``forward``, by position.

    ``backward``, called with the arguments of the operation's ``backward``, is differentiable itself.
    """

    __slots__ = ("_compiled", "_eager", "_quick", "backward")

    def __init__(
        self, eager: type[EagerFunction], backward: type[EagerFunction], compiled: Callable[..., Any] | None
    ) -> None:
        self._eager, self.backward, self._compiled = eager.apply, backward.apply, compiled
        self._quick = super(torch.autograd.Function, eager).apply  # type: ignore[misc]

    def __call__(self, *arguments: Any) -> Any:
        if torch.compiler.is_compiling():
            assert self._compiled is not None
            return self._compiled(*arguments)
        if _are_functorch_transforms_active():
            return self._eager(*arguments)
        return self._quick(*arguments)


def define(
    name: str,
    forward: Callable[..., Any],
    backward: Callable[..., tuple[Tensor, ...]],
    reference: Callable[..., tuple[Tensor, ...]],
    *,
    dims: Mapping[str, int],
    save: Callable[..., tuple[Any, ...]],
    gradients: Sequence[str],
    residual: str | None = None,
    shared: Sequence[str] = (),
    fake: tuple[Callable[..., Any], Callable[..., Any]] | None = None,
) -> Op:
    """Make an operation of ``forward`` and ``backward``.

    Both take their arguments by position, tensors before options. An argument that is annotated as a NamedTuple stands
    for its fields: the operation is called with these, and the function gets the tuple. Where ``fake`` is given, the
    annotations are the schema of the custom operators.

    Args:
        name: its name for autograd and the compiler, in snake case.
        forward: gives the output, or a tuple whose first entry is the output; the others have no gradient.
        backward: from dy and the result of ``save`` to a tuple of gradients. One that is not wanted may be empty.
        reference: ``backward`` in plain torch, for gradients of higher order.
        dims: the number of dimensions of each tensor among the arguments of both, without the M of stacked members.
        save: from (whether each argument needs a gradient, the result of ``forward``, its arguments) to the arguments
            of ``backward`` behind dy.
        gradients: the arguments of ``forward`` that ``backward`` gives the gradients of, in order.
        residual: an argument that is added to the output, so that its gradient is dy.
        shared: the arguments that may lack M where all members share them; others are repeated.
        fake: for ``torch.compile``, functions that give empty results of ``forward`` and of ``backward``. Without them
            the operation must not be called while compiling.
    """
    forward, backward, reference, save = map(_flattened, (forward, backward, reference, save))
    names, backward_names = (tuple(inspect.signature(f).parameters) for f in (forward, backward))
    tensors = sum(argument in dims for argument in backward_names)
    assert all(argument in dims for argument in backward_names[:tensors]), "tensors come first"
    again = [k for k, argument in enumerate(backward_names) if argument in ("dy", *gradients)]
    found_at = {argument: k for k, argument in enumerate(("", residual, *gradients))}
    source = [found_at.get(argument, 0) for argument in names]  # of each gradient, in (None, dy, *gradients found)
    while source[-1] == 0:
        source.pop()
    without_gradient = (None,) * (len(names) - len(source))

    def save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        saved = save(ctx.needs_input_grad, output, *inputs)
        ctx.save_for_backward(*saved[: tensors - 1])
        ctx.options, ctx.in_transform = saved[tensors - 1 :], _are_functorch_transforms_active()
        if isinstance(output, tuple):
            ctx.mark_non_differentiable(*output[1:])
            ctx.set_materialize_grads(False)  # which would make zeros for outputs without a gradient

    def gradients_by(choose: Callable[[], Callable[..., Any]]) -> Callable[..., tuple[Tensor | None, ...]]:
        def backward_rule(ctx: Any, dy: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
            if dy is None:  # the output was not used
                return (None,) * len(names)
            saved = (dy, *ctx.saved_tensors)
            if ctx.in_transform:  # which may have ended, as in torch.func.vjp
                saved = unwrap_dead_wrappers(saved)
            found = (None, dy, *choose()(*saved, *ctx.options))
            needed = zip(source, ctx.needs_input_grad, strict=False)
            return *[found[at] if need else None for at, need in needed], *without_gradient

        return backward_rule

    def save_for_double_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs[:tensors])
        ctx.options = inputs[tensors:]

    def double_backward_rule(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = unwrap_dead_wrappers(ctx.saved_tensors)
        wanted = [k for k in again if ctx.needs_input_grad[k]]

        def closed_form(*some: Tensor) -> Any:
            given = dict(zip(wanted, some, strict=True))
            return reference(*(given.get(k, tensor) for k, tensor in enumerate(saved)), *ctx.options)

        pull_back = torch.func.vjp(closed_form, *(saved[k] for k in wanted))[1]
        found = dict(zip(wanted, pull_back(grads), strict=True))
        return tuple(found.get(k) for k in range(len(backward_names)))

    def choose_backward() -> Callable[..., Any]:
        """The kernels themselves, unless the gradient is differentiated or stacked as well."""
        as_well = torch.is_grad_enabled() or _are_functorch_transforms_active()
        return eager_backward.apply if as_well else backward

    title = name.title().replace("_", "")
    stacking, backward_stacking = (
        [(dims.get(argument), argument in shared) for argument in arguments] for arguments in (names, backward_names)
    )
    eager = _autograd_function(title, forward, save_for_backward, gradients_by(choose_backward), stacking)
    eager_backward = _autograd_function(
        f"{title}Gradient", backward, save_for_double_backward, double_backward_rule, backward_stacking
    )
    if fake is None:
        return Op(eager, eager_backward, None)

    compiled = torch.library.custom_op(f"graphnorm::{name}", forward, mutates_args=())
    compiled_backward = torch.library.custom_op(f"graphnorm::{name}_backward", backward, mutates_args=())
    compiled.register_fake(_flattened(fake[0]))
    compiled_backward.register_fake(_flattened(fake[1]))
    compiled.register_autograd(gradients_by(lambda: compiled_backward), setup_context=save_for_backward)
    compiled_backward.register_autograd(double_backward_rule, setup_context=save_for_double_backward)
    compiled.register_vmap(_vmap_rule(compiled, stacking))
    compiled_backward.register_vmap(_vmap_rule(compiled_backward, backward_stacking))
    return Op(eager, eager_backward, compiled)


def _flattened(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with the fields of its NamedTuples as separate arguments."""
    hints = get_type_hints(function)
    parameters: list[inspect.Parameter] = []
    tuples: list[tuple[Any, slice]] = []  # the last one first
    for name, parameter in inspect.signature(function).parameters.items():
        hint, fields, begin = hints[name], {name: hints[name]}, len(parameters)
        if hasattr(hint, "_fields"):
            fields = get_type_hints(hint)
            tuples.insert(0, (hint._make, slice(begin, begin + len(fields))))
        parameters += [inspect.Parameter(field, parameter.kind, annotation=kind) for field, kind in fields.items()]
    if not tuples:
        return function

    def flattened(*arguments: Any) -> Any:
        values = list(arguments)
        for make, at in tuples:
            values[at] = [make(values[at])]
        return function(*values)

    flattened.__signature__ = inspect.Signature(parameters, return_annotation=hints["return"])  # type: ignore[attr-defined]
    return flattened


# ---- eager mode ------------------------------------------------------------------------------------------------


class EagerFunction(torch.autograd.Function):
    """``autograd.Function`` for flat, positional arguments, with a quicker ``apply``.

    It leaves out what torch's own does for others: reading the signature at every call and, under ``vmap``, flattening
    the arguments as trees.
    """

    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        if not _are_functorch_transforms_active():
            return super(torch.autograd.Function, cls).apply(*arguments)  # type: ignore[misc]
        transform = functorch.peek_interpreter_stack() if _QUICK_VMAP else None
        if transform is None or transform.key() != functorch.TransformType.Vmap:
            return super().apply(*arguments)  # type: ignore[no-untyped-call]
        return cls._apply_in_vmap(functorch.CVmapInterpreterPtr(transform), transform.level(), arguments)

    @classmethod
    def _apply_in_vmap(cls, transform: Any, level: int, arguments: Sequence[Any]) -> Any:
        """As torch's ``custom_function_call_vmap``."""
        pairs = [_unwrap(value, level) for value in arguments]
        dims = tuple(dim for _, dim in pairs)
        with temporarily_pop_interpreter_stack():
            if dims.count(None) == len(dims):
                return cls.apply(*arguments)
            rule: Any = cls.vmap
            found, at = rule(VmapInfo(transform.batchSize(), "error"), dims, *(value for value, _ in pairs))
        if isinstance(found, Tensor):
            return functorch._add_batch_dim(found, at, level)
        return tuple(functorch._add_batch_dim(output, dim, level) for output, dim in zip(found, at, strict=True))


def _autograd_function(
    name: str, forward: Any, setup_context: Any, backward: Any, stacking: Sequence[Stacking]
) -> type[EagerFunction]:
    methods = {"forward": forward, "setup_context": setup_context, "backward": backward}
    function: Any = type(name, (EagerFunction,), {key: staticmethod(value) for key, value in methods.items()})
    function.vmap = staticmethod(_vmap_rule(function.apply, stacking))
    return function  # type: ignore[no-any-return]


def _unwrap(value: Any, level: int) -> tuple[Any, int | None]:
    """A tensor without this level's vmap, and the dimension that the vmap ran over."""
    if not isinstance(value, Tensor):
        return value, None
    pair: tuple[Tensor, int | None] = functorch._unwrap_batched(functorch.unwrap_if_dead(value), level)
    return pair


# ---- vmap ------------------------------------------------------------------------------------------------------


def _vmap_rule(apply: Callable[..., Any], stacking: Sequence[Stacking]) -> Callable[..., tuple[Any, Any]]:
    """The vmap of a function whose tensors may have a leading dimension of members."""

    def rule(info: Any, in_dims: Sequence[int | None], *arguments: Any) -> tuple[Any, Any]:
        stacked, lead = _stack(stacking, info.batch_size, in_dims, arguments)
        outputs = apply(*stacked)
        if isinstance(outputs, Tensor):
            return _unstack(outputs, lead), 0
        return tuple(_unstack(output, lead) for output in outputs), (0,) * len(outputs)

    return rule


def _stack(
    stacking: Sequence[Stacking], batch_size: int, in_dims: Sequence[int | None], arguments: Sequence[Any]
) -> tuple[Sequence[Any], tuple[int, ...]]:
    """The arguments with all members in one leading dimension, and the shape it unfolds to afterwards.

    A vmap inside a vmap arrives with a dimension of members already there; the two become one.
    """
    entries = [(*how, at, value) for how, at, value in zip(stacking, in_dims, arguments, strict=True)]
    if all(_is_stacked(*entry) for entry in entries):
        return arguments, (batch_size,)
    inner: Sequence[int] = ()
    for base, _, at, value in entries:
        if base is not None and value is not None:
            shape = value.shape if at is None else value.movedim(at, 0).shape[1:]
            inner = max(inner, shape[: max(0, len(shape) - base)], key=len)
    lead = (batch_size, *inner)
    stacked = []
    for base, may_share, at, value in entries:
        if base is not None and value is not None and not (may_share and at is None and value.dim() == base):
            value = value.unsqueeze(0) if at is None else value.movedim(at, 0)
            while value.dim() < len(lead) + base:
                value = value.unsqueeze(1)
            value = value.expand(*lead, *value.shape[len(lead) :]).flatten(0, len(lead) - 1)
        stacked.append(value)
    return stacked, lead


def _is_stacked(base: int | None, may_share: bool, at: int | None, value: Any) -> bool:
    """Whether an argument has its members in front already, or needs none."""
    if base is None or value is None:
        return True
    return bool(at == 0 and value.dim() == base + 1) or (may_share and at is None and value.dim() == base)


def _unstack(output: Tensor, lead: tuple[int, ...]) -> Tensor:
    """The leading dimension as ``lead``; an empty placeholder has none."""
    if len(lead) == 1 and output.dim() > 1:
        return output
    return output.reshape(*lead, *output.shape[1:]) if output.dim() > 1 or output.numel() else output.expand(*lead, 0)
