"""The parts of ``graphnorm analyze``. A part runs some tools on a dataset and describes the results.

A part is a function from a :class:`Subject` to a :class:`PartResult`, listed in :data:`PARTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from graphnorm.analysis import plots, theory
from graphnorm.analysis.aggregation import Aggregation
from graphnorm.analysis.along_training import log_spaced_epochs
from graphnorm.analysis.alpha import alpha_along_training
from graphnorm.analysis.curvature import curvature_along_training
from graphnorm.analysis.measurement import Integers
from graphnorm.analysis.noise import noise_along_training
from graphnorm.analysis.regularity import regularity, typical_graphs
from graphnorm.analysis.spectrum import affordable, conditions, interlacing, spectra
from graphnorm.data import CATALOG, PackedGraphs
from graphnorm.errors import GraphnormError
from graphnorm.training.devices import default_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ABOUT_DATA", "PARTS", "PartResult", "Subject", "describe_theory"]

PANELS = 6
LARGEST_PANEL = 500
"""Nodes of a graph whose spectrum is drawn."""


@dataclass(frozen=True, eq=False)
class Subject:
    """The dataset to analyze, and the options."""

    graphs: PackedGraphs
    sample: int | None = None
    """The number of graphs, drawn at random; None for all."""
    aggregation: Aggregation = field(default_factory=Aggregation)
    seed: int = 0
    epochs: int = 20
    """Of the parts that train."""
    device: str | None = None
    """Where they train; None for a GPU if there is one."""
    progress: bool = False

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise GraphnormError(f"{self.epochs} epochs train nothing", remedy="ask for one or more")
        if self.device is not None:
            default_device(self.device)  # fail at once if there is no such device
        if not 0 <= self.seed < 2**63:
            raise GraphnormError(f"the seed is {self.seed}", remedy="give a whole number from 0, below 2**63")
        if self.sample is not None and self.sample < 1:
            raise GraphnormError(f"{self.sample} graphs cannot be analysed", remedy="ask for one or more")

    @property
    def ids(self) -> Integers:
        """The sampled graphs, in random order."""
        return np.random.default_rng(self.seed).permutation(self.graphs.num_graphs)[: self.sample]

    @property
    def training(self) -> dict[str, Any]:
        """Options of the tools that train. A dataset of the catalogue is trained with the paper's readout."""
        entry = CATALOG.get(self.graphs.name)
        return {
            "model": self.aggregation.model,
            "self_loops": self.aggregation.self_loop,
            "readout": entry.readout if entry else "sum",
            "seed": self.seed,
            "epochs": self.epochs,
            "ids": None if self.sample is None else np.sort(self.ids),
            "device": self.device,
            "progress": self.progress,
        }


@dataclass(frozen=True, eq=False)
class PartResult:
    """The result of a part."""

    title: str
    text: tuple[str, ...]
    """Paragraphs."""
    summary: dict[str, Any]
    """The numbers behind the text."""
    figures: dict[str, Figure]
    """By file name, without its ending."""
    per_graph: dict[str, Any] = field(default_factory=dict)
    """Arrays with one entry for each graph."""


# ---- from the graphs alone ------------------------------------------------------------------------------------------


