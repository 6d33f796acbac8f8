# SPDX-License-Identifier: Apache-2.0
"""Tests that docs/workloads.md is what the workloads' YAML says, and that its check would tell."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """docs/workloads.py, its page in a folder of the test's own."""
    spec = importlib.util.spec_from_file_location("workloads_page", DOCS / "workloads.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PAGE", tmp_path / "docs" / "workloads.md")
    (tmp_path / "docs").mkdir()
    return module


def test_the_page_is_not_stale(writer: ModuleType) -> None:
    assert writer.main([]) == 0
    written = writer.PAGE.read_text("utf-8")
    assert (DOCS / "workloads.md").read_text("utf-8") == written, "run: python docs/workloads.py"
    for text in (
        "| 405b       | gb200 |",
        "| 8, 30, 62 |",
        "| 340b | b200  |       4400 | 128..1024 |",
        "| 24.11   | 340b |",
    ):
        assert text in written


def test_its_check_tells_a_stale_page(
    writer: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert writer.main(["--check"]) == 1
    assert writer.main([]) == 0
    assert writer.main(["--check"]) == 0
    writer.PAGE.write_text(writer.PAGE.read_text("utf-8").replace("62.47", "62.48"), "utf-8")
    capsys.readouterr()
    assert writer.main(["--check"]) == 1
    assert "out of date" in capsys.readouterr().out
