# SPDX-License-Identifier: Apache-2.0
"""Each local run exactly once, whenever its submitter and the supervisor of the queue are killed.

LLMB_TEST_KILLS gives the full count, 20.
"""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from llmb.errors import LlmbError

Machine = Any  # the class is in conftest.py

KILLS = int(os.environ.get("LLMB_TEST_KILLS", "2"))
RUNS = 6
SUBMITTER = """
import sys
from pathlib import Path
from llmb.builtin.local.local_cluster import create
from llmb.contract.schema import ClusterConfig
from llmb.contract import record
config = ClusterConfig(cluster_type="local", gpu_type="cpu", llmb_install=Path(sys.argv[1]))
for path in sys.argv[2:]:
    create(config).submit(record.load(Path(path)))
"""


@pytest.mark.slow
@pytest.mark.fault("local-kills")
@pytest.mark.parametrize("moment", range(KILLS))
def test_killed_at_any_moment_each_run_has_run_once(
    moment: int, machine: Machine, seen: Callable[..., None]
) -> None:
    chance, order = random.Random(moment), machine.root / "order"
    order.touch()
    words = [f"run{number}" for number in range(RUNS)]
    program = "open({!r}, 'a').write('{}\\n')\nimport time\ntime.sleep(0.1)\n"
    runs = [machine.record(machine.launch(program.format(str(order), word))) for word in words]
    argv = [
        sys.executable,
        "-c",
        SUBMITTER,
        str(machine.install),
        *(str(run.directory) for run in runs),
    ]
    submitter = subprocess.Popen(
        argv, env=machine.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    until = machine.state / "queue"
    while submitter.poll() is None and not any(until.parent.rglob("*.json")):
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.3))
    submitter.kill()
    printed, _ = submitter.communicate()
    time.sleep(chance.uniform(0, 2))
    with contextlib.suppress(psutil.NoSuchProcess, LlmbError, AttributeError):
        machine.supervisor().kill()
    for run in runs:
        # one that is there already is not taken twice
        assert machine.cluster().submit(run) == run.id
    ends = [machine.end(run).state for run in runs]
    ran = Counter(order.read_text().split())
    seen(lost=sum(ran[word] == 0 for word in words), doubled=sum(ran[word] > 1 for word in words))
    seen(
        tracebacks=(printed + machine.log).count("Traceback"),
        wrong_ends=sum(end != "COMPLETED" for end in ends),
    )
    assert (ran, set(ends)) == (Counter(words), {"COMPLETED"}), machine.log
    assert "Traceback" not in printed + machine.log
