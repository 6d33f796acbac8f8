# SPDX-License-Identifier: Apache-2.0
"""Tests of polling in cases that no test cluster can produce: stand-ins for Slurm's commands print
recorded output.
"""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from llmb.builtin.slurm.commands import (
    Client,
    SilentError,
    is_silence,
    last_line,
    portions,
    refusal,
)
from llmb.builtin.slurm.poll import BRIEF, Memory, Poller
from llmb.builtin.slurm.slurm_cluster import SlurmCluster, job_id_of, notices
from llmb.contract import record
from llmb.contract.cluster import QueueFullError, UnclearError
from llmb.contract.launch import Launch, Program
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.state import JobState
from llmb.core.process import ProcessId
from llmb.core.shell import Completed
from llmb.errors import LlmbError, describe
from llmb.kit import programs
from llmb.measure.result_notes import cause_of_end
from llmb.run import store
from llmb.run.submission import submit_recorded
from llmb_installer.cluster_types import all_types
from llmb_testing.job import SMALLEST_JOB


class Slurm:
    """Stand-ins for Slurm's commands in a folder; ``says`` sets what one prints, with its exit code
    and errors.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.log = folder / "calls"
        self.memory = Memory()
        self.says("sacct")
        self.says("squeue")

    def says(self, program: str, out: str = "", *, err: str = "", code: int = 0) -> None:
        path = self.folder / program
        (self.folder / f"{program}.out").write_text(out)
        (self.folder / f"{program}.err").write_text(err)
        path.write_text(
            f'#!/bin/sh\necho "{program} $*" >> "{self.log}"\n'
            f'while IFS= read -r line; do echo "$line"; done < "{path}.out"\n'
            f'while IFS= read -r line; do echo "$line" >&2; done < "{path}.err"\nexit {code}\n'
        )
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def poll(self, *runs: RunRecord) -> list[JobState]:
        poller = Poller(client=Client(environ={"PATH": str(self.folder)}), memory=self.memory)
        states = poller.states(runs)
        return [states[run.id] for run in runs]


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    return Slurm(tmp_path)


@pytest.fixture
def run(tmp_path: Path) -> RunRecord:
    """A run that was submitted as job 7 ten minutes ago, called job.r1."""
    directory = tmp_path / "job" / "job_1"
    (directory / "job").mkdir(parents=True)
    launch = Launch(
        name="job", nodes=1, ranks_per_node=1, time_limit=60, program=Program(module="m")
    )
    return RunRecord(
        id="r1",
        created=time.time() - 600,
        llmb_version="0",
        cluster_type="slurm",
        directory=directory,
        job=SMALLEST_JOB,
        launch=launch,
        script_name="launch",
        submitter=ProcessId.current(),
        scheduler_id="7",
    )


def ended(run: RunRecord, code: int) -> None:
    (run.place / "scheduler_id").write_text("7\ncluster kit\nnodes n1\nhost h\nstarted 100\n")
    (run.place / "ended").write_text(f"{code}\nended 200\n")


def test_a_row_without_its_name_is_not_believed(slurm: Slurm, run: RunRecord) -> None:
    """So accounting first tells of an ended job, which may have failed."""
    slurm.says("sacct", "7|COMPLETED||Unknown|Unknown|||allocation\n")
    slurm.says("squeue", "7|RUNNING|None|100|0||job.r1\n")
    assert slurm.poll(run) == [JobState(state="RUNNING", started=100)]


def test_another_clusters_job_of_that_number_is_not_this_one(slurm: Slurm, run: RunRecord) -> None:
    slurm.says("sacct", "7|COMPLETED|0:0|1|2|None||somebody's\n")
    slurm.says("squeue", "7|COMPLETED|None|1|2||somebody's\n")
    assert slurm.poll(run)[0].state == "LOST"


def test_a_job_that_is_held_says_so(slurm: Slurm, run: RunRecord) -> None:
    slurm.says("squeue", "7|PENDING|JobHeldMaxRequeue|0|0||job.r1\n")
    (state,) = slurm.poll(run)
    assert (state.state, state.reason) == ("PENDING", "JobHeldMaxRequeue")
    assert "scontrol release" in state.fix
    slurm.says("squeue", "7|REQUEUE_HOLD|launch failed requeued held|0|0||job.r1\n")
    assert not slurm.poll(run)[0].is_end


def test_accounting_that_never_hears_of_an_end(
    slurm: Slurm, run: RunRecord, wording: Callable[..., None]
) -> None:
    """A runaway: accounting calls it running long after its limit, and the queue does not have
    it.
    """
    slurm.says("sacct", "7|RUNNING|0:0|100|Unknown|None||job.r1\n")
    assert slurm.poll(run)[0].state == "LOST"
    ended(run, 0)
    (end,) = slurm.poll(run)
    assert (end.state, end.exit_code, end.started, end.ended) == ("COMPLETED", 0, 100, 200)
    wording("jobs list", end.reason)


def test_a_running_job_takes_one_question(slurm: Slurm, run: RunRecord) -> None:
    slurm.says("sacct", f"7|RUNNING|0:0|{int(time.time())}|Unknown|None||job.r1\n")
    slurm.poll(run)
    assert [call.split()[0] for call in slurm.calls] == ["sacct"]
    ended(run, 0)  # its script is through: the queue hears of the end before accounting does
    slurm.says("squeue", "7|COMPLETED|None|100|200||job.r1\n")
    assert slurm.poll(run)[0].state == "COMPLETED"


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("CANCELLED AT 2026-11-21T09:17:11 DUE TO TIME LIMIT ***", "TIMEOUT"),
        (
            (
                "CANCELLED AT 2026-11-21T09:17:11 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR"
                " DETAILS ***"
            ),
            "NODE_FAIL",
        ),
        ("CANCELLED AT 2026-11-21T09:17:11 DUE TO PREEMPTION ***", "PREEMPTED"),
        ("CANCELLED AT 2026-11-21T09:17:11 ***", "CANCELLED"),
        # and that is how it ended then
        ("CANCELLED AT 2026-11-21T09:17:11 DUE TO JOB REQUEUE ***", "FAILED"),
    ],
)
def test_a_forgotten_job_ends_as_its_log_says(
    slurm: Slurm, run: RunRecord, words: str, state: str
) -> None:
    ended(run, 143)  # srun was ended first, and the script had time for its last act
    run.batch_log.write_text(f"slurmstepd: error: *** JOB 7 ON n1 {words}\n")
    assert slurm.poll(run)[0].state == state


def test_a_script_that_was_killed_on_its_node_has_no_exit_code_of_the_training(
    slurm: Slurm, run: RunRecord
) -> None:
    """A node that breaks down may have the time to say so, and Slurm calls that a failed launch."""
    (run.place / "scheduler_id").write_text("7\ncluster kit\nstarted 100\n")
    slurm.says("sacct", "7|FAILED|0:9|100|200|None||job.r1\n")
    assert [(one.state, one.exit_code, one.reason != "") for one in slurm.poll(run)] == [
        ("FAILED", None, True)
    ]
    slurm.says("sacct")
    slurm.says("squeue", "7|FAILED|JobLaunchFailure|100|200||job.r1\n")
    assert [(one.state, one.exit_code, one.reason != "") for one in slurm.poll(run)] == [
        ("FAILED", None, True)
    ]
    slurm.says("sacct", "7|FAILED|9:0|100|200|NonZeroExitCode||job.r1\n")
    assert slurm.poll(run)[0].exit_code == 9
    ended(run, 137)
    assert slurm.poll(run)[0].exit_code == 137  # a rank was killed, and the script has reported so


def test_a_job_that_ended_within_the_grace_time_of_a_preemption(
    slurm: Slurm, run: RunRecord
) -> None:
    ended(run, 143)
    with (run.place / "ended").open("a") as stream:
        stream.write("cause PREEMPTED\n")
    state = JobState(state="PREEMPTED", started=100, ended=200)
    slurm.says("sacct", "7|FAILED|15:0|100|200|None||job.r1\n")
    assert slurm.poll(run) == [state]
    slurm.says("sacct", err="Slurm accounting storage is disabled", code=1)
    slurm.says("squeue", "7|FAILED|NonZeroExitCode|100|200||job.r1\n")
    assert slurm.poll(run) == [state]
    slurm.says("squeue")
    assert [one.state for one in slurm.poll(run)] == ["PREEMPTED"]
    slurm.says("squeue", "7|CANCELLED|None|100|200||job.r1\n")
    assert [one.state for one in slurm.poll(run)] == ["CANCELLED"]


def test_what_the_script_writes_while_slurm_is_asked_counts(slurm: Slurm, run: RunRecord) -> None:
    (run.place / "scheduler_id").write_text("7\ncluster kit\nstarted 100\n")
    slurm.says("sacct", "7|FAILED|9:0|100|200|NonZeroExitCode||job.r1\n")
    path = slurm.folder / "sacct"
    path.write_text(
        path.read_text().replace("exit 0\n", f'echo 137 > "{run.place}/ended"\nexit 0\n')
    )
    assert slurm.poll(run)[0].exit_code == 137


@pytest.mark.parametrize(
    ("asked", "limit"), [("", "00:01:00"), ("00:20:00", "00:20:00"), ("1-12", "36:00:00")]
)
def test_a_timeout_names_the_limit_that_was_asked_for(
    slurm: Slurm, run: RunRecord, asked: str, limit: str
) -> None:
    """An option of sbatch may have overridden the job's own."""
    run.script.write_text(f"#!/bin/bash\n#SBATCH --time={asked}\n" if asked else "#!/bin/bash\n")
    slurm.says("sacct", "7|TIMEOUT|0:15|100|200|TimeLimit||job.r1\n")
    assert slurm.poll(run)[0].reason.split()[-1] == limit


