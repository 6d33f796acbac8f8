# SPDX-License-Identifier: Apache-2.0
"""What the script does in pods that really run: ends, limits, secrets, pods that
start twice.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.record import RunRecord
from llmb.contract.state import JobState
from llmb_testing.runai import ControlPlane

Site = Any  # the class is in conftest.py
# torch may be installed first
pytestmark = [pytest.mark.slow, pytest.mark.local_install, pytest.mark.timeout(1800)]

SAYS = """\
import os, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LLMB_RANK", "LLMB_NODE_RANK", "LLMB_LOCAL_RANK", "LLMB_RUN_ID")
with open(f"rank{os.environ['RANK']}", "w") as stream:
    print(*map(os.environ.get, names), file=stream)
"""
FAILS_IN_POD_1 = """\
import os, sys, time
print("rank", os.environ["RANK"], flush=True)
if os.environ["LLMB_NODE_RANK"] == "1":
    sys.exit("no such recipe")
time.sleep(600)
"""


@pytest.fixture
def train(site: Site, torch_venv: Path) -> Callable[..., RunRecord]:
    """Submits a run of a Python text in the environment with torch."""

    def submit(program: str, **changes: Any) -> RunRecord:
        found: RunRecord = site.submit(program, venv=str(torch_venv), **changes)
        return found

    return submit


def ends(site: Site, run: RunRecord, expected: str) -> JobState:
    """The state that the run comes to, which must be the expected one: else all that is known is
    reported.
    """
    cluster = site.cluster()

    def look() -> JobState | None:
        state: JobState = cluster.poll([run])[run.id]
        return state if state.is_end else None

    found: JobState = wait_until(look, f"the end of {run.id}")
    logs = [
        f"{path.name}:\n{path.read_text()}" for path in (run.batch_log, run.log) if path.exists()
    ]
    assert found.state == expected, "\n".join([str(found), *logs])
    return found


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for something that must come true, however slow the machine; what it came to."""
    deadline = time.monotonic() + 240
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return found


def test_ranks_know_their_place_in_pods_of_two(site: Site, train: Callable[..., RunRecord]) -> None:
    run = train(SAYS, nodes=2, ranks_per_node=2)
    ends(site, run, "COMPLETED")
    ranks = [(run.work / f"rank{rank}").read_text().split() for rank in range(4)]
    assert ranks == [
        ["0", "4", "0", "0", "0", "0", run.id],
        ["1", "4", "1", "1", "0", "1", run.id],
        ["2", "4", "0", "2", "1", "0", run.id],
        ["3", "4", "1", "3", "1", "1", run.id],
    ]


def test_the_exit_code_is_that_of_the_rank(site: Site, train: Callable[..., RunRecord]) -> None:
    run = train("import sys; print('it breaks', flush=True); sys.exit(7)", ranks_per_node=2)
    assert ends(site, run, "FAILED").exit_code == 7
    assert "it breaks" in run.log.read_text()


def test_a_pod_that_fails_ends_the_others_and_its_code_is_the_run_s(
    site: Site, train: Callable[..., RunRecord], plane: ControlPlane, wording: Callable[..., None]
) -> None:
    run = train(FAILS_IN_POD_1, nodes=2)
    ends(site, run, "FAILED")
    (workload,) = plane.workloads
    assert workload.pods is not None
    pods = workload.pods
    assert wait_until(lambda: None not in pods.codes(), "both pods ended")
    # What the first pod writes comes last; Run:ai may have reported the failure before.
    assert site.cluster().poll([run])[run.id].exit_code == 1
    (line,) = [line for line in run.batch_log.read_text().splitlines() if "node 1 has" in line]
    wording("jobs logs", line)
    assert "no such recipe" in (run.work / "pod-1.out").read_text()


def test_a_rank_that_was_killed(site: Site, train: Callable[..., RunRecord]) -> None:
    end = ends(site, train("import os; os.kill(os.getpid(), 9)"), "FAILED")
    assert end.exit_code == 128 + signal.SIGKILL


def test_the_time_limit_ends_it(site: Site, train: Callable[..., RunRecord]) -> None:
    end = ends(site, train("import time; time.sleep(600)", time_limit=1), "TIMEOUT")
    assert "00:00:01" in end.reason


def test_a_run_that_is_cancelled_ends_its_ranks(
    site: Site, train: Callable[..., RunRecord], plane: ControlPlane, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    run = train(f"import os, time; open('{note}', 'w').write(str(os.getpid())); time.sleep(600)")
    cluster = site.cluster()
    wait_until(lambda: cluster.poll([run]) and note.exists() and note.read_text(), "the rank")
    cluster.cancel([run])
    ends(site, run, "CANCELLED")
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)
    cluster.cancel([run])  # one that has ended is left alone
    assert [workload.phase for workload in plane.workloads] == ["Stopped"]


def test_pods_that_were_evicted_do_not_start_the_run_again(
    site: Site, train: Callable[..., RunRecord], plane: ControlPlane, tmp_path: Path
) -> None:
    note = tmp_path / "starts"
    run = train(f"import time; open('{note}', 'a').write('x'); time.sleep(600)")
    cluster = site.cluster()
    wait_until(lambda: cluster.poll([run]) and note.exists() and note.read_text(), "the rank")
    plane.evict(plane.named(run.id))
    ends(site, run, "PREEMPTED")
    assert note.read_text() == "x"


def test_secrets_and_the_shell_s_variables_reach_the_ranks_and_nothing_else_has_them(
    plane: ControlPlane, site_at: Callable[..., Site], torch_venv: Path
) -> None:
    plane.secrets = {"hub": {"token": "hf_s3cret"}}
    site = site_at(
        plane,
        runai={"secrets": {"HF_TOKEN": {"name": "hub", "key": "token"}}},
        pass_environment=["SITE_PROXY", "NONE"],
    )
    site.environ = {**site.environ, "SITE_PROXY": "http://proxy", "HF_TOKEN": "hf_s3cret"}
    program = (
        "import os; print(os.environ['SITE_PROXY'], 'NONE' in os.environ,"
        " len(os.environ['HF_TOKEN']))"
    )
    run = site.submit(program, venv=str(torch_venv), secrets=("HF_TOKEN",))
    ends(site, run, "COMPLETED")
    assert "http://proxy False 9" in run.log.read_text()
    texts = [
        path.read_text()
        for path in site.install.rglob("*")
        if path.is_file() and "programs" not in str(path)
    ]
    assert not any("s3cret" in text for text in [*texts, str(plane.workloads[0].body)])


def test_too_few_pods_are_reported_and_nothing_is_trained(
    site: Site, train: Callable[..., RunRecord], plane: ControlPlane, wording: Callable[..., None]
) -> None:
    run = site.record(site.launch("open('trained', 'w')", nodes=3))
    text = run.script.read_text()
    run.script.write_text(text.replace('"numWorkers": 2', '"numWorkers": 1'))
    run = run.submitted(site.cluster().submit(run))
    assert ends(site, run, "FAILED").exit_code == 1
    wording(
        "jobs logs",
        "\n".join({line for line in run.batch_log.read_text().splitlines() if "2 nodes" in line}),
    )
    assert not (run.work / "trained").exists()
