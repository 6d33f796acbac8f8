# SPDX-License-Identifier: Apache-2.0
"""Tests of the record of an install directory."""

from pathlib import Path

import pytest

from llmb.errors import LlmbError
from llmb_installer.record import InstallRecord, StepRecord, load, record_path, save


def test_it_reads_what_it_wrote(tmp_path: Path) -> None:
    step = StepRecord(digest="d", facts={"folder": ".t.1", "packages": {"torch": "2"}, "freeze": ["torch==2"]})
    record = InstallRecord(config={"gpu_type": "cpu"}).finished("venv t", step)
    save(tmp_path, record)
    assert load(tmp_path) == record


def test_none_is_empty(tmp_path: Path) -> None:
    assert load(tmp_path) == InstallRecord()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"steps": ', "file-damaged"),
        ('{"schema_version": 99}', "record-version"),
        ("[]", "record-version"),
        ('{"schema_version": 1, "steps": {"venv t": {"digest": 1.5}}}', "key-missing"),
    ],
)
def test_a_damaged_record_is_an_error(tmp_path: Path, text: str, code: str) -> None:
    record_path(tmp_path).parent.mkdir()
    record_path(tmp_path).write_text(text)
    with pytest.raises(LlmbError) as refused:
        load(tmp_path)
    assert refused.value.code == code
    assert str(record_path(tmp_path)) in str(refused.value)