def test_of_two_jobs_of_one_run_the_one_that_runs_it_counts(slurm: Slurm, run: RunRecord) -> None:
    """Its first submission has arrived after all; the second ends itself, as it is one too many."""
    (run.place / "scheduler_id").write_text("6\ncluster kit\n")
    slurm.says(
        "sacct", "6|RUNNING|0:0|100|Unknown|None||job.r1\n7|FAILED|1:0|100|101|None||job.r1\n"
    )
    slurm.says("squeue", "6|RUNNING|None|100|0||job.r1\n")
    assert slurm.poll(run)[0].state == "RUNNING"
    slurm.says("squeue", "6|RUNNING|None|100|0||job.r1\n7|FAILED|None|100|101||job.r1\n")
    slurm.says("scancel")
    config = ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"])
    SlurmCluster(
        config=config, client=Client(environ={"PATH": str(slurm.folder)}), digest=""
    ).cancel([run])
    assert slurm.calls[-1].split() == ["scancel", "7", "6"]


def test_a_silent_controller_leaves_all_jobs_named(slurm: Slurm, run: RunRecord) -> None:
    silence = "Kill job error on job id 8: Unable to contact slurm controller (connect failure)"
    slurm.says("squeue", "7|RUNNING|None|100|0||job.r1\n8|RUNNING|None|100|0||job.r2\n")
    slurm.says("scancel", err=f"scancel: error: {silence}\n", code=1)
    cluster = SlurmCluster(
        config=ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"]),
        client=Client(environ={"PATH": str(slurm.folder)}),
        digest="",
    )
    with pytest.raises(SilentError) as raised:
        cluster.cancel([run, replace(run, id="r2", scheduler_id="8")])
    assert "jobs 7, 8 may still run" in raised.value.message


