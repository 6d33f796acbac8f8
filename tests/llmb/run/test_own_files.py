# SPDX-License-Identifier: Apache-2.0
"""Tests of llmb's own files after a crash, a full disk, a newer release or a stray edit: one row,
never the command.

LLMB_TEST_FUZZ gives the full count of damaged files of each kind, 20000.
"""

import json
import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.local import journal
from llmb.builtin.local.journal import Journal, end_now
from llmb.contract import record
from llmb.contract.record import Attempt, RunRecord
from llmb.contract.state import COMPLETED, FAILED, RUNNING, JobState
from llmb.core import locks
from llmb.core.process import ProcessId
from llmb.errors import LlmbError
from llmb.run import store
from llmb.run.submission import start_attempt
from llmb_installer.cluster_types import all_types
from llmb_testing.fake_cluster import FakeCluster
from llmb_testing.scheduler import Scheduler

pytestmark = pytest.mark.fault("own-files-commands")

COUNT = int(os.environ.get("LLMB_TEST_FUZZ", "300"))
Command = Callable[..., "subprocess.CompletedProcess[str]"]
JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**30,
    10**4000,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    "",
    "\0",
    "x" * 5000,
    "²",
    [],
    [[]],
    {},
    {"a": {}},
    [1, "a", None],
    "1e400",
    "../../etc",
)


@pytest.fixture
def made(tmp_path: Path, workloads: Any) -> RunRecord:
    """A run in its third attempt, with all its files."""
    from llmb.contract.launch import Launch, Program, StagedFile, Wrapper
    from llmb.contract.schema import ClusterConfig
    from llmb.plan.plan import make_plan
    from llmb_testing.entries import job_entry

    config = ClusterConfig(
        cluster_type="slurm", gpu_type="h100", llmb_install=tmp_path, kind=all_types()["slurm"]
    )
    request = job_entry(workload="nemotron4_15b", dtypes=("bf16",), scales=(16,), env={"A": "1"})
    (job,) = make_plan([request], workloads, config).jobs
    stamp = store.new_directory(config.experiments(job.workload), job.experiment_name, 1000)
    launch = Launch(
        name=job.experiment_name,
        nodes=2,
        ranks_per_node=8,
        time_limit=60,
        program=Program(module="m"),
        wrappers=(Wrapper(name="numa", argv=("numactl",)),),
        files=(StagedFile(name="f", text="t"),),
    )
    end = JobState(state=FAILED, reason="why", exit_code=1, started=1.0, ended=2.0)
    run = RunRecord(
        id="a1",
        created=1000.0,
        llmb_version="0",
        cluster_type="local",
        directory=stamp.path,
        job=job,
        launch=launch,
        script_name="launch",
        submitter=ProcessId.current(),
        cluster="the queue",
        scheduler_id="7",
        attempt=2,
        retried=1001.0,
        history=(Attempt(submitted=1000.0, scheduler_id="6", state=end),),
    )
    run.place.mkdir()
    record.save(run)
    store.save_state(run, replace(end, state=RUNNING))
    journal.create(
        run.place, Journal(id="a1", runner=ProcessId.current(), started=1.0, end=end_now(COMPLETED))
    )
    return run


