# SPDX-License-Identifier: Apache-2.0
"""Tests of what killed submissions leave: the next one removes it, and nothing that anybody
needs.
"""

import dataclasses
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.contract import record
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.core.process import ProcessId
from llmb.run import store
from llmb.run.prepare import Prepared
from llmb.run.reconcile import resubmit
from llmb.run.submit import submit
from llmb_testing.fake_cluster import FakeCluster

pytestmark = pytest.mark.fault("leftovers")

Items = Callable[..., list[Prepared]]
DEAD = dataclasses.replace(ProcessId.current(), start=ProcessId.current().start - 100)


@pytest.fixture
def left(items: Items, config: ClusterConfig) -> Callable[[ProcessId | None], Path]:
    """Makes the directory of a run whose submitter, where there is one, was killed while it wrote
    the record.
    """

    def make(owner: ProcessId | None) -> Path:
        (item,) = items(1)
        assert item.launch is not None
        directory = store.new_directory(
            config.experiments(item.job.workload), item.launch.name, 1000
        ).path
        if owner is not None:
            (directory / "submission.lock.1").write_text(json.dumps(dataclasses.asdict(owner)))
            (directory / f".{record.RECORD}.0a1b2c3d.part").write_text("{")
        return directory

    return make


def test_a_run_that_never_came_to_be_is_removed(
    left: Callable[[ProcessId | None], Path], items: Items, fake: FakeCluster, config: ClusterConfig
) -> None:
    gone, alive, young, old, full = (
        left(DEAD),
        left(ProcessId.current()),
        left(None),
        left(None),
        left(DEAD),
    )
    os.utime(old, (time.time() - 3700, time.time() - 3700))
    (full / "notes.txt").write_text("mine")
    done = submit(items(2), fake, config, "1")
    assert len(done.submitted) == 2
    assert [path.exists() for path in (gone, alive, young, old, full)] == [
        False,
        True,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("name", [".notes", "weights.part", "lock.1"])
def test_a_file_that_no_submission_writes_keeps_its_folder(
    name: str,
    left: Callable[[ProcessId | None], Path],
    items: Items,
    fake: FakeCluster,
    config: ClusterConfig,
) -> None:
    path = left(DEAD) / name
    path.write_text("mine")
    submit(items(1), fake, config, "1")
    assert path.read_text() == "mine"


def test_half_written_files_go_with_the_next_submission_of_the_run(
    submitted: Callable[..., list[RunRecord]], fake: FakeCluster
) -> None:
    (run,) = submitted(1)
    cut_off = dataclasses.replace(run, scheduler_id=None)
    record.save(cut_off)
    for path in (fake.scheduler.folder / "jobs").glob("*.json"):
        path.unlink()
    part = run.directory / f".{record.RECORD}.0a1b2c3d.part"
    part.write_text("{")
    ((one,), _) = resubmit(fake, [cut_off])
    assert (one.error, part.exists()) == (None, False)
