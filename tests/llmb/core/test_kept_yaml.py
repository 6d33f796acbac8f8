# SPDX-License-Identifier: Apache-2.0
"""Tests that a package's YAML files are read once, and again as soon as they change."""

import sys
from pathlib import Path

import pytest

from llmb.core import yamlfile
from llmb.core.yamlfile import load, load_packaged
from llmb.errors import InputFaults

ROOT = Path(__file__).parents[3]
TABLES = sorted(
    path
    for folder in ("llmb", "installer", "plugins")
    for path in (ROOT / folder).rglob("*.yaml")
    if ".venv" not in path.parts
)
TEXT = "a: 1\n2: [x, null, {b: 25.10}]\nc: {}\n"


@pytest.fixture(autouse=True)
def keeps_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A YAML file in a package that Python has imported."""
    (tmp_path / "__pycache__").mkdir()
    path = tmp_path / "f.yaml"
    path.write_text(TEXT)
    return path


def kept(path: Path) -> Path:
    return path.parent / "__pycache__" / f"{path.name}.data"


@pytest.fixture
def without_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(text: str, **_: object) -> None:
        raise AssertionError(f"parsed again: {text}")

    monkeypatch.setattr(yamlfile, "parse", parse)


def test_the_second_reading_parses_nothing(file: Path, request: pytest.FixtureRequest) -> None:
    first = load_packaged(file)
    assert first == load(file)
    request.getfixturevalue("without_parser")
    assert load_packaged(file) == first


@pytest.mark.parametrize("path", TABLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_table_of_the_project_is_read_alike(path: Path, file: Path) -> None:
    file.write_text(path.read_text("utf-8"), "utf-8")
    assert load_packaged(file) == load_packaged(file) == load(file)
    assert kept(file).exists()


def test_a_changed_file_is_read_again(file: Path) -> None:
    load_packaged(file)
    file.write_text(TEXT.replace("1", "3"))
    assert load_packaged(file).data["a"] == 3


def test_the_file_kept_by_another_release_is_not_used(file: Path) -> None:
    load_packaged(file)
    digest, rest = kept(file).read_bytes().split(b"\n", 1)
    stale = b"%08x\n" % (int(digest, 16) ^ 1) + rest
    kept(file).write_bytes(stale)
    assert load_packaged(file) == load(file)
    assert kept(file).read_bytes() != stale


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data.replace(b"\0", b"\0" * 5, 1),
        lambda data: data.partition(b"\0")[0] + b"\0" * 5,
        lambda data: data.replace(b"25.10", b"25.11"),
        lambda data: data + b"\0",
    ],
)
def test_a_damaged_file_is_replaced(file: Path, damage: object) -> None:
    load_packaged(file)
    sound = kept(file).read_bytes()
    assert callable(damage)
    kept(file).write_bytes(damage(sound))
    assert load_packaged(file) == load(file)
    assert kept(file).read_bytes() == sound


@pytest.mark.parametrize(
    "text",
    ["day: 2026-11-27\n", "a: &x {b: 1}\nc: {<<: *x, b: 2}\n", "? [1, 2]\n: 3\n", "", "a: .nan\n"],
)
def test_odd_values_are_read_alike(file: Path, text: str) -> None:
    file.write_text(text)
    try:
        expected = load(file)
    except InputFaults as error:
        with pytest.raises(InputFaults, match=str(error)[:20]):
            load_packaged(file)
        return
    for _ in range(2):
        document = load_packaged(file)
        assert repr(document.data) == repr(expected.data)  # a NaN equals nothing
        assert (document.lines, document.texts) == (expected.lines, expected.texts)


def test_nothing_is_written_where_python_keeps_no_bytecode(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = tmp_path / "data" / "f.yaml"
    alone.parent.mkdir()
    alone.write_text(TEXT)
    assert load_packaged(alone) == load(alone)
    assert list(alone.parent.iterdir()) == [alone]
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert load_packaged(file) == load(file)
    assert not kept(file).exists()


def test_faults_are_reported_each_time(file: Path) -> None:
    file.write_text("a: 1\na: 2\n")
    for _ in range(2):
        with pytest.raises(InputFaults) as caught:
            load_packaged(file)
        assert [fault.code for fault in caught.value.faults] == ["key-duplicate"]


def test_a_fault_in_kept_content_has_its_line(file: Path) -> None:
    places = [load_packaged(file).place((2, 2, "b")) for _ in range(2)]
    assert places == [f"{file}:2"] * 2
