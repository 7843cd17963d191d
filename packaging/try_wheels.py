"""Install every file of a folder into a fresh environment without a compiler, and use it.

    python packaging/try_wheels.py dist python3.11 python3.12 python3.13

Pythons of pyenv are found without being active. Where pip finds no torch for a Python, it says why, and only the
compiled module of the wheel is loaded.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

EXTENSION = """
import importlib.machinery, importlib.util, pathlib, sysconfig
folder = pathlib.Path(sysconfig.get_path("platlib")) / "graphnorm"
(file,) = folder.glob("_kernels*")
loader = importlib.machinery.ExtensionFileLoader("graphnorm._kernels", str(file))
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("graphnorm._kernels", loader))
loader.exec_module(module)
assert callable(module.standardize_forward)
"""
LAYERS = """
import importlib.util, sys
import torch
import graphnorm

compiled = importlib.util.find_spec("graphnorm._kernels") is not None
assert compiled is (sys.argv[1] == "compiled"), compiled
x = torch.randn(7, 3, requires_grad=True)
batch = torch.tensor([0, 0, 0, 1, 1, 1, 1])
y = graphnorm.GraphNorm(3)(x, batch)
for graph in (0, 1):
    rows = x[batch == graph]
    expected = (rows - rows.mean(0)) / (rows.var(0, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(y[batch == graph], expected)
y.square().sum().backward()
assert x.grad.isfinite().all()
print("graphnorm", graphnorm.__version__, "torch", torch.__version__)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    parser.add_argument("--torch", default="torch", metavar="ARGUMENTS", help="of pip install, for torch")
    options = parser.parse_args()
    files = sorted(path.resolve() for path in options.folder.iterdir() if path.suffix in (".whl", ".gz"))
    kinds = [kind_of(path) for path in files]
    if sorted(kinds) != ["compiled", "pure", "source"]:
        sys.exit(f"{options.folder} has {', '.join(path.name for path in files) or 'nothing'}: one of each is needed")
    with_torch = []
    for name in options.pythons:
        python = interpreter(name)
        if python is None:
            print(f"{name}: not to be had, left out")
            continue
        with tempfile.TemporaryDirectory() as folder:
            if try_all(python, Path(folder), dict(zip(kinds, files, strict=True)), shlex.split(options.torch)):
                with_torch.append(name)
    if not with_torch:
        sys.exit(
            f"The layers were not tried: no Python could install {options.torch!r}.\n"
            "Say what pip can reach, for example: make dist TORCH=torch (on Linux 5 GB, with CUDA)."
        )
    print(f"The layers work with {', '.join(with_torch)}.")


def kind_of(path: Path) -> str:
    return "source" if path.suffix == ".gz" else "pure" if path.name.endswith("py3-none-any.whl") else "compiled"


def interpreter(name: str) -> str | None:
    found = shutil.which(name)
    if found is None:
        return None
    environment = os.environ | {"PYENV_VERSION": Path(name).name.removeprefix("python")}
    command = [found, "-c", "import sys; print(sys.executable)"]
    asked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


def try_all(python: str, folder: Path, files: dict[str, Path], torch: Sequence[str]) -> bool:
    subprocess.run([python, "-m", "venv", folder], check=True)
    # Nothing but the environment's own programs can be found; a compiler named by its path fails.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    environment |= {"PATH": str(folder / "bin"), "CC": "/bin/false", "CXX": "/bin/false"}
    own = str(folder / "bin" / "python")

    def run(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [own, *arguments]
        return subprocess.run(command, cwd=folder, env=environment, check=check, capture_output=True, text=True)

    def install(*what: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return run("-m", "pip", "install", "--quiet", *what, check=check)

    version = run("--version").stdout.strip()
    print(f"{version}: installing {' '.join(torch)}", flush=True)
    installed = install("--only-binary", ":all:", *torch, check=False)
    has_torch = installed.returncode == 0
    if not has_torch:
        print(f"{version}: pip could not install torch\n{installed.stderr.strip()}", flush=True)
    for kind, path in files.items():
        install("--no-deps", "--force-reinstall", str(path))
        said = "installed; there is no torch to use it with"
        if kind == "compiled":
            run("-c", EXTENSION)
            said = "the compiled module loads; there is no torch to use it with"
        if has_torch:
            said = run("-c", LAYERS, "compiled" if kind == "compiled" else "plain").stdout.strip()
            assert run("-m", "graphnorm", "--version").stdout.strip()
        print(f"{version}, {path.name}: {said}", flush=True)
    return has_torch


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"{shlex.join(map(str, error.cmd))}\n{error.stdout or ''}{error.stderr or ''}")
