"""Recall: the datasets that a store has studies of, so that items are made of it where the graphs are not."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from graphnorm.study.plan import Remembered
from graphnorm.study.protocol import find_protocol
from graphnorm.study.store import Store

__all__ = ["recall"]


def recall(store: Path) -> dict[str, list[Remembered]]:
    """Every dataset of a store by its name; of several versions of one, that with most finished trials first.

    >>> recall(Path("there is none.db"))
    {}
    """
    if not store.exists():
        return {}
    finished: dict[tuple[str, str], int] = defaultdict(int)
    guessing: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    with Store(store, writable=False) as opened:
        for study in opened.studies():
            spec = study.spec
            if not {"dataset", "fingerprint", "protocol"} <= spec.keys():
                continue
            version = (spec["dataset"], spec["fingerprint"])
            finished[version] += study.finished
            if "guessing" in spec:
                guessing[version][find_protocol(spec["protocol"]).metric] = spec["guessing"]
    found: dict[str, list[Remembered]] = defaultdict(list)
    for name, fingerprint in sorted(finished, key=finished.__getitem__, reverse=True):
        found[name].append(Remembered(name, fingerprint, guessing[name, fingerprint]))
    return dict(found)
