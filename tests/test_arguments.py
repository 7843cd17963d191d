"""A wrong argument of a main function raises an error that names the argument and says what it can be."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import graphnorm
from graphnorm import analysis, data
from graphnorm.data import DataError, synthetic

GRAPHS = synthetic.trees(num_graphs=20, seed=0)


def compare(**options: Any) -> object:
    return graphnorm.compare(GRAPHS, progress=False, **options)


def convert(model: Any = None, **options: Any) -> object:
    return graphnorm.convert_norms(model or nn.Sequential(nn.BatchNorm1d(3)), **options)


def enter_backend(name: Any) -> None:
    with graphnorm.backend(name):
        raise AssertionError("it was taken")


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: graphnorm.make_norm([], 64), TypeError, "name must be that of a normalization, got []. The known"),
        (lambda: graphnorm.Segments(sizes="abc"), TypeError, "sizes must hold integers, the rows of each graph, got"),
        (lambda: graphnorm.Segments(sizes=5), TypeError, "sizes must hold integers, the rows of each graph, got 5"),
        (lambda: graphnorm.Segments(sizes=[[1], [1, 2]]), TypeError, "sizes must hold integers, the rows of each"),
        (lambda: convert(42), TypeError, "model must be a torch module, got 42"),
        (lambda: convert(to=5), TypeError, "name must be that of a normalization, got 5"),
        (lambda: convert(exclude=5), TypeError, "exclude must be a list of paths, got 5"),
        (lambda: convert(exclude="head"), TypeError, "exclude must be a list of paths, got 'head'"),
        (lambda: convert(exclude=[5]), TypeError, "each path in exclude must be a text, got 5"),
        (lambda: enter_backend([]), ValueError, "unknown backend []; the backends are 'auto'"),
        (lambda: graphnorm.register_norm(5, nn.LayerNorm), TypeError, "name must be a text, got 5"),
        (lambda: data.load(5), TypeError, "name_or_path must be a dataset's name or a path, got 5"),
        (lambda: data.load(GRAPHS), TypeError, "name_or_path must be a dataset's name or a path, got PackedGraphs"),
        (lambda: data.load(b"MUTAG"), TypeError, "name_or_path must be a dataset's name or a path, got b'MUTAG'"),
        (lambda: data.load(""), ValueError, "the name is empty. Remedy: "),
        (lambda: data.load("synthetic:trees", 5), TypeError, "root must be the path of a folder, got 5"),
        (lambda: data.save_packed(GRAPHS, 5), TypeError, "path must be the path of a file, got 5"),
        (lambda: data.open_packed(None), TypeError, "path must be the path of a file, got None"),
        (lambda: data.from_networkx(5, [0]), TypeError, "graphs must be a list of NetworkX graphs, got 5"),
        (lambda: data.from_networkx([5], [0]), TypeError, "graphs[0] must be a NetworkX graph, got 5"),
        (lambda: data.from_pyg(5), TypeError, "dataset must be a dataset of PyTorch Geometric or a list"),
        (lambda: data.from_pyg([5]), TypeError, "dataset[0] must be a Data object of PyTorch Geometric, got 5"),
        (lambda: graphnorm.compare([]), ValueError, "there are no graphs. Remedy: give at least two graphs"),
        (lambda: compare(norms=5), TypeError, 'norms must be names, as in ["batch", "graph"] or'),
        (lambda: compare(norms=[5]), TypeError, "each of norms must be a name, got 5"),
        (lambda: compare(baselines=5), TypeError, "baselines must be names"),
        (lambda: compare(model=5), TypeError, "model must be a name, FILE.py:NAME, a class or a function, got 5"),
        (lambda: compare(protocol=[]), ValueError, "protocol has no value. Remedy: give one"),
        (lambda: compare(readout=5), TypeError, "readout must be the name of a readout, got 5"),
        (lambda: compare(epochs="5"), TypeError, "epochs must be a number, got '5'"),
        (lambda: compare(epochs=float("inf")), ValueError, "epochs is inf. Remedy: give a whole number"),
        (lambda: compare(lr="x"), TypeError, "lr must be a number, got 'x'"),
        (lambda: compare(device=[]), ValueError, "device has no value. Remedy: give one"),
        (lambda: compare(workers="2"), TypeError, "workers must be a number, got '2'"),
        (lambda: compare(out=5), TypeError, "out must be the path of a folder, got 5"),
        (lambda: graphnorm.load_model(5), TypeError, "path must be the path of a file that save_model wrote, got 5"),
        (lambda: graphnorm.save_model(5, GRAPHS, "m"), TypeError, "outcome must be what training gives"),
        (lambda: analysis.advise(GRAPHS), TypeError, "facts must be Facts about a dataset, as gather_facts("),
        (lambda: analysis.advise(analysis.Facts(), 5), TypeError, "measured must be the Result"),
        (lambda: analysis.spectra(5), TypeError, "graphs must be PackedGraphs, which graphnorm.data.load gives, got 5"),
        (lambda: analysis.regularity("MUTAG"), TypeError, "graphs must be PackedGraphs, which graphnorm.data.load"),
    ],
)
def test_a_wrong_argument_is_named(call: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        call()


@pytest.mark.parametrize("module", ["graphnorm", "graphnorm.data", "graphnorm.study", "graphnorm.report"])
def test_a_path_may_be_a_text_everywhere(module: str) -> None:
    """By the signatures: what takes a ``Path`` takes ``str | os.PathLike[str]``, or says that it takes ``str``."""
    public = importlib.import_module(module)
    functions = [found for name in dir(public) if inspect.isfunction(found := getattr(public, name))]
    assert functions
    for function in functions:
        for argument in inspect.signature(function).parameters.values():
            assert "Path" not in str(argument.annotation) or "str" in str(argument.annotation), (function, argument)


@pytest.mark.parametrize("kind", [str, Path])
def test_files_are_written_and_read_by_texts_and_paths(tmp_path: Path, kind: type) -> None:
    pytest.importorskip("safetensors")
    packed, table, drawn = (kind(tmp_path / name) for name in ("g.safetensors", "t.csv", "d.svg"))
    data.save_packed(GRAPHS, packed)
    assert data.open_packed(packed) == data.load(packed) == GRAPHS
    Path(table).write_text("smiles,label\nCC,1\n")
    assert data.is_table(table)
    assert data.read_table(table).columns["label"] == ["1"]
    assert data.sha256_of(table) == data.sha256_of(Path(table))
    pytest.importorskip("matplotlib")
    data.save_drawing(data.draw(GRAPHS, per_class=1), drawn)
    assert Path(drawn).read_text().startswith("<?xml")
    for read in (data.open_packed, data.read_table):
        with pytest.raises(DataError, match="there is no such file"):
            read(kind(tmp_path / "none.csv"))
