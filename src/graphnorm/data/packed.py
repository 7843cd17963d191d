"""PackedGraphs: a whole dataset as a few flat arrays, immutable, on one device."""

from __future__ import annotations

import hashlib
import json
import reprlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from graphnorm.data.batching import BatchTables, Bounds, GraphBatch, assemble, measure, one_hot
from graphnorm.errors import CONTROL, DataError, DataWarning
from graphnorm.settings import TaskName

__all__ = ["UNKNOWN", "PackedGraphs", "Statistics", "announce"]

UNKNOWN = "unknown"
"""The only class of graphs without labels."""

PROVENANCE = (
    "source",
    "smiles_column",
    "label_column",
    "threshold",
    "left_out",
    "notes",
    "vocabulary",
    "edge_vocabulary",
)
"""Fields that say where the graphs come from. They do not belong to the content."""

GraphIds = Tensor | Sequence[int] | npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Statistics:
    """The numbers that a table of datasets shows."""

    num_graphs: int
    num_nodes: int
    num_edges: int
    """Directed: an undirected edge counts twice. Without self-loops."""
    num_classes: int
    class_sizes: tuple[int, ...]
    num_features: int
    min_nodes: int
    max_nodes: int
    max_degree: int
    removed_self_loops: int
    """Self-loops that the source had."""

    @property
    def avg_nodes(self) -> float:
        return self.num_nodes / self.num_graphs

    @property
    def avg_undirected_edges(self) -> float:
        """Undirected edges per graph, without self-loops."""
        return self.num_edges / 2 / self.num_graphs

    @property
    def avg_edges(self) -> float:
        """Edges per graph as the paper's table counts them: directed edges, a self-loop on every node, and the
        self-loops of the source.
        """
        return (self.num_edges + self.num_nodes + self.removed_self_loops) / self.num_graphs

    @property
    def avg_degree(self) -> float:
        """``avg_edges`` per node, as in the paper's table."""
        return self.avg_edges / self.avg_nodes


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PackedGraphs:
    """G graphs with N nodes and E directed edges in total.

    Graph g has the nodes ``node_ptr[g]:node_ptr[g+1]``. Node i has the edges ``rowptr[i]:rowptr[i+1]``, sorted by
    neighbour. ``col`` counts neighbours from the first node of their graph. Graphs are undirected: both directions of
    an edge are stored. There are no self-loops and no duplicate edges; models add self-loops themselves.

    Categorical features are small integers, one column each (``tags``, ``edge_tags``), with the number of values of
    each column in ``cardinalities``. :meth:`GraphBatch.one_hot` or an embedding turns them into numbers. Continuous
    features are ``x`` and ``edge_x``.

    What is to be predicted is one class of each graph (``labels``), or the T columns of ``targets``: ``task`` says
    which.

    The object is a value. Do not change its tensors in place. Two objects with the same content are equal and have the
    same hash on any device; :attr:`fingerprint` identifies the content.

    >>> from graphnorm.data import synthetic
    >>> graphs = synthetic.regular(num_graphs=10, seed=0)
    >>> batch = graphs.batch([3, 1, 4])
    >>> batch.ptr.shape, batch.num_graphs
    (torch.Size([4]), 3)
    """

    name: str
    node_ptr: Tensor
    """(G+1,) int64."""
    rowptr: Tensor
    """(N+1,) int64."""
    col: Tensor
    """(E,) int32, counted from the first node of the graph."""
    labels: Tensor
    """(G,) int64, 0 ≤ label < num_classes."""
    classes: tuple[str, ...]
    """Names of the classes in the source."""
    task: TaskName = "classes"
    """``classes``: one class of each graph. ``binary``: T targets of 0 or 1. ``values``: T real targets. With targets,
    all labels are 0 and ``classes`` is ``("unknown",)``."""
    targets: Tensor | None = None
    """(G, T) float32: NaN where a target is missing."""
    target_names: tuple[str, ...] = ()
    """(T,)."""
    tags: Tensor | None = None
    """(N, K) uint8, int16 or int32: K categorical node features."""
    cardinalities: tuple[int, ...] = ()
    """(K,): the number of values of each column of ``tags``."""
    x: Tensor | None = None
    """(N, F) float32: continuous node features."""
    edge_tags: Tensor | None = None
    """(E, L) uint8, int16 or int32: L categorical edge features."""
    edge_cardinalities: tuple[int, ...] = ()
    """(L,)."""
    edge_x: Tensor | None = None
    """(E, D) float32: continuous edge features."""
    groups: Tensor | None = None
    """(G,) int64: graphs of one group, such as duplicates of a molecule, belong on one side of every split."""
    splits: Mapping[str, Tensor] = field(default_factory=dict)
    """Graph ids of the parts ``train``, ``valid`` and ``test``, if the source has a split or one was chosen."""
    removed_self_loops: int = 0
    source: str = ""
    """Where the graphs come from, for people."""
    smiles_column: str = ""
    """For a table of molecules: the name of its column of SMILES."""
    label_column: str = ""
    """For a table: the name of its label column, empty if it has none."""
    threshold: float | None = None
    """The number that splits measurements into two classes, if the labels are measurements."""
    left_out: tuple[int, ...] = ()
    """For a table: its rows, from 0, that could not be read and are no graphs here."""
    notes: tuple[str, ...] = ()
    """What the user should know about how the source was read: rows left out, duplicates, a guessed task."""
    vocabulary: str = ""
    """A digest of the values in the source that ``tags`` number, if the numbers depend on them: equal tags mean equal
    values only where it is equal."""
    edge_vocabulary: str = ""
    """The same of ``edge_tags``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "splits", {name: torch.as_tensor(ids) for name, ids in sorted(self.splits.items())})
        shape = None if self.targets is None else tuple(self.targets.shape)
        wanted = None if self.task == "classes" else (self.num_graphs, len(self.target_names))
        if self.task not in get_args(TaskName) or shape != wanted or not (shape is None or shape[1]):
            raise DataError(
                f"{self.name}: targets of the shape {shape} do not fit the task {self.task!r} of {self.num_graphs} "
                f"graphs and {len(self.target_names)} target names",
                remedy="the tasks binary and values have targets, a row for each graph and a column for each name; "
                "classes has none",
            )
        where = str(self.source) or None
        for what, names in (("name", (self.name,)), ("classes", self.classes), ("target names", self.target_names)):
            if wrong := [name for name in names if type(name) is not str or CONTROL.search(name)]:
                problem = f"the {what} {reprlib.repr(wrong[0])} is not plain text"
                raise DataError(problem, where=where, remedy="write it without control characters")
            if len(set(names)) < len(names):
                problem = f"the {what} {reprlib.repr(names)} are not different names"
                raise DataError(problem, where=where, remedy="give each a name of its own")

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the fields without the cached properties."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @property
    def num_graphs(self) -> int:
        """G."""
        return self.labels.shape[0]

    def __len__(self) -> int:
        return self.num_graphs

    @property
    def num_nodes(self) -> int:
        """N, of all graphs."""
        return self.rowptr.shape[0] - 1

    @property
    def num_edges(self) -> int:
        """E, of all graphs, directed: an undirected edge counts twice."""
        return self.col.shape[0]

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def num_continuous(self) -> int:
        """F: continuous features of a node."""
        return 0 if self.x is None else self.x.shape[1]

    @property
    def num_edge_continuous(self) -> int:
        """D: continuous features of an edge."""
        return 0 if self.edge_x is None else self.edge_x.shape[1]

    @property
    def num_features(self) -> int:
        """Width of :meth:`features`: the one-hot tags and the continuous features."""
        return sum(self.cardinalities) + self.num_continuous

    @property
    def num_edge_features(self) -> int:
        """Width of :meth:`edge_features`."""
        return sum(self.edge_cardinalities) + self.num_edge_continuous

    @property
    def device(self) -> torch.device:
        return self.col.device

    @property
    def sizes(self) -> Tensor:
        """(G,) int64: number of nodes of each graph."""
        return self.node_ptr.diff()

    @cached_property
    def edge_ptr(self) -> Tensor:
        """(G+1,) int64: graph g has the edges ``edge_ptr[g]:edge_ptr[g+1]``."""
        return self.rowptr[self.node_ptr]

    @property
    def degree(self) -> Tensor:
        """(N,) int64: number of neighbours of each node."""
        return self.rowptr.diff()

    @property
    def rows(self) -> list[int]:
        """(G,): the row of its table that each graph comes from, from 0; 0..G-1 unless rows were left out."""
        left_out = set(self.left_out)
        return [row for row in range(self.num_graphs + len(left_out)) if row not in left_out]

    @property
    def attributes(self) -> dict[str, Any]:
        """All fields that are not arrays, as plain JSON values."""
        names = ["name", "classes", "cardinalities", "edge_cardinalities", "removed_self_loops", *PROVENANCE]
        names += [] if self.task == "classes" else ["task", "target_names"]
        return {name: getattr(self, name) for name in names}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """All arrays with their names; a split is named ``splits.NAME``."""
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Tensor):
                yield item.name, value
        for name, ids in self.splits.items():
            yield f"splits.{name}", ids

    def to(self, device: torch.device | str) -> PackedGraphs:
        """Copy the graphs to a device."""
        moved = {name: t.to(device) for name, t in self.tensors() if "." not in name}
        return replace(self, **moved, splits={k: t.to(device) for k, t in self.splits.items()})  # type: ignore[arg-type]

    def features(self, batch: GraphBatch, dtype: torch.dtype = torch.float32) -> Tensor:
        """(R, num_features): the node features of a batch as a model takes them; zero on padded rows."""
        parts = [] if batch.tags is None else [batch.one_hot(self.cardinalities, dtype)]
        parts += [] if batch.x is None else [batch.x.to(dtype)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def edge_features(self, batch: GraphBatch, dtype: torch.dtype = torch.float32) -> Tensor | None:
        """(E, num_edge_features): the edge features of a batch as PyG's models take them; None if there are none."""
        parts = [] if batch.edge_tags is None else [one_hot(batch.edge_tags, self.edge_cardinalities, dtype)]
        parts += [] if batch.edge_x is None else [batch.edge_x.to(dtype)]
        return torch.cat(parts, dim=-1) if parts else None

    def batch(self, ids: GraphIds, *, bounds: Bounds | None = None, edges: bool = True) -> GraphBatch:
        """Assemble graphs into one batch, on the device of the arrays.

        ids: (B,), or (M, B) for a stack of M batches; -1 marks an empty place.
        bounds: static sizes, from :meth:`bounds` of all planned batches. With bounds, and ids that are on the GPU
            already, nothing is read back from the GPU, and the call may be captured in a CUDA graph. There a batch
            that exceeds its bounds is a device-side assertion. Without bounds the sizes are exact, which costs one
            read from the GPU if the ids are there.
        edges: set it to False if no one reads the edges. On a GPU ``col`` and the features of edges are then empty;
            ``rowptr`` still gives the degrees.
        """
        padded, on_cpu = True, self.device.type == "cpu"
        if on_cpu or not isinstance(ids, Tensor) or ids.device.type == "cpu":
            ids, exact, full = self._check(ids)
            bounds = bounds or exact
            if exact.max_nodes > bounds.max_nodes or exact.max_edges > bounds.max_edges:
                raise DataError(
                    f"a batch of {exact.max_nodes} nodes and {exact.max_edges} edges does not fit {bounds}",
                    remedy="take the bounds from all planned batches: graphs.bounds(plan)",
                )
            padded = not (full and exact == bounds)
        if ids.ndim not in (1, 2):
            raise DataError(
                f"graph ids must have the shape (B,) or (M, B), not {tuple(ids.shape)}", remedy="pass a list of ids"
            )
        bounds = bounds or self.bounds(ids)
        ids = ids if on_cpu else ids.to(self.device, non_blocking=True)
        return assemble(self._tables, ids, bounds, padded=padded, edges=edges or on_cpu)

    def bounds(self, plan: GraphIds) -> Bounds:
        """The largest node and edge count of any planned batch.

        plan: (..., B) ids, -1 for empty places. Sizes are heavy-tailed and datasets are sorted by class, so bounds
            from averages are not safe.
        """
        return self._check(plan)[1]

    def _check(self, ids: Any) -> tuple[Tensor, Bounds, bool]:
        """A checked copy of ids on the CPU, their exact bounds, and whether these leave no padding."""
        ids = torch.as_tensor(ids)
        if ids.numel() and (ids.dtype == torch.bool or ids.is_floating_point()):
            raise DataError(f"graph ids must be integers, not {ids.dtype}", remedy="use mask.nonzero()[:, 0]")
        if ids.ndim == 0 or ids.shape[:-1].numel() == 0:
            raise DataError(f"graph ids of shape {tuple(ids.shape)} make no batch", remedy="pass a list of ids")
        ids = ids.to("cpu", torch.int64, copy=True, memory_format=torch.contiguous_format)
        low, high, nodes, edges, full = measure(ids, self._counts)
        if low < -1 or high >= self.num_graphs:
            raise DataError(
                f"there are {self.num_graphs} graphs, but the ids range from {low} to {high}",
                remedy="ids start at 0, and -1 marks an empty place",
            )
        return ids, Bounds(nodes, edges), full

    @cached_property
    def _counts(self) -> Tensor:
        """(2, G+1) on the CPU: nodes and edges of each graph; the last column, which is also -1, holds 0."""
        return torch.stack([pad(p.diff().cpu().long(), (0, 1)) for p in (self.node_ptr, self.edge_ptr)])

    @cached_property
    def _tables(self) -> BatchTables:
        present = dict(self.tensors())
        tables = BatchTables(
            node_start=self.node_ptr[:-1],
            node_count=self.sizes,
            edge_start=self.edge_ptr[:-1],
            edge_count=self.edge_ptr.diff(),
            labels=self.labels,
            rowptr=self.rowptr,
            col=self.col,
            node_features={name: present[name] for name in ("tags", "x") if name in present},
            edge_features={name: present[name] for name in ("edge_tags", "edge_x") if name in present},
            targets=None if self.targets is None else pad(self.targets, (0, 0, 0, 1), value=torch.nan),
        )
        return tables.checked() if self.device.type == "cpu" else tables

    def statistics(self) -> Statistics:
        """Count everything that a table of datasets shows."""
        sizes = self.sizes
        return Statistics(
            num_graphs=self.num_graphs,
            num_nodes=self.num_nodes,
            num_edges=self.num_edges,
            num_classes=self.num_classes,
            class_sizes=tuple(torch.bincount(self.labels, minlength=self.num_classes).tolist()),
            num_features=self.num_features,
            min_nodes=int(sizes.min()),
            max_nodes=int(sizes.max()),
            max_degree=int(self.degree.max()),
            removed_self_loops=self.removed_self_loops,
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the content: arrays, class names and cardinalities; without name, provenance and device."""
        content = {k: v for k, v in self.attributes.items() if k not in ("name", *PROVENANCE)}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
        for name, tensor in self.tensors():
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(tensor.cpu().contiguous().numpy().reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PackedGraphs) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        targets = {"classes": f"{self.num_classes} classes", "binary": "binary targets", "values": "real targets"}
        count = f"{len(self.target_names)} " if self.target_names else ""
        return (
            f"PackedGraphs({self.name}: {self.num_graphs} graphs, {self.num_nodes} nodes, "
            f"{self.num_edges} edges, {count}{targets[self.task]}, "
            f"{self.num_features} features, {self.device})"
        )


def announce(graphs: PackedGraphs, stacklevel: int = 3) -> None:
    """Warn of what the user should know about how the graphs were read."""
    for note in graphs.notes:
        warnings.warn(f"{graphs.name}: {note}", DataWarning, stacklevel=stacklevel)
