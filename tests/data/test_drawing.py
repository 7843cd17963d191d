"""Which graphs are drawn, and the files of drawings."""

from __future__ import annotations

from pathlib import Path

from graphnorm.data import draw, save_drawing, synthetic


def titles(figure: object) -> list[str]:
    return [axis.get_title() for axis in figure.axes if axis.get_title()]  # type: ignore[attr-defined]


def test_one_row_for_each_class(tmp_path: Path) -> None:
    graphs = synthetic.cliques(20)
    figure = draw(graphs, per_class=3)
    assert len(titles(figure)) == 6
    drawn = [int(title[1 : title.index(" ")]) for title in titles(figure)]
    assert graphs.labels[drawn].tolist() == [0, 0, 0, 1, 1, 1]
    first = drawn[0]
    assert f"{graphs.sizes[first]} nodes" in titles(figure)[0]
    assert titles(draw(graphs, per_class=3, seed=1)) != titles(figure)
    save_drawing(figure, tmp_path / "new" / "graphs.png")
    assert (tmp_path / "new" / "graphs.png").read_bytes().startswith(b"\x89PNG")
    save_drawing(figure, tmp_path / "graphs.svg")
    assert "<svg" in (tmp_path / "graphs.svg").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["graphs.svg", "new"]
    assert len(titles(draw(synthetic.trees(4), per_class=5))) == 4  # there are no more
