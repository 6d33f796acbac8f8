# SPDX-License-Identifier: Apache-2.0
"""Tests of what is kept of a run that has ended: used while nothing has changed, and never a second
truth.
"""

import contextlib
import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmb.cli import judging, reading
from llmb.contract.record import RunRecord
from llmb.contract.state import FAILED, RUNNING, JobState
from llmb.core import files, parallel, typed
from llmb.errors import LlmbError
from llmb.measure import summary
from llmb.measure.reader import READER, kept_reader
from llmb.measure.run_result import result_of_run
from llmb.run import store

Run = Callable[..., Any]
Reads = list[str]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """The ids of the runs whose logs were read, in order."""
    found: Reads = []

    def counted(record: RunRecord, *rest: Any, **more: Any) -> Any:
        found.append(record.id)
        return result_of_run(record, *rest, **more)

    monkeypatch.setattr(reading, "result_of_run", counted)
    return found


def results(run: Run, *words: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("results", "--format", "json", *words).stdout)[
        "results"
    ]
    return found


def kept_at(record: RunRecord) -> Path:
    return record.place / summary.SUMMARY


def touch(path: Path, text: str | None = None) -> None:
    """Change a file, or only the time of its last change."""
    before = path.stat().st_mtime_ns
    if text is not None:
        path.write_text(text)
    os.utime(path, ns=(before + 10**9, before + 10**9))


@pytest.fixture
def done(install: Any) -> RunRecord:
    record: RunRecord = install.measured("a1", 2.5)
    return record


def test_the_second_reading_is_of_the_summary_and_says_the_same(
    install: Any, run: Run, reads: Reads
) -> None:
    install.measured("a1", 2.5)
    install.measured("a2", 2.6, NCCL_ALGO="Ring")
    install.run(
        "b1",
        install.job("nemotron4_15b", "bf16", 16),
        "ncclSystemError\n",
        JobState(state=FAILED, exit_code=1),
    )
    first = results(run)
    assert sorted(reads) == ["a1", "a2", "b1"]
    assert results(run) == first
    assert len(reads) == 3
    assert {row["status"] for row in first} == {"Success", "Failed"}


def test_only_a_run_without_a_summary_can_get_one(done: RunRecord, run: Run) -> None:
    assert summary.can_keep(done)
    results(run)
    assert not summary.can_keep(done)


def test_it_has_result_identity_and_reader(done: RunRecord, run: Run) -> None:
    results(run)
    data = json.loads(kept_at(done).read_text())
    assert data["schema_version"] == 1
    assert data["result"]["configuration"]["workload"] == "pretrain_nemotron4"
    assert data["result"]["metrics"]["step_time"]["mean"] == pytest.approx(2.5)
    log = str(done.log.relative_to(done.directory))
    assert data["made_from"][log] == [done.log.stat().st_size, done.log.stat().st_mtime_ns]
    assert data["made_from"]["state.json"] == [
        (done.place / store.STATE).stat().st_size,
        (done.place / store.STATE).stat().st_mtime_ns,
    ]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda one: touch(one.log, one.log.read_text().replace(": 2.5 ", ": 2.4 ")), id="log"
        ),
        pytest.param(lambda one: touch(one.log), id="time of the log"),
        pytest.param(lambda one: touch(one.place / store.STATE), id="state"),
        pytest.param(
            lambda one: (one.log.parent / "x.nsys-rep").write_text(""), id="a file next to it"
        ),
    ],
)
def test_what_has_changed_is_read_again(
    change: Callable[[RunRecord], None], done: RunRecord, run: Run, reads: Reads
) -> None:
    results(run)
    change(done)
    results(run)
    results(run)
    assert reads == ["a1", "a1"]


def test_a_changed_log_has_another_result(done: RunRecord, run: Run) -> None:
    assert results(run)[0]["time_mean_seconds"] == pytest.approx(2.5)
    touch(done.log, done.log.read_text().replace(": 2.5 ", ": 2.4 "))
    assert results(run)[0]["time_mean_seconds"] == pytest.approx(2.4)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        '{"schema_version": 1}',
        '{"schema_version": 2, "result": {}}',
        "\x00\xff",
        "[" * 100_000,
    ],
)
def test_a_damaged_or_newer_one_is_ignored_and_written_again(
    text: str, done: RunRecord, run: Run, reads: Reads
) -> None:
    first = results(run)
    kept_at(done).write_text(text)
    assert results(run) == first
    assert results(run) == first
    assert len(reads) == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("status", 7),
        ("window", [1]),
        ("metrics", {"step_time": 3}),
        ("statistics", []),
        ("configuration", "x"),
    ],
)
def test_one_damaged_field_makes_it_damaged(
    key: str, value: Any, done: RunRecord, run: Run, reads: Reads
) -> None:
    first = results(run)
    data = json.loads(kept_at(done).read_text())
    data["result"][key] = value
    kept_at(done).write_text(json.dumps(data))
    assert results(run) == first
    assert len(reads) == 2


