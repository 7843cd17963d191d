"""Protocols: how graphs are split for training, for the selection of epochs and configurations, and for the report.

==========  ==============================  =====================  =====================  ==============
protocol    split                           epoch selected         on                     reported
==========  ==============================  =====================  =====================  ==============
``paper``   k folds                         once for all folds     the fold itself        the fold
``fair``    k folds; of each                for each fold          the held-out tenth     the fold
            training part, a tenth is held
            out
``given``   the split that the data has,    for each seed          its validation part    its test part
            or that the user names
``all``     all graphs train                no: the last epoch     –                      nothing
==========  ==============================  =====================  =====================  ==============

``paper`` is the protocol of the paper and its baselines: the same graphs select and are reported, so its numbers are
optimistic. Under ``fair`` a reported graph has no influence on any selection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphnorm.errors import GraphnormError

__all__ = ["ALL_GRAPHS", "PROTOCOLS", "Protocol", "find_protocol"]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How epochs and configurations are selected and scores reported: one row of the table above."""

    name: str
    label: str
    """Its name in titles."""
    reported: Literal["valid", "test"]
    """The curve that is reported."""
    one_epoch: bool
    """Whether all members share one epoch, or each has its own."""
    nested: bool
    """Whether each fold selects its own configuration."""
    unit: Literal["fold", "seed"]
    """Scores are averaged over folds or over seeds."""

    @property
    def under(self) -> str:
        """For sentences.

        >>> find_protocol("fair").under, find_protocol("given").under
        ('under fair', 'under the given split')
        """
        return f"under {self.name if self.unit == 'fold' else 'the ' + self.label}"

    @property
    def paired(self) -> bool:
        """Whether tests pair units: equal folds have the same graphs, equal seeds have nothing in common."""
        return self.unit == "fold"

    def overlap(self, folds: int) -> float:
        """The ratio of reported graphs to all others, n₂/n₁; 0 if all trainings share one split.

        It corrects the t-test for overlapping training sets.

        >>> find_protocol("paper").overlap(5)
        0.25
        """
        return 1 / max(folds - 1, 1) if self.paired else 0.0


PROTOCOLS: dict[str, Protocol] = {
    "paper": Protocol(name="paper", label="paper", reported="valid", one_epoch=True, nested=False, unit="fold"),
    "fair": Protocol(name="fair", label="fair", reported="test", one_epoch=False, nested=True, unit="fold"),
    "given": Protocol(name="given", label="given split", reported="test", one_epoch=False, nested=False, unit="seed"),
}
ALL_GRAPHS = Protocol(name="all", label="all", reported="valid", one_epoch=False, nested=False, unit="seed")


def find_protocol(name: str) -> Protocol:
    """Find a protocol by its name.

    >>> find_protocol("fair").reported
    'test'
    """
    if name == ALL_GRAPHS.name:
        return ALL_GRAPHS
    if name not in PROTOCOLS:
        raise GraphnormError(f"there is no protocol {name!r}; known: {', '.join(PROTOCOLS)}", remedy="choose one")
    return PROTOCOLS[name]