def test_the_job_that_lost_the_race_for_a_run_does_not_end_it(slurm: Slurm, run: RunRecord) -> None:
    """Jobs 7 and 8 of one run start while Slurm is asked: 8 writes the run's files first."""
    slurm.says(
        "sacct", "7|FAILED|1:0|100|101|None||job.r1\n8|RUNNING|0:0|100|Unknown|None||job.r1\n"
    )
    slurm.says("squeue", "8|RUNNING|None|100|0||job.r1\n")
    path = slurm.folder / "sacct"
    writes = f'echo 8 > "{run.place}/scheduler_id"\nexit 0\n'
    path.write_text(path.read_text().replace("exit 0\n", writes))
    assert slurm.poll(run)[0].state == "RUNNING"


@pytest.mark.parametrize(
    "words", ["Node failure on n2", "Aborting, io error and missing step on node 1"]
)
def test_a_job_that_failed_as_a_node_was_lost_says_so(
    slurm: Slurm, run: RunRecord, words: str
) -> None:
    slurm.says("sacct", "7|FAILED|1:0|100|200|None||job.r1\n")
    assert slurm.poll(run)[0].state == "FAILED"
    run.log.write_text(
        f"started\nsrun: error: {words}\nsrun: Job step aborted: Waiting up to 32 seconds ...\n"
    )
    assert slurm.poll(run) == [
        JobState(state="NODE_FAIL", reason=words, exit_code=1, started=100, ended=200)
    ]


