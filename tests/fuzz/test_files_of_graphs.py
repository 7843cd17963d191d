"""TU folders, OGB folders, zip archives, tables of SMILES, packed files and the cache, damaged in every way."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.conftest import OGB_FILES, TU_FILES
from tests.fuzz.promises import answer_or_refusal, damaged, nothing_half_written

from graphnorm.data import PackedGraphs, cache_root, load, save_packed, synthetic

TU_TEXTS = {f"TINY_{part}.txt": text.encode() for part, text in TU_FILES.items()} | {
    "TINY_node_attributes.txt": b"1,2\n3,4\n5,6\n7,8\n9,0.5\n1e3,2\n"
}
OGB_TEXTS = {f"{name}.csv.gz": gzip.compress(text.encode(), mtime=0) for name, text in OGB_FILES.items()}
TABLE = b"smiles,label,a,b,part\nCCO,1,,0.5,train\nc1ccccc1,0,1,-2,val\nCC(=O)O,1,0,1e3,test\nOCC,0,1,,train\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that all examples write to, with a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHNORM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield tmp_path_factory.mktemp("fuzz")


def write(folder: Path, texts: dict[str, bytes]) -> None:
    for name, content in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # loaded graphs may still be mapped to it
        path.write_bytes(content)


def load_or_refuse(path: Path, **options: Any) -> bool:
    """Whether the graphs were loaded; what was loaded fits together."""
    graphs = answer_or_refusal(load, path, **options)
    nothing_half_written(cache_root())
    if not isinstance(graphs, PackedGraphs):
        assert str(path) in str(graphs)
        return False
    batch = graphs.batch(range(graphs.num_graphs))
    assert int(batch.ptr[-1]) == graphs.num_nodes
    assert graphs.features(batch).isfinite().all()
    assert batch.col.numel() == 0 or int(batch.col.max()) < graphs.num_nodes
    assert len(set(graphs.classes)) == graphs.num_classes
    return True


@given(data=st.data())
def test_tu_folders(place: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(TU_TEXTS)))
    write(place / "TINY", TU_TEXTS | {name: data.draw(damaged(TU_TEXTS[name]))})
    load_or_refuse(place / "TINY", symmetrise=True, merge_duplicates=True)


@given(st.dictionaries(st.sampled_from(sorted(TU_TEXTS)), st.text("0123456789,-. \n", max_size=40)))
def test_any_text_in_tu_folders(place: Path, texts: dict[str, str]) -> None:
    write(place / "TINY", TU_TEXTS | {name: text.encode() for name, text in texts.items()})
    load_or_refuse(place / "TINY", symmetrise=True, merge_duplicates=True)


@given(data=st.data(), method=st.sampled_from((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)))
def test_archives(place: Path, data: st.DataObject, method: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, content in TU_TEXTS.items():
            archive.writestr(zipfile.ZipInfo(f"TINY/{name}"), content, method)
    write(place, {"TINY.zip": data.draw(damaged(packed.getvalue()))})
    load_or_refuse(place / "TINY.zip")


@given(data=st.data(), inside=st.booleans())
def test_ogb_folders(place: Path, data: st.DataObject, inside: bool) -> None:
    name = data.draw(st.sampled_from(sorted(OGB_TEXTS)))
    content = OGB_TEXTS[name]
    content = gzip.compress(data.draw(damaged(gzip.decompress(content)))) if inside else data.draw(damaged(content))
    write(place / "ogbg_tiny", OGB_TEXTS | {name: content})
    load_or_refuse(place / "ogbg_tiny")


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "target": st.sampled_from(["label", "a,b", "a", "absent", "", ","]),
        "task": st.sampled_from(["classes", "binary", "values"]),
        "threshold": st.sampled_from(["median", 0.5]),
        "split": st.sampled_from(["scaffold", "random", "part", "absent"]),
        "skip_invalid": st.booleans(),
        "skip_unlabelled": st.booleans(),
        "unlabelled": st.booleans(),
    },
)


@given(content=damaged(TABLE), options=OPTIONS, packed=st.booleans())
@pytest.mark.filterwarnings("ignore::graphnorm.data.DataWarning")
def test_tables(place: Path, content: bytes, options: dict[str, Any], packed: bool) -> None:
    name = "t.csv.gz" if packed else "t.csv"
    write(place, {name: gzip.compress(content) if packed else content})
    load_or_refuse(place / name, **options)


@pytest.fixture(scope="module")
def parquet(place: Path) -> bytes:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"smiles": ["CCO", "CC", "C"], "y": [0.5, None, 2]}), place / "t.parquet")
    return (place / "t.parquet").read_bytes()


@given(data=st.data())
@pytest.mark.filterwarnings("ignore::graphnorm.data.DataWarning")
def test_parquet(place: Path, parquet: bytes, data: st.DataObject) -> None:
    write(place, {"t.parquet": data.draw(damaged(parquet))})
    load_or_refuse(place / "t.parquet")


SPLITS = {
    "split.json": b'{"train": [0, 1], "valid": [2], "test": [3]}',
    "split.csv": b"row,part\n0,train\n1,train\n2,valid\n3,test\n",
}


@given(data=st.data(), name=st.sampled_from(sorted(SPLITS)))
@pytest.mark.filterwarnings("ignore::graphnorm.data.DataWarning")
def test_files_of_splits(place: Path, data: st.DataObject, name: str) -> None:
    write(place, {"good.csv": TABLE, name: data.draw(damaged(SPLITS[name]))})
    graphs = answer_or_refusal(load, place / "good.csv", target="label", split=place / name)
    if isinstance(graphs, PackedGraphs):
        ids = [k for part in graphs.splits.values() for k in part.tolist()]
        assert {"train", "test"} <= set(graphs.splits)
        assert len(set(ids)) == len(ids)
        assert set(ids) <= set(range(4))


@pytest.fixture(scope="module")
def packed(place: Path) -> bytes:
    save_packed(synthetic.regular(4), place / "p.safetensors")
    return (place / "p.safetensors").read_bytes()


@given(data=st.data(), in_header=st.booleans())
def test_packed_files(place: Path, packed: bytes, data: st.DataObject, in_header: bool) -> None:
    """Every damage is noticed: equal content alone is loaded."""
    header = 8 + int.from_bytes(packed[:8], "little")
    parts = packed[:header], packed[header:]
    content = data.draw(damaged(parts[0])) + parts[1] if in_header else parts[0] + data.draw(damaged(parts[1]))
    write(place, {"p.safetensors": content})
    if load_or_refuse(place / "p.safetensors"):
        assert load(place / "p.safetensors") == synthetic.regular(4)


@given(data=st.data())
def test_the_cache(place: Path, data: st.DataObject) -> None:
    """A damaged file of the cache is made again."""
    write(place / "TINY", TU_TEXTS)
    for old in (cache_root() / "packed").glob("*"):
        old.unlink()
    first = load(place / "TINY")
    (path,) = (cache_root() / "packed").iterdir()
    good = path.read_bytes()
    write(path.parent, {path.name: data.draw(damaged(good))})
    assert load(place / "TINY") == first
    assert path.read_bytes() == good or load(place / "TINY") == first
