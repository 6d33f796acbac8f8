# SPDX-License-Identifier: Apache-2.0
"""Imports of folders that are not as exemplar-performance leaves them: pipes, tables without an
end, texts that no file can have, two jobs in one folder, and thousands of runs.
"""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from llmb.errors import InputFaults
from llmb_exemplar import history
from llmb_installer.importing.carry import ImportPlan
from llmb_installer.importing.finished import own_timestamp

DoImport = Callable[..., ImportPlan]
pytestmark = pytest.mark.fault("foreign-files")


def test_pipes_do_not_stop_an_import(source: Path, do_import: DoImport) -> None:
    """In the places of a log, of a launcher's file, of an image and of the release."""
    expected = len(do_import(source, dry_run=True).runs)
    folder = next((source / "workloads").rglob("log-*_101_*.out")).parent
    os.mkfifo(folder / "log-pretrain_nemotron4_15b_fp8_64_901_0.out")
    os.mkfifo(folder / "llmb-config_901.yaml")
    os.mkfifo(source / "images" / "pipe.sqsh")
    plan = do_import(source, dry_run=True)
    assert len(plan.runs) == expected
    left = {item.name: item.detail for item in plan.items if item.action == "leave"}
    assert "not a regular file" in left["pipe.sqsh"]


def test_a_table_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_PATIENCE", 0.2)
    (tmp_path / ".llmb").mkdir()
    with closing(sqlite3.connect(tmp_path / ".llmb" / "jobs.sqlite3")) as database:
        database.execute(
            "CREATE VIEW jobs AS WITH RECURSIVE n(job_id) AS (SELECT 1 UNION ALL SELECT 1 FROM n)"
            " SELECT job_id, NULL AS slurm_state FROM n"
        )
        database.commit()
    assert history.read_states(tmp_path) == {}


def test_a_nul_in_the_settings_is_refused(source: Path, do_import: DoImport) -> None:
    path = source / "cluster_config.yaml"
    path.write_text(f'{path.read_text()}\ncluster_name: "a\\0b"\n')
    with pytest.raises(InputFaults) as raised:
        do_import(source)
    assert "NUL" in raised.value.faults[0].message


def test_two_jobs_in_one_folder_are_two_runs(source: Path, do_import: DoImport) -> None:
    log = next((source / "workloads").rglob("log-*_101_*.out"))
    second = log.with_name(log.name.replace("_101_", "_907_"))
    second.write_bytes(log.read_bytes())
    config = log.parent / "llmb-config_101.yaml"
    if config.exists():
        second.with_name("llmb-config_907.yaml").write_text(config.read_text())
    os.utime(second, (1_750_000_000, 1_750_000_000))
    runs = do_import(source).runs
    assert {"101", "907"} <= {str(run.record.scheduler_id) for run in runs}
    assert len({run.record.directory for run in runs}) == len(runs)
    assert do_import(source).changes_nothing


def test_ids_are_long_enough_for_thousands(source: Path, do_import: DoImport) -> None:
    """60 bits: two of 20,000 runs have the same id in one of a billion imports."""
    first, again = (do_import(source, dry_run=True).runs for _ in range(2))
    ids = [run.record.id for run in first]
    assert ids == [run.record.id for run in again]
    assert len(set(ids)) == len(ids)
    for name in ids:
        assert len(name) == 13
        assert name.isalnum()
    stamps = {own_timestamp(Path(f"/x/log-{number}.out")) for number in range(2000)}
    assert len(stamps) == 2000
    assert all(stamp.isdecimal() for stamp in stamps)