def test_without_any_accounting_it_is_asked_for_once(slurm: Slurm, run: RunRecord) -> None:
    slurm.says("sacct", err="Slurm accounting storage is disabled\n", code=1)
    slurm.says("squeue", "7|RUNNING|None|100|0||job.r1\n")
    for _ in range(3):
        assert slurm.poll(run)[0].state == "RUNNING"
    assert [call.split()[0] for call in slurm.calls].count("sacct") == 1


def test_no_sacct_here_is_no_accounting(slurm: Slurm, run: RunRecord) -> None:
    (slurm.folder / "sacct").unlink()
    slurm.says("squeue", "7|RUNNING|None|100|0||job.r1\n")
    assert slurm.poll(run)[0].state == "RUNNING"
    assert not slurm.memory.has_accounting


def test_nobody_answers(slurm: Slurm, run: RunRecord, wording: Callable[..., None]) -> None:
    slurm.says(
        "sacct", err="sacct: error: Problem talking to the database: Connection refused\n", code=1
    )
    down = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    slurm.says("squeue", err=down, code=1)
    with pytest.raises(SilentError) as raised:
        slurm.poll(run)
    assert raised.value.code == "slurm-silent"
    wording("jobs list", describe(raised.value))


def test_what_accounting_knows_is_reported_though_the_queue_is_silent(
    slurm: Slurm, run: RunRecord
) -> None:
    second = replace(run, id="r2", scheduler_id="8", directory=run.directory.with_name("job_2"))
    second.directory.mkdir()
    store.save_state(second, JobState(state="RUNNING", started=5.0))
    slurm.says("sacct", "7|COMPLETED|0:0|100|200|None||job.r1\n")
    slurm.says(
        "squeue", err="slurm_load_jobs error: Socket timed out on send/recv operation\n", code=1
    )
    states = slurm.poll(run, second)
    assert [state.state for state in states] == ["COMPLETED", "RUNNING"]
    assert "Socket timed out" in states[1].reason
    assert (states[0].is_doubtful, states[1].is_doubtful) == (False, True)


def test_a_run_that_only_accounting_can_know_is_not_lost_while_that_is_silent(
    slurm: Slurm, run: RunRecord, wording: Callable[..., None]
) -> None:
    """The queue has forgotten it, as it does minutes after an end."""
    slurm.says(
        "sacct", err="sacct: error: Problem talking to the database: Connection refused\n", code=1
    )
    (seen,) = slurm.poll(run)
    assert seen.state == "UNKNOWN"
    wording("jobs list", seen.reason)
    slurm.memory.rest_until = 0.0
    slurm.says("sacct", "7|NODE_FAIL|1:0|100|200|None||job.r1\n")
    assert slurm.poll(run)[0].state == "NODE_FAIL"


def test_who_asks_once_waits_only_briefly(slurm: Slurm, run: RunRecord) -> None:
    poller = Poller(client=Client(environ={}, ask_seconds=20), memory=slurm.memory)
    assert poller.asker.ask_seconds == BRIEF
    assert (
        Poller(client=Client(environ={}, ask_seconds=1), memory=slurm.memory).asker.ask_seconds == 1
    )
    slurm.says(
        "squeue", err="slurm_load_jobs error: Socket timed out on send/recv operation\n", code=1
    )
    with pytest.raises(SilentError):
        slurm.poll(run)
    assert poller.asker.ask_seconds == 20


