"""A user's own classes and functions: found by ``FILE.py:NAME``, identified by their source, packed for workers."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import linecache
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from graphnorm.errors import GraphnormError, need, unknown

__all__ = ["EditedError", "OwnCode", "files_of", "find_code", "line_of", "pack_code", "parameters_of", "unpack_code"]


class EditedError(GraphnormError):
    """The code that would run is not the code that its file holds."""


class OwnCode(NamedTuple):
    """A class or function of a user."""

    place: str
    """``FILE.py:NAME``, or ``MODULE:NAME`` for an installed module."""
    thing: Callable[..., Any]
    digest: str
    """Eight hexadecimal digits of its source: the file and the modules beside it that it imports."""
    files: frozenset[Path] = frozenset()
    """These files; none for a notebook."""


def find_code(given: str | Callable[..., Any], what: str) -> OwnCode:
    """Find a class or function by ``FILE.py:NAME`` or ``MODULE:NAME``, or describe one that is given.

    A file is read again at each call. Modules may be in the current folder.

    what: for messages, as in "model".

    >>> find_code("torch.nn:LayerNorm", "normalization").place
    'torch.nn:LayerNorm'
    """
    if not isinstance(given, str):
        return _describe(given, what)
    place, _, name = given.rpartition(":")
    if not place or not name.isidentifier():
        raise GraphnormError(f"{given!r} names no {what}", remedy="write FILE.py:NAME or MODULE:NAME")
    if place.endswith(".py"):
        module = _import_file(place)
    else:
        module = _with_folder(str(Path.cwd()), lambda: importlib.import_module(place), place)
    thing = getattr(module, name, None)
    if not callable(thing):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        if hasattr(module, name) or not own:
            problem = "is not a class or function" if hasattr(module, name) else "does not exist there"
            raise GraphnormError(f"{name} {problem}", where=place, remedy="name a class or function of it")
        raise unknown("name", name, own, where=place)
    if getattr(module, "__file__", None) is None:
        raise GraphnormError("it is built into Python", where=place, remedy=f"name a {what} of a file")
    shown = Path(place).name if place.endswith(".py") else place
    files = _local_files(module)
    return OwnCode(f"{shown}:{name}", thing, _digest(Path(module.__file__ or ""), files), frozenset(files))


def parameters_of(thing: Callable[..., Any], name: str) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(thing).parameters)
    except (TypeError, ValueError) as error:
        raise GraphnormError(f"the model {name} has no signature", remedy="write a class or a function") from error


def _describe(thing: Callable[..., Any], what: str) -> OwnCode:
    name = getattr(thing, "__qualname__", "")
    module = sys.modules.get(getattr(thing, "__module__", ""))
    if not callable(thing) or module is None or not all(part.isidentifier() for part in name.split(".")):
        raise GraphnormError(
            f"the {what} {thing!r} has no source that could identify it",
            remedy="give a class or function that is defined at the top of a file or a notebook",
        )
    file = getattr(module, "__file__", None)
    if file is None:
        return OwnCode(f"notebook:{name}", thing, _digest_of_texts(_cells(thing, module, what).items()))
    if not Path(file).is_file():  # a script from standard input has "<stdin>"
        raise _unreadable(thing, what)
    files = _local_files(module)
    _refuse_edited(thing, files)
    shown = module.__name__ if "site-packages" in Path(file).parts else Path(file).name
    return OwnCode(f"{shown}:{name}", thing, _digest(Path(file), files), frozenset(files))


def _unreadable(thing: Any, what: str) -> GraphnormError:
    return GraphnormError(f"the source of the {what} {thing!r} cannot be read", remedy="put it into a file")


def _refuse_edited(thing: Callable[..., Any], files: list[Path]) -> None:
    """Refuse code of a file that was edited after its import: its digest would be that of code which does not run."""
    modules = [module for module in list(sys.modules.values()) if getattr(module, "__file__", None)]
    loaded = {Path(module.__file__ or ""): module for module in modules}
    for file in filter(_is_own, files):
        module = loaded.get(file)
        if module is None or type(getattr(module, "__loader__", None)) is not importlib.machinery.SourceFileLoader:
            continue  # such as pytest's, which rewrites what it loads
        written = set(_codes(compile(file.read_bytes(), str(file), "exec", dont_inherit=True)))
        here = {thing.__qualname__: thing} if thing.__module__ == module.__name__ else {}
        if any(code not in written for code in _running({**vars(module), **here}, module)):
            raise EditedError(
                "the file was edited after it was imported, and the old code would run",
                where=str(file),
                remedy=f"reload it, importlib.reload({module.__name__}), or start Python again",
            )


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


_RESUMES = ("torch_dynamo_resume_in", "<resume in")


def _running(namespace: Mapping[str, Any], module: ModuleType, prefix: str = "") -> Iterator[CodeType]:
    """The code of the functions and methods in a namespace that the text of a module defines."""
    for name, value in namespace.items():
        function = getattr(value, "__func__", value)
        if isinstance(value, type):
            if value.__module__ == module.__name__ and value.__qualname__ == prefix + name:
                yield from _running(vars(value), module, f"{prefix}{name}.")
        elif isinstance(function, FunctionType) and (original := inspect.unwrap(function)).__globals__ is vars(module):
            code = original.__code__
            # A dataclass generates some, and torch.compile goes on after a break of its graph in some of its own.
            generated = code.co_filename.startswith("<") or code.co_name.startswith(_RESUMES)
            yield from () if generated else (code,)


def files_of(thing: Any) -> frozenset[Path]:
    """The files of the module that defines something, and of those beside it that it imports."""
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    there = module is not None and Path(getattr(module, "__file__", None) or "").is_file()
    return frozenset(_local_files(module)) if module and there else frozenset()


def line_of(error: BaseException, files: Iterable[Path]) -> tuple[str, int | None] | tuple[None, None]:
    """The file, of these, and its line in which an error was raised, or which called what raised it."""
    names = set(map(str, files))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in names]
    return (frames[-1].filename, frames[-1].lineno) if frames else (None, None)


def _import_file(place: str) -> ModuleType:
    path = Path(place).resolve()
    if not path.is_file():
        raise GraphnormError("there is no such file", where=place, remedy="check the path")
    module = ModuleType(f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}")
    module.__file__, module.__package__ = str(path), ""
    sys.modules[module.__name__] = module
    linecache.checkcache(str(path))

    def execute() -> ModuleType:
        _forget_beside(module)
        # Not by importlib, which would take a compiled file for up to date that is older by less than a second.
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
        return module

    return _with_folder(str(path.parent), execute, place)


def _forget_beside(module: ModuleType) -> None:
    """Let a file import the modules beside it afresh, as its digest covers what is in them now.

    A module of the same name from another folder is refused: Python has only one of a name, and so have workers.
    """
    path = Path(module.__file__ or "")
    for file in set(_local_files(module)) - {path}:
        parts = file.relative_to(path.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        there = getattr(sys.modules.get(name), "__file__", None)
        if there is None or not _is_own(Path(there)):
            continue
        if Path(there).resolve() != file.resolve():
            raise GraphnormError(
                f"it imports {name} from beside it, and another module of this name is loaded from {there}",
                where=str(path),
                remedy="rename one of them",
            )
        del sys.modules[name]


def _with_folder(folder: str, load: Callable[[], ModuleType], place: str) -> ModuleType:
    """Import with a folder on the path, without leaving compiled files in it."""
    wrote = sys.dont_write_bytecode
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()
    try:
        return load()
    except GraphnormError:
        raise
    except ImportError as error:
        if "attempted relative import" in str(error):
            module = Path(place).stem
            problem = f"{place} cannot be imported: it is part of a package, {error}"
            remedy = f"name it as a module, from the folder that holds its package: PACKAGE.{module}:NAME"
        elif isinstance(error, ModuleNotFoundError) and error.name == place.partition(".")[0]:
            problem, remedy = f"there is no module {error.name!r}, in this folder or installed", "write FILE.py:NAME"
        else:
            problem, remedy = f"{place} cannot be imported: {error}", "install what it imports, or put it beside it"
        raise GraphnormError(problem, remedy=remedy) from error
    except (Exception, SystemExit) as error:
        line = error.lineno if isinstance(error, SyntaxError) else _line_in(place, error)
        raise GraphnormError(
            f"it cannot be imported: {type(error).__name__}: {error}", where=place, line=line, remedy="correct it"
        ) from error
    finally:
        sys.dont_write_bytecode = wrote
        sys.path.remove(folder)


def _line_in(place: str, error: BaseException) -> int | None:
    """The line of a file in which an error was raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(place)]
    return frames[-1].lineno if frames and place.endswith(".py") else None


