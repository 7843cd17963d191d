from pathlib import Path

from graphnorm import __version__

project = "graphnorm"
author = "The graphnorm developers"
copyright = "The graphnorm developers"
release = version = __version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "myst_parser"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"graphnorm {version}"

# Formulas load MathJax from the network when a page is read. For pages that need none, put a copy of it into
# docs/_static/mathjax/ before building.
if (Path(__file__).parent / "_static/mathjax/tex-mml-chtml.js").exists():
    html_static_path = ["_static"]
    mathjax_path = "mathjax/tex-mml-chtml.js"

# The page of the full reproduction, made by `make gallery`.
if (Path(__file__).parent / "gallery/gallery.html").exists():
    html_extra_path = ["gallery"]
    tags.add("gallery")  # noqa: F821

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
suppress_warnings = ["ref.python"]
