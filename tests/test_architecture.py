"""The shape of the package: imports point one way, torch is the only thing needed, and no compiler either."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import graphnorm

ROOT = Path(graphnorm.__file__).parent

FOUNDATION = ("starting", "_kernels", "_version", "errors", "files", "wording", "randomness", "backends", "tracing")
FOUNDATION += ("segments", "adjacency")
LATER = (
    "starting",
    "data",
    "ops",
    "layers",
    "models",
    "training",
    "study",
    "analysis",
    "paper",
    "comparison",
    "report",
)
ORDER = (*FOUNDATION, *LATER, "commands", "cli", "__main__")
"""A part imports those before it, and no other."""


def imports(path: Path) -> set[str]:
    """The parts of the package that a file imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("graphnorm.")}
    return found


PARTS = sorted(path for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())


@pytest.mark.parametrize("part", PARTS, ids=lambda path: path.stem)
def test_imports_point_one_way(part):
    if part.stem == "__init__":
        return
    assert part.stem in ORDER, f"say in this test where {part.stem} stands"
    for path in [part] if part.is_file() else sorted(part.rglob("*.py")):
        wrong = imports(path) - set(ORDER[: ORDER.index(part.stem) + 1]) - {"__version__"}
        assert not wrong, f"{path.relative_to(ROOT)} imports {', '.join(sorted(wrong))}"


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT.parent)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_needs_torch_alone():
    """What comes in beside torch's own imports is our package and the standard library."""
    out = run(
        "import sys, torch; from torch.utils import _pytree; before = set(sys.modules); import graphnorm; "
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    new = set(out.split()) - set(sys.stdlib_module_names)
    assert new == {"graphnorm"}, new
    forbidden = {"triton", "torch_geometric", "numba", "matplotlib", "scipy", "pandas"}
    assert not forbidden & set(out.split())


def test_works_without_the_c_library():
    """Where no compiler was at hand plain torch does the work, with the same results."""
    out = run("""
import sys
sys.modules["graphnorm._kernels"] = None  # an import of it fails
import torch, graphnorm
from graphnorm import backends
assert backends.library is None
torch.manual_seed(0)
x = torch.randn(9, 4, requires_grad=True)
norm = graphnorm.GraphNorm(4, act="relu")
for batch in ([0, 0, 0, 1, 1, 1, 1, 3, 3], [1, 0, 3, 1, 1, 0, 3, 3, 0]):
    y = norm(x, torch.tensor(batch))
    y.square().sum().backward()
print((y.sum() + x.grad.abs().sum() + norm.mean_scale.grad.sum()).item())
try:
    graphnorm.Segments(batch=torch.tensor([0, -1]))
except ValueError as error:
    assert "negative" in str(error)
else:
    raise SystemExit("a negative id went through")
with graphnorm.backend("cpu"):
    try:
        norm(x)
    except RuntimeError as error:
        assert "C library" in str(error)
    else:
        raise SystemExit("the missing library was not noticed")
""")
    with_library = run("""
import torch, graphnorm
torch.manual_seed(0)
x = torch.randn(9, 4, requires_grad=True)
norm = graphnorm.GraphNorm(4, act="relu")
for batch in ([0, 0, 0, 1, 1, 1, 1, 3, 3], [1, 0, 3, 1, 1, 0, 3, 3, 0]):
    y = norm(x, torch.tensor(batch))
    y.square().sum().backward()
print((y.sum() + x.grad.abs().sum() + norm.mean_scale.grad.sum()).item())
""")
    assert float(out) == pytest.approx(float(with_library), rel=1e-5)


def test_importing_starts_no_process():
    """Git is asked for the commit where results are recorded, and not before."""
    assert not run(
        "import sys, torch; sys.addaudithook(lambda event, given: event == 'subprocess.Popen' and print(given)); "
        "import graphnorm, graphnorm.data, graphnorm.training, graphnorm.study"
    )
