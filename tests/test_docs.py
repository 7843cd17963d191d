"""The documentation builds without a warning, its links lead somewhere, and the notebook runs."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from graphnorm.cli import COMMANDS, make_parser

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_between_files(page: str) -> None:
    """As GitHub follows them: relative to the page."""
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text(encoding="utf-8"))
    broken = [link for link in links if ":" not in link and not (ROOT / link.split("#")[0]).exists()]
    assert not broken


def commands(text: str) -> list[list[str]]:
    lines = re.findall(r"^ *(?:\$ )?graphnorm (.*?)(?:  .*)?$", re.sub(r"\\\n *", "", text), re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def test_commands_of_the_pages_are_valid() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    blocks = [re.findall(r"^```(\S*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S) for page in pages]
    found = [words for page in blocks for kind, block in page if kind != "python" for words in commands(block)]
    assert len(found) > 30
    for words in found:
        make_parser(words[0]).parse_args(words)


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_of_the_help_are_valid(command: str) -> None:
    for words in commands(getattr(import_module(f"graphnorm.commands.{command}"), "EXAMPLES", "")):
        make_parser(words[0]).parse_args(words)


def test_the_notebook_runs() -> None:
    notebook = json.loads((ROOT / "docs/tutorials/quickstart.ipynb").read_text(encoding="utf-8"))
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)


class Page(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}
        self.links += [value for name in ("href", "src") if (value := given.get(name))]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("furo", reason="the documentation is built with graphnorm[docs]")
    out = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(ROOT / "docs"), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def test_links_of_the_documentation(built: Path) -> None:
    pages = {path: Page(path) for path in built.rglob("*.html") if path.name != "gallery.html"}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists() or (
                target in pages and parts.fragment and unquote(parts.fragment) not in pages[target].anchors
            ):
                broken.append(f"{path.relative_to(built)}: {link}")
    assert len(pages) > 20
    assert not broken


def test_no_page_loads_anything_from_the_network(built: Path) -> None:
    tags = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?:https?:)?//[^\"]+\"")
    found = {
        path.name: tags.findall(path.read_text(encoding="utf-8"))
        for path in built.rglob("*.html")
        if path.name != "gallery.html"
    }
    assert not {name: tags for name, tags in found.items() if tags}


def test_every_command_is_documented(built: Path) -> None:
    page = Page(built / "reference/commands.html")
    assert {f"graphnorm-{command}" for command in COMMANDS} <= page.anchors
    assert {"cmdoption-graphnorm-compare-norms", "cmdoption-graphnorm-runs-export-curves"} <= page.anchors


def test_pages_are_for_keyboards_and_screen_readers(built: Path) -> None:
    """What may be wider than the screen takes the focus, and captions of the navigation have a level."""
    lacking = re.compile(r"""<(?:pre|div class="(?:table-wrapper|math)[^"]*")>|role="heading">""")
    pages = [path for path in built.rglob("*.html") if path.name != "gallery.html"]
    assert not {path.name for path in pages if lacking.search(path.read_text(encoding="utf-8"))}
