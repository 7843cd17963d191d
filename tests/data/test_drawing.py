"""Which graphs are drawn, and the files of drawings."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from graphnorm.data import draw, from_smiles, save_drawing, synthetic
from graphnorm.data.drawing import molecule_as_svg
from graphnorm.data.molecules import are_molecules, to_rdkit


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


SMILES = ["CC(=O)[O-]", "c1cc[nH]c1", "C#N", "C[N+](C)(C)C", "[CH3]", "O=C1C=CC(=O)C=C1", "Cl.N", "c1ccccc1"]


def test_molecules_are_drawn_from_the_features_of_atoms_and_bonds() -> None:
    chemistry = pytest.importorskip("rdkit.Chem")
    graphs = from_smiles(SMILES, [text[:1] == "C" for text in SMILES])
    for k, text in enumerate(SMILES):
        drawn = to_rdkit(graphs, k)
        assert drawn.GetNumConformers() == 1
        assert chemistry.CanonSmiles(chemistry.MolToSmiles(drawn)) == chemistry.CanonSmiles(text)
    assert are_molecules(graphs)
    assert not are_molecules(synthetic.trees(4))
    figure = draw(graphs, per_class=2)
    assert [len(axis.images) for axis in figure.axes] == [1, 1, 1, 1]
    image = figure.axes[0].images[0].get_array()
    assert image is not None
    assert 0 < (image[..., 3] > 0).mean() < 0.3  # lines on nothing


def test_a_molecule_in_the_colour_of_its_page() -> None:
    pytest.importorskip("rdkit")
    lines = ElementTree.fromstring(f"<g>{molecule_as_svg(from_smiles(SMILES, range(8)), 5, 250)}</g>")
    assert {line.tag for line in lines} == {"path"}
    assert len(lines) > 8
    paints = {paint for line in lines for paint in re.findall("#[0-9A-F]{6}|currentColor", str(line.attrib))}
    assert paints == {"currentColor"}
    assert molecule_as_svg(synthetic.trees(4), 0, 250) == ""


def test_an_aromatic_ring_without_a_kekule_structure_is_drawn_as_it_is() -> None:
    chemistry = pytest.importorskip("rdkit.Chem")
    graphs = from_smiles(["C", "c1cc[nH]c1"], [0, 1])
    assert graphs.tags is not None
    without = graphs.tags.clone()
    without[:, 4] = 0  # hydrogens: pyrrole needs the one at its nitrogen
    ring = chemistry.MolToSmiles(to_rdkit(replace(graphs, tags=without), 1))
    assert ring.count("c") == 4
