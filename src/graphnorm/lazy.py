"""Packages whose names are imported at their first use.

The names of such a package are the imports of its stub, ``__init__.pyi``, which type checkers and editors read too.
Importing one of its modules then costs no more than that module needs: the store is read without torch.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["names_of_stub"]


def names_of_stub(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, from the stub beside its ``__init__.py``.

    >>> import graphnorm.study
    >>> graphnorm.study.find_protocol("fair").reported
    'test'
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    where = {
        alias.name: str(line.module) for line in stub.body if isinstance(line, ast.ImportFrom) for alias in line.names
    }
    names = sorted(where)

    def find(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(where[name]), name)
        setattr(sys.modules[package], name, found)  # not looked up again
        return found

    return find, lambda: names, names
