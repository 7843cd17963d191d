"""The advice of ``graphnorm advise`` for the paper's datasets from the graphs alone, and the measured scores.

    python -m benchmarks.track_record      writes src/graphnorm/analysis/track_record.json

Scores are those of results/table1.json (GIN, protocol fair) and results/table2.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from graphnorm.analysis import advise, gather_facts
from graphnorm.data import load
from graphnorm.settings import DEFAULT_NORMS
from graphnorm.study.protocol import find_protocol
from graphnorm.study.significance import compare_all

ROOT = Path(__file__).parents[1]
FILE = ROOT / "src" / "graphnorm" / "analysis" / "track_record.json"


def measured() -> dict[str, dict[str, Any]]:
    """By dataset, the scores of each normalization, and which are significantly behind the highest."""
    cells: dict[str, dict[str, dict[int, float]]] = {}
    for item, model, protocol in (("table1", "gin", "fair"), ("table2", "molhiv-gin", "given")):
        facts = json.loads((ROOT / "results" / f"{item}.json").read_text(encoding="utf-8"))
        for cell in facts["cells"]:
            if cell["model"] == model and cell["norm"] in DEFAULT_NORMS and not cell["repeats"]:
                own = cell if protocol == "given" else cell["fair"]
                own = own["common"] or own
                cells.setdefault(cell["dataset"], {})[cell["norm"]] = dict(enumerate(own["scores"]))
    found = {}
    for dataset, scores in cells.items():
        under = find_protocol("given" if dataset.startswith("ogbg") else "fair")
        tests = compare_all(scores, overlap=under.overlap(10), paired=under.paired)
        means = {norm: sum(values.values()) / len(values) for norm, values in scores.items()}
        best = max(means, key=means.__getitem__)
        against = [test.seen_from(best) for test in tests if best in (test.first, test.second)]
        behind = [test.second for test in against if test.significant]
        found[dataset] = {"scores": {norm: round(value, 2) for norm, value in means.items()}, "behind": behind}
    return found


def main() -> None:
    cases = []
    for dataset, scores in measured().items():
        first = advise(gather_facts(load(dataset))).first
        cases.append({"dataset": dataset, "first": first, **scores})
        print(cases[-1])
    FILE.write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
