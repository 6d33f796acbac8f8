# SPDX-License-Identifier: Apache-2.0
"""Tests of many nights: the last one is judged alone, and every command agrees on it."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from llmb.contract import record
from llmb.contract.record import Session
from llmb.contract.state import CANCELLED

Run = Callable[..., "subprocess.CompletedProcess[str]"]
FIRST = datetime(2026, 11, 2, 22)
NIGHTS = 8
GPUS = (16, 32, 64, 128, 256)
SLOW = (32, 128)  # 11 % slower in the last night


def session_of(night: int) -> Session:
    begin = FIRST + timedelta(days=night)
    name = "first" if night == 0 else None
    return Session(id=f"{begin:%Y-%m-%d}a", name=name, created=begin.timestamp())


@pytest.fixture
def nights(install: Any) -> list[Session]:
    """Eight nights of five configurations at the published speed."""
    times = {16: 2.746, 32: 2.747, 64: 2.748, 128: 2.750, 256: 2.756}
    for night in range(NIGHTS):
        for gpus in GPUS:
            seconds = times[gpus] / (0.89 if night == NIGHTS - 1 and gpus in SLOW else 1.0)
            run = install.measured(f"n{night}g{gpus}", seconds, scale=gpus)
            session = session_of(night)
            record.save(replace(run, created=session.created + gpus, session=session))
    return [session_of(night) for night in range(NIGHTS)]


def parsed(done: "subprocess.CompletedProcess[str]") -> Any:
    return json.loads(done.stdout)


def failures(done: "subprocess.CompletedProcess[str]") -> set[str]:
    return {row["run"] for row in parsed(done)["results"] if row["verdict"] == "FAIL"}


BAD = {f"n7g{gpus}" for gpus in SLOW}


def test_the_last_night_fails_wherever_it_is_shown(nights: list[Session], run: Run) -> None:
    done = run("results", "--format", "json")
    data = parsed(done)
    assert (done.returncode, failures(done)) == (3, BAD)
    assert {row["run"] for row in data["results"]} == {f"n7g{gpus}" for gpus in GPUS}
    assert [session["id"] for session in data["sessions"]] == [nights[-1].id]
    assert {row["session"] for row in data["results"]} == {nights[-1].id}
    assert nights[-1].id in done.stderr
    assert "7 others" in done.stderr

    report = run("report")
    assert (report.returncode, "FAIL" in report.stdout) == (3, True)

    compared = run("compare", "--format", "json")
    data = parsed(compared)
    assert (compared.returncode, data["against"]) == (3, f"session {nights[-2].id}")
    bad = {row["runs"][0] for row in data["comparisons"] if row["verdict"] == "FAIL"}
    assert bad == BAD
    assert all(len(row["runs"]) == 1 for row in data["comparisons"])

    published = parsed(run("compare", "last", "published", "--format", "json"))
    assert published["against"] == "published"
    assert published["summary"]["FAIL"] == 2, published

    for name in ("n7g32", "n7g64"):
        explained = run("explain", name).stdout
        named = parsed(run("results", name, "--format", "json"))["results"]
        (row,) = named
        assert (
            ("FAIL" in explained.split("rules:")[0]) == (name in BAD) == (row["verdict"] == "FAIL")
        )


def test_sessions_are_chosen(nights: list[Session], run: Run) -> None:
    def shown(*words: str) -> set[str]:
        data = parsed(run("results", *words, "--format", "json"))
        assert {row["session"] for row in data["results"]} == {s["id"] for s in data["sessions"]}
        return {session["id"] for session in data["sessions"]}

    ids = [session.id for session in nights]
    assert shown("--session", "first") == {ids[0]}
    assert shown("--session", f"{ids[1]},last") == {ids[1], ids[7]}
    assert shown("--session", "all") == set(ids)
    assert shown("--since", "2026-11-08") == set(ids[6:])
    assert shown("n3g16") == {ids[3]}
    unknown = run("results", "--session", "frist")
    assert (unknown.returncode, "first" in unknown.stderr) == (2, True)


def test_all_sessions_have_a_row_each(nights: list[Session], run: Run) -> None:
    done = run("results", "--session", "all", "--format", "json")
    rows = parsed(done)["results"]
    assert len(rows) == NIGHTS * len(GPUS)
    assert {row["repeats"] for row in rows} == {1}
    assert failures(done) == BAD
    table = run("results", "--session", "all").stdout
    assert "session" in table.splitlines()[0]
    assert "others" not in run("results", "--session", "all").stderr


def test_a_baseline_is_one_session(nights: list[Session], run: Run) -> None:
    assert run("baseline", "accept", "good", "--session", "first").returncode == 0
    done = run("compare", "--baseline", "good", "--format", "json")
    assert (done.returncode, parsed(done)["summary"]) == (3, {"FAIL": 2, "PASS": 3})
    done = run("compare", nights[6].id, "good", "--format", "json")
    assert (done.returncode, parsed(done)["against"]) == (0, "baseline good")
    done = run("compare", "first", nights[7].id, "--format", "json")
    assert (done.returncode, parsed(done)["against"]) == (0, f"session {nights[7].id}")
    accepted = run("baseline", "accept", "last")
    assert "5 runs" in accepted.stderr


def test_a_night_without_an_earlier_one_is_compared_with_published(
    nights: list[Session], run: Run, install: Any
) -> None:
    other = install.measured("h1", 1.0, workload="nemotron4_340b", scale=256)
    begin = FIRST + timedelta(days=9)
    night = Session(id="2026-11-11a", created=begin.timestamp())
    record.save(replace(other, created=night.created, session=night))
    done = run("compare", "--format", "json")
    assert parsed(done)["against"] == "published"
    assert "no earlier session" in done.stderr


def test_cancelled_runs_of_two_nights_are_noted_once(
    nights: list[Session], run: Run, install: Any
) -> None:
    for night in nights[-2:]:
        job = install.job("nemotron4_340b", "bf16", 256)
        made = install.run(f"cancelled{night.id}", job, None, CANCELLED)
        record.save(replace(made, created=night.created, session=night))
    done = run("compare")
    assert done.stderr.count("note: 1 cancelled run listed") == 1


def test_rows_of_several_sessions_are_counted_apart_from_configurations(
    nights: list[Session], run: Run
) -> None:
    done = run("compare", "--session", "all")
    count = f"{NIGHTS * len(GPUS)} rows of {len(GPUS)} configurations against published: "
    assert count in done.stderr
    assert f"{len(GPUS)} configurations against published: " in run("compare", "last").stderr


def test_another_window_is_marked_with_what_makes_it_equal(nights: list[Session], run: Run) -> None:
    """A baseline has its window for ever; a figure may be of the last step."""
    assert run("baseline", "accept", "good", "--session", nights[0].id).returncode == 0
    done = run("compare", "--baseline", "good", "--window", "30-40")
    assert "* the windows of the two differ; equal numbers of steps have equal" in done.stderr
    done = run("compare", "last", "published", "--window", "30-40")
    assert "* the windows of the two differ; --window last" in done.stderr


@pytest.mark.parametrize("command", ["results", "report"])
def test_a_session_in_the_place_of_a_run_gets_its_option(
    command: str, nights: list[Session], run: Run
) -> None:
    for name in (nights[0].id, "first"):
        done = run(command, name)
        assert done.returncode == 2
        assert f"hint: it is a session: --session {name}" in done.stderr
    assert "it is a session" not in run(command, "2026-12-24a").stderr


def test_an_unknown_session_to_compare_with_is_named_as_such(
    nights: list[Session], run: Run
) -> None:
    done = run("compare", nights[0].id, "2026-11-02b")
    assert done.returncode == 2
    assert "there is no session '2026-11-02b'" in done.stderr
    # a baseline may have such a name, and a run has not its form
    assert run("baseline", "accept", "2026-11-02b", "--session", nights[0].id).returncode == 0
    done = run("compare", nights[1].id, "2026-11-02b", "--format", "json")
    assert parsed(done)["against"] == "baseline 2026-11-02b"
    assert "no run is called 'nosuch'" in run("compare", nights[0].id, "nosuch").stderr


def test_history_has_all_nights(nights: list[Session], run: Run) -> None:
    done = run("report", "--history")
    assert done.returncode == 3
    assert "2026-11-02" in done.stdout
    assert "2026-11-09" in done.stdout


def test_jobs_lists_the_newest_session(nights: list[Session], run: Run) -> None:
    def listed(*words: str) -> int:
        return len(json.loads(run("jobs", *words, "--format", "json").stdout))

    assert listed() == len(GPUS)
    assert listed("--session", "all") == NIGHTS * len(GPUS)
    assert listed("--since", "2026-11-08") == 2 * len(GPUS)


def test_each_folder_of_logs_is_a_session(install: Any, llmb_here: Run, tmp_path: Any) -> None:
    settings = ["-w", "nemotron4_15b", "--dtype", "bf16", "--scale", "16", "--gpu-type", "h100"]
    for night, seconds in (("monday", 2.7), ("tuesday", 3.4)):
        run = install.measured(night, seconds)
        folder = tmp_path / night
        folder.mkdir()
        (folder / run.log.name).write_text(run.log.read_text())
    folders = tmp_path / "monday", tmp_path / "tuesday"
    done = llmb_here("parse", *folders, *settings, "--set", "gbs=64", "--format", "json")
    rows = parsed(done)["results"]
    assert [(row["session"], row["repeats"], row["verdict"]) for row in rows] == [
        (str(folders[0]), 1, "PASS"),
        (str(folders[1]), 1, "FAIL"),
    ]
