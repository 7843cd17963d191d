"""How regular graphs are, and how much of the first layer's signal the full shift removes.

H is (features × nodes), the first layer aggregates it to HQ, and the full shift of InstanceNorm makes HQN of it.

**Proposition 1** says that HQN = 0 on a regular graph whose features are the degree. Its measure on any graph is
*signal kept*, ‖HQN‖_F / ‖HQ‖_F with the dataset's own features: 0 where all nodes come out of the first
aggregation alike, 1 where features have mean 0.

**Proposition 2** says that Q_GIN N = ξN on a complete graph: of its structure A + I nothing is left. Its measure
is *structure kept*, ‖(A+I)N‖_F / ‖A+I‖_F. With degrees d of A + I it is √(1 − Σd²/(n·Σd)), and it is 0 on
complete graphs only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from graphnorm.analysis.measurement import Floats, Integers, Measurement
from graphnorm.analysis.spectrum import Aggregation, check_ids, in_batches, sparse_q, twin_classes

if TYPE_CHECKING:
    from graphnorm.data import GraphBatch, PackedGraphs

__all__ = ["Regularity", "regularity", "sparse_features", "typical_graphs"]

Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Regularity(Measurement):
    """What is said of each of K graphs; every array is (K,)."""

    ids: Integers
    sizes: Integers
    mean_degree: Floats
    degree_variance: Floats
    """Among the nodes of the graph; 0 for regular graphs."""
    regular: Booleans
    """Every node has the same degree."""
    complete: Booleans
    """Every node is joined to every other."""
    clique_union: Booleans
    """Every connected component is complete."""
    hub_cliques: Booleans
    """A union of cliques is left without the nodes that are joined to all others (the hubs, of which there may
    be none): what ego networks of films and papers look like."""
    signal_kept: Floats
    """‖HQN‖_F / ‖HQ‖_F; NaN where HQ = 0."""
    structure_kept: Floats
    """‖(A+I)N‖_F / ‖A+I‖_F."""

    def summary(self) -> dict[str, Any]:
        """Give shares of all graphs, and quantiles of what the shift keeps."""
        kept = self.signal_kept[np.isfinite(self.signal_kept)]
        quantiles = (0.05, 0.25, 0.5, 0.75, 0.95)
        return {
            "graphs": len(self.ids),
            "single_nodes": int((self.sizes == 1).sum()),
            "median_degree_variance": float(np.median(self.degree_variance)),
            "median_relative_degree_deviation": float(np.median(self._relative_deviation())),
            "share_regular": float(self.regular.mean()),
            "share_complete": float(self.complete.mean()),
            "share_clique_union": float(self.clique_union.mean()),
            "share_hub_cliques": float(self.hub_cliques.mean()),
            "signal_kept_quantiles": dict(zip(map(str, quantiles), np.quantile(kept, quantiles), strict=True))
            if len(kept)
            else None,
            "share_without_signal": float((kept < 1e-6).mean()) if len(kept) else None,
            "structure_kept_quantiles": dict(
                zip(map(str, quantiles), np.quantile(self.structure_kept, quantiles), strict=True)
            ),
        }

    def _relative_deviation(self) -> Floats:
        return np.sqrt(self.degree_variance) / np.maximum(self.mean_degree, 1e-300)


def regularity(
    graphs: PackedGraphs,
    ids: Sequence[int] | Integers | None = None,
    aggregation: Aggregation | None = None,
    *,
    progress: bool = False,
) -> Regularity:
    """Measure the regularity of all graphs, or of those given; the aggregation is that of ``signal_kept``.

    >>> from graphnorm.data import synthetic
    >>> result = regularity(synthetic.regular(20))
    >>> bool(result.regular.all()), float(result.signal_kept.max()) < 1e-12  # Proposition 1
    (True, True)
    """
    from tqdm import tqdm

    aggregation = aggregation or Aggregation()
    chosen = check_ids(graphs, ids)
    with tqdm(total=len(chosen), desc="regularity", unit=" graphs", disable=not progress, delay=1.0) as bar:
        parts = []
        for batch in in_batches(graphs, chosen):
            parts.append(_structure(batch) | {"signal_kept": _signal_kept(graphs, batch, aggregation)})
            bar.update(batch.num_graphs)
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return Regularity(ids=chosen, sizes=graphs.sizes.cpu().numpy()[chosen], **arrays)


def typical_graphs(result: Regularity, count: int = 4, *, max_nodes: int = 400) -> Integers:
    """Give ids of graphs at evenly spaced quantiles of the signal kept, of usual size among their like.

    The k-th is, of the k-th of ``count`` equal parts of the graphs in the order of ``signal_kept``, the one whose
    number of nodes is the median of that part.
    """
    usable = np.flatnonzero(np.isfinite(result.signal_kept) & (result.sizes <= max_nodes))
    by_signal = usable[np.argsort(result.signal_kept[usable], kind="stable")]
    parts = [part for part in np.array_split(by_signal, count) if len(part)]
    middle = [part[np.argsort(result.sizes[part], kind="stable")[len(part) // 2]] for part in parts]
    return result.ids[middle] if middle else np.empty(0, np.int64)


def _structure(batch: GraphBatch) -> dict[str, Any]:
    graph, degree = batch.batch.numpy(), batch.degree.numpy()
    sizes = batch.sizes.numpy()
    twins = twin_classes(batch)
    of_node = sizes[graph]
    hub = degree == of_node - 1

    def total(values: npt.NDArray[Any]) -> Floats:
        return np.asarray(np.bincount(graph, values, batch.num_graphs), np.float64)

    def everywhere(condition: Booleans) -> Booleans:
        return np.asarray(total(~condition) == 0)

    hubs = total(hub)[graph]
    mean = total(degree) / sizes
    # Closed twins of a clique's member are the others of its clique, with or without hubs around.
    clique_size = np.where(twins.closed, twins.multiplicity, 1)
    closed_degree = degree + 1.0
    kept = 1 - total(closed_degree**2) / (sizes * total(closed_degree))
    complete = everywhere(hub)
    return {
        "mean_degree": mean,
        "degree_variance": total((degree - mean[graph]) ** 2) / sizes,
        "regular": everywhere(degree == degree[batch.ptr.numpy()[:-1][graph]]),
        "complete": complete,
        "clique_union": everywhere(clique_size == degree + 1),
        "hub_cliques": everywhere(hub | (clique_size == degree + 1 - hubs)),
        "structure_kept": np.where(complete, 0.0, np.sqrt(np.maximum(kept, 0.0))),
    }


def _signal_kept(graphs: PackedGraphs, batch: GraphBatch, aggregation: Aggregation) -> Floats:
    """(B,): ‖HQN‖_F / ‖HQ‖_F of each graph.

    HQ is sparse. Let m be the mean of a feature over the n nodes of a graph: its squared deviations are those of
    the nonzero entries, and m² for each of the zeros.
    """
    signal = sparse_q(batch, aggregation) @ sparse_features(graphs, batch)
    graph, sizes, width = batch.batch.numpy(), batch.sizes.numpy(), signal.shape[1]
    row = np.repeat(graph, np.diff(signal.indptr))
    key, cell = np.unique(row * width + signal.indices, return_inverse=True)
    owner = key // width
    mean = np.bincount(cell, weights=signal.data) / sizes[owner]
    zeros = sizes[owner] - np.bincount(cell)

    def per_graph(of: Integers, values: Floats) -> Floats:
        return np.asarray(np.bincount(of, values, batch.num_graphs), np.float64)

    shifted = per_graph(row, (signal.data - mean[cell]) ** 2) + per_graph(owner, zeros * mean**2)
    whole = per_graph(row, signal.data**2)
    kept = np.full(batch.num_graphs, np.nan)
    np.divide(shifted, whole, out=kept, where=whole > 0)
    return np.asarray(np.sqrt(kept))


def sparse_features(graphs: PackedGraphs, batch: GraphBatch) -> Any:
    """(R, F) ``csr_array``: the first layer's features, tags one-hot and continuous ones beside them."""
    from scipy import sparse

    rows = batch.num_rows
    parts = []
    if batch.tags is not None:
        first = np.concatenate(([0], np.cumsum(graphs.cardinalities)))
        place = batch.tags.numpy().astype(np.int64) + first[:-1]
        pointer = np.arange(rows + 1) * place.shape[1]
        parts.append(sparse.csr_array((np.ones(place.size), place.reshape(-1), pointer), shape=(rows, int(first[-1]))))
    if batch.x is not None:
        parts.append(sparse.csr_array(batch.x.to(torch.float64).numpy()))
    return sparse.csr_array(sparse.hstack(parts)) if len(parts) > 1 else parts[0]
