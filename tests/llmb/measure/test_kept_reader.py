# SPDX-License-Identifier: Apache-2.0
"""Tests of the file that keeps how a run's log is read."""

import json
import shutil
from pathlib import Path

import pytest

from llmb.contract import record
from llmb.measure import summary

COMPLETE = Path(__file__).parents[1] / "run" / "records" / "complete"


@pytest.mark.parametrize(
    "text", ['{"schema_version": %d}', '{"schema_version": %d, "reader": 5}', "[]", "{"]
)
def test_a_file_without_a_reader_is_none(text: str, tmp_path: Path) -> None:
    shutil.copytree(COMPLETE, tmp_path, dirs_exist_ok=True)
    run = record.load(tmp_path)
    (tmp_path / summary.READER).write_text(
        text.replace("%d", str(summary.SCHEMA_VERSION)), encoding="utf-8"
    )
    assert summary.kept_reader(run) is None


def test_a_file_of_a_plugin_may_have_a_name_that_llmb_uses_since(tmp_path: Path) -> None:
    """A launch of now may not, but what ran is shown all the same."""
    shutil.copytree(COMPLETE, tmp_path, dirs_exist_ok=True)
    path = tmp_path / record.RECORD
    data = json.loads(path.read_text(encoding="utf-8"))
    data["launch"]["files"] = [{"name": "reader.json", "text": "{}"}]
    path.write_text(json.dumps(data), encoding="utf-8")
    assert [staged.name for staged in record.load(tmp_path).launch.files] == ["reader.json"]