def paths_in(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    return [at, *(path for key, value in below for path in paths_in(value, (*at, key)))]


def damaged(text: str, dice: random.Random) -> bytes:
    """The file with one thing wrong: cut, overwritten bytes, or a value of another kind somewhere
    in it.
    """
    raw = text.encode()
    kind = dice.randrange(4)
    if kind == 0:
        return raw[: dice.randrange(len(raw))]
    if kind == 1:
        at = dice.randrange(len(raw))
        return raw[:at] + dice.randbytes(dice.randint(1, 9)) + raw[at + 1 :]
    data = json.loads(text)
    path = dice.choice(paths_in(data))
    if not path:
        return json.dumps(dice.choice(JUNK)).encode()
    parent = data
    for key in path[:-1]:
        parent = parent[key]
    if kind == 2 and isinstance(parent, dict):
        parent[dice.choice(["new", "", "é", path[-1]])] = dice.choice(JUNK)
    else:
        parent[path[-1]] = dice.choice(JUNK)
    return json.dumps(data).encode()


@pytest.mark.timeout(3600)
@pytest.mark.fault("own-files")
@pytest.mark.parametrize("name", ["record", "state", "journal", "lock"])
def test_whatever_is_in_a_file_of_ours_is_read_or_refused(
    name: str, made: RunRecord, capsys: pytest.CaptureFixture[str], seen: Callable[..., None]
) -> None:
    lock = made.place / "submission.lock.3"
    lock.write_text(json.dumps({"host": "h", "pid": 1, "start": 1.5, "boot": "b"}))
    path = {
        "record": made.directory / record.RECORD,
        "state": made.place / store.STATE,
        "journal": made.place / journal.SCHEDULER,
        "lock": lock,
    }[name]
    read: dict[str, Callable[[], object]] = {
        "record": lambda: record.load(made.directory),
        "state": lambda: store.seen_state(made),
        "journal": lambda: journal.read(made.place),
        "lock": lambda: locks.holder(made.place, "submission"),
    }
    text, dice = path.read_text(), random.Random(f"{name} 1")
    understood = nameless = tracebacks = 0
    for _ in range(COUNT):
        path.write_bytes(damaged(text, dice))
        try:
            read[name]()
            understood += 1
        except LlmbError as error:
            nameless += str(path) not in error.message
        except Exception:
            tracebacks += 1
    seen(tried=COUNT, tracebacks=tracebacks, wrong_ends=nameless)
    assert (tracebacks, nameless) == (0, 0)
    assert understood  # some damage is none: an unknown key, another text
    capsys.readouterr()


@pytest.mark.parametrize(
    "text", ["", "[" * 100_000, '{"a":' * 100_000, "\xff", "null", '{"state": 1e999}', "[1]"]
)
def test_a_damaged_state_is_reported_and_polled_again(
    text: str, made: RunRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made.place / store.STATE
    path.write_bytes(text.encode("latin-1"))
    assert store.seen_state(made) is None
    printed = capsys.readouterr().err
    assert (f"warning: {path}" in printed) == (text != "null")
    again = JobState(state=RUNNING, started=5.0)
    assert store.save_state(made, again) == again
    assert store.seen_state(made) == again


def test_a_record_of_nothing_is_damaged_and_not_missing(made: RunRecord) -> None:
    path = made.directory / record.RECORD
    path.write_text("null")
    with pytest.raises(LlmbError, match=r"llmb-run\.json is damaged"):
        record.find(made.directory)
    path.unlink()
    assert record.find(made.directory) is None


def test_a_time_that_is_none_is_damage(made: RunRecord) -> None:
    path = made.place / store.STATE
    path.write_text(json.dumps({"state": "FAILED", "ended": 1e300}))
    assert store.seen_state(made) is None


def test_what_a_newer_release_has_added_is_kept(made: RunRecord) -> None:
    path = made.directory / record.RECORD
    data = json.loads(path.read_text())
    data["colour"] = "blue"
    data["job"]["moon"] = {"phase": 1}
    data["history"][0]["state"]["mood"] = "good"
    path.write_text(json.dumps(data))
    run = record.load(made.directory)
    assert run == made
    record.save(run.next_attempt(JobState(state=FAILED), ProcessId.current(), 1002.0))
    kept = json.loads(path.read_text())
    assert (kept["colour"], kept["job"]["moon"], kept["attempt"]) == ("blue", {"phase": 1}, 3)
    assert kept["history"][0]["state"]["mood"] == "good"
    path = made.place / journal.SCHEDULER
    path.write_text(
        json.dumps(
            {"id": "a1", "cores": [1, 2], "runner": {**asdict(ProcessId.current()), "cgroup": "/x"}}
        )
    )
    journal.conclude(made.place, "a1", end_now(COMPLETED))
    kept = json.loads(path.read_text())
    assert (kept["cores"], kept["runner"]["cgroup"], kept["end"]["state"]) == (
        [1, 2],
        "/x",
        COMPLETED,
    )
    state = made.place / store.STATE
    state.write_text(json.dumps({"state": "PENDING", "weather": "fair"}))
    store.save_state(made, JobState(state=RUNNING))
    assert (json.loads(state.read_text())["weather"], store.seen_state(made)) == (
        "fair",
        JobState(state=RUNNING),
    )


def test_a_mapping_that_changes_is_not_mixed_with_the_one_before(made: RunRecord) -> None:
    """Unknown keys are those of our own fields; what a mapping holds is the user's."""
    with_args = replace(made, launch=replace(made.launch, slurm_args={"time": "1", "comment": "x"}))
    record.save(with_args)
    record.save(made)
    assert record.load(made.directory) == made


def test_records_and_the_folders_that_hold_them_are_synced(
    made: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os,
        "fsync",
        lambda descriptor: synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink())),
    )
    fresh = replace(made, attempt=1, retried=None, history=(), scheduler_id=None)
    start_attempt(fresh, FakeCluster(scheduler=Scheduler(tmp_path / "fake")))
    folders = [str(made.directory), *map(str, made.directory.parents[:2])]
    assert [path for path in synced if path in folders][:3] == folders
    assert synced[0].endswith(".part")


@pytest.mark.parametrize(
    "content", ["", "{", "[" * 100_000, '{"schema_version": 1, "id": 7}', '{"pid": "x"}']
)
def test_a_damaged_file_costs_no_command(
    content: str, cluster: Callable[..., Path], llmb_here: Command
) -> None:
    install = cluster("local", "cpu")
    for _ in range(2):
        done = llmb_here(
            "single",
            "-w",
            "nemotron4",
            "-s",
            "tiny",
            "--dtype",
            "fp32",
            "--scale",
            1,
            "--force",
            "--session",
            "night",
            "--install",
            install,
        )
    folders = sorted((install / "workloads").glob("*/experiments/*/*"))
    assert len(folders) == 2, done.stderr
    for name in (store.STATE, journal.SCHEDULER, "submission.lock.9", "cancel.json"):
        (folders[0] / name).write_text(content)
    for words in (
        ("jobs", "list"),
        ("results",),
        ("jobs", "show", str(folders[0])),
        ("report",),
        ("jobs", "cancel", "--all"),
    ):
        done = llmb_here(*words, "--install", install)
        assert done.returncode in (0, 1, 3), done.stderr
        assert "Traceback" not in done.stderr
    done = llmb_here("results", "--format", "json", "--install", install)
    assert len(json.loads(done.stdout)["results"]) == 2