def spectrum_part(subject: Subject) -> PartResult:
    """Singular values of Q and QN, Theorem 1, condition numbers."""
    graphs = subject.graphs
    ids = np.sort(affordable(graphs, subject.ids) if subject.sample is None else subject.ids)
    if not len(ids):
        raise GraphnormError(
            "every graph is too large for all its singular values",
            remedy="use graphnorm.analysis.extreme_singular_values, or leave out the part 'spectrum'",
        )
    result = spectra(graphs, ids, subject.aggregation, progress=subject.progress)
    theorem, condition = interlacing(result), conditions(result)
    holds, numbers = theorem.summary(), condition.summary()
    left_out, to_zero = len(subject.ids) - len(ids), numbers["shifted_to_zero"]
    text = [
        f"Singular values of the aggregation Q ({result.aggregation}) and of QN, which also subtracts the mean, on "
        f"{len(ids):,} of {graphs.num_graphs:,} graphs."
        + (f" {left_out:,} were left out because they would take too long." if left_out else ""),
        f"They interlace, as Theorem 1 says, on {holds['holds']:,} of {holds['graphs']:,} graphs. The largest excess "
        f"is {holds['largest_excess_over_tolerance']:.2f} of the rounding tolerance 4·n·ε·λₙ.",
    ]
    if numbers["better"] + numbers["equal"] + numbers["worse"]:
        text.append(
            f"The median condition number, over nonzero singular values, is {numbers['median_condition_q']:.3g} for Q "
            f"and {numbers['median_condition_shifted']:.3g} for QN. The median of their quotients is "
            f"{numbers['median_improvement']:.3g}. The shift improves it on {numbers['better']:,} graphs, leaves it "
            f"unchanged on {numbers['equal']:,} and worsens it on {numbers['worse']:,}."
            + (" (There Q is singular, and the shift makes one of its zeros small.)" if numbers["worse"] else "")
        )
    else:
        text.append("There is no graph on which condition numbers can be compared.")
    if to_zero:
        text[-1] += f" On {to_zero:,} graphs QN = 0: the shift leaves nothing of the aggregation."
    shown = np.flatnonzero(result.sizes <= LARGEST_PANEL)
    shown = np.random.default_rng(subject.seed).permutation(shown if len(shown) else np.arange(len(ids)))[:PANELS]
    label = f"{graphs.name} · {result.aggregation}"
    return PartResult(
        title="Spectrum: the shift as a preconditioner",
        text=tuple(text),
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


def regularity_part(subject: Subject) -> PartResult:
    """Degrees, cliques, and the share of the first layer's signal that the full shift keeps."""
    graphs = subject.graphs
    result = regularity(graphs, np.sort(subject.ids), subject.aggregation, progress=subject.progress)
    numbers = result.summary()
    kept = numbers["signal_kept_quantiles"]
    shares = (
        f"{numbers['share_regular']:.1%} of the graphs are regular, {numbers['share_complete']:.1%} complete, "
        f"{numbers['share_clique_union']:.1%} unions of cliques, and {numbers['share_hub_cliques']:.1%} unions of "
        "cliques after removing the nodes that are joined to all others."
    )
    signal = (
        "The features are 0 everywhere: there is no signal."
        if kept is None
        else f"Subtracting the whole mean, as InstanceNorm does, keeps {kept['0.5']:.0%} of the norm of the first "
        f"layer's signal in the median graph, and {kept['0.05']:.0%} to {kept['0.95']:.0%} in nine graphs of ten. It "
        f"keeps nothing in {numbers['share_without_signal']:.1%} of the graphs (Proposition 1)."
    )
    structure = (
        f"It keeps {numbers['structure_kept_quantiles']['0.5']:.0%} of the structure A + I in the median graph "
        "(Proposition 2: nothing in complete graphs). The rest is the graph's mean. This does not say whether the mean "
        "distinguishes the classes. GraphNorm's α can learn to keep it."
    )
    figures = {"regularity": plots.plot_regularity(result, title=graphs.name)}
    if len(typical := typical_graphs(result)):
        title = f"{graphs.name}: from least to most signal kept"
        figures["typical"] = plots.plot_typical(graphs, result, typical, title=title)
    return PartResult(
        title="Regularity: what the full shift removes",
        text=(shares, signal, structure),
        summary=numbers,
        per_graph=result.to_dict(),
        figures=figures,
    )


def theory_part(subject: Subject) -> PartResult:
    return describe_theory(seed=subject.seed, progress=subject.progress)


def describe_theory(*, seed: int = 0, progress: bool = False) -> PartResult:
    """The linear GNN of Appendix A.2, the gradient formula of A.5, Fact 1. It is the same for all data."""
    rates = theory.convergence_rates(progress=progress)
    numbers = rates.summary()
    gradient = theory.check_weight_gradient(seed=seed)
    distances = {a: theory.closest_instance_norm(a, seed=seed).distance for a in (0.0, 0.5, 0.9, 1.0)}
    text = (
        f"The linear GNN of Appendix A.2, {numbers['runs']} runs over noise levels and sample sizes: gradient descent "
        f"converges at the predicted speed to within {numbers['largest_error_of_speed']:.2%}. With the shift it was "
        f"faster in {numbers['shift_faster']} of {numbers['runs']} runs, {numbers['median_speedup']:.2f} times in the "
        "median.",
        f"The gradient formula of Appendix A.5 agrees with autograd to {gradient.fixed_scale:.0e} with the scale held "
        f"fixed. With the part through the scale, which the paper leaves out, it agrees to {gradient.whole:.0e}.",
        "Fact 1: on two graphs x and x + c, the distance from a GraphNorm to the closest InstanceNorm is "
        + ", ".join(f"{distance:.2g} (α = {alpha:g})" for alpha, distance in distances.items())
        + ".",
    )
    return PartResult(
        title="Theory: the paper's example, formula and fact",
        text=text,
        summary={"linear_gnn": numbers, "gradient": gradient, "fact_1_distance": distances},
        figures={"rates": plots.plot_rates(rates, title="Linear GNN: speed of convergence")},
    )


# ---- from training --------------------------------------------------------------------------------------------------


def noise_part(subject: Subject) -> PartResult:
    """How far batch statistics are from the dataset's, along a training with BatchNorm."""
    batch_size = min(128, max(1, len(subject.ids) // 4))
    layers = noise_along_training(
        subject.graphs, batch_size=batch_size, at=log_spaced_epochs(subject.epochs, 12), **subject.training
    )
    first, last = layers[0].relative_deviation, layers[-1].relative_deviation
    text = (
        f"BatchNorm with batches of {batch_size} graphs. The relative deviation of a batch's mean and standard "
        f"deviation from the dataset's is {first[0]:.2g} at the first norm layer and {last[0]:.2g} at the last before "
        f"training, and {first[-1]:.2g} and {last[-1]:.2g} after {subject.epochs} epochs. The unit is the dataset's "
        "standard deviation: 0 is no noise. The mean and standard deviation that BatchNorm uses vary by about that "
        "much from step to step. In evaluation it uses an average of them.",
    )
    return PartResult(
        title="Batch noise: what BatchNorm would bring",
        text=text,
        summary={"batch_size": batch_size, "layers": [noise.summary() for noise in layers]},
        figures={"noise": plots.plot_noise({subject.graphs.name: [layers[0], layers[-1]]})},
    )


def alpha_part(subject: Subject) -> PartResult:
    """The share of the mean that a trained GraphNorm subtracts."""
    found = alpha_along_training(subject.graphs, at=log_spaced_epochs(subject.epochs, 12), **subject.training)
    numbers = found.summary()
    quantiles = {layer: values["quantiles"] for layer, values in numbers.items()}
    ends = " ".join(
        f"{layer}: {values['0.5']:.2f} ({values['0.05']:.2f} to {values['0.95']:.2f})."
        for layer, values in quantiles.items()
    )
    far = max(values["median_distance_from_1"] for values in numbers.values())
    text = (
        f"GraphNorm's α after {subject.epochs} epochs, with three seeds. It starts at 1, the full shift of "
        f"InstanceNorm. The median over the channels of each layer, and the range of nine channels in ten: {ends}",
        f"In the layer whose α moved furthest, the median channel is {far:.2f} away from 1. How far α moves also "
        "depends on the learning rate and the epochs: a small move does not prove that the full shift is best.",
    )
    return PartResult(
        title="α: how much of the mean the network subtracts",
        text=text,
        summary={"epochs": subject.epochs, "layers": numbers},
        figures={"alpha": plots.plot_alpha(found, title=f"{subject.graphs.name}: α after {subject.epochs} epochs")},
    )


def curvature_part(subject: Subject) -> PartResult:
    """Extreme Hessian eigenvalues along training with each normalization."""
    found = curvature_along_training(subject.graphs, at=log_spaced_epochs(subject.epochs, 5), **subject.training)
    numbers = found.summary()
    largest = {norm: values["median_largest_when_trained"] for norm, values in numbers.items()}
    order = ", ".join(f"{norm} {largest[norm]:.3g}" for norm in sorted(largest, key=lambda norm: largest[norm]))
    text = (
        "The largest eigenvalue of the Hessian of the training loss on one batch, in the median over epochs, smoothest "
        f"first: {order}.",
        f"The iterations met their tolerance of 1 % in {found.converged.mean():.0%} of the cases; elsewhere the number "
        "is a lower bound. Each normalization was trained once. The numbers depend on the scale of the weights, which "
        "normalized layers ignore: read them together with the loss, which is in the figure.",
    )
    return PartResult(
        title="Curvature: how smooth the loss is along training",
        text=text,
        summary={"norms": numbers},
        figures={"curvature": plots.plot_curvature(found, title=subject.graphs.name)},
    )


PARTS: dict[str, Callable[[Subject], PartResult]] = {
    "spectrum": spectrum_part,
    "regularity": regularity_part,
    "theory": theory_part,
    "noise": noise_part,
    "alpha": alpha_part,
    "curvature": curvature_part,
}
"""Every part by its name, in the order of the summary."""

ABOUT_DATA = ("spectrum", "regularity")
"""The default parts. They describe the dataset and train nothing."""
