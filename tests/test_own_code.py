"""A user's own code: found by its place, identified by its source, carried to workers."""

from __future__ import annotations

import importlib
import linecache
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from graphnorm.errors import GraphnormError
from graphnorm.layers import REGISTRY, norm_code, register_norm
from graphnorm.own_code import find_code, pack_code

FILE = """
import helper
from parts.layers import width

class Net:
    def size(self):
        return helper.factor * width()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "net.py").write_text(FILE)
    (tmp_path / "helper.py").write_text("factor = 2\n")
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "layers.py").write_text("from .more import three\ndef width():\n    return three\n")
    (tmp_path / "parts" / "more.py").write_text("three = 3\n")
    (tmp_path / "unrelated.py").write_text("x = 1\n")
    yield tmp_path
    for name in ("helper", "parts", "parts.layers", "parts.more"):
        sys.modules.pop(name, None)


def test_the_digest_covers_the_file_and_what_it_imports_beside_it(folder):
    def digest() -> str:
        return find_code(f"{folder}/net.py:Net", "model").digest

    code = find_code(f"{folder}/net.py:Net", "model")
    assert (code.place, code.thing().size()) == ("net.py:Net", 6)
    assert {file.name for file in code.files} == {"net.py", "helper.py", "__init__.py", "layers.py", "more.py"}
    assert len(code.digest) == 8
    (folder / "unrelated.py").write_text("x = 2\n")
    assert digest() == code.digest
    seen = {code.digest}
    for name in ("net.py", "helper.py", "parts/more.py"):
        file = folder / name
        file.write_text(file.read_text() + "# changed\n")
        assert digest() not in seen
        seen.add(digest())
    assert find_code(find_code(f"{folder}/net.py:Net", "model").thing, "model").digest == digest()
    assert not list(folder.rglob("__pycache__"))


def test_the_digest_is_that_of_the_source_whatever_the_file_is_called(folder):
    def digest(name: str) -> str:
        return find_code(f"{folder}/{name}:Net", "model").digest

    (folder / "renamed.py").write_text(FILE)
    assert digest("renamed.py") == digest("net.py")


def test_files_of_one_name_in_two_folders_are_told_apart(folder):
    (folder / "net.py").write_text("from a import layers\nfrom b import layers\ndef net():\n    return 1\n")
    digests = set()
    for one, other in (("x = 1\n", "x = 2\n"), ("x = 2\n", "x = 1\n")):
        for name, text in (("a", one), ("b", other)):
            (folder / name).mkdir(exist_ok=True)
            (folder / name / "layers.py").write_text(text)
        digests.add(find_code(f"{folder}/net.py:net", "model").digest)
    for name in ("a", "a.layers", "b", "b.layers"):
        sys.modules.pop(name, None)
    assert len(digests) == 2


def test_modules_beside_a_file_are_read_again_as_their_digest_is(folder):
    before = find_code(f"{folder}/net.py:Net", "model")
    (folder / "helper.py").write_text("factor = 5\n")
    (folder / "parts" / "more.py").write_text("three = 7\n")
    after = find_code(f"{folder}/net.py:Net", "model")
    assert (before.thing().size(), after.thing().size()) == (6, 35)
    assert before.digest != after.digest


def test_two_modules_of_one_name_beside_two_files_are_refused(folder):
    find_code(f"{folder}/net.py:Net", "model")
    (folder / "other").mkdir()
    (folder / "other" / "net.py").write_text("import helper\n\ndef net():\n    return helper.factor\n")
    (folder / "other" / "helper.py").write_text("factor = 4\n")
    with pytest.raises(GraphnormError, match=r"another module of this name is loaded.*rename one of them"):
        find_code(f"{folder}/other/net.py:net", "model")


def test_a_file_is_read_again_at_each_call(tmp_path):
    file = tmp_path / "one.py"
    for value in (1, 2):
        file.write_text(f"def one():\n    return {value}\n")
        assert find_code(f"{file}:one", "model").thing() == value


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("gone.py:Net", "no such file"),
        ("net.py:Nett", "unknown name 'Nett'"),
        ("net.py:helper", "not a class or function"),
        ("broken.py:Net", "SyntaxError"),
        ("raises.py:Net", "ZeroDivisionError"),
        ("imports.py:Net", "No module named 'not_there'"),
        ("parts/layers.py:width", "part of a package"),
        ("no_such_module:Net", "no module 'no_such_module'"),
        ("builtins:print", "built into Python"),
        ("net.py", "names no model"),
        ("net.py:", "names no model"),
    ],
)
def test_mistakes_are_named(given, words, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "broken.py").write_text("class Net:\n    def (\n")
    (folder / "raises.py").write_text("x = 1\n1 / 0\n")
    (folder / "imports.py").write_text("import not_there\n")
    with pytest.raises(GraphnormError, match=words) as caught:
        find_code(given, "model")
    assert caught.value.remedy
    if given.startswith("parts"):
        assert "PACKAGE.layers:NAME" in caught.value.remedy
        assert find_code("parts.layers:width", "model").thing() == 3
    if given.startswith(("broken", "raises")):
        assert f"{given.partition(':')[0]}:2: " in str(caught.value)


LOADED = """
from dataclasses import dataclass
from functools import wraps
import helper

