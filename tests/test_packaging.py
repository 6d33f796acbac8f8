# SPDX-License-Identifier: Apache-2.0
"""Tests that the installed distributions fit together: versions, commands, plugins, requirements."""

import tomllib
from importlib.metadata import distribution, entry_points
from pathlib import Path
from typing import Any

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

ROOT = Path(__file__).resolve().parent.parent
PLUGINS = ["llama31", "nemotron4", "nemotronh"]


def project(folder: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))


MEMBERS: dict[str, str] = project(".")["tool"]["hatch"]["metadata"]["hooks"]["custom"]["members"]


def requirements() -> list[str]:
    return ProjectMetadata(str(ROOT), PluginManager()).core.dependencies


@pytest.mark.parametrize(("name", "folder"), MEMBERS.items())
def test_a_member_has_the_version_of_llmb(name: str, folder: str) -> None:
    assert project(folder)["project"]["name"] == name
    assert project(folder)["project"]["version"] == project(".")["project"]["version"] == distribution(name).version


def test_every_folder_with_a_pyproject_is_a_member() -> None:
    folders = [path.parent for pattern in ("*", "plugins/*") for path in ROOT.glob(f"{pattern}/pyproject.toml")]
    assert sorted(MEMBERS.values()) == sorted(str(folder.relative_to(ROOT)) for folder in folders)


def test_the_plugins_are_found_by_entry_point() -> None:
    assert set(PLUGINS) <= {point.name for point in entry_points(group="llmb")}


@pytest.mark.parametrize(("command", "owner"), [("llmb-run", "llmb"), ("llmb-install", "llmb-installer")])
def test_a_command_belongs_to_its_distribution(command: str, owner: str) -> None:
    (script,) = entry_points(group="console_scripts", name=command)
    assert script.dist is not None
    assert script.dist.name == owner


def test_a_checkout_requires_its_members_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMB_RELEASE", raising=False)
    assert f"llmb-installer @ {(ROOT / 'installer').as_uri()}" in requirements()


def test_a_release_requires_its_members_by_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMB_RELEASE", "1")
    assert {f"{name}=={distribution('llmb').version}" for name in MEMBERS} <= set(requirements())