def _local_files(module: ModuleType) -> list[Path]:
    """The module's file, and those of the modules in its folder or package that it imports, directly or not."""
    file = Path(module.__file__ or "")
    if not _is_own(file):
        return [file]
    root = file.parents[module.__name__.count(".") + (file.name == "__init__.py")]
    found, waiting = {file}, [file]
    while waiting:
        new = _imported(waiting.pop(), root) - found
        found |= new
        waiting += new
    return sorted(found)


def _is_own(file: Path) -> bool:
    return "site-packages" not in file.parts and not file.is_relative_to(sys.base_prefix)


def _imported(file: Path, root: Path) -> set[Path]:
    """The files below a folder that a file of it imports."""
    package = file.relative_to(root).parts[:-1]
    names: list[tuple[str, ...]] = []
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names += [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            whole = (*above, *(node.module.split(".") if node.module else ()))
            names += [whole, *((*whole, alias.name) for alias in node.names)]
    found: set[Path] = set()
    for name in names:
        for length in range(1, len(name) + 1):
            place = root.joinpath(*name[:length])
            found |= {one for one in (place.with_suffix(".py"), place / "__init__.py") if one.is_file()}
    return found


def _digest(main: Path, files: list[Path]) -> str:
    """Of their text, and of the names by which the main file imports the others; its own name does not count."""
    names = {file: "" if file == main else Path(os.path.relpath(file, main.parent)).as_posix() for file in files}
    return _digest_of_texts((name, file.read_bytes()) for file, name in names.items())


def _digest_of_texts(texts: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, text in sorted(texts):
        digest.update(f"{name} {len(text)} ".encode() + text)
    return digest.hexdigest()[:8]


def _cells(thing: Any, notebook: ModuleType, what: str) -> dict[str, bytes]:
    """The cells of a notebook that define a class or function and what of the notebook it uses, and used constants."""
    texts: dict[str, bytes] = {}
    waiting = [thing]
    while waiting:
        one = waiting.pop()
        methods = [one, *vars(one).values()] if isinstance(one, type) else [one]
        codes = [method.__code__ for method in methods if hasattr(method, "__code__")]
        cell = "".join(linecache.getlines(codes[0].co_filename)) if codes else ""
        if not cell:
            raise _unreadable(one, what)
        if cell.encode() in texts.values():
            continue
        texts[one.__qualname__] = cell.encode()
        lines = [line for line in cell.splitlines() if not line.lstrip().startswith(("%", "!", "?"))]
        names = {node.id for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, ast.Name)}
        for name in sorted(names & vars(notebook).keys()):
            value = vars(notebook)[name]
            if isinstance(value, int | float | str | tuple):
                texts[name] = repr(value).encode()
            elif getattr(value, "__module__", "") == notebook.__name__ and callable(value):
                waiting.append(value)
    return texts


def pack_code(contents: Any, files: Iterable[Path], task: str) -> bytes:
    """Pickle objects together with the source of the user's modules, for a process that cannot import these.

    What is defined in ``__main__``, a script or a notebook, is pickled by value.
    """
    cloudpickle = need("cloudpickle", task, "study")
    own = {file for file in files if "site-packages" not in file.parts}
    modules = {
        name: (module.__file__ or "", Path(module.__file__ or "").read_bytes(), hasattr(module, "__path__"))
        for name, module in list(sys.modules.items())
        if name != "__main__" and Path(getattr(module, "__file__", None) or "") in own
    }
    # PyTorch Geometric writes a module MODULE_CLASS_propagate for every class of MessagePassing.
    written = ("__main___", *(f"{name}_" for name in modules))
    for name, module in list(sys.modules.items()):
        if name.startswith(written) and name not in modules:
            cloudpickle.register_pickle_by_value(module)
    # PyTorch Geometric evaluates annotations with the names of the module, and that of the worker is another.
    main = vars(sys.modules["__main__"])
    imported = {
        name: cloudpickle.dumps(value)
        for name, value in main.items()
        if isinstance(value, type | ModuleType) or type(value).__module__ in ("typing", "collections.abc")
        if getattr(value, "__module__", "") != "__main__" and not name.startswith("_")
    }
    return pickle.dumps((modules, imported, cloudpickle.dumps(contents)))


def unpack_code(packed: bytes) -> Any:
    """Undo :func:`pack_code`; the modules are imported from their packed source."""
    modules, imported, contents = pickle.loads(packed)
    sys.meta_path.insert(0, _FromMemory(modules))
    main = vars(sys.modules["__main__"])
    for name in imported.keys() - main.keys():
        with contextlib.suppress(ImportError):
            main[name] = pickle.loads(imported[name])
    return pickle.loads(contents)


class _FromMemory(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports modules from their source, by name: (file, source, whether it is a package)."""

    def __init__(self, modules: dict[str, tuple[str, bytes, bool]]) -> None:
        self._modules = modules

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname in self._modules:
            file, _, is_package = self._modules[fullname]
            spec = importlib.machinery.ModuleSpec(fullname, self, origin=file, is_package=is_package)
            spec.has_location = True
            return spec
        if any(name.startswith(f"{fullname}.") for name in self._modules):  # a package without __init__.py
            return importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        return None

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._modules[fullname][1])

    def get_code(self, fullname: str) -> CodeType:
        file, source, _ = self._modules[fullname]
        code: CodeType = compile(source, file, "exec")
        return code

    def is_package(self, fullname: str) -> bool:
        return self._modules[fullname][2]
