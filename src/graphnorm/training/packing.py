"""Which trials make a fleet: equal shape, and as many as the memory holds."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import torch

from graphnorm.data.packed import PackedGraphs
from graphnorm.training.fleet import default_device
from graphnorm.training.trial import Trial

__all__ = ["bytes_per_member", "fleet_size", "plan_fleets"]

MOST_ON_CPU = 10
"""Members of a fleet on a CPU: past this, stacking saves no more overhead and the arrays leave the caches."""
MOST_ON_GPU = 600
AT_ONCE_ON_GPU = 5
"""Fleets that a study trains side by side on a GPU, and that share its memory."""
_SHARE = 0.7
"""Of the free memory that a fleet may plan with; the estimate is rough, and running out of memory is dear."""


def bytes_per_member(graphs: PackedGraphs, trial: Trial) -> int:
    """About how much memory one more member takes in a training step.

    A convolution keeps some eight arrays of (rows, hidden), its gradients taken into account; rows are those of a
    batch four standard deviations above the mean.
    """
    sizes = torch.stack([graphs.sizes, graphs.edge_ptr.diff()]).to(torch.float64).cpu()
    batch = min(trial.batch_size, graphs.num_graphs)
    rows, edges = (sizes.mean(1) * batch + 4 * sizes.std(1, unbiased=False) * batch**0.5).tolist()
    wide = 2 if trial.model in ("molecular-gin", "molhiv-gin") or trial.model.startswith("ogb-") else 1
    hidden = 4 * trial.hidden * (8 * wide * (trial.layers - 1) + 4)
    features = 4 * 3 * graphs.num_features
    kinds = 4 * 2 * sum(graphs.edge_cardinalities)
    if trial.model.startswith("ogb-"):  # a message for each edge
        kinds += 4 * 3 * trial.hidden * (trial.layers - 1)
    weights = 4 * 5 * (trial.hidden * (graphs.num_features + 2 * wide * trial.hidden * (trial.layers - 1)))
    return int(rows * (hidden + features + 64) + edges * (32 + kinds) + weights)


def fleet_size(graphs: PackedGraphs, trial: Trial, device: torch.device) -> int:
    """How many members of this shape fit the device."""
    if device.type == "cuda":
        free, most = torch.cuda.mem_get_info(device)[0] // AT_ONCE_ON_GPU, MOST_ON_GPU
    else:
        free, most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"), MOST_ON_CPU
    return max(1, min(most, int(_SHARE * free) // bytes_per_member(graphs, trial)))


def plan_fleets(
    graphs: PackedGraphs, trials: Sequence[Trial], device: torch.device | str | None = None, share: int = 1
) -> list[list[int]]:
    """Trials packed into fleets: lists of indices, together all of them, in the order of first appearance.

    Members of one shape are shared out evenly over the fewest fleets that the memory allows, or over ``share`` of
    them where there are that many members: one for each worker.
    """
    chosen = default_device(device)
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, trial in enumerate(trials):
        groups.setdefault(trial.shape, []).append(index)
    fleets = []
    for members in groups.values():
        most = fleet_size(graphs, trials[members[0]], chosen)
        count = min(len(members), max(-(-len(members) // most), share))
        cuts = [len(members) * k // count for k in range(count + 1)]
        fleets += [members[a:b] for a, b in itertools.pairwise(cuts)]
    return fleets
