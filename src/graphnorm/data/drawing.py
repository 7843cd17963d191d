"""Drawings of sampled graphs, as in the paper's figure on regular and irregular datasets, and of molecules by RDKit."""

from __future__ import annotations

import importlib.util
import io
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphnorm.data.convert import to_networkx
from graphnorm.data.molecules import are_molecules, to_rdkit
from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import DataError, need
from graphnorm.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "draw_graph", "molecule_as_svg", "save_drawing"]

MAX_NODES = 400
"""Larger graphs are not drawn: nothing could be seen."""


def draw(graphs: PackedGraphs, *, per_class: int = 4, seed: int = 0) -> Figure:
    """Draw sampled graphs of at most 400 nodes, one row for each class.

    Brighter nodes have a higher degree. Graphs with OGB's features of atoms and bonds are drawn as molecules if RDKit
    is installed.
    """
    figures = need("matplotlib.figure", "drawing graphs", "plots")
    if per_class < 1:
        raise DataError(f"{per_class} graphs of each class cannot be drawn", remedy="ask for one or more")
    if not 0 <= seed < 2**32:
        raise DataError(f"the seed is {seed}", remedy="give a whole number from 0, below 2**32")
    random = np.random.default_rng(seed)
    labels, sizes = graphs.labels.cpu().numpy(), graphs.sizes.cpu().numpy()
    figure: Figure = figures.Figure(figsize=(2.3 * per_class, 2.5 * graphs.num_classes), layout="constrained")
    axes = figure.subplots(graphs.num_classes, per_class, squeeze=False)
    for label, row in enumerate(axes):
        drawable = np.flatnonzero((labels == label) & (sizes <= MAX_NODES))
        chosen = np.sort(random.choice(drawable, min(per_class, len(drawable)), replace=False))
        for axis in row:
            axis.set_axis_off()
        for axis, graph_id in zip(row, chosen, strict=False):
            draw_graph(axis, graphs, int(graph_id), seed=seed)
        text = f"class {graphs.classes[label]}" if graphs.targets is None else ""
        row[0].text(-0.04, 0.5, text, rotation=90, va="center", ha="right", transform=row[0].transAxes, fontsize=9)
    figure.suptitle(graphs.name, fontsize=11)
    return figure


def draw_graph(axis: Axes, graphs: PackedGraphs, graph_id: int, *, seed: int = 0) -> None:
    """Draw one graph into axes, with its id and size as the title."""
    nx = need("networkx", "drawing graphs", "plots")
    graph = to_networkx(graphs, graph_id)
    axis.set_axis_off()
    axis.set_title(f"#{graph_id} · {len(graph)} nodes, {graph.number_of_edges()} edges", fontsize=7)
    if _by_rdkit(graphs):
        axis.imshow(_molecule_as_image(graphs, graph_id))
        return
    at = nx.spring_layout(graph, seed=seed, iterations=80, k=1.6 / max(1, len(graph) ** 0.5))
    width = float(np.clip(30 / max(1, graph.number_of_edges()), 0.45, 1.0))
    nx.draw_networkx_edges(graph, at, ax=axis, width=width, edge_color="0.35")
    nx.draw_networkx_nodes(
        graph,
        at,
        ax=axis,
        node_size=240 / max(4, len(graph) ** 0.75),
        node_color=[degree for _, degree in graph.degree()],
        cmap="viridis",
        linewidths=0.3,
        edgecolors="0.2",
    )


def molecule_as_svg(graphs: PackedGraphs, graph_id: int, size: int) -> str:
    """SVG elements in a square of ``size``, in the colour of the text around; empty if this is no molecule, or without
    RDKit.
    """
    if not _by_rdkit(graphs):
        return ""
    from rdkit.Chem.Draw import rdMolDraw2D

    drawing = rdMolDraw2D.MolDraw2DSVG(size, size)
    options: Any = drawing.drawOptions()
    options.useBWAtomPalette()
    body = _drawn(drawing, graphs, graph_id).partition("<!-- END OF HEADER -->")[2].rpartition("</svg>")[0]
    return re.sub(r" class='[^']*'", "", body).replace("#000000", "currentColor").strip()


def _by_rdkit(graphs: PackedGraphs) -> bool:
    return are_molecules(graphs) and importlib.util.find_spec("rdkit") is not None


def _molecule_as_image(graphs: PackedGraphs, graph_id: int) -> npt.NDArray[np.uint8]:
    """An image, (height, width, 4)."""
    from PIL import Image
    from rdkit.Chem.Draw import rdMolDraw2D

    with Image.open(io.BytesIO(_drawn(rdMolDraw2D.MolDraw2DCairo(640, 480), graphs, graph_id))) as image:
        return np.asarray(image.convert("RGBA"))


def _drawn(drawing: Any, graphs: PackedGraphs, graph_id: int) -> Any:
    options = drawing.drawOptions()
    options.clearBackground = options.prepareMolsBeforeDrawing = False
    drawing.DrawMolecule(to_rdkit(graphs, graph_id))
    drawing.FinishDrawing()
    return drawing.GetDrawingText()


def save_drawing(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure to a PNG, PDF or SVG file."""
    path, supported = Path(path), figure.canvas.get_supported_filetypes()
    kind = path.suffix.removeprefix(".")
    if kind not in supported:
        remedy = f"use {', '.join(sorted(supported))}"
        raise DataError(f"a drawing cannot be written as {kind!r}", where=path, remedy=remedy)
    with replacing(path) as fresh:
        figure.savefig(fresh, format=kind, dpi=180)
