"""A fleet: models of one shape that are trained together.

Every member is a model of its own, with its own graphs, order, dropout, learning rate and decay. Their arrays have the
same shapes, so they take each step together: assemble batches, run the forward pass under ``vmap``, run one backward
pass of the sum of the losses (the gradients do not mix), and update all parameters in one pass of Adam. On a GPU the
step is captured in a CUDA graph, once for each static size that batches are padded to. So is the evaluation.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from graphnorm.data.batching import Bounds, GraphBatch
from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import CodeWarning
from graphnorm.models.build import prepare
from graphnorm.training.base_fleet import BaseFleet
from graphnorm.training.cuda_graph import record_cuda_graph
from graphnorm.training.devices import default_device, device_name
from graphnorm.training.inputs import ModelInputs, build_model
from graphnorm.training.own_model_check import why_one_by_one
from graphnorm.training.schedule import Schedule, choose_levels, padded_ids
from graphnorm.training.stack import OneByOne, Stack
from graphnorm.training.task import Scale, Task, present, scale_of, select, task_of
from graphnorm.training.trial import Outcome, Split, Trial, metric_of

__all__ = ["Fleet"]


class Fleet(BaseFleet):
    """Trains trials of one shape together.

    Args:
        graphs: the dataset.
        trials: the members. They have the same :attr:`Trial.shape`.
        splits: each member's training, validation and test graphs.
        device: where to train; by default a GPU if there is one.

    >>> from graphnorm.data import synthetic
    >>> graphs = synthetic.regular(num_graphs=20, seed=0)
    >>> trials = [Trial(dataset="regular", epochs=2, lr=lr) for lr in (1e-2, 1e-3)]
    >>> split = Split(np.arange(16), np.arange(16, 20))
    >>> fleet = Fleet(graphs, trials, [split, split], device="cpu")
    >>> fleet.advance()
    >>> [sorted(outcome.curves) for outcome in fleet.outcomes()]
    [['loss', 'train', 'valid'], ['loss', 'train', 'valid']]
    """

    def __init__(
        self,
        graphs: PackedGraphs,
        trials: Sequence[Trial],
        splits: Sequence[Split],
        *,
        device: torch.device | str | None = None,
    ) -> None:
        if len({trial.shape for trial in trials}) != 1:
            raise ValueError("the members of a fleet must have one shape; group trials by Trial.shape")
        if len(splits) != len(trials):
            raise ValueError(f"{len(trials)} trials need as many splits, got {len(splits)}")
        for trial, split in zip(trials, splits, strict=True):
            split.check(graphs.num_graphs, f"fold {trial.fold} of {graphs.name}", validated=False)
        self.device = default_device(device)
        self.task = task_of(trials[0])
        self._given, self.graphs = graphs, prepare(graphs, trials[0]).to(self.device)
        self.splits = tuple(splits)
        self._schedule = Schedule(trials, splits, graphs.num_graphs, self.device)
        self._model_inputs = ModelInputs(self.graphs, trials[0])
        self._scale: Scale | None = None
        if self.task.name == "values":
            targets = self.task.wanted(graphs).cpu()
            self._scale = Scale(*(t.to(self.device) for t in scale_of(targets, [split.train for split in splits])))
        models = [build_model(trial, graphs) for trial in trials]
        one_by_one = bool(why_one_by_one(models[0], trials[0], graphs, self.device))
        self.stack = (OneByOne if one_by_one else Stack)(models, self.device)
        self._inputs = partial(self._model_inputs.of_step, padded=not one_by_one)
        rows = _ROWS[self.device.type] // (1 if one_by_one else len(trials))
        metric = metric_of(trials[0]).key
        self._evaluation = _Evaluation(self.graphs, splits, self._model_inputs, self.task, metric, self._scale, rows)
        columns = 1 + len(self._evaluation.names) + self._evaluation.targets
        super().__init__(trials, ("loss", *self._evaluation.names), columns)
        # What steps and evaluations read and write: CUDA graphs are recorded for these tensors, so they are refilled.
        members = len(trials)
        self._decay = torch.tensor([trial.weight_decay for trial in trials], device=self.device)
        self._rate = torch.tensor([trial.dropout for trial in trials], device=self.device)
        self._ids = torch.full((members, trials[0].batch_size), -1, device=self.device)
        self._keys = torch.zeros(members, dtype=torch.int64, device=self.device)
        self._lr = torch.zeros(members, device=self.device)
        self._losses = torch.zeros(2, members, device=self.device)  # summed over the epoch's steps, and their number
        self._metrics = torch.zeros(members, columns - 1, device=self.device)
        self._captured: _Captured | None = None
        self._to_capture = self.device.type == "cuda" and not one_by_one

    def _step(self, bounds: Bounds | None) -> None:
        """Take one step of every member, on its graphs in ``_ids``."""
        batch = self._model_inputs.batch(self._ids, bounds=bounds)
        wanted = self.task.wanted(batch)
        active = present(wanted).flatten(1).any(1)
        wanted = wanted if self._scale is None else self._scale.shrink(wanted)
        losses, gradient = self.stack.gradients(self._inputs, self.task.loss, wanted, batch, self._keys, self._rate)
        self.stack.descend(gradient, self._lr, self._decay, active)
        self._losses += torch.stack([torch.where(active, losses, 0.0), active.to(torch.float32)])

    def _evaluate(self) -> None:
        self._metrics.copy_(self._evaluation(self.stack))

    def _prepare(self) -> None:
        if self._to_capture:
            self._captured, self._to_capture = self._capture(), False

    def _train(self, end: int) -> Iterator[npt.NDArray[np.float32]]:
        while self.epoch < end:
            first, last = self.epoch, min(end, self._schedule.block(self.epoch))  # epochs that are planned at once
            batches, keys = self._schedule.batches(first, last), self._schedule.dropout_keys(first, last)
            for epoch in range(first, last):
                self._train_epoch(epoch, batches[epoch - first], keys[epoch - first])
                self._evaluate_all()
                yield self._record(epoch)

    def _capture(self) -> _Captured | None:
        """The fleet's CUDA graphs; None, with a note, if its model does what they cannot hold, such as reading a value.

        Then the same steps are taken without them.
        """
        before = self.stack.state_dict()
        try:
            return _Captured(self)
        except torch.OutOfMemoryError:
            raise  # a smaller fleet may fit
        except Exception as error:  # an error of the model itself comes again in the next step
            reason = f"{type(error.__context__ or error).__name__}: {error.__context__ or error}".splitlines()[0]
            warnings.warn(
                f"{self.trials[0].model}: trained without a CUDA graph, which is slower, since its step cannot be "
                f"recorded ({reason[:160]})",
                CodeWarning,
                stacklevel=4,
            )
            return None
        finally:
            self.stack.load_state_dict(before)  # undo the training of the warm-up

    def _train_epoch(self, epoch: int, batches: Tensor, keys: Tensor) -> None:
        """Take all steps of an epoch. batches: (steps, M, B) graph ids; keys: (steps, M)."""
        self._lr.copy_(self._schedule.learning_rates(epoch))
        self._losses.zero_()
        for step in range(self._schedule.steps):
            self._ids.copy_(batches[step])
            self._keys.copy_(keys[step])
            if self._captured is None:
                self._step(None)
            else:
                self._captured.step(epoch, step)

    def _evaluate_all(self) -> None:
        if self._captured is None:
            self._evaluate()
        else:
            self._captured.evaluate()

    def _record(self, epoch: int) -> npt.NDArray[np.float32]:
        """(M, curves + targets): the epoch's values, read from the device.

        A member that diverged has NaN from then on.
        """
        loss = self._losses[0] / self._losses[1]
        row: npt.NDArray[np.float32] = torch.cat([loss[:, None], self._metrics], dim=1).cpu().numpy()
        diverged = ~np.isfinite(row[:, 0]) | np.isnan(self._history[epoch - 1, :, 0] if epoch else 0.0)
        row[diverged] = np.nan
        return row

    def outcomes(self, keep_state: bool = False) -> list[Outcome]:
        """Each member's curves so far."""
        return [
            Outcome(
                trial=trial,
                curves=self.curves(member),
                status="diverged" if np.isnan(self._history[: self.epoch, member, 0]).any() else "done",
                seconds=self.seconds / len(self.trials),
                device=device_name(self.device),
                targets=self._history[: self.epoch, member, len(self.names) :].copy(),
                state=self.model_state(member) | self._scale_of_member(member) if keep_state else {},
            )
            for member, trial in enumerate(self.trials)
        ]

    def _scale_of_member(self, member: int) -> dict[str, Tensor]:
        scale = {} if self._scale is None else self._scale._asdict()
        return {f"targets.{name}": values[member].cpu() for name, values in scale.items()}

    def model_state(self, member: int) -> dict[str, Tensor]:
        """One member's ``state_dict``, which ``build_model(trial, graphs)`` can load."""
        return self.stack.member(member)

    def model(self, member: int) -> nn.Module:
        """A copy of one member as an ordinary model, in evaluation mode, on the fleet's device."""
        model = build_model(self.trials[member], self._given).to(self.device).eval()
        model.load_state_dict(self.model_state(member))
        return model

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"stack": self.stack.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.stack.load_state_dict(state["stack"])

    def _like(self, members: list[int]) -> Fleet:
        trials, splits = [self.trials[k] for k in members], [self.splits[k] for k in members]
        return Fleet(self._given, trials, splits, device=self.device)

    def _state_of(self, members: list[int]) -> dict[str, Any]:
        state = super()._state_of(members)
        stack = {
            group: values[members] if isinstance(values, Tensor) else {name: v[members] for name, v in values.items()}
            for group, values in state["stack"].items()
        }
        return state | {"stack": stack}


