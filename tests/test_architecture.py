"""The shape of the package: imports point one way, torch is the only thing needed, and no compiler either."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes import fill

import graphnorm
from graphnorm import study
from graphnorm.data import load
from graphnorm.settings import Settings
from graphnorm.study import Store, make_plan

ROOT = Path(graphnorm.__file__).parent
ORDER = [
    "_version", "lazy", "_kernels", "errors", "files", "own_code", "settings", "colours", "randomness", "backends",
    "launch", "tracing", "read_batch_gpu", "segments", "segment_cache", "adjacency", "data", "ops", "layers", "models",
    "training", "study", "analysis", "paper", "report", "commands", "cli", "__main__",
]  # fmt: skip
"""A part imports those before it, and no other."""
PARTS = sorted(path for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())


def imports(path: Path) -> set[str]:
    """The parts of the package that a file imports, at the top or inside a function."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    assert all(node.level == 0 for node in nodes if isinstance(node, ast.ImportFrom)), f"{path}: write imports in full"
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [f"{node.module}.{a.name}" for node in nodes if isinstance(node, ast.ImportFrom) for a in node.names]
    return {name.split(".")[1] for name in names if name.startswith("graphnorm.")} - {"__version__"}


@pytest.mark.parametrize("part", [part for part in PARTS if part.stem != "__init__"], ids=lambda path: path.stem)
def test_imports_point_one_way(part):
    assert part.stem in ORDER, f"say in this test where {part.stem} stands"
    for path in [part] if part.is_file() else sorted(part.rglob("*.py")):
        assert imports(path) <= {*ORDER[: ORDER.index(part.stem) + 1]}, path


def test_the_way_through_study_passes_every_module():
    named = set(re.findall(r"``(\w+)``", study.__doc__))
    assert named == {path.stem for path in (ROOT / "study").glob("*.py")} - {"__init__"}


def run(code: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT.parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_layers_need_torch_alone():
    """What comes in beside torch's own imports is our package and the standard library."""
    new = run(
        "import sys, torch; from torch.utils import _pytree; before = set(sys.modules); import graphnorm; "
        "graphnorm.GraphNorm(4)(torch.ones(3, 4)); print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    assert set(new.split()) - set(sys.stdlib_module_names) == {"graphnorm"}


def test_stored_results_are_read_without_torch(tmp_path):
    plan = make_plan(load("synthetic:trees"), Settings(epochs=5, baselines=("wl",)))
    with Store(tmp_path / "graphnorm.db") as store:
        fill(store, plan)
    actions = [
        "",
        f"show {plan.name}",
        "export trials.csv",
        f"prune {plan.name}",
        "merge graphnorm.db --store other.db",
        "recover graphnorm.db third.db",
        f"delete {plan.name}",
    ]
    said = run(
        "import sys; sys.modules['torch'] = None  # an import of it fails\n"
        f"import os; os.chdir({str(tmp_path)!r})\n"
        "from graphnorm.cli import main\n"
        f"for action in {actions}: assert main(['runs', *action.split()]) == 0"
    )
    assert f"{len(plan.trials)}" in said
    assert "graph " in said


STEP = """
import torch, graphnorm
torch.manual_seed(0)
x = torch.randn(9, 4, requires_grad=True)
norm = graphnorm.GraphNorm(4, act="relu")
for batch in ([0, 0, 0, 1, 1, 1, 1, 3, 3], [1, 0, 3, 1, 1, 0, 3, 3, 0]):
    y = norm(x, torch.tensor(batch))
    y.square().sum().backward()
print((y.sum() + x.grad.abs().sum() + norm.mean_scale.grad.sum()).item())
"""
ERRORS = """
def refused(call, words):
    try:
        call()
    except (ValueError, RuntimeError) as error:
        return words in str(error)

assert refused(lambda: graphnorm.Segments(batch=torch.tensor([0, -1])), "negative")
with graphnorm.backend("cpu"):
    assert refused(lambda: norm(x), "C library")
"""


def test_without_a_compiler_plain_torch_does_the_work():
    bare = run("import sys; sys.modules['graphnorm._kernels'] = None  # an import of it fails" + STEP + ERRORS)
    assert float(bare) == pytest.approx(float(run(STEP)), rel=1e-5)


def test_without_a_compiler_one_warning_says_so():
    catch = "import warnings, sys; sys.modules['graphnorm._kernels'] = None; warnings.simplefilter('always')\n"
    counted = "with warnings.catch_warnings(record=True) as found:"
    step = STEP.replace("\n", "\n    ").replace("print", "float")
    words = run(f"{catch}{counted}{step}\nprint(*[w.message for w in found if 'C library' in str(w.message)], sep='|')")
    assert words.count("C compiler") == 1
    assert "|" not in words


def test_importing_starts_no_process():
    """Git is asked for the commit where results are recorded, and not before."""
    assert not run(
        "import sys, torch; sys.addaudithook(lambda event, given: event == 'subprocess.Popen' and print(given)); "
        "import graphnorm, graphnorm.data, graphnorm.training, graphnorm.study"
    )
