# SPDX-License-Identifier: Apache-2.0
"""Tests of the file that keeps how a run's log is read."""

import shutil
from pathlib import Path

import pytest

from llmb.contract import record
from llmb.measure import summary
from llmb.measure.reader import READER, kept_reader

COMPLETE = Path(__file__).parents[1] / "run" / "records" / "complete"


@pytest.mark.parametrize(
    "text", ['{"schema_version": %d}', '{"schema_version": %d, "reader": 5}', "[]", "{"]
)
def test_a_file_without_a_reader_is_none(text: str, tmp_path: Path) -> None:
    shutil.copytree(COMPLETE, tmp_path, dirs_exist_ok=True)
    run = record.load(tmp_path)
    (tmp_path / READER).write_text(
        text.replace("%d", str(summary.SCHEMA_VERSION)), encoding="utf-8"
    )
    assert kept_reader(run) is None