def decorated(function):
    return wraps(function)(lambda *arguments: function(*arguments))

@dataclass
class Net:
    width: int = 3

    @staticmethod
    @decorated
    def size():
        return helper.factor * 2

Net.myself = Net
"""


@pytest.mark.parametrize("edited", ["loaded.py", "helper.py"])
def test_an_imported_class_whose_file_was_edited_is_refused(edited, folder, monkeypatch):
    """In Python the old code would run under the digest of the new."""
    monkeypatch.syspath_prepend(folder)
    (folder / "loaded.py").write_text(LOADED)
    (folder / "helper.py").write_text("factor = 2\ndef unused():\n    return 1\n")
    import loaded

    register_norm("edited", loaded.Net)
    before = [find_code(loaded.Net, "model").digest, norm_code("edited").digest]
    file = folder / edited
    file.write_text(file.read_text().replace("* 2", "* 4").replace("return 1", "return 2"))
    try:
        for find in (lambda: find_code(loaded.Net, "model"), lambda: norm_code("edited")):
            with pytest.raises(GraphnormError, match="edited after it was imported") as caught:
                find()
            assert (Path(caught.value.where), "importlib.reload" in caught.value.remedy) == (file, True)
        sys.dont_write_bytecode, wrote = True, sys.dont_write_bytecode
        importlib.invalidate_caches()
        importlib.reload(sys.modules[file.stem])
        sys.dont_write_bytecode = wrote
        assert find_code(loaded.Net, "model").digest not in before
    finally:
        del sys.modules["loaded"], REGISTRY["edited"]


def test_a_class_that_torch_compile_has_run_is_not_taken_for_edited(folder, monkeypatch):
    """After a break of its graph it leaves functions of its own among those of the file."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(folder)
    (folder / "broken_graph.py").write_text(
        "import torch\n\ndef net(x):\n    x = x + 1\n    torch._dynamo.graph_break()\n    return x * 2\n"
    )
    import broken_graph

    try:
        before = len(vars(broken_graph))
        assert float(torch.compile(broken_graph.net, backend="eager")(torch.ones(()))) == 4
        assert len(vars(broken_graph)) > before
        assert find_code(broken_graph.net, "model").place == "broken_graph.py:net"
    finally:
        del sys.modules["broken_graph"]


def test_what_has_no_source_is_refused():
    def inner() -> None:
        pass

    for thing in (inner, lambda: None, 3):
        with pytest.raises(GraphnormError, match="no source"):
            find_code(thing, "model")


def test_a_class_of_a_script_from_standard_input_is_refused():
    script = """
from graphnorm.errors import GraphnormError
from graphnorm.layers import norm_code, register_norm
from graphnorm.own_code import files_of, find_code

class Net:
    pass

register_norm("own", Net)
assert (norm_code("own"), files_of(Net)) == (None, frozenset())
try:
    find_code(Net, "model")
except GraphnormError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True)
    message = "the source of the model <class '__main__.Net'> cannot be read. Remedy: put it into a file.\n"
    assert (done.stdout, done.stderr) == (message, "")


def test_the_digest_of_a_notebook_covers_the_cells_that_are_used(monkeypatch):
    notebook = ModuleType("notebook_of_a_test")
    monkeypatch.setitem(sys.modules, notebook.__name__, notebook)

    def cell(number: int, text: str) -> None:
        name = f"<cell {number}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), vars(notebook))

    def digest() -> str:
        return find_code(notebook.Net, "model").digest

    cell(1, "WIDTH = 3\n")
    cell(2, "class Part:\n    def size(self):\n        return WIDTH\n")
    cell(3, "def other():\n    return 0\n")
    cell(4, "class Net:\n    def size(self):\n        return Part().size()\n")
    first = digest()
    assert find_code(notebook.Net, "model").place == "notebook:Net"
    cell(3, "def other():\n    return 1\n")
    assert digest() == first
    cell(2, "class Part:\n    def size(self):\n        return WIDTH + 1\n")
    second = digest()
    cell(1, "WIDTH = 4\n")
    assert len({first, second, digest()}) == 3
    for number in range(1, 5):
        del linecache.cache[f"<cell {number}>"]


def test_code_reaches_a_process_that_cannot_import_it(folder):
    code = find_code(f"{folder}/net.py:Net", "model")
    packed = pack_code(code, code.files, "a test")
    program = (
        "import inspect, sys; from graphnorm.own_code import unpack_code; "
        "thing = unpack_code(sys.stdin.buffer.read()).thing; "
        "print(thing().size(), inspect.getsource(thing).split()[1])"
    )
    (folder / "helper.py").unlink()
    done = subprocess.run([sys.executable, "-P", "-c", program], input=packed, capture_output=True, check=True)
    assert done.stdout.split() == [b"6", b"Net:"]
