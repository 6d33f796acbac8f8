# SPDX-License-Identifier: Apache-2.0
"""Tests of the record of an install directory."""

import json
from pathlib import Path

import pytest

from llmb.errors import LlmbError
from llmb_installer.record import FinishedStep, InstallRecord, load, record_path, save


def test_it_reads_what_it_wrote(tmp_path: Path) -> None:
    step = FinishedStep(
        digest="d", facts={"folder": ".t.1", "packages": {"torch": "2"}, "freeze": ["torch==2"]}
    )
    record = InstallRecord(config={"gpu_type": "cpu"}).finished("venv t", step)
    save(tmp_path, record)
    assert load(tmp_path) == record


def test_what_a_newer_release_added_is_kept(tmp_path: Path) -> None:
    path = record_path(tmp_path)
    path.parent.mkdir()
    step = {
        "digest": "d",
        "facts": {"folder": ".t.1"},
        "workloads": [],
        "damaged": False,
        "checked": "2031-01-01",
    }
    newer = {
        "schema_version": 1,
        "steps": {"venv t": step, "venv u": step},
        "config": {},
        "signed_by": "ana",
    }
    path.write_text(json.dumps(newer))
    found = load(tmp_path)
    assert found.steps["venv t"].digest == "d"
    save(tmp_path, found.without("venv u").marked("venv t"))
    kept = {"venv t": {**step, "damaged": True}}
    assert json.loads(path.read_text()) == {**newer, "steps": kept}


def test_none_is_empty(tmp_path: Path) -> None:
    assert load(tmp_path) == InstallRecord()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"steps": ', "file-damaged"),
        ('{"schema_version": 99}', "record-version"),
        ("[]", "record-version"),
        ('{"schema_version": 1, "steps": {"venv t": {"digest": 1.5}}}', "file-damaged"),
    ],
)
def test_a_damaged_record_is_an_error(tmp_path: Path, text: str, code: str) -> None:
    record_path(tmp_path).parent.mkdir()
    record_path(tmp_path).write_text(text)
    with pytest.raises(LlmbError) as refused:
        load(tmp_path)
    assert refused.value.code == code
    assert str(record_path(tmp_path)) in str(refused.value)