def test_another_release_of_llmb_reads_again(
    done: RunRecord, run: Run, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    results(run)
    monkeypatch.setattr(summary, "__version__", "9.9")
    results(run)
    assert reads == ["a1", "a1"]


def test_another_window_is_computed_and_not_kept(done: RunRecord, run: Run, reads: Reads) -> None:
    results(run)
    before = kept_at(done).read_bytes()
    assert results(run, "--window", "20-30")[0]["window"] == [20, 30]
    assert reads == ["a1", "a1"]
    assert kept_at(done).read_bytes() == before
    assert results(run)[0]["window"] == [11, 44]
    assert reads == ["a1", "a1"]


def test_a_run_that_has_not_ended_is_not_kept(install: Any, run: Run) -> None:
    record = install.run(
        "r1", install.job("nemotron4_15b", "bf16", 16), "", JobState(state=RUNNING, started=1.0)
    )
    results(run)
    assert not kept_at(record).exists()


def test_a_folder_that_cannot_be_written_to(
    done: RunRecord, run: Run, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise LlmbError("read-only")

    monkeypatch.setattr(files, "write_text", refuse)
    first = results(run)
    assert results(run) == first
    assert reads == ["a1", "a1"]
    assert not kept_at(done).exists()


def test_a_moved_folder_takes_its_results_with_it(done: RunRecord, run: Run, reads: Reads) -> None:
    results(run)
    there = done.directory.with_name(f"{done.launch.name}_2000")
    done.directory.rename(there)
    (row,) = results(run)
    assert row["path"] == str(there / done.log.relative_to(done.directory))
    assert reads == ["a1"]


def test_what_was_measured_stays_where_the_log_is_deleted(
    done: RunRecord, run: Run, reads: Reads
) -> None:
    (first,) = results(run)
    done.log.unlink()
    (row,) = results(run)
    assert {**row, "reason": None} == {**first, "reason": None}
    assert summary.LOG_GONE in row["reason"]
    assert reads == ["a1"]


def test_a_log_that_was_compressed_in_place_is_there_still(
    done: RunRecord, run: Run, llmb_here: Run
) -> None:
    (first,) = results(run)
    packed = done.log.with_name(f"{done.log.name}.gz")
    packed.write_bytes(gzip.compress(done.log.read_bytes()))
    done.log.unlink()
    for _ in range(2):
        (row,) = results(run)
        assert row == {**first, "path": str(packed)}
    kept_at(done).unlink()
    assert results(run) == [{**first, "path": str(packed)}]
    (parsed,) = json.loads(llmb_here("parse", packed, "--format", "json").stdout)["results"]
    assert (parsed["run"], parsed["time_mean_seconds"]) == (
        first["run"],
        first["time_mean_seconds"],
    )
    done.log.write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    assert results(run) == [first]


def test_a_shown_run_is_judged_by_all_repeats_although_none_is_kept(
    install: Any, run: Run, reads: Reads
) -> None:
    names = [f"a{number:02}" for number in range(20)]  # more than a list reads
    for name in names:
        install.measured(name, 2.5)
    shown = run("jobs", "show", names[0]).stdout
    assert "(n=20)" in shown
    assert sorted(reads) == names


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"schema_version": 1}', '{"schema_version": 1, "reader": null}']
)
def test_a_damaged_reader_is_none(text: str, done: RunRecord, run: Run) -> None:
    first = results(run)
    kept_at(done).unlink()
    (done.directory / READER).write_text(text)
    assert kept_reader(done) is None
    assert results(run) == first


def test_the_report_and_parse_use_it_too(
    done: RunRecord, run: Run, reads: Reads, tmp_path: Path
) -> None:
    results(run)
    assert run("report", "-o", str(tmp_path / "r.html")).returncode == 0
    assert reads == ["a1"]


def test_a_summary_of_thousands_is_read_without_the_careful_reader(
    done: RunRecord, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file that a run leaves is converted by the quick functions; the careful ones are for
    the unusual.
    """
    first = results(run)

    def careful(*_: object, **__: object) -> None:
        raise AssertionError("read with care")

    monkeypatch.setattr(typed._Reader, "convert", careful)
    own = summary.load(done)
    assert own is not None
    assert own.result_of(done).metrics.step_time == first[0]["time_mean_seconds"]
    assert store.seen_state(done) is not None


@pytest.fixture
def in_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs of two runs are worth forks."""
    monkeypatch.setattr(judging, "_WORTH_FORKS", 2)
    monkeypatch.setattr(parallel, "processors", lambda: 4)


@pytest.mark.usefixtures("in_forks")
def test_forks_read_the_logs_of_many_runs(
    install: Any, run: Run, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def slow_caller(work: Any, tasks: Any) -> Iterator[Callable[[int], None]]:
        with parallel.helped_by_forks(work, tasks):
            pass
        yield lambda _: None

    monkeypatch.setattr(judging, "helped_by_forks", slow_caller)
    records = [install.measured(f"many{number}", 2.7 + number / 100) for number in range(4)]
    in_parallel = run("results", "--format", "json")
    assert reads == []
    for record in records:
        kept_at(record).unlink()
    assert [run("results", record.id).returncode for record in records] == [0] * 4
    assert sorted(reads) == [record.id for record in records]
    assert run("results", "--format", "json").stdout == in_parallel.stdout


@pytest.mark.usefixtures("in_forks")
def test_what_forks_cannot_keep_is_read_here(
    install: Any, run: Run, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        install.measured(f"many{number}", 2.7)
    monkeypatch.setattr(summary, "keep", lambda *_: None)
    rows = results(run)
    assert [row["status"] for row in rows] == ["Success"] * 3
    assert reads == ["many0", "many1", "many2"]


@pytest.mark.usefixtures("in_forks")
def test_no_forks_for_a_window_of_ones_own(install: Any, run: Run, reads: Reads) -> None:
    for number in range(3):
        install.measured(f"many{number}", 2.7)
    assert len(results(run, "--window", "20-30")) == 3
    assert reads == ["many0", "many1", "many2"]
