# SPDX-License-Identifier: Apache-2.0
"""Tests of sessions: their ids, which one a command means, and that --resume completes only one."""

import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from llmb.contract import record
from llmb.contract.record import Origin, RunRecord, Session
from llmb.contract.schema import ClusterConfig
from llmb.contract.state import FAILED, RUNNING
from llmb.core import files
from llmb.errors import UsageError
from llmb.run import sessions
from llmb_testing.scheduler import Behaviour, Scheduler

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Submitted = Callable[..., list[RunRecord]]
NOON = datetime(2026, 11, 23, 12).timestamp()
DAY = 86400.0


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A list of eight jobs."""
    path = tmp_path / "jobs.txt"
    path.write_text("fake_small:\n('bf16', [8, 16], 4)\n")
    return path


def new(created: float = NOON, **values: str) -> Session:
    return Session(id="<new>", created=created, **values)


def test_ids_of_a_day_have_letters(config: ClusterConfig) -> None:
    ids = [sessions.create(config, new()).id for _ in range(28)]
    days = {name[:10] for name in ids}
    assert days == {"2026-11-23"}
    assert [name[10:] for name in (ids[0], ids[1], *ids[25:])] == ["a", "b", "z", "aa", "ab"]
    assert sessions.create(config, new(NOON + DAY)).id == "2026-11-24a"


def test_submitters_at_once_get_sessions_of_their_own(config: ClusterConfig) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: sessions.create(config, new()).id, range(24)))
    assert len(set(ids)) == 24


def test_a_folder_that_is_not_writable_costs_only_the_letter(
    config: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(files, "make_folder", refuse)
    ids = {sessions.create(config, new()).id for _ in range(3)}
    assert len(ids) == 3
    assert all(name.startswith("2026-11-23-") for name in ids)


def test_a_record_keeps_its_session(submitted: Submitted) -> None:
    (run,) = submitted(1)
    session = Session(
        id="2026-11-23b", name="nightly", created=NOON, list_sha256="ab", list_path="/j.txt"
    )
    record.save(replace(run, session=session))
    assert record.load(run.directory).session == session


def test_runs_without_a_session_have_one_for_folder_and_day(submitted: Submitted) -> None:
    (run,) = submitted(1)
    run = replace(run, created=NOON, session=None)
    old = Path("/shared/old-llmb/workloads/w/experiments/x/x_1")
    imported = replace(run, origin=Origin(tool="x", folder=old))
    elsewhere = replace(run, origin=Origin(tool="x", folder=Path("/shared/logs/x_1")))
    names = [sessions.session_of(each).id for each in (run, imported, elsewhere)]
    assert names == ["2026-11-23", "2026-11-23-old-llmb", "2026-11-23-logs"]
    assert sessions.session_of(replace(run, created=NOON + DAY)).id == "2026-11-24"


def test_sessions_are_in_the_order_of_their_first_runs(submitted: Submitted) -> None:
    """Two old installations were used on one day, in turns."""
    runs = [
        replace(
            run,
            created=NOON + second,
            session=None,
            origin=Origin(tool="x", folder=Path(f"/shared/{name}/workloads/x_{second}")),
        )
        for second, (run, name) in enumerate(zip(submitted(3), "aba", strict=True))
    ]
    groups = sessions.group(runs)
    assert [each.session.id for each in groups] == ["2026-11-23-a", "2026-11-23-b"]
    assert [each.session.created for each in groups] == [NOON, NOON + 1]


@pytest.fixture
def nights(submitted: Submitted) -> list[RunRecord]:
    """Two runs in each of three sessions, of which the first and the last have one name."""
    runs = submitted(6)
    for night, name in enumerate(("weekly", None, "weekly")):
        session = Session(id=f"2026-11-2{night + 1}a", name=name, created=NOON + night * DAY)
        for place in (2 * night, 2 * night + 1):
            runs[place] = replace(runs[place], session=session, created=session.created + place)
    return runs


def test_the_newest_runs_of_each_configuration(nights: list[RunRecord]) -> None:
    other = [replace(run, job=replace(run.job, env={"A": "1"})) for run in nights[:3]]
    newest = sessions.newest_of_each([*other, *nights[3:]])
    assert newest == [other[2], *nights[4:]]
    assert sessions.newest_of_each(nights) == nights[4:]


@pytest.mark.parametrize(
    ("names", "earliest", "shown"),
    [
        ((), None, "3"),
        (("last",), None, "3"),
        (("all",), None, "123"),
        (("2026-11-21a",), None, "1"),
        (("2026-11-21a", "2026-11-22a"), None, "12"),
        (("weekly",), None, "3"),
        ((), NOON + DAY / 2, "23"),
        (("all",), NOON + DAY + 3, "23"),
        (("2026-11-21a",), NOON + DAY, ""),
    ],
)
def test_a_choice_of_sessions(
    nights: list[RunRecord], names: tuple[str, ...], earliest: float | None, shown: str
) -> None:
    chosen = sessions.select(nights, names, earliest)
    assert [each.session.id for each in chosen.shown] == [f"2026-11-2{n}a" for n in shown]
    assert chosen.others == 3 - len(shown)
    assert len(chosen.runs) == 2 * len(shown)


def test_an_unknown_session_is_a_fault(nights: list[RunRecord]) -> None:
    with pytest.raises(UsageError) as error:
        sessions.select(nights, ("weeky",))
    assert (error.value.code, error.value.key) == ("session-unknown", "--session")
    assert "weekly" in str(error.value.hint)


def test_a_session_of_another_user_is_not_the_newest(
    nights: list[RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sessions.SessionRuns, "is_own", property(lambda each: each.session.id < "2026-11-23")
    )
    assert [each.session.id for each in sessions.select(nights).shown] == ["2026-11-22a"]
    assert [each.session.id for each in sessions.select(nights, ("weekly",)).shown] == [
        "2026-11-21a"
    ]
    assert sessions.select(nights, ("2026-11-23a",)).others == 2


@pytest.mark.parametrize("name", ["last", "all", "2026-11-23a", "a,b", "", "-x"])
def test_names_that_mean_something_else(name: str) -> None:
    with pytest.raises(UsageError):
        sessions.check_name(name)


def test_each_command_submits_a_session(
    llmb: Command, jobs: Path, runs: Callable[[], list[RunRecord]]
) -> None:
    assert llmb("submit-all", jobs).returncode == 0
    assert llmb("single", "-w", "fake", "--scale", "8").returncode == 0
    first, *_, last = [run.session for run in runs()]
    assert first is not None
    assert last is not None
    assert len({run.session for run in runs()}) == 2
    assert (first.list_path, len(str(first.list_sha256))) == (str(jobs), 64)
    assert (last.list_path, last.list_sha256, last.id[10:]) == (None, None, "b")
    assert str(first.command).startswith(f"llmb-run submit-all {jobs}")
    assert last.command == "llmb-run single -w fake --scale 8"
    shown = json.loads(
        llmb("single", "-w", "fake", "--scale", "8", "--dry-run", "--format", "json").stdout
    )
    assert shown["session"]["id"] == "<new>"


def test_a_name_is_continued(
    llmb: Command, jobs: Path, runs: Callable[[], list[RunRecord]]
) -> None:
    for _ in range(2):
        done = llmb("single", "-w", "fake", "--scale", "8", "--session", "day-1")
        assert done.returncode == 0, done.stderr
    assert "exists" in done.stderr
    assert len({run.session for run in runs()}) == 1
    refused = llmb("single", "-w", "fake", "--scale", "8", "--session", "all")
    assert (refused.returncode, len(runs())) == (2, 2)


def a_night_later(runs: list[RunRecord], days: float = 1.0) -> None:
    """Make the runs and their sessions older."""
    for run in runs:
        assert run.session is not None
        earlier = replace(run.session, created=run.session.created - days * DAY, id="2026-01-01a")
        record.save(replace(run, created=run.created - days * DAY, session=earlier))


def test_a_name_of_every_night_names_a_new_session_each_night(
    llmb: Command, runs: Callable[[], list[RunRecord]]
) -> None:
    words = ("single", "-w", "fake", "--scale", "8", "--session", "nightly")
    assert llmb(*words, "--wait").returncode == 0
    a_night_later(runs())
    done = llmb(*words, "--wait")
    assert "is over" in done.stderr
    assert len({run.session and run.session.id for run in runs()}) == 2
    assert {run.session and run.session.name for run in runs()} == {"nightly"}
    shown = json.loads(llmb("results", "--session", "nightly", "--format", "json").stdout)
    assert [row["run"] for row in shown["results"]] == [runs()[-1].id]
    # An id, and --resume, mean the session that exists.
    assert llmb(*words[:-1], "2026-01-01a").returncode == 0
    assert len({run.session and run.session.id for run in runs()}) == 2
    a_night_later(runs(), days=2)
    resumed = llmb(*words[:3], "--scale", "16", "--session", "nightly", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert {run.session and run.session.id for run in runs()} == {"2026-01-01a"}


def test_on_the_second_night_resume_completes_the_second_night(
    llmb: Command, jobs: Path, runs: Callable[[], list[RunRecord]]
) -> None:
    assert llmb("submit-all", jobs, "--wait").returncode == 0
    assert len(runs()) == 8
    a_night_later(runs())
    # killed after 4 of 8 submissions
    assert llmb("submit-all", jobs, "--scale", "8").returncode == 0
    done = llmb("submit-all", jobs, "--resume", "--wait", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert "4 of 8 are done" in done.stderr or "running or waiting" in done.stderr
    night = [run for run in runs() if sessions.session_of(run).id != "2026-01-01a"]
    assert len(runs()) == 16
    assert sorted((run.job.scale, run.job.repeat) for run in night) == [
        (scale, repeat) for scale in (8, 16) for repeat in (1, 2, 3, 4)
    ]
    assert len({run.session for run in night}) == 1
    assert {row["run"] for row in json.loads(done.stdout)["results"]} == {run.id for run in night}


def test_a_changed_list_is_reported(
    llmb: Command, jobs: Path, runs: Callable[[], list[RunRecord]]
) -> None:
    assert llmb("submit-all", jobs, "--wait").returncode == 0
    jobs.write_text("fake_small:\n('bf16', [8, 16], 5)\n")
    done = llmb("submit-all", jobs, "--resume")
    assert "has changed since" in done.stderr
    assert len(runs()) == 10
    copied = jobs.with_name("copy.txt")
    copied.write_text("fake_small:\n('bf16', [8, 16], 6)\n")
    assert llmb("submit-all", copied, "--resume").returncode == 0  # another list
    assert len(runs()) == 22


def test_jobs_lists_open_runs_of_every_session(
    llmb: Command, scheduler: Scheduler, runs: Callable[[], list[RunRecord]]
) -> None:
    assert llmb("single", "-w", "fake", "--scale", "8", "--wait").returncode == 0
    scheduler.behave(Behaviour(script={"*": (RUNNING,)}))
    for scale in ("16", "32"):
        assert llmb("single", "-w", "fake", "--scale", scale, "--force").returncode == 0
    ended, *others = [run.id for run in runs()]
    done = llmb("jobs", "--format", "json")
    assert [row["id"] for row in json.loads(done.stdout)] == others
    assert "2 others" in done.stderr
    assert "note: 1 run of another session has not ended, and is listed too\n" in done.stderr
    shown = llmb("jobs", "--session", "all", "--format", "json")
    assert [row["id"] for row in json.loads(shown.stdout)] == [ended, *others]
    assert "listed too" not in shown.stderr


def test_a_repeated_command_is_warned_of_and_its_session_cancelled(
    llmb: Command, jobs: Path, scheduler: Scheduler, runs: Callable[[], list[RunRecord]]
) -> None:
    def submit(*words: str) -> str:
        done = llmb("submit-all", jobs, *words)
        assert done.returncode == 0
        return done.stderr

    scheduler.behave(Behaviour(script={"*": (RUNNING,)}))
    assert "warning" not in submit()
    first = {run.id for run in runs()}
    (session,) = {sessions.session_of(run).id for run in runs()}
    again = "submitted once more; with --resume, none is"
    warning = f"warning: 8 of 8 jobs are waiting or running already, in session {session}, and are"
    assert f"{warning} {again}\n" in submit()
    (later,) = {sessions.session_of(run).id for run in runs()} - {session}
    assert "warning" not in submit("--resume")
    assert len(runs()) == 16

    done = llmb("jobs", "cancel", "--session", later)
    assert done.returncode == 0
    assert done.stderr.count(": cancelling") == 8
    assert not any(run_id in done.stderr for run_id in first)
    assert "there is no session 'x'" in llmb("jobs", "cancel", "--session", "x").stderr
    # the runs of the other session never end
    done = llmb("jobs", "wait", "--session", later)
    assert done.stderr.count("CANCELLED") == 8
    assert not any(run_id in done.stderr for run_id in first)
    assert "there is no session 'x'" in llmb("jobs", "wait", "--session", "x").stderr
    assert llmb("jobs", "cancel", "--session", later, "--all").returncode == 2


def test_failed_runs_of_the_newest_session_are_retried_in_it(
    llmb: Command, scheduler: Scheduler, runs: Callable[[], list[RunRecord]]
) -> None:
    scheduler.behave(Behaviour(script={"*": (RUNNING, FAILED)}))
    for scale in ("8", "16"):
        assert llmb("single", "-w", "fake", "--scale", scale, "--wait").returncode == 3
    before = [run.session for run in runs()]
    done = llmb("jobs", "retry", "--failed")
    assert done.returncode == 0, done.stderr
    assert [run.attempt for run in runs()] == [1, 2]
    assert [run.session for run in runs()] == before
    assert llmb("jobs", "retry", "--failed", "--session", "all", "--wait").returncode == 3
    assert runs()[0].attempt == 2


def test_a_session_that_does_not_exist_is_not_resumed(
    llmb: Command, runs: Callable[[], list[RunRecord]]
) -> None:
    """A misspelled name would submit everything once more."""
    words = ("single", "-w", "fake", "--scale", "8")
    assert llmb(*words, "--session", "nightly").returncode == 0
    done = llmb(*words, "--resume", "--session", "nigthly")
    assert done.returncode == 2
    assert "there is no session 'nigthly'" in done.stderr
    assert "without --resume, these jobs begin it; did you mean 'nightly'" in done.stderr
    assert len(runs()) == 1


def test_a_wait_ends_with_the_comparison_with_the_baseline(install: Path, llmb: Command) -> None:
    words = ("single", "-w", "fake", "--scale", "8", "--wait")
    assert "compare --baseline" not in llmb(*words).stderr
    assert llmb("baseline", "accept", "good").returncode == 0
    assert "llmb-run compare --baseline good" in llmb(*words).stderr.splitlines()[-1]
    # it has nothing like this one
    assert "compare --baseline" not in llmb(*words[:4], "16", "--wait").stderr
    # a damaged one costs no result
    (baseline,) = (install / ".llmb" / "baselines").glob("*.json")
    baseline.write_text("{")
    done = llmb(*words)
    assert done.returncode == 0, done.stderr
    assert "Success" in done.stdout
    assert "compare --baseline" not in done.stderr


@pytest.mark.parametrize(
    ("command", "earlier", "is_wanted", "is_own", "completes"),
    [
        ({"list_path": "/j", "list_sha256": "a"}, {"list_path": "/j"}, True, True, True),
        (
            {"list_path": "/j", "list_sha256": "a"},
            {"list_path": "/k", "list_sha256": "a"},
            True,
            True,
            True,
        ),
        (
            {"list_path": "/j", "list_sha256": "a"},
            {"list_path": "/k", "list_sha256": "b"},
            True,
            True,
            False,
        ),
        ({"list_path": "/j"}, {"list_path": "/j"}, True, False, False),
        ({}, {"list_path": "/j"}, True, True, False),
        ({}, {"command": "submit -w a"}, True, True, True),
        ({}, {"command": "submit -w a"}, False, True, False),
        ({"list_path": "/j"}, {"command": "submit -w a"}, True, True, False),
        ({"list_path": "/j"}, {}, True, True, True),
        ({"list_path": "/j"}, {}, False, True, False),
    ],
    ids=[
        "same path",
        "same content",
        "another list",
        "of another user",
        "no list against a list",
        "no list",
        "no list and other runs",
        "a list against none",
        "a list against a session made before lists were recorded",
        "the same with other runs",
    ],
)
def test_the_session_that_a_command_may_complete(
    command: dict[str, Any],
    earlier: dict[str, Any],
    is_wanted: bool,
    is_own: bool,
    completes: bool,
    nights: list[RunRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not is_own:
        monkeypatch.setattr("os.getuid", lambda: nights[0].directory.stat().st_uid + 1)
    group = sessions.SessionRuns(session=new(**earlier), runs=tuple(nights[:1]))
    found = sessions.resumable([group], new(**command), lambda run: is_wanted)
    assert (found is group) is completes


def test_resume_completes_the_session_of_the_same_options(
    llmb: Command, jobs: Path, runs: Callable[[], list[RunRecord]]
) -> None:
    for value in ("1", "2"):
        assert llmb("submit-all", jobs, "--env", f"A={value}", "--wait").returncode == 0
    first, second = dict.fromkeys(sessions.session_of(run).id for run in runs())
    done = llmb("submit-all", jobs, "--env", "A=1", "--resume")
    assert done.returncode == 0, done.stderr
    assert f"resuming session {first}" in done.stderr
    assert "8 of 8 are done" in done.stderr
    done = llmb("submit-all", jobs, "--env", "A=3", "--resume")
    assert done.returncode == 2
    assert "no session of this list has any of these jobs" in done.stderr
    assert f"{second} is of llmb-run submit-all" in " ".join(done.stderr.split())
    assert len(runs()) == 16
    done = llmb("submit-all", jobs, "--env", "A=3", "--resume", "--session", second)
    assert done.returncode == 0, done.stderr
    assert "0 of 8 are done" in done.stderr
