# SPDX-License-Identifier: Apache-2.0
"""Settings of the documentation site: `make site` builds it, and any warning fails the build."""

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

project = "llmb"
author = "the llmb authors"
project_copyright = "the llmb authors, Apache-2.0"
version = release = _PROJECT["version"]

extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["man", "images/*.md"]
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
nitpicky = True

html_theme = "furo"
html_title = f"llmb {release}"
html_copy_source = False
html_show_sphinx = False
html_last_updated_fmt = None

# The button copies commands without their prompts and their output.
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True


def _name_files(_app: Any, _page: str, source: list[str]) -> None:
    """Name the files of the repository that a page links to: the site has no page for them."""
    source[0] = re.sub(r"\[([^\]]+)\]\(\.\./([^)\s]+)\)", r"\1 (`\2`)", source[0])


def _copy_pictures(app: Any, error: Exception | None) -> None:
    """Copy the pictures: pages name them in HTML, which Sphinx does not follow."""
    if error is None:
        source, target = ROOT / "docs" / "images", Path(app.outdir) / "images"
        shutil.copytree(source, target, dirs_exist_ok=True)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _name_files)
    app.connect("build-finished", _copy_pictures)
