# SPDX-License-Identifier: Apache-2.0
"""Telemetry on a real Slurm: a step ends with its ranks, and each node's line comes before that."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.record import RunRecord
from llmb.kit.telemetry import with_telemetry
from llmb_testing import nvml
from llmb_testing.nvml import Change

Site = Any  # the class is in conftest.py

pytestmark = pytest.mark.skipif(not nvml.has_compiler(), reason="needs a C compiler")
# Rank 0 of each node waits for the first samples: the others may end long before.
TRAIN = """\
import os, time
from pathlib import Path
while os.environ["LLMB_LOCAL_RANK"] == "0" and not [*Path().glob("telemetry-*.jsonl")]:
    time.sleep(0.1)
time.sleep(0.5)
print("trained", flush=True)
"""


def submit(site: Site, folder: Path, program: str, **changes: Any) -> RunRecord:
    library = nvml.build(folder / "lib")
    variables = nvml.environment(library, folder / "script", [Change(key="gpus", value=4)])
    launch = with_telemetry(site.launch(program, environment=variables, **changes))
    run = site.record(launch)
    submitted: RunRecord = run.submitted(site.cluster().submit(run))
    return submitted


def test_each_node_prints_its_line_before_the_step_ends(site: Site, tmp_path: Path) -> None:
    run = submit(site, tmp_path, TRAIN, nodes=2, ranks_per_node=2)
    site.ends(run)
    log = run.log.read_text().splitlines()
    lines = [line for line in log if line.startswith("llmb telemetry ")]
    assert len(lines) == 2
    assert log.count("trained") == 4
    for line in lines:
        values = json.loads(line.partition(": ")[2])
        assert (values["gpus"], values["sm_clock_mhz"]["median"]) == (4, 1980)


def test_a_rank_that_fails_fails_the_job_with_its_code(site: Site, tmp_path: Path) -> None:
    run = submit(site, tmp_path, f"{TRAIN}raise SystemExit(7)", nodes=1)
    end = site.ends(run, "FAILED")
    assert end.exit_code == 7


def test_a_cancelled_run_ends_with_its_line(site: Site, tmp_path: Path) -> None:
    run = submit(site, tmp_path, f"{TRAIN}time.sleep(600)", nodes=1)
    site.reaches(run, "RUNNING")
    while not run.log.exists() or "trained" not in run.log.read_text():
        time.sleep(0.1)
    site.cluster().cancel([run])
    site.ends(run, "CANCELLED")
    assert "llmb telemetry " in run.log.read_text()
