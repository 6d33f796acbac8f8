# SPDX-License-Identifier: Apache-2.0
"""Tests that docs/architecture.md shows the import contracts, and that the check of it can fail."""

import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

import pytest

from llmb import api

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.fixture(scope="module")
def layers() -> ModuleType:
    """The program that draws the page."""
    spec = importlib.util.spec_from_file_location("layers", DOCS / "layers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_contracts(layers: ModuleType) -> None:
    assert layers.faults(layers.PAGE.read_text("utf-8"), layers.contracts()) == []


def test_every_package_and_module_has_its_layer(layers: ModuleType) -> None:
    """The contracts name everything at the top of each package."""
    for name, folder in {
        "llmb": DOCS.parent / "llmb",
        "llmb_installer": DOCS.parent / "installer/llmb_installer",
    }.items():
        there = {path.stem for path in folder.glob("*.py")} | {
            path.parent.name for path in folder.glob("*/__init__.py")
        }
        assert {package for layer in layers.contracts()[name] for package in layer} == there - {
            "__init__"
        }


def test_what_a_plugin_imports_is_loaded_from_layers_below(layers: ModuleType) -> None:
    """import-linter does not see these imports, so it would not see a circle with api either."""
    stack = layers.contracts()["llmb"]
    below = {package for layer in stack[stack.index(["api"]) + 1 :] for package in layer}
    objects = [getattr(api, name) for name in api.__all__ if name != "hookimpl"]
    modules = [inspect.getmodule(item) for item in objects]  # a constant has none
    packages = {module.__name__.split(".")[1] for module in modules if module is not None}
    assert len(packages) > 3
    assert packages <= below


def test_a_layer_that_moves_is_reported(layers: ModuleType) -> None:
    page, stacks = layers.PAGE.read_text("utf-8"), layers.contracts()
    moved = {**stacks, "llmb": [*stacks["llmb"][1:], stacks["llmb"][0]]}
    (fault,) = layers.faults(page, moved)
    assert "docs/layers.py" in fault
    assert layers.faults(layers.drawn(page, moved), moved) == []


def test_a_package_that_says_something_else_is_reported(layers: ModuleType, tmp_path: Path) -> None:
    page, stacks = layers.PAGE.read_text("utf-8"), layers.contracts()
    for name in (name for layer in stacks["llmb"] for name in layer):
        (tmp_path / f"{name}.py").write_text(f'"""All of\n``{name}``.\n\nMore."""\n')
    folders = {**layers.FOLDERS, "llmb": tmp_path}
    (fault,) = layers.faults(page, stacks, folders)
    assert "docs/layers.py" in fault
    assert "| `cli.py` | All of `cli`. |\n" in layers.drawn(page, stacks, folders)


def test_a_missing_table_is_reported(layers: ModuleType) -> None:
    page = layers.PAGE.read_text("utf-8").replace("<!-- packages of llmb ", "<!-- no longer ")
    assert "no packages of llmb" in layers.faults(page, layers.contracts())
