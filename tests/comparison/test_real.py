"""A whole comparison with the real engine, small: BatchNorm keeps what InstanceNorm throws away."""

from __future__ import annotations

from pathlib import Path

from graphnorm.comparison import compare
from graphnorm.data import synthetic


def test_regular_graphs(tmp_path: Path) -> None:
    """The degree is the class, and all that a regular graph has to tell: the full shift removes it (Proposition 1)."""
    graphs = synthetic.regular(num_graphs=80, seed=0)
    result = compare(
        graphs, norms="instance,batch", folds=6, epochs=6, hidden=16, layers=3, batch_size=16, device="cpu",
        workers=1, progress=False, out=tmp_path,
    )  # fmt: skip
    assert result.norms["instance"].mean < 75
    assert result.norms["batch"].mean > 90
    assert result.pair("batch", "instance").significant
    assert result.verdict.startswith("batch has the highest accuracy on synthetic:regular")
    assert result.convergence.slowest == "instance"
    again = compare(
        graphs, norms="batch", folds=6, epochs=6, hidden=16, layers=3, batch_size=16, device="cpu",
        workers=2, progress=False,
    )  # fmt: skip
    assert again.norms["batch"].scores == result.norms["batch"].scores  # whatever processes train it
