"""The parts of an analysis of one dataset: each runs its tools and says in plain words what came out.

A part is a function from a :class:`Subject` to a :class:`Finding`. List it in :data:`PARTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from graphnorm.analysis import linear_gnn, plots, theory
from graphnorm.analysis.aggregation import Aggregation
from graphnorm.analysis.regularity import regularity, typical_graphs
from graphnorm.analysis.results import Integers
from graphnorm.analysis.spectrum import affordable, conditions, interlacing, spectra
from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ABOUT_DATA", "PARTS", "Finding", "Subject"]

PANELS = 6
LARGEST_PANEL = 500


@dataclass(frozen=True, eq=False)
class Subject:
    """What is looked at, and how."""

    graphs: PackedGraphs
    sample: int | None = None
    """How many graphs are drawn at random; None for all."""
    aggregation: Aggregation = field(default_factory=Aggregation)
    seed: int = 0
    progress: bool = False

    def __post_init__(self) -> None:
        if self.sample is not None and self.sample < 1:
            raise GraphnormError(f"{self.sample} graphs cannot be analysed", remedy="ask for one or more")

    @property
    def ids(self) -> Integers:
        """The graphs in random order, as many as are wanted."""
        return np.random.default_rng(self.seed).permutation(self.graphs.num_graphs)[: self.sample]


@dataclass(frozen=True, eq=False)
class Finding:
    """What a part has to say."""

    title: str
    text: tuple[str, ...]
    """Paragraphs in plain words."""
    summary: dict[str, Any]
    """The numbers behind them."""
    per_graph: dict[str, Any]
    """Arrays with one entry for each graph that was looked at; may be empty."""
    figures: dict[str, Figure]
    """By file name, without its ending."""


def spectrum_part(subject: Subject) -> Finding:
    """Singular values of Q and QN, Theorem 1, condition numbers."""
    graphs = subject.graphs
    ids = np.sort(affordable(graphs, subject.ids) if subject.sample is None else subject.ids)
    if not len(ids):
        raise GraphnormError(
            "every graph is too large for all its singular values",
            remedy="use graphnorm.analysis.extremes, or leave out the part 'spectrum'",
        )
    result = spectra(graphs, ids, subject.aggregation, progress=subject.progress)
    theorem, condition = interlacing(result), conditions(result)
    holds, numbers = theorem.summary(), condition.summary()
    label = f"{graphs.name} · {result.aggregation}"
    shown = np.flatnonzero(result.sizes <= LARGEST_PANEL)
    shown = shown if len(shown) else np.arange(len(ids))
    shown = np.random.default_rng(subject.seed).permutation(shown)[:PANELS]
    left_out = len(subject.ids) - len(ids)
    text = [
        f"Singular values of the aggregation Q ({result.aggregation}) and of QN, which also subtracts the mean, on "
        f"{len(ids):,} of {graphs.num_graphs:,} graphs."
        + (f" {left_out:,} were left out to stay within minutes." if left_out else ""),
        f"They interlace, as Theorem 1 says, on {holds['holds']:,} of {holds['graphs']:,} graphs. The largest excess "
        f"is {holds['largest_excess_over_tolerance']:.2f} of what rounding may account for (4·n·ε·λₙ).",
        _about_condition(numbers),
    ]
    return Finding(
        title="Spectrum: the shift as a preconditioner",
        text=tuple(paragraph for paragraph in text if paragraph),
        summary={"aggregation": result.aggregation, "theorem_1": holds, "condition": numbers},
        per_graph={
            "ids": result.ids,
            "sizes": result.sizes,
            "theorem_1_excess": theorem.excess,
            "condition_q": condition.q,
            "condition_shifted": condition.shifted,
            "rank_q": condition.rank_q,
            "rank_shifted": condition.rank_shifted,
        },
        figures={
            "spectra": plots.plot_spectra(plots.panels(result, shown.tolist()), title=label),
            "conditions": plots.plot_conditions(result, condition, title=label),
        },
    )


def _about_condition(numbers: dict[str, Any]) -> str:
    compared = numbers["better"] + numbers["equal"] + numbers["worse"]
    to_zero = numbers["shifted_to_zero"]
    zero = f" On {to_zero:,} graphs QN = 0: the shift leaves nothing of the aggregation." if to_zero else ""
    if not compared:
        return f"There is no graph on which condition numbers can be compared.{zero}"
    worse = (
        " (Q is singular there, and the shift turns one of its zeros into a small nonzero value.)"
        if numbers["worse"]
        else ""
    )
    return (
        f"The condition number, over nonzero values, is {numbers['median_condition_q']:.3g} for Q and "
        f"{numbers['median_condition_shifted']:.3g} for QN in the median; the median of their quotients is "
        f"{numbers['median_improvement']:.3g}. The shift makes it better on {numbers['better']:,} graphs, leaves it "
        f"unchanged on {numbers['equal']:,} and makes it worse on {numbers['worse']:,}.{worse}{zero}"
    )


def regularity_part(subject: Subject) -> Finding:
    """Degrees, cliques, and what the full shift keeps of the first layer's signal."""
    graphs = subject.graphs
    result = regularity(graphs, np.sort(subject.ids), subject.aggregation, progress=subject.progress)
    numbers = result.summary()
    kept = numbers["signal_kept_quantiles"]
    shares = (
        f"{numbers['share_regular']:.1%} of the graphs are regular, {numbers['share_complete']:.1%} complete, "
        f"{numbers['share_clique_union']:.1%} unions of cliques, and {numbers['share_hub_cliques']:.1%} unions of "
        "cliques once the nodes joined to all others are taken out."
    )
    signal = (
        "The features are 0 everywhere: there is no signal."
        if kept is None
        else f"Subtracting the whole mean, as InstanceNorm does, keeps {kept['0.5']:.0%} of the norm of the first "
        f"layer's signal in the median graph, between {kept['0.05']:.0%} and {kept['0.95']:.0%} on nine graphs of "
        f"ten, and nothing at all on {numbers['share_without_signal']:.1%} of them (Proposition 1)."
    )
    structure = (
        f"Of the structure A + I it keeps {numbers['structure_kept_quantiles']['0.5']:.0%} in the median graph "
        "(Proposition 2: nothing on complete graphs). What is subtracted is the graph's mean. Whether that mean tells "
        "the classes apart is not said here; GraphNorm's α can learn to keep it."
    )
    figures = {"regularity": plots.plot_regularity(result, title=graphs.name)}
    typical = typical_graphs(result)
    if len(typical):
        title = f"{graphs.name}: from least to most signal kept"
        figures["typical"] = plots.plot_typical(graphs, result, typical, title=title)
    return Finding(
        title="Regularity: what the full shift removes",
        text=(shares, signal, structure),
        summary=numbers,
        per_graph=result.to_dict(),
        figures=figures,
    )


