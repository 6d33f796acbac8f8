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
        assert {package for layer in layers.contracts()[name] for package in layer} == there - {"__init__"}


def test_what_a_plugin_imports_is_loaded_from_layers_below(layers: ModuleType) -> None:
    """import-linter does not see these imports, so it would not see a circle with api either."""
    stack = layers.contracts()["llmb"]
    below = {package for layer in stack[stack.index(["api"]) + 1 :] for package in layer}
    values = {name: getattr(api, name) for name in api.__all__ if name not in ("hookimpl", "CONTRACT")}
    assert {inspect.getmodule(value).__name__.split(".")[1] for value in values.values()} <= below  # type: ignore[union-attr]


def test_a_layer_that_moves_and_a_package_without_a_row_are_reported(layers: ModuleType) -> None:
    page, found = layers.PAGE.read_text("utf-8"), layers.contracts()
    moved = {**found, "llmb": [*found["llmb"][1:], found["llmb"][0]]}
    (fault,) = layers.faults(page, moved)
    assert "docs/layers.py" in fault
    assert layers.faults(layers.drawn(page, moved), moved) == []
    grown = {**found, "llmb": [["gui"], *found["llmb"]]}
    (fault,) = layers.faults(layers.drawn(page, grown), grown)
    assert "gui of llmb" in fault
