# SPDX-License-Identifier: Apache-2.0
"""Tests that a release has one version, and that its wheels and sdists have all that an index
shows.
"""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
URL = "https://example.org/team/llmb"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci/release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = _load()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what a release is built from, with a dated section of the changelog."""
    tree = tmp_path / "tree"
    kept = shutil.ignore_patterns(".*", "tests", "__pycache__", "dist", "benchmarks")
    shutil.copytree(ROOT, tree, ignore=kept)
    changes = tree / "CHANGELOG.md"
    changes.write_text(
        re.sub(r"^## (\S+) \(.*\)", r"## \1 (2030-01-02)", changes.read_text(), flags=re.MULTILINE)
    )
    return tree


def version(tree: Path) -> str:
    found: str = release.settings(tree)["version"]
    return found


def test_a_release_needs_a_version_and_an_address(tree: Path) -> None:
    assert len(release.refusals(tree, "", "")) == 2
    assert len(release.refusals(tree, "1.0.dev1", URL)) == 1
    assert len(release.refusals(tree, version(tree), "example.org")) == 1
    assert release.refusals(tree, version(tree), URL) == []


def test_a_release_has_one_version(tree: Path) -> None:
    project = tree / "plugins/llama31/pyproject.toml"
    project.write_text(
        re.sub(r'^version = ".*"', 'version = "9.9.9"', project.read_text(), flags=re.MULTILINE)
    )
    (fault,) = release.refusals(tree, version(tree), URL)
    assert fault.startswith("plugins/llama31/pyproject.toml:")


def test_a_release_has_a_dated_section_of_the_changelog(tree: Path) -> None:
    changes = tree / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace("(2030-01-02)", "(not released)"))
    (fault,) = release.refusals(tree, version(tree), URL)
    assert fault.startswith("CHANGELOG.md:")


@pytest.mark.slow
def test_what_is_built_is_complete_and_installs_without_the_checkout(
    tree: Path, tmp_path: Path
) -> None:
    out = tmp_path / "dist"
    wrong = release.build(tree, out, version(tree), URL)
    assert wrong == []
    names = {re.sub(r"-\d.*", "", path.name).replace("_", "-") for path in out.iterdir()}
    assert names == set(release.projects(tree))
    # An index would refuse each of these.
    wheel = next(out.glob("llmb_llama31-*.whl"))
    assert release.faults(wheel, "llmb-llama31", "9.9.9", URL)
    assert release.faults(wheel, "llmb-llama31", version(tree), "https://example.org/other")
    # Of all requirements only our own come from the folder; the others are here already.
    venv = tmp_path / "venv"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(venv)], check=True)
    target = ["--python", str(venv / "bin/python")]
    wheels = [str(path) for path in out.glob("*.whl")]
    subprocess.run(
        [*uv, "pip", "install", "--quiet", "--no-deps", "--offline", *target, *wheels], check=True
    )
    site = next(Path(sys.executable).parents[1].glob("lib/python3*/site-packages"))
    (next(venv.glob("lib/python3*/site-packages")) / "here.pth").write_text(f"{site}\n")
    done = subprocess.run(
        [venv / "bin/llmb-run", "docs", "--path"], capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()).is_relative_to(venv)
    assert (venv / "share/man/man1/llmb-run.1").exists()
    assert (venv / "share/man/man1/llmb-install.1").exists()