def theory_part(subject: Subject) -> Finding:
    """The linear example of Appendix A.2, the gradient formula of A.5, Fact 1; the same for all data."""
    study = linear_gnn.rate_study(progress=subject.progress)
    numbers = study.summary()
    gradient = theory.check_weight_gradient(seed=subject.seed)
    alphas = (0.0, 0.5, 0.9, 1.0)
    distances = {alpha: theory.instance_norm_witness(alpha, seed=subject.seed).distance for alpha in alphas}
    text = (
        f"The linear GNN of Appendix A.2, {numbers['runs']} runs over noise levels and sample sizes: gradient descent "
        f"converges at the predicted speed to within {numbers['largest_error_of_speed']:.2%}. With the shift it was "
        f"faster in {numbers['shift_faster']} of {numbers['runs']} runs, {numbers['median_speedup']:.2f} times in the "
        "median.",
        f"The gradient formula of Appendix A.5 agrees with autograd to {gradient.fixed_scale:.0e} with the scale held "
        f"fixed. With the part through the scale, which the paper leaves out, it agrees to {gradient.whole:.0e}.",
        "Fact 1: the InstanceNorm closest to a GraphNorm on two graphs x and x + c is away from it by "
        + ", ".join(f"{distance:.2g} (α = {alpha:g})" for alpha, distance in distances.items())
        + ".",
    )
    return Finding(
        title="Theory: the paper's example, formula and fact",
        text=text,
        summary={"linear_gnn": numbers, "gradient": gradient, "fact_1_distance": distances},
        per_graph={},
        figures={"rates": plots.plot_rates(study, title="Linear GNN: speed of convergence")},
    )


PARTS: dict[str, Callable[[Subject], Finding]] = {
    "spectrum": spectrum_part,
    "regularity": regularity_part,
    "theory": theory_part,
}
"""Every part by its name, in the order of the summary."""

ABOUT_DATA = ("spectrum", "regularity")
"""Parts that say something of the data at hand, and run unless others are asked for."""
