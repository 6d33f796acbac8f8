# SPDX-License-Identifier: Apache-2.0
"""Tests that the distributions fit together: versions, commands, plugins, requirements, what is in
their wheels.
"""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution, entry_points
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

ROOT = Path(__file__).resolve().parent.parent
PLUGINS = [
    "accept",
    "deepseek",
    "exemplar",
    "export",
    "gpt_oss",
    "kimi",
    "llama31",
    "microbench",
    "nemotron3",
    "nemotron4",
    "nemotronh",
    "nodes",
    "qwen3",
    "runai",
]


def project(folder: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))


HOOK = project(".")["tool"]["hatch"]["metadata"]["hooks"]["custom"]
MEMBERS: dict[str, str] = HOOK["members"]
ALL: dict[str, str] = MEMBERS | HOOK["extras"]["testing"]


def requirements() -> list[str]:
    return ProjectMetadata(str(ROOT), PluginManager()).core.dependencies


def wheel(folder: str, out: Path) -> zipfile.ZipFile:
    """The wheel that is built from a folder of the checkout."""
    return zipfile.ZipFile(
        next(WheelBuilder(str(ROOT / folder)).build(directory=str(out), versions=["standard"]))
    )


@pytest.mark.parametrize(("name", "folder"), ALL.items())
def test_a_member_has_the_version_of_llmb(name: str, folder: str) -> None:
    assert project(folder)["project"]["name"] == name
    assert (
        project(folder)["project"]["version"]
        == project(".")["project"]["version"]
        == distribution(name).version
    )


def test_every_folder_with_a_pyproject_is_a_member() -> None:
    folders = [
        path.parent
        for pattern in ("*", "plugins/*")
        for path in ROOT.glob(f"{pattern}/pyproject.toml")
    ]
    assert sorted(ALL.values()) == sorted(str(folder.relative_to(ROOT)) for folder in folders)


def test_the_plugins_are_found_by_entry_point() -> None:
    assert set(PLUGINS) <= {point.name for point in entry_points(group="llmb")}


@pytest.mark.parametrize(
    ("command", "owner"), [("llmb-run", "llmb"), ("llmb-install", "llmb-installer")]
)
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


def test_the_wheels_of_the_two_commands_have_no_test_kit(tmp_path: Path) -> None:
    with wheel(".", tmp_path) as runtime, wheel("installer", tmp_path) as installer:
        files = [*runtime.namelist(), *installer.namelist()]
        assert [name for name in files if "testing" in name] == []


def test_the_wheel_has_the_documentation_and_the_man_page(tmp_path: Path) -> None:
    with wheel(".", tmp_path) as runtime:
        files = set(runtime.namelist())
    assert {f"llmb/docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= files
    assert [name for name in files if name.endswith("/share/man/man1/llmb-run.1")]
    with wheel("installer", tmp_path) as installer:
        assert [
            name for name in installer.namelist() if name.endswith("/share/man/man1/llmb-install.1")
        ]


def test_the_kits_are_in_the_wheel_of_llmb_testing(tmp_path: Path) -> None:
    with wheel("testing", tmp_path) as kits:
        assert {
            f"llmb_testing/{name}"
            for name in ("workload.yaml", "slurm/kit.py", "runai/server.py", "hub.py")
        } <= {*kits.namelist()}


def test_only_the_extra_testing_requires_the_kits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LLMB_RELEASE", "1")
    with wheel(".", tmp_path) as built:
        (name,) = [name for name in built.namelist() if name.endswith("/METADATA")]
        metadata = built.read(name).decode().splitlines()
    required = [line for line in metadata if line.startswith("Requires-Dist: llmb-testing")]
    requirement = f"Requires-Dist: llmb-testing=={distribution('llmb').version}; extra == 'testing'"
    assert required == [requirement]


def test_make_names_the_way_to_a_newer_python(tmp_path: Path) -> None:
    """As on Ubuntu 22.04 or RHEL 8: the python3 in PATH is older."""
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")  # of the question for its version
    (tmp_path / "python3").chmod(0o755)
    for name in ("Makefile", "hatch_build.py", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    for project in ROOT.glob("*/pyproject.toml"), ROOT.glob("plugins/*/pyproject.toml"):
        for path in project:
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environ.pop("MAKELEVEL", None)  # of a make that runs these tests: make would print the folder
    environ.pop("MAKEFLAGS", None)
    done = subprocess.run(
        ["make", "demo"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.startswith("error: python3 is not Python 3.11 or newer")
    assert 'uv python install 3.12 && make PYTHON="$(uv python find 3.12)"' in done.stderr


def test_the_demo_says_what_it_installs_first_and_counts_that_time(tmp_path: Path) -> None:
    """The Python here is a program that only makes .venv; its pip takes two seconds."""
    for path in [
        *(ROOT / name for name in ("Makefile", "hatch_build.py", "examples/demo.sh")),
        *(
            path
            for level in ("", "*/", "plugins/*/")
            for path in ROOT.glob(f"{level}pyproject.toml")
        ),
    ]:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\ncase "$*" in\n'
        '"-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;\n'
        "*upgrade*) sleep 2 ;;\nesac\n"
    )
    python.chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "demo", f"PYTHON={python}"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    first, *rest = done.stdout.splitlines()
    assert first.startswith("Installing llmb, its plugins and its development tools in .venv: ")
    assert "pip install" not in done.stdout
    (heading,) = [line for line in rest if line.startswith("== 1 of 4: install")]
    seconds = re.search(r"0 min (\d+) s after the start$", heading)
    assert seconds is not None, done.stdout + done.stderr
    assert int(seconds[1]) >= 2


def test_pip_names_the_way_to_a_newer_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    with pytest.raises(SystemExit, match=r"uv venv --python 3\.12"):
        runpy.run_path(str(ROOT / "hatch_build.py"))