class _Captured:
    """CUDA graphs of a fleet's step, one for each static size, and of its evaluation."""

    def __init__(self, fleet: Fleet) -> None:
        self.bounds, self._level = choose_levels(fleet._schedule.needs(fleet.graphs), len(fleet.trials))
        pool = torch.cuda.graph_pool_handle()
        largest_first = [record_cuda_graph(partial(fleet._step, level), pool) for level in reversed(self.bounds)]
        self._steps = largest_first[::-1]
        self._evaluation = record_cuda_graph(fleet._evaluate, pool)

    def step(self, epoch: int, step: int) -> None:
        self._steps[self._level[epoch, step]].replay()

    def evaluate(self) -> None:
        self._evaluation.replay()


_ROWS = {"cuda": 1 << 21, "cpu": 1 << 15}
"""Rows of one pass of all members together. They keep the device busy and fit its caches."""


class _Evaluation:
    """Computes the members' metrics on each one's training, validation and test graphs.

    The folds of a cross-validation divide the same graphs. So all members score all graphs, in batches that are
    assembled once for the whole training, and each member's metrics pick its own graphs. In evaluation mode no layer
    mixes graphs, so it does not matter how they are batched.
    """

    def __init__(
        self,
        graphs: PackedGraphs,
        splits: Sequence[Split],
        inputs: ModelInputs,
        task: Task,
        metric: str,
        scale: Scale | None,
        rows: int,
    ) -> None:
        self._task, self._metric, self._scale = task, metric, scale
        self._inputs = partial(inputs, may_pad=False)
        device = graphs.device
        sets = {name: padded_ids([getattr(split, name) for split in splits]) for name in Split._fields}
        sets = {name: ids for name, ids in sets.items() if ids.numel()}
        scored = torch.unique(torch.cat([ids.flatten() for ids in sets.values()]))
        scored = scored[scored >= 0]
        place = torch.full((graphs.num_graphs + 1,), -1)  # the place of each graph in ``scored``; id -1 maps to -1
        place[scored] = torch.arange(len(scored))
        self._sets = {name: place[ids].to(device) for name, ids in sets.items()}
        chunk = graphs.sizes.cpu()[scored].cumsum(0) // max(1, rows)
        counts = torch.unique_consecutive(chunk, return_counts=True)[1].tolist()
        self._batches: list[GraphBatch] = [inputs.batch(ids) for ids in scored.split(counts)]
        wanted = torch.cat([task.wanted(batch) for batch in self._batches])
        self._wanted = wanted.expand(len(splits), *wanted.shape)
        self._missing = torch.nan if wanted.is_floating_point() else -1
        self.targets = wanted.shape[1] if wanted.ndim == 2 and wanted.shape[1] > 1 else 0
        """How many targets have a metric of their own: those of several."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sets that are not empty."""
        return tuple(self._sets)

    @torch.no_grad()
    def __call__(self, stack: Stack) -> Tensor:
        """(M, sets + targets): every member's metric on each of its sets; of several targets, also that of each target
        on the last set, which is the reported one."""
        scores = torch.cat(
            [stack.forward(self._inputs, batch, training=False, stacked=False) for batch in self._batches], dim=1
        )
        scores = scores if self._scale is None else self._scale.restore(scores)
        columns = []
        for ids in self._sets.values():
            real = (ids >= 0).view(*ids.shape, *(1,) * (self._wanted.ndim - 2))
            wanted = torch.where(real, select(self._wanted, ids), self._missing)
            own = select(scores, ids)
            each = self._task.each(self._metric, own, wanted)
            columns.append(self._task.mean(each, own, wanted))
        return torch.cat([torch.stack(columns, dim=1), each[:, : self.targets].to(torch.float32)], dim=1)
