"""``graphnorm analyze``: figures, numbers and a one-page summary of a dataset."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphnorm._version import exact_version
from graphnorm.commands.options import add_data, add_json, fitted, load_graphs
from graphnorm.errors import GraphnormError

if TYPE_CHECKING:
    from graphnorm.analysis.parts import PartResult, Subject
    from graphnorm.data import PackedGraphs

DESCRIPTION = """\
Look at a dataset with the tools behind the GraphNorm paper's explanations: in a few minutes and without training,
unless you ask for the parts that train.

parts:
  spectrum     singular values of the aggregation Q and of QN, which also subtracts the graph's mean; whether they
               interlace as Theorem 1 says; condition numbers. The more QN's is below Q's, the more the paper expects
               a shift to speed up training.
  regularity   how regular the graphs are, and how much of the first layer's signal subtracting the mean removes.
               Where little is left, InstanceNorm loses information and GraphNorm's learned shift is worth a try.
  theory       the paper's linear example, gradient formula and Fact 1, as numbers. The same for all data.

parts that train a model on all graphs, for --epochs:
  noise        how far the mean and standard deviation of a batch are from the dataset's, which BatchNorm suffers from.
  alpha        the share of the mean that each layer of a trained GraphNorm takes away.
  curvature    extreme eigenvalues of the Hessian of the loss along training, for each normalization. Takes longest.
"""

EXAMPLES = """\
examples:
  graphnorm analyze IMDB-BINARY
  graphnorm analyze my-graphs/ --graphs 500 --out report
  graphnorm analyze PROTEINS --parts noise alpha --epochs 100
  graphnorm analyze molecules.csv --smiles smiles --target y --model gcn --parts spectrum

The folder then holds summary.md to read, the figures as PNG and SVG, and analysis.json with all numbers: under each
part "summary", and under "per_graph" one value for each graph.
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the results (default: analysis-NAME)")
    parser.add_argument("--parts", nargs="+", metavar="PART", help="which parts (default: spectrum regularity)")
    parser.add_argument(
        "--graphs", type=int, metavar="N", help="look at N graphs drawn at random (default: all that minutes allow)"
    )
    parser.add_argument("--model", choices=("gin", "gcn"), default="gin", help="whose Q (default: gin)")
    parser.add_argument("--xi", type=float, default=0.0, metavar="ξ", help="GIN's ξ in Q = A + (1+ξ)I (default: 0)")
    parser.add_argument("--self-loop", action="store_true", help="one self-loop more, as in the authors' code")
    parser.add_argument("--seed", type=int, default=0, help="which graphs are drawn and shown (default: 0)")
    parser.add_argument("--epochs", type=int, default=20, metavar="E", help="of the parts that train (default: 20)")
    parser.add_argument("--device", help="device for the parts that train (default: a GPU if there is one)")
    add_data(parser)


def run(options: argparse.Namespace) -> None:
    """Analyze, write the folder, and print the findings."""
    from graphnorm.analysis import Aggregation
    from graphnorm.analysis.parts import ABOUT_DATA, PARTS, Subject

    chosen = [part for part in PARTS if part in (options.parts or ABOUT_DATA)]
    unknown = [part for part in options.parts or () if part not in PARTS]
    if unknown:
        raise GraphnormError(f"there is no part {', '.join(unknown)}", remedy=f"choose from {', '.join(PARTS)}")
    aggregation = Aggregation(options.model, options.xi, options.self_loop)
    graphs = load_graphs(options)
    folder = options.out or default_folder(graphs.name)
    subject = Subject(
        graphs,
        options.graphs,
        aggregation,
        options.seed,
        epochs=options.epochs,
        device=options.device,
        progress=not options.json,
    )
    fresh = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)  # fails before the work if it cannot be written
    try:
        _analyze(options, subject, chosen, folder)
    except BaseException:
        if fresh:
            with suppress(OSError):  # it is not empty any more
                folder.rmdir()
        raise


def default_folder(name: str) -> Path:
    return Path("analysis-" + re.sub(r"[^\w.-]+", "-", name))


def _analyze(options: argparse.Namespace, subject: Subject, parts: list[str], folder: Path) -> None:
    from graphnorm.analysis.parts import PARTS
    from graphnorm.files import plain

    start = time.monotonic()
    graphs = subject.graphs
    findings: dict[str, PartResult] = {}
    for part in parts:
        _say(f"{part} …", options)
        findings[part] = PARTS[part](subject)
    _say("writing …", options)
    numbers = {
        "graphnorm": exact_version(),
        "dataset": graphs.name,
        "fingerprint": graphs.fingerprint,
        "statistics": vars(graphs.statistics()),
        "settings": {
            "graphs": options.graphs,
            "aggregation": subject.aggregation.label,
            "seed": options.seed,
            "epochs": options.epochs,
        },
        "parts": {
            part: {"text": finding.text, "summary": finding.summary, "per_graph": finding.per_graph}
            for part, finding in findings.items()
        },
    }
    _write(folder, graphs, findings, plain(numbers))
    if options.json:
        brief = {part: finding.summary for part, finding in findings.items()}
        print(json.dumps(plain({"folder": str(folder), "parts": brief}), indent=2, ensure_ascii=False))
        return
    for finding in findings.values():
        print(f"{finding.title}\n")
        print("\n\n".join(map(fitted, finding.text)), end="\n\n")
    print(f"{time.monotonic() - start:.0f} s. Figures, analysis.json and summary.md are in {folder}/")


def _say(message: str, options: argparse.Namespace) -> None:
    if not options.json:
        print(message, file=sys.stderr, flush=True)


def _write(folder: Path, graphs: PackedGraphs, findings: dict[str, PartResult], numbers: dict[str, Any]) -> None:
    from graphnorm.data import save_drawing
    from graphnorm.files import write_text

    for finding in findings.values():
        for name, figure in finding.figures.items():
            for ending in ("png", "svg"):
                save_drawing(figure, folder / f"{name}.{ending}")
    texts = {
        "analysis.json": json.dumps(numbers, indent=1, ensure_ascii=False),
        "summary.md": _page(graphs, findings),
    }
    for name, text in texts.items():
        write_text(folder / name, text + "\n")


def _page(graphs: PackedGraphs, findings: dict[str, PartResult]) -> str:
    statistics = graphs.statistics()
    lines = [
        f"# {graphs.name}",
        "",
        f"{statistics.num_graphs:,} graphs in {statistics.num_classes} classes, {statistics.avg_nodes:.1f} nodes and "
        f"{statistics.avg_undirected_edges:.1f} edges on average, {statistics.num_features} features.",
    ]
    for finding in findings.values():
        lines += ["", f"## {finding.title}"]
        for paragraph in finding.text:
            lines += ["", paragraph]
        for name in finding.figures:
            lines += ["", f"![{name}]({name}.png)"]
    return "\n".join(lines)
