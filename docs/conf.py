import sys
from importlib.util import find_spec
from pathlib import Path

from graphnorm import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "graphnorm"
author = "The graphnorm developers"
copyright = "The graphnorm developers"
release = version = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_parser",
    "accessible",
    "commands",
    "mathml",
    "notebooks",
    "parameters",
]
if find_spec("sphinx_copybutton"):
    extensions.append("sphinx_copybutton")
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = False

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"graphnorm {version}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["custom.css"]

# The page of the full reproduction, made by `make gallery`.
if (Path(__file__).parent / "gallery/gallery.html").exists():
    html_extra_path = ["gallery"]
    tags.add("gallery")  # noqa: F821

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
suppress_warnings = ["ref.python"]