def test_another_users_run_is_not_called_lost(
    slurm: Slurm, run: RunRecord, monkeypatch: pytest.MonkeyPatch, wording: Callable[..., None]
) -> None:
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    state = slurm.poll(run)[0]
    assert state.state == "UNKNOWN"
    wording("jobs list", state.reason)
    store.save_state(run, JobState(state="PENDING", reason="JobHeldUser", fix="release it"))
    state = slurm.poll(run)[0]
    assert (state.state, state.fix) == ("PENDING", "")
    ended(run, 0)
    state = slurm.poll(run)[0]
    assert state.state == "COMPLETED"
    wording("jobs list", state.reason)


def test_another_user_cannot_release_a_job(
    slurm: Slurm, run: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.says("squeue", "7|PENDING|JobHeldUser|0|0||job.r1\n")
    assert "scontrol release" in slurm.poll(run)[0].fix
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    assert slurm.poll(run)[0] == JobState(state="PENDING", reason="JobHeldUser")


def test_a_node_that_cannot_open_the_jobs_output(
    slurm: Slurm, run: RunRecord, wording: Callable[..., None]
) -> None:
    """Slurm has a code of its own in the place of a signal, with accounting and without."""
    slurm.says("sacct", "7|FAILED|0:53|100|200|None|n1|job.r1\n")
    with_accounting = slurm.poll(run)[0]
    assert (with_accounting.state, with_accounting.exit_code) == ("FAILED", None)
    wording("jobs list", with_accounting.reason, {str(run.directory): "<folder>"})
    slurm.says("sacct")
    slurm.says("squeue", "7|FAILED|JobLaunchFailure|100|200|n1|job.r1\n")
    slurm.says("scontrol", "JobId=7 JobState=FAILED ExitCode=0:53 RunTime=00:00:00\n")
    assert slurm.poll(run) == [with_accounting]
    cause = cause_of_end(with_accounting)
    assert cause is not None
    assert (cause.kind, "writable on the node" in cause.fix) == ("job output", True)


@pytest.mark.parametrize(("code", "shown"), [("3:0", 3), ("0:53", None), ("0:11", 139)])
def test_the_controller_knows_the_exit_code_of_a_script_that_wrote_none(
    code: str, shown: int | None, slurm: Slurm, run: RunRecord
) -> None:
    """Its script had begun, so that the node could open its output."""
    (run.place / "scheduler_id").write_text("7\ncluster kit\nnodes n1\nhost h\nstarted 100\n")
    slurm.says("squeue", "7|FAILED|NonZeroExitCode|100|200|n1|job.r1\n")
    slurm.says("scontrol", f"JobId=7 JobState=FAILED ExitCode={code} RunTime=00:00:00\n")
    (state,) = slurm.poll(run)
    assert (state.state, state.exit_code) == ("FAILED", shown)
    assert "output file" not in state.reason


def test_one_question_however_many(slurm: Slurm, run: RunRecord) -> None:
    runs = [replace(run, id=f"r{number}", scheduler_id=str(number)) for number in range(1, 301)]
    slurm.says(
        "sacct",
        "".join(f"{number}|COMPLETED|0:0|1|2|None||job.r{number}\n" for number in range(1, 301)),
    )
    assert {state.state for state in slurm.poll(*runs)} == {"COMPLETED"}
    assert len(slurm.calls) == 1


def test_accounting_that_failed_is_rested_longer_each_time(
    slurm: Slurm, run: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    slurm.says(
        "sacct", err="sacct: error: Problem talking to the database: Connection refused\n", code=1
    )
    slurm.says("squeue", "7|RUNNING|None|100|0||job.r1\n")
    asked = []
    for _ in range(120):
        before = len(slurm.calls)
        slurm.poll(run)
        asked.append(any(call.startswith("sacct") for call in slurm.calls[before:]))
        now[0] += 5
    assert asked.count(True) == 6  # at 0, 15, 45, 105, 225 and 465 s


def test_the_ids_of_names(slurm: Slurm, run: RunRecord) -> None:
    """The first of two of one name; a name of accounting's own is not taken."""
    lost = replace(run, scheduler_id=None)
    slurm.says("squeue", "9|PENDING|None|0|0||job.r1\n8|RUNNING|None|1|0||job.r1\n")
    poller = Poller(client=Client(environ={"PATH": str(slurm.folder)}), memory=slurm.memory)
    assert poller.find([lost]) == {"r1": "8"}
    slurm.says("squeue")
    slurm.says(
        "sacct", "5|COMPLETED||Unknown|Unknown|||allocation\n6|FAILED|1:0|1|2|None||job.r1\n"
    )
    assert poller.find([lost]) == {"r1": "6"}
    slurm.says(
        "sacct", err="sacct: error: Problem talking to the database: Connection refused\n", code=1
    )
    with pytest.raises(SilentError):
        poller.find([lost])
    slurm.says("sacct", err="Slurm accounting storage is disabled\n", code=1)
    assert poller.find([lost]) == {}


def test_words_are_joined_into_few_arguments() -> None:
    words = [f"{number:090d}" for number in range(3000)]
    parts = list(portions(words))
    assert ",".join(parts).split(",") == words
    assert len(parts) == 3
    assert max(map(len, parts)) < 131072
    assert list(portions([])) == []


@pytest.mark.parametrize(
    ("text", "silent"),
    [
        (
            (
                "sbatch: error: Batch job submission failed: Unable to contact slurm controller"
                " (connect failure)"
            ),
            True,
        ),
        (
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            True,
        ),
        (
            "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
            True,
        ),
        (
            (
                'sbatch: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2":'
                " No such file"
            ),
            True,
        ),
        (
            (
                "sbatch: error: Batch job submission failed: Invalid account or account/partition"
                " combination"
            ),
            False,
        ),
        ("sbatch: error: Batch job submission failed: Job violates accounting/QOS policy", False),
        (
            "sbatch: unrecognized option '--no-such'\nTry \"sbatch --help\" for more information\n",
            False,
        ),
    ],
)
def test_silence_is_not_refusal(text: str, silent: bool) -> None:
    assert is_silence(text) == silent
    assert not last_line(text).startswith(("sbatch", "Try"))


def test_the_environment_of_slurms_commands_is_built(tmp_path: Path) -> None:
    environ = {
        "PATH": "/bin",
        "SLURM_CONF": "/c",
        "SLURM_JOB_ID": "1",
        "SBATCH_WAIT": "1",
        "X": "x",
        "Y": "y",
    }
    got = Client(environ=environ, passed=("X",)).environment()
    assert {"HOME", "USER", "LANG"} <= set(got)
    assert {name: got[name] for name in got if name not in ("HOME", "USER", "LANG")} == {
        "PATH": "/bin",
        "SLURM_CONF": "/c",
        "X": "x",
    }


@pytest.mark.parametrize(
    ("err", "kind", "code"),
    [
        (
            (
                "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"
                "sbatch: error: Batch job submission failed: Resource temporarily unavailable\n"
            ),
            QueueFullError,
            "queue-full",
        ),
        (
            (
                "sbatch: error: AssocMaxSubmitJobLimit\n"
                "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job"
                " submit limit, user's size and/or time limits)\n"
            ),
            QueueFullError,
            "queue-full",
        ),
        (
            (
                "sbatch: error: Batch job submission failed: Invalid account or account/partition"
                " combination specified\n"
            ),
            LlmbError,
            "slurm-refused",
        ),
    ],
)
def test_what_sbatch_says_when_it_takes_no_job(
    slurm: Slurm,
    run: RunRecord,
    tmp_path: Path,
    err: str,
    kind: type[LlmbError],
    code: str,
    wording: Callable[..., None],
) -> None:
    slurm.says("sbatch", err=err, code=1)
    config = ClusterConfig(
        cluster_type="slurm", gpu_type="h100", llmb_install=tmp_path, kind=all_types()["slurm"]
    )
    cluster = SlurmCluster(
        config=config, client=Client(environ={"PATH": str(slurm.folder)}), digest=programs.digest()
    )
    with pytest.raises(kind) as raised:
        cluster.submit(replace(run, scheduler_id=None))
    assert raised.value.code == code
    wording("submit-all", describe(raised.value))
    assert isinstance(raised.value, UnclearError) == (kind is QueueFullError)


BROKEN = (
    "sbatch: error: Batch job submission failed: Invalid account or account/partition combination"
    " specified\n"
)


@pytest.mark.parametrize(
    ("out", "err", "code", "answer"),
    [
        ("4711\n", "", 0, "4711"),
        ("4711;alpha\n", "", 0, "4711"),
        ("Welcome! Project p has 12 hours left.\n4711\n", "", 0, "4711"),
        ("Submitted batch job 4711\n", "", 0, "4711"),
        (
            "note: 3 nodes down\nSubmitted batch job 4711 on cluster alpha\nThank you\n",
            "",
            0,
            "4711",
        ),
        ("\n4711\r\n", "sbatch: note: the queue is long\n", 0, "4711"),
        ("", "", 0, UnclearError),
        ("Thank you\n", "", 0, UnclearError),
        ("4711\n4712\n", "", 0, UnclearError),  # one of them is a notice of a wrapper's
        ("job 4711\n", "", 0, UnclearError),
        ("4711\n", "the wrapper's log is full\n", 1, UnclearError),
        ("", "", 1, UnclearError),
        ("", BROKEN, 1, LlmbError),
        ("Your project has no hours left\n", "", 1, LlmbError),
    ],
)
def test_answers_to_a_submission(
    slurm: Slurm,
    run: RunRecord,
    tmp_path: Path,
    out: str,
    err: str,
    code: int,
    answer: str | type[LlmbError],
) -> None:
    """Only a clear no is a refusal: after any other answer without an id, llmb looks for the job by
    its name.
    """
    slurm.says("sbatch", out, err=err, code=code)
    config = ClusterConfig(
        cluster_type="slurm", gpu_type="h100", llmb_install=tmp_path, kind=all_types()["slurm"]
    )
    cluster = SlurmCluster(
        config=config, client=Client(environ={"PATH": str(slurm.folder)}), digest=programs.digest()
    )
    if isinstance(answer, str):
        assert cluster.submit(replace(run, scheduler_id=None)) == answer
        return
    with pytest.raises(answer) as raised:
        cluster.submit(replace(run, scheduler_id=None))
    assert isinstance(raised.value, UnclearError) == (answer is UnclearError)


def test_a_wrapper_that_hides_the_id_doubles_no_run(
    slurm: Slurm, run: RunRecord, tmp_path: Path
) -> None:
    slurm.says("sbatch", "Thank you for using our cluster\n")
    slurm.says("squeue", "7|PENDING|None|0|0||job.r1\n")
    config = ClusterConfig(
        cluster_type="slurm", gpu_type="h100", llmb_install=tmp_path, kind=all_types()["slurm"]
    )
    cluster = SlurmCluster(
        config=config, client=Client(environ={"PATH": str(slurm.folder)}), digest=programs.digest()
    )
    waiting = replace(run, scheduler_id=None)
    record.save(waiting)
    result = submit_recorded(waiting, cluster)
    assert (result.error, result.run.scheduler_id, record.load(run.directory).scheduler_id) == (
        None,
        "7",
        "7",
    )
    slurm.says("squeue")
    record.save(waiting)
    assert isinstance(submit_recorded(waiting, cluster).error, UnclearError)
    assert store.seen_state(waiting) is None  # no end: reconcile looks for it again


def test_a_job_that_was_renamed_while_it_runs_is_still_the_run(
    slurm: Slurm, run: RunRecord
) -> None:
    """By the id that its script wrote into the run's own folder, and by when it started."""
    now = int(time.time())
    (run.place / "scheduler_id").write_text(f"7\ncluster kit\nnodes n1\nstarted {now - 60}\n")
    slurm.says("sacct", f"7|RUNNING|0:0|{now - 63}|Unknown|None|n1|audited-job.r1\n")
    assert slurm.poll(run)[0].state == "RUNNING"
    slurm.says("sacct", f"7|COMPLETED|0:0|{now - 63}|{now}|None|n1|audited-job.r1\n")
    (run.place / "ended").write_text(f"0\nended {now}\n")
    assert slurm.poll(run)[0].state == "COMPLETED"
    # a job of that number that began at another time is somebody's, on another cluster
    slurm.says("sacct", f"7|RUNNING|0:0|{now - 9000}|Unknown|None|n1|somebody's\n")
    assert slurm.poll(run)[0].reason.startswith("from its own files")


def test_a_job_that_a_plugin_of_the_site_renamed_before_it_starts(
    slurm: Slurm, run: RunRecord
) -> None:
    """By its batch script, which Slurm is asked for once."""
    slurm.says("squeue", "7|PENDING|Priority|0|0||site-7\n")
    slurm.says("scontrol", f"JobId=7 JobName=site-7 Command={run.script} WorkDir=/x Power=\n")
    for _ in range(3):
        assert slurm.poll(run)[0].state == "PENDING"
    assert sum("scontrol" in call for call in slurm.calls) == 1
    slurm.memory = Memory()
    slurm.says("scontrol", "JobId=7 JobName=site-7 Command=/home/other/script WorkDir=/x Power=\n")
    assert slurm.poll(run)[0].state == "LOST"


def test_a_renamed_job_whose_id_is_not_known_is_found_by_its_script(
    slurm: Slurm, run: RunRecord
) -> None:
    unknown = replace(run, scheduler_id=None)
    poller = Poller(client=Client(environ={"PATH": str(slurm.folder)}), memory=slurm.memory)
    slurm.says("squeue", f"9|{run.script}\n8|{run.script}\n7|/home/other/script\n")
    assert poller.find([unknown]) == {"r1": "8"}


def test_the_node_that_failed_is_named_and_no_healthy_one(slurm: Slurm, run: RunRecord) -> None:
    slurm.says("sacct", "7|NODE_FAIL|1:0|100|200|None|n[1-4]|job.r1\n")
    slurm.says("sinfo", "n1|allocated\nn2|mixed\nn3|down*\nn4|drained\nn3|down*\n")
    assert slurm.poll(run)[0].reason == "node n3 failed"
    slurm.says("sinfo", "n1|allocated\nn2|mixed\nn3|idle\nn4|drained\n")
    assert slurm.poll(run)[0].reason == ""
    slurm.says("sinfo", "", err="sinfo: error: Invalid node name", code=1)
    assert slurm.poll(run)[0].reason == ""
    run.log.write_text("srun: error: Node failure on n2\n")
    assert slurm.poll(run)[0].reason == "Node failure on n2"


def test_a_refusal_has_every_word_of_the_site_first() -> None:
    text = (
        "sbatch: error: Jobs of group ml need --account=NAME\n"
        "sbatch: see https://site/policy\n"
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"
        "sbatch: error: Batch job submission failed: Unspecified error\n"
        "sbatch: error: Jobs of group ml need --account=NAME\n"
        'Try "sbatch --help" for more information\n'
    )
    assert refusal(text) == (
        "Jobs of group ml need --account=NAME; see https://site/policy; Unspecified error"
    )
    answer = "\n".join(line for line in text.splitlines() if "retrying" not in line)
    with pytest.raises(LlmbError) as raised:
        job_id_of(Completed(argv=("sbatch",), code=1, out="", err=answer))
    assert "need --account=NAME; see https://site/policy" in raised.value.message


def test_notices_of_a_success_are_kept() -> None:
    done = Completed(
        argv=("sbatch",),
        code=0,
        out="Checking your quota ...\n4711;cluster\n",
        err="sbatch: your project has 3 % of its hours left\n",
    )
    assert job_id_of(done) == "4711"
    assert notices(done) == ["Checking your quota ...", "your project has 3 % of its hours left"]


def test_a_site_that_requeues_by_force(slurm: Slurm, run: RunRecord) -> None:
    """The script's first start is in the run's own file, and Slurm knows the last one alone."""
    now = int(time.time())
    (run.place / "scheduler_id").write_text(f"7\ncluster kit\nnodes n1\nstarted {now - 400}\n")
    for started, reason in ((now - 402, ""), (now - 30, "second attempt in the same log")):
        slurm.says("sacct", f"7|RUNNING|0:0|{started}|Unknown|None|n1|job.r1\n")
        (state,) = slurm.poll(run)
        assert (state.state, reason in state.reason) == ("RUNNING", True)
        assert bool(state.reason) == bool(reason)
    slurm.says("sacct", f"7|COMPLETED|0:0|{now - 30}|{now}|None|n1|job.r1\n")
    assert "second attempt" in slurm.poll(run)[0].reason
