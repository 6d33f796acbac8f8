# SPDX-License-Identifier: Apache-2.0
"""Tests of the page of what was broken how often: its counts are a run's own, and every fault of a
test has a row.
"""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def reliability() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reliability", ROOT / "docs/reliability.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines(*counts: dict[str, object]) -> str:
    return "".join(json.dumps(line) + "\n" for line in counts)


def test_counts_add_up_and_a_zero_is_not_the_same_as_nothing(reliability: ModuleType) -> None:
    text = lines(
        {"fault": "logs", "tried": 300, "tracebacks": 0, "failed": False},
        {"fault": "logs", "tried": 5, "tracebacks": 2, "failed": True},
        {"fault": "users", "tried": 0, "skipped": True},
    )
    counted = reliability.counted(text.splitlines())
    assert counted["logs"] == {"tried": 305, "tracebacks": 2, "failed": 1}
    (row,) = [line for line in reliability.table(counted).splitlines() if "logs damaged" in line]
    assert [cell.strip() for cell in row.split("|")[2:-1]] == ["305", "", "", "2", "", "1"]
    wrong = reliability.faults_of(counted)
    assert "logs: 1 failed" in wrong
    assert "users: not tried" not in wrong  # skipped here, with its reason among pytest's
    assert "own-files: not tried" in wrong


def test_the_marks_of_the_tests_and_the_rows_of_the_page_are_the_same(
    reliability: ModuleType,
) -> None:
    tests = [
        path.read_text("utf-8")
        for path in (ROOT / "tests").rglob("test_*.py")
        if path != Path(__file__)
    ]
    marks = {
        name for text in tests for name in re.findall(r'pytest\.mark\.fault\("([^"]+)"\)', text)
    }
    assert marks == set(reliability.FAULTS)


def test_a_run_replaces_the_rows_that_it_tried_and_no_others(
    reliability: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reliability, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(reliability, "RESULTS", tmp_path / "page.json")
    (tmp_path / "one").write_text(lines({"fault": "logs", "tried": 7, "failed": False}))
    (tmp_path / "two").write_text(lines({"fault": "users", "tried": 9, "failed": False}))
    assert reliability.main([str(tmp_path / "one")]) == 0
    assert reliability.main([str(tmp_path / "two")]) == 0
    kept = json.loads((tmp_path / "page.json").read_text())
    assert {fault: own["tried"] for fault, own in kept.items()} == {"logs": 7, "users": 9}
    assert reliability.main(["--check"]) == 0
    (tmp_path / "page.md").write_text("stale")
    assert reliability.main(["--check"]) == 1
