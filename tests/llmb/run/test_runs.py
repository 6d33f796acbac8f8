# SPDX-License-Identifier: Apache-2.0
"""Tests of runs on disk: records that read back equal, how runs are found, and states that stay."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from llmb.contract import record
from llmb.contract.cluster import QueueFullError
from llmb.contract.launch import Launch, Program, StagedFile, Stamp, Wrapper
from llmb.contract.record import Attempt, RunRecord, Session
from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import Workload
from llmb.contract.state import (
    COMPLETED,
    ENDS,
    FAILED,
    NOT_SUBMITTED,
    PENDING,
    RUNNING,
    UNKNOWN,
    JobState,
)
from llmb.contract.switches import Switches
from llmb.core import files
from llmb.core.process import ProcessId
from llmb.errors import LlmbError, UsageError, describe
from llmb.plan.plan import make_plan
from llmb.run import store, submission
from llmb.run.polling import poll
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

Make = Callable[..., RunRecord]


@pytest.fixture
def config(tmp_path: Path) -> ClusterConfig:
    return ClusterConfig(
        cluster_type="slurm",
        gpu_type="h100",
        llmb_install=tmp_path / "install",
        kind=all_types()["slurm"],
    )


@pytest.fixture
def make(config: ClusterConfig, workloads: dict[str, Workload]) -> Make:
    """Makes and saves a run; keywords are fields of its record."""

    def made(
        run_id: str, *, now: int = 1000, workload: str = "nemotron-h_56b", **changes: object
    ) -> RunRecord:
        request = job_entry(workload=workload, dtypes=("fp8",), scales=(32,), env={"A": "1"})
        (job,) = make_plan([request], workloads, config).jobs
        stamp = store.new_directory(config.experiments(job.workload), job.experiment_name, now)
        launch = Launch(
            name=job.experiment_name,
            nodes=4,
            ranks_per_node=8,
            time_limit=1500,
            args=("recipe.json",),
            program=Program(module="m"),
            image="i:1",
            mounts=("/a:/b",),
            environment={"B": "2"},
            secrets=("HF_TOKEN",),
            wrappers=(Wrapper(name="numa", argv=("numactl", "--x")),),
            files=(StagedFile(name="f", text="é\n"),),
        )
        run = RunRecord(
            id=run_id,
            created=now,
            llmb_version="0",
            cluster_type="slurm",
            directory=stamp.path,
            job=job,
            launch=launch,
            script_name="launch",
            submitter=ProcessId.current(),
        )
        run = replace(run, **changes)  # type: ignore[arg-type]
        record.save(run)
        return run

    return made


def test_a_record_of_before_there_were_switches(make: Make) -> None:
    run = make("a1")
    path = run.directory / "llmb-run.json"
    data = json.loads(path.read_text())
    del data["job"]["switches"]
    for name in ("packages", "inputs", "gpu_memory_gb", "disk_gb", "fixes"):
        del data["launch"][name]
    path.write_text(json.dumps(data))
    assert record.load(run.directory) == run


def test_a_record_with_switches_reads_back_equal(make: Make) -> None:
    run = make("a1")
    switches = Switches(
        tokenizer="hub", mounts=("/a:/b",), load_checkpoint="/c", profile_start=0, gpu_metrics=True
    )
    launch = replace(
        run.launch,
        inputs=("/c/weights/*",),
        fixes={"HF_TOKEN": "ask"},
        gpu_memory_gb=80.0,
        disk_gb=1.5,
    )
    kept = replace(run, job=replace(run.job, switches=switches), launch=launch)
    record.save(kept)
    assert record.load(run.directory) == kept


@pytest.mark.parametrize("workload", ["nemotron-h_56b", "nemotron4_15b", "llama3.1_8b"])
@pytest.mark.parametrize("scheduler_id", [None, "4711", "4711_3"])
def test_a_record_reads_back_equal(workload: str, scheduler_id: str | None, make: Make) -> None:
    run = make("a1", workload=workload, scheduler_id=scheduler_id)
    assert record.load(run.directory) == run
    assert run.submitted("99").scheduler_id == "99"


@pytest.mark.parametrize(
    ("scheduler_id", "in_place"), [("4711", True), ("local-3f2a", True), ("x" * 80, False)]
)
def test_the_schedulers_id_is_written_into_the_record_that_is_there(
    scheduler_id: str, in_place: bool, make: Make
) -> None:
    run = make("a1")
    path = run.directory / record.RECORD
    before = path.stat()
    record.save_scheduler_id(run.submitted(scheduler_id))
    assert record.load(run.directory) == run.submitted(scheduler_id)
    assert (path.stat().st_ino == before.st_ino) is in_place
    assert (path.stat().st_size == before.st_size) is in_place


def test_an_id_takes_the_place_of_another(make: Make) -> None:
    run = make("a1")
    for scheduler_id in ("1234567", "89"):
        record.save_scheduler_id(run.submitted(scheduler_id))
        assert record.load(run.directory) == run.submitted(scheduler_id)


def test_a_record_that_was_indented_otherwise_takes_the_id_too(make: Make) -> None:
    run = make("a1")
    path = run.directory / record.RECORD
    path.write_text(json.dumps(json.loads(path.read_text())))
    record.save_scheduler_id(run.submitted("17"))
    assert record.load(run.directory) == run.submitted("17")


def test_a_record_holds_names_of_secrets_and_never_values(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_value")
    text = (make("a1").directory / record.RECORD).read_text()
    assert "HF_TOKEN" in text
    assert "hf_value" not in text


def test_where_a_runs_files_lie(make: Make) -> None:
    run = make("a1")
    name = run.job.experiment_name
    assert run.directory.name == f"{name}_1000"
    assert run.work == run.directory / name
    assert run.work.is_dir()
    assert run.log == run.work / f"log-{name}.out"
    assert run.batch_log == run.work / f"sbatch_{name}.out"


def test_a_later_attempt_has_its_files_beside_and_keeps_what_was_before(make: Make) -> None:
    first = make("abcd", scheduler_id="17")
    store.save_state(first, JobState(state=FAILED, reason="why"))
    second = first.next_attempt(JobState(state=FAILED, reason="why"), ProcessId.current(), 2000)
    record.save(second)
    assert record.load(first.directory) == second
    assert (second.attempt, second.scheduler_id, second.submitted_at, second.created) == (
        2,
        None,
        2000,
        1000,
    )
    (before,) = second.history
    assert before == Attempt(
        submitted=1000, scheduler_id="17", state=JobState(state=FAILED, reason="why")
    )
    folder = first.directory / "attempt-2"
    files = [second.script, second.log, second.batch_log]
    assert {path.parent for path in files} == {second.place} == {folder}
    assert [path.name for path in files] == [
        first.script.name,
        first.log.name,
        first.batch_log.name,
    ]
    assert (first.stamp.id, second.stamp.id) == ("abcd", "abcd-2")
    assert store.seen_state(second) is None
    assert store.find_runs(["17", "abcd-2", "ab"], [second]) == [second] * 3


def test_a_folder_that_was_moved_is_where_it_lies(make: Make, tmp_path: Path) -> None:
    run = make("a1")
    moved = run.directory.rename(tmp_path / "kept")
    assert record.load(moved) == replace(run, directory=moved)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ("[]", "was written by another version of llmb"),
        ('"x"', "was written by another version of llmb"),
        ("{}", "was written by another version of llmb"),
        ('{"schema_version": 99}', "was written by another version of llmb"),
        ('{"schema_version": 1}', "'id' is missing"),
    ],
)
def test_a_record_that_cannot_be_read_is_named_and_the_others_are_there(
    text: str, message: str, make: Make, config: ClusterConfig
) -> None:
    bad, good = make("bad"), make("good")
    (bad.directory / record.RECORD).write_text(text)
    with pytest.raises(LlmbError, match=message):
        record.load(bad.directory)
    runs, unreadable = store.all_runs(config)
    assert runs == [good]
    (found,) = unreadable
    assert found.directory == bad.directory
    assert str(bad.directory / record.RECORD) in found.reason


def test_a_folder_without_a_record(tmp_path: Path) -> None:
    with pytest.raises(LlmbError) as raised:
        record.load(tmp_path)
    assert raised.value.code == "run-missing"


def test_all_runs_oldest_first_of_every_workload(make: Make, config: ClusterConfig) -> None:
    assert store.all_runs(config) == ([], [])
    runs = [make("c", now=30), make("a", now=10), make("b", now=20, workload="nemotron4_15b")]
    assert [run.id for run in store.all_runs(config)[0]] == ["a", "b", "c"]
    assert {run.id for run in runs} == {"a", "b", "c"}


def test_runs_lie_elsewhere_where_the_configuration_says_so(
    make: Make, config: ClusterConfig, tmp_path: Path
) -> None:
    run = make("a1")
    assert store.all_runs(replace(config, experiments_root=config.llmb_install / "workloads"))[
        0
    ] == [run]
    assert store.all_runs(replace(config, experiments_root=tmp_path / "none"))[0] == []


def test_a_run_is_found_by_start_of_id_scheduler_id_name_or_directory(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [make("abcd", scheduler_id="17"), make("abxy", scheduler_id="170"), make("ab")]
    first = runs[0]
    for name in ("abcd", "abc", "17", first.name, str(first.directory), f"{first.directory}/"):
        assert store.find_runs([name], runs) == [first]
    assert store.find_runs(["170", "abc"], runs) == [runs[1], first]
    assert store.find_runs(["ab"], runs) == [runs[2]]  # whole, though others begin so
    monkeypatch.chdir(first.directory.parent)
    assert store.find_runs([f"./{first.directory.name}"], runs) == [first]
    monkeypatch.chdir(first.directory)
    assert store.find_runs(["."], runs) == [first]
    # thousands of directories on a shared file system take seconds
    monkeypatch.setattr(Path, "resolve", None)
    assert store.find_runs(["abcd", "abc", first.name], runs) == [first] * 3


def test_a_directory_behind_a_link_is_the_same(
    make: Make, config: ClusterConfig, tmp_path: Path
) -> None:
    run = make("abcd")
    link = tmp_path / "link"
    link.symlink_to(config.llmb_install)
    (found,) = store.all_runs(replace(config, llmb_install=link))[0]
    assert store.find_runs([str(found.directory), str(run.directory)], [found]) == [found, found]


@pytest.mark.parametrize(
    ("name", "code"),
    [("ab", "run-ambiguous"), ("zz", "run-unknown"), ("", "run-unknown")],
)
def test_a_name_that_means_none_or_several(
    name: str, code: str, make: Make, wording: Callable[..., None]
) -> None:
    runs = [make("abcd"), make("abxy"), make("q")]
    with pytest.raises(UsageError) as raised:
        store.find_runs([name], runs)
    assert (raised.value.code, raised.value.value) == (code, name)
    wording("jobs show", raised.value.message)


def test_an_empty_name_is_not_the_only_run(make: Make) -> None:
    with pytest.raises(UsageError) as raised:
        store.find_runs([""], [make("a1")])
    assert raised.value.code == "run-unknown"


def test_a_new_id_is_no_schedulers() -> None:
    ids = {store.new_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(
        len(one) == 8 and one[0].isalpha() and one.isalnum() and one.islower() for one in ids
    )


def test_two_runs_of_one_second_have_a_directory_each(tmp_path: Path) -> None:
    stamps = [store.new_directory(tmp_path, "n", 1000) for _ in range(3)]
    assert [stamp.path for stamp in stamps] == [
        tmp_path / "n" / f"n_{second}" for second in (1000, 1001, 1002)
    ]
    assert [stamp.timestamp for stamp in stamps] == ["1000", "1001", "1002"]
    assert len({stamp.id for stamp in stamps}) == 3
    assert all((stamp.path / "n").is_dir() for stamp in stamps)


def test_many_at_once_have_a_directory_each(tmp_path: Path) -> None:
    stamps: list[Stamp] = []
    start = threading.Barrier(8)

    def run() -> None:
        start.wait()
        stamps.append(store.new_directory(tmp_path, "n", 1000))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({stamp.directory for stamp in stamps}) == 8


def test_a_place_that_cannot_be_written_is_an_error_with_its_fix(
    tmp_path: Path, wording: Callable[..., None]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LlmbError) as raised:
        store.new_directory(tmp_path / "file", "n", 1)
    assert raised.value.code == "experiments-folder"
    wording("submit-all", describe(raised.value))


def test_a_job_that_waits_again_has_no_nodes(make: Make) -> None:
    run = make("a1")
    store.save_state(run, JobState(state=RUNNING, nodes="n[1-2]"))
    assert store.save_state(run, JobState(state=RUNNING)).nodes == "n[1-2]"
    assert store.save_state(run, JobState(state=PENDING)).nodes == ""
    assert store.nodes_of(run, JobState(state=PENDING, nodes="n[1-2]")) == ()
    assert store.nodes_of(run, JobState(state=RUNNING, nodes="n[1-2]")) == ("n1", "n2")


@pytest.mark.parametrize(
    ("command", "attempt", "fix"),
    [
        ("llmb-run submit j.txt", 1, "llmb-run submit j.txt --resume submits it and the rest"),
        ("llmb-run submit j.txt --resume", 1, "llmb-run submit j.txt --resume submits it and"),
        # a further attempt is no part of what --resume submits
        ("llmb-run submit j.txt", 2, "llmb-run jobs reconcile submits it"),
        (None, 1, "llmb-run jobs reconcile submits it"),
    ],
)
def test_a_full_queue_names_what_submits_the_run(
    command: str | None, attempt: int, fix: str, make: Make
) -> None:
    session = Session(id="2026-11-23a", created=1.0, command=command)
    run = replace(make("a1"), session=session, attempt=attempt)
    run.place.mkdir(exist_ok=True)
    submission._note_full_queue(run, QueueFullError("full", value="MaxJobs"))
    state = store.seen_state(run)
    assert state is not None
    assert state.reason.startswith(f"the queue was full (MaxJobs); {fix}")


def test_only_a_full_queue_is_forgotten(make: Make) -> None:
    run = make("a1")
    running = store.save_state(run, JobState(state=RUNNING))
    store.forget_full_queue(run)
    assert store.seen_state(run) == running
    other = make("a2")
    store.save_state(other, JobState(state=NOT_SUBMITTED, reason="the queue was full"))
    store.forget_full_queue(other)
    assert store.seen_state(other) is None


@pytest.mark.parametrize("end", sorted(ENDS))
def test_an_end_is_never_overwritten(end: str, make: Make) -> None:
    run = make("a1")
    ended = JobState(state=end, reason="why", exit_code=1, started=1.5, ended=2.5, certain=True)
    assert store.save_state(run, ended) == ended
    for later in (RUNNING, COMPLETED, FAILED, UNKNOWN):
        assert store.save_state(run, JobState(state=later)) == ended
    assert store.seen_state(run) == ended


def test_an_end_that_another_poller_stores_meanwhile_stays(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, end = make("a1"), JobState(state=COMPLETED, exit_code=0)
    others = [end]

    def slowly(path: Path) -> bool:
        while others:
            assert store.save_state(run, others.pop()) == end
        return path.exists()

    monkeypatch.setattr(files, "is_folder", slowly)
    assert store.save_state(run, JobState(state=RUNNING)) == end
    assert store.seen_state(run) == end


def test_what_is_no_end_moves_on(make: Make) -> None:
    run = make("a1")
    assert store.seen_state(run) is None
    for state in (PENDING, RUNNING, "REQUEUED", "SOMETHING_NEW", RUNNING, COMPLETED):
        assert store.save_state(run, JobState(state=state)).state == state
    assert store.seen_state(run) == JobState(state=COMPLETED)


def test_what_has_ended_is_not_asked_for_again(make: Make) -> None:
    class Scheduler:
        asked: list[list[str]] = []

        def poll(self, runs: list[RunRecord]) -> dict[str, JobState]:
            self.asked.append([run.id for run in runs])
            return {"b": JobState(state=COMPLETED)}

    runs = [make(name, scheduler_id=name) for name in "abc"]
    store.save_state(runs[0], JobState(state=FAILED))
    scheduler = Scheduler()
    states = poll(scheduler, runs)  # type: ignore[arg-type]
    assert {name: state.state for name, state in states.items()} == {
        "a": FAILED,
        "b": COMPLETED,
        "c": UNKNOWN,
    }
    poll(scheduler, runs[:2])  # type: ignore[arg-type]
    poll(scheduler, runs)  # type: ignore[arg-type]
    assert scheduler.asked == [["b", "c"], ["c"]]


def test_a_record_is_plain_json(make: Make) -> None:
    data = json.loads((make("a1", scheduler_id="17").directory / record.RECORD).read_text())
    assert (data["schema_version"], data["id"], data["scheduler_id"]) == (1, "a1", "17")
    assert "directory" not in data
    assert data["job"]["experiment_name"].startswith("pretrain_nemotronh_56b_fp8_gpus32")


def test_a_record_that_is_read_while_its_id_is_written(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, reads = make("a1"), 0
    read = files.read_json

    def torn(path: Path) -> object:
        nonlocal reads
        reads += 1
        if reads == 1:
            raise LlmbError("half an id")
        return read(path)

    monkeypatch.setattr(files, "read_json", torn)
    assert record.load(run.directory) == run
    (run.directory / "llmb-run.json").write_text("{")
    with pytest.raises(LlmbError) as raised:
        record.load(run.directory)
    assert raised.value.code == "file-damaged"
