# SPDX-License-Identifier: Apache-2.0
"""Entry points are those that importlib.metadata finds, without its import."""

import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from llmb.plugins.entry_points import PluginEntry, entries_of

METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: of-the-description\n"


def distribute(
    folder: Path, folder_name: str, text: str, *, name: str, about: str = "METADATA"
) -> None:
    info = folder / folder_name
    info.mkdir(parents=True)
    (info / about).write_text(METADATA.format(name=name, version="1"))
    (info / "entry_points.txt").write_text(text)


def of_importlib(group: str) -> set[tuple[str, ...]]:
    entries = metadata.entry_points(group=group)
    return {
        (entry.name, entry.value, entry.dist.name, entry.dist.version)
        for entry in entries
        if entry.dist
    }


def as_tuples(entries: list[PluginEntry]) -> set[tuple[str, ...]]:
    return {(entry.name, entry.value, entry.distribution, entry.version) for entry in entries}


@pytest.mark.parametrize("group", ["llmb", "console_scripts"])
def test_installed_ones(group: str) -> None:
    assert len(entries_of(group)) > 5
    assert as_tuples(entries_of(group)) == of_importlib(group)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_the_first_folder_counts(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = tmp_path_factory.mktemp("later")
    monkeypatch.setattr(sys, "path", [*sys.path, str(later), "/nowhere", ""])
    distribute(folder, "My.Name-2.dist-info", "[g]\na = first\n", name="My.Name")
    distribute(later, "my_name-1.dist-info", "[g]\na = second\n", name="my-name")
    assert as_tuples(entries_of("g")) == of_importlib("g") == {("a", "first", "My.Name", "1")}


def test_only_pairs_of_the_group(folder: Path) -> None:
    text = (
        "a = none\n[other]\nb = none\n[ g ]\n# c = none\n\nd=module : thing [extra]\n[g2]\ne = x\n"
    )
    distribute(folder, "one-1.dist-info", text, name="one")
    assert as_tuples(entries_of("g")) == {("d", "module : thing [extra]", "one", "1")}


def test_of_setuptools(folder: Path) -> None:
    distribute(folder, "old.egg-info", "[g]\na = m\n", name="old-one", about="PKG-INFO")
    assert as_tuples(entries_of("g")) == of_importlib("g") == {("a", "m", "old-one", "1")}


def test_of_an_archive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = folder / "bundle.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("packed-1.dist-info/METADATA", METADATA.format(name="packed", version="1"))
        file.writestr("packed-1.dist-info/entry_points.txt", "[g]\na = m\n")
    monkeypatch.syspath_prepend(archive)
    assert as_tuples(entries_of("g")) == {("a", "m", "packed", "1")}


def test_loads_a_module_or_its_object() -> None:
    def load(value: str) -> object:
        return PluginEntry(name="a", value=value, distribution="d", version="1").load()

    assert load("os.path") is sys.modules["os.path"]
    assert load("pathlib:Path.cwd") == Path.cwd
    assert load("pathlib : Path [extra]") is Path
    with pytest.raises(ModuleNotFoundError):
        load("no_module_of_this_name")
    with pytest.raises(AttributeError):
        load("pathlib:no_object")
    with pytest.raises(ImportError, match="names no module"):
        load("a-b")


def test_importlib_metadata_stays_unimported() -> None:
    code = "import sys; from llmb.plugins.entry_points import entries_of; assert entries_of('llmb')"
    code += "; sys.exit('importlib.metadata' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
