"""Thousands of damaged files: each loads or gives one clear error, and nothing is left half-written."""

from __future__ import annotations

import gzip
import random
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphnorm.data import GraphnormError, PackedGraphs, load, save_packed, synthetic

SLOWEST = 5.0  # seconds that a single small file may take


def mutate(content: bytes, random_: random.Random) -> bytes:
    """Apply one to four mutations: flipped bits, other bytes, removed, doubled or swapped pieces, cuts, new text."""
    data = bytearray(content)
    for _ in range(random_.randint(1, 4)):
        at = random_.randrange(len(data) + 1)
        end = min(len(data), at + random_.choice((1, 2, 4, 16, 64)))
        kind = random_.randrange(8)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << random_.randrange(8)
        elif kind == 1:
            data[at:end] = random_.randbytes(end - at)
        elif kind == 2:
            del data[at:end]
        elif kind == 3:
            data[at:at] = data[at:end]
        elif kind == 4:
            del data[at:]
        elif kind == 5:
            data[at:end] = b"\xff" * (end - at)
        elif kind == 6:
            data[at:at] = random_.choice(
                (b"\n", b",", b"-1", b"999999999", b"nan", b"\0", b"1e5", b"\r", b" ", "é".encode())
            )
        else:
            other = random_.randrange(len(data) + 1)
            data[at:end], data[other : other + 4] = data[other : other + 4], data[at:end]
        if not data:
            data = bytearray(b"\n")
    return bytes(data)


def loaded_or_refused(path: Path, **keywords: object) -> PackedGraphs | None:
    """The dataset, or None after one clear error."""
    try:
        return load(path, **keywords)  # type: ignore[arg-type]
    except GraphnormError as error:
        refusal = str(error)
    assert str(path) in refusal
    assert "Remedy: " in refusal
    return None


def check(path: Path, own_cache: Path, **keywords: object) -> bool:
    """Whether the file was loaded; anything but a packed dataset or a GraphnormError fails the test."""
    start = time.perf_counter()
    graphs = loaded_or_refused(path, **keywords)
    if graphs is not None:
        batch = graphs.batch(range(graphs.num_graphs))
        assert int(batch.ptr[-1]) == graphs.num_nodes
        assert batch.col.numel() == 0 or int(batch.col.max()) < graphs.num_nodes
    assert time.perf_counter() - start < SLOWEST
    packed = own_cache / "packed"
    assert not packed.exists() or not [p for p in packed.iterdir() if p.name.startswith(".")]
    return graphs is not None


def fuzz(
    content: bytes,
    path: Path,
    own_cache: Path,
    rounds: int,
    seed: int,
    given_: Path | None = None,
    **keywords: object,
) -> int:
    """Mutate the file and load ``given_`` (by default the file), ``rounds`` times; return how often it loaded."""
    random_ = random.Random(seed)
    own_cache.mkdir(exist_ok=True)
    siblings = sorted(path.parent.iterdir())
    loads = 0
    for _ in range(rounds):
        path.unlink(missing_ok=True)
        path.write_bytes(mutate(content, random_))
        loads += check(given_ or path, own_cache, **keywords)
    assert sorted(path.parent.iterdir()) == siblings
    return loads


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_archives(write_tu: Callable[..., Path], tmp_path: Path, own_cache: Path, method: int) -> None:
    folder, path = write_tu(), tmp_path / "TINY.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, f"TINY/{file.name}")
    assert fuzz(path.read_bytes(), path, own_cache, 1500, seed=method) < 1500  # some mutations are noticed


@pytest.mark.parametrize("part", ["A", "graph_indicator", "graph_labels", "node_labels", "node_attributes"])
def test_text_files(write_tu: Callable[..., Path], own_cache: Path, part: str) -> None:
    folder = write_tu(node_attributes="1,2\n3,4\n5,6\n7,8\n9,0.5\n1e3,2\n")
    path = folder / f"TINY_{part}.txt"
    loads = fuzz(path.read_bytes(), path, own_cache, 600, len(part), folder, symmetrise=True, merge_duplicates=True)
    assert loads > 0  # some mutations are harmless, so not only the first check is tested


def test_a_real_archive(archives: Path, tmp_path: Path, own_cache: Path) -> None:
    path = tmp_path / "MUTAG.zip"
    content = (archives / "MUTAG.zip").read_bytes()
    path.write_bytes(content)
    assert fuzz(content, path, own_cache, 1500, seed=0) < 1500  # some mutations are noticed


def test_the_texts_of_a_real_archive(archives: Path, tmp_path: Path, own_cache: Path) -> None:
    folder = tmp_path / "MUTAG"
    folder.mkdir()
    texts = {}
    with zipfile.ZipFile(archives / "MUTAG.zip") as archive:
        for name in archive.namelist():
            texts[folder / Path(name).name] = archive.read(name)
    for path, content in texts.items():
        path.write_bytes(content)
    loads = 0
    for path, content in texts.items():
        loads += fuzz(content, path, own_cache, 200, 1, folder)
        path.write_bytes(content)
    assert 0 < loads < 200 * len(texts)


@pytest.mark.parametrize("part", ["edge", "node-feat", "num-edge-list", "num-node-list", "graph-label"])
def test_ogb_files(write_ogb: Callable[..., Path], own_cache: Path, part: str) -> None:
    folder = write_ogb()
    path = folder / "raw" / f"{part}.csv.gz"
    packed = path.read_bytes()
    fuzz(packed, path, own_cache, 150, 1, folder)
    random_ = random.Random(2)
    for _ in range(300):
        path.write_bytes(gzip.compress(mutate(gzip.decompress(packed), random_), 1))
        check(folder, own_cache)


def test_tables_of_smiles(tmp_path: Path, own_cache: Path) -> None:
    content = b"smiles,label\nCCO,1\nc1ccccc1,0\nC[C@H](N)C(=O)O,1\nF/C=C/F,0\n"
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    assert fuzz(content, path, own_cache, 800, seed=0) > 0


def test_packed_files(tmp_path: Path, own_cache: Path) -> None:
    path = tmp_path / "p.safetensors"
    save_packed(synthetic.regular(4), path)
    content = path.read_bytes()
    random_ = random.Random(0)
    header = 8 + int.from_bytes(content[:8], "little")
    loads = 0
    for _ in range(600):
        path.unlink()
        path.write_bytes(mutate(content[:header], random_) + content[header:])
        loads += loaded_or_refused(path) is not None
    assert loads < 600  # some mutations are noticed


@given(
    st.dictionaries(st.sampled_from(["A", "graph_indicator", "graph_labels"]), st.text("0123456789,- \n", max_size=40))
)
@settings(max_examples=300, deadline=None)
def test_any_text_at_all(tmp_path_factory: pytest.TempPathFactory, texts: dict[str, str]) -> None:
    good = {"A": "1, 2\n2, 1\n", "graph_indicator": "1\n1\n2\n", "graph_labels": "0\n1\n"}
    folder = tmp_path_factory.mktemp("any") / "TINY"
    folder.mkdir()
    for part, text in (good | texts).items():
        (folder / f"TINY_{part}.txt").write_text(text)
    graphs = loaded_or_refused(folder, symmetrise=True, merge_duplicates=True)
    assert graphs is None or graphs.num_nodes == int(graphs.sizes.sum())
