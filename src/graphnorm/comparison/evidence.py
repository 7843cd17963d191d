"""A comparison as evidence for advice, read back from its folder."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from graphnorm.analysis.measured import Measured
from graphnorm.comparison.result import FORMAT
from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError
from graphnorm.study.guessing import guessing_score

__all__ = ["measured_by_comparison"]


def measured_by_comparison(folder: Path, graphs: PackedGraphs) -> Measured:
    """Read ``comparison.json`` of the folder that ``graphnorm compare --out`` wrote; it must be of these graphs."""
    file = folder / "comparison.json"
    if not file.exists():
        raise GraphnormError("there is no comparison here", where=folder, remedy="name the folder of compare --out")
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise GraphnormError(f"its format is {content['format']}", where=file, remedy="compare again")
        if content["fingerprint"] != graphs.fingerprint:
            raise GraphnormError(
                f"this compares other graphs ({content['dataset']}) than {graphs.name} as it was loaded here",
                where=file,
                remedy="compare the same data, read with the same options",
            )
        areas = {norm: values["convergence"]["area"] for norm, values in content["norms"].items()}
        return Measured(
            source=f"the comparison in {folder}",
            model=content["model"],
            protocol=content["protocol"],
            epochs=content["config"]["epochs"],
            overlap=content["significance"]["overlap"],
            scores={
                norm: dict(enumerate(math.nan if score is None else score for score in values["folds"]))
                for norm, values in content["norms"].items()
            },
            speed={norm: area for norm, area in areas.items() if area is not None},
            guessing=guessing_score(graphs, content["protocol"]),
        )
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise GraphnormError(f"this is no comparison: {error!r}", where=file, remedy="compare again") from error
