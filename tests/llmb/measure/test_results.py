# SPDX-License-Identifier: Apache-2.0
"""Tests of results: from records, states and logs to the fields, statuses and reasons that users
read.
"""

import csv
import errno
import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.cli.output import fit
from llmb.contract import record as records
from llmb.contract.formats import ParseSpec
from llmb.contract.job import Job, Training
from llmb.contract.launch import Launch, Program
from llmb.contract.model import ModelShape
from llmb.contract.record import RunRecord
from llmb.contract.state import JobState
from llmb.contract.window import LAST, Window
from llmb.core.process import ProcessId
from llmb.core.tables import render, to_json
from llmb.errors import UsageError
from llmb.measure.columns import csv_columns, csv_rows, report
from llmb.measure.facts import LOSS_NAN
from llmb.measure.find_logs import find_logs, last_attempts, log_of, logs_at, run_directory
from llmb.measure.log_result import result_of_log
from llmb.measure.reader import LogReader
from llmb.measure.result import Result, Verdict
from llmb.measure.run_result import result_of_run
from llmb.show.results_table import table_of

Wording = Callable[..., None]

READER = LogReader()
NAME = "pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256"
FIELDS = [
    "experiment",
    "path",
    "status",
    "reason",
    "window",
    "max_iteration",
    "steps",
    "time_mean_seconds",
    "time_std_dev_seconds",
    "tflops_per_gpu_mean",
    "tflops_per_gpu_std_dev",
    "tokens_per_second",
    "tokens_per_second_per_gpu",
    "model_tflops_per_gpu",
    "mfu",
    "days_per_1t_tokens",
    "model_flops",
    "flops_convention",
    "reference",
    "ratio",
    "verdict",
]
CSV_HEAD = "filename,status,time_mean_seconds,time_std_dev_seconds,tflops_per_gpu_mean,tflops_per_gpu_std_dev,max_iteration,"
MODEL = ModelShape(
    architecture="nemotron",
    layers=32,
    hidden=6144,
    ffn=24576,
    heads=48,
    kv_groups=8,
    vocab=256000,
    seq_length=4096,
)
JOB = Job(
    workload="pretrain_nemotron4",
    model_size="15b",
    dtype="bf16",
    gpu_type="h100",
    scale=64,
    repeat=1,
    profile=False,
    env={},
    max_steps=50,
    nodes=8,
    gpus_per_node=8,
    time_limit=1200,
    image=None,
    experiment_name=NAME,
    training=Training(
        tp=2,
        pp=1,
        cp=1,
        vp=None,
        ep=1,
        dp=32,
        mbs=2,
        gbs=256,
        ga=4,
        seq_length=4096,
        num_layers=32,
        model=MODEL,
        learning_rate=3e-4,
    ),
)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB\x1b[0m\x07"
END_OF: dict[str, JobState] = {
    "COMPLETED": JobState(state="COMPLETED", exit_code=0),
    "FAILED": JobState(state="FAILED", reason="NonZeroExitCode", exit_code=1),
    "TIMEOUT": JobState(state="TIMEOUT", reason="TimeLimit"),
    "CANCELLED": JobState(state="CANCELLED", reason="by\x1b[31m 1000"),
}


def steps(
    count: int, last: int = 49, *, first: int = 0, time: str = "2.693", tflops: str = "571.8"
) -> str:
    return "".join(
        f"0: Training epoch 0, iteration {i}/{last} | reduced_train_loss: 12.81 | train_step_timing"
        f" in s: {time} | TFLOPS_per_GPU: {tflops} | consumed_samples: {256 * (i + 1)}\n"
        for i in range(first, first + count)
    )


@pytest.fixture
def run(tmp_path: Path) -> RunRecord:
    directory = tmp_path / "experiments" / NAME / f"{NAME}_1744408121"
    launch = Launch(
        name=NAME, nodes=8, ranks_per_node=8, time_limit=1200, program=Program(module="m")
    )
    record = RunRecord(
        id="abc",
        created=1744408121,
        llmb_version="0.1.0",
        cluster_type="slurm",
        directory=directory,
        job=JOB,
        launch=launch,
        script_name="run.sh",
        submitter=ProcessId(host="h", pid=1, start=1.0, boot="b"),
    )
    records.save(record)
    record.work.mkdir()
    return record


def result(run: RunRecord, state: str, log: str | None = None, **options: Any) -> Result:
    if log is not None:
        run.log.write_text(log)
    return result_of_run(run, END_OF.get(state) or JobState(state=state), READER, 989.0, **options)


def test_the_fields_and_their_order(run: RunRecord) -> None:
    document = json.loads(to_json(report([result(run, "COMPLETED", steps(50))])))
    assert list(document["results"][0])[: len(FIELDS)] == FIELDS
    assert document["results"][0]["statistics"]["median"] == 2.693
    assert document["results"][0]["log"]["framework"] == "NeMo 2"
    assert document["results"][0]["window"] == [11, 44]


def test_a_run_that_succeeded(run: RunRecord) -> None:
    got = result(run, "COMPLETED", steps(50))
    assert (got.status, got.reason, got.identity.experiment, got.identity.path) == (
        "Success",
        None,
        NAME,
        str(run.log),
    )
    assert (got.metrics.window, got.metrics.max_iteration, got.metrics.steps) == ((11, 44), 49, 50)
    assert (got.metrics.step_time, got.metrics.measured["step_time"].std) == (2.693, 0.0)
    assert got.metrics.mean("tflops_per_gpu") == pytest.approx(571.8)
    assert got.metrics.measured["tflops_per_gpu"].std == pytest.approx(0, abs=1e-9)
    assert got.metrics.mean("tokens_per_second") == pytest.approx(389371, abs=1)
    assert got.metrics.mean("tokens_per_second_per_gpu") == pytest.approx(389371 / 64, abs=0.1)
    assert got.metrics.days_per_1t_tokens == pytest.approx(29.7, abs=0.05)
    assert got.metrics.model_flops == pytest.approx(3.85e14, rel=1e-3)
    assert got.metrics.mfu == pytest.approx(0.5782, abs=5e-5)
    assert got.metrics.model_tflops_per_gpu == pytest.approx(0.5782 * 989, abs=0.05)
    assert got.metrics.flops_convention == "gqa"
    assert got.verdict == Verdict()


def test_how_a_training_held_out_does_not_depend_on_the_measured_window(run: RunRecord) -> None:
    """Steps grow from 2 s by a tenth of a percent each."""
    run = replace(run, job=replace(JOB, max_steps=200))
    log = "".join(steps(1, 199, first=n, time=f"{2 + 0.002 * n:.3f}") for n in range(200))
    default = result(run, "COMPLETED", log).metrics
    assert default.sustained is not None
    # from iteration 44 on: 155 steps of growth by the median of their times, which is in the middle
    assert default.sustained.drift == pytest.approx(155 * 0.002 / (2 + 0.002 * 121.5), abs=1e-3)
    for window in (LAST, Window(190, 199), Window(0, 20)):
        metrics = result(run, "COMPLETED", window=window).metrics
        assert metrics.window != default.window
        assert metrics.sustained == default.sustained


def test_without_a_peak_there_is_no_mfu(run: RunRecord) -> None:
    run.log.write_text(steps(50))
    got = result_of_run(run, END_OF["COMPLETED"], READER, None)
    assert got.metrics.mfu is None
    assert got.metrics.model_tflops_per_gpu is not None


def test_tflops_that_the_framework_has_wrong_are_omitted(run: RunRecord) -> None:
    run.log.write_text(steps(50))
    got = result_of_run(
        run,
        END_OF["COMPLETED"],
        LogReader(spec=ParseSpec(tflops_valid=False, tflops_note="hybrid")),
        989.0,
    )
    assert "tflops_per_gpu" not in got.metrics.measured
    assert got.metrics.step_time == 2.693


@pytest.mark.parametrize(("window", "first"), [(Window(40, 49), 40), (LAST, 49)])
def test_another_window(run: RunRecord, window: Window, first: int) -> None:
    got = result(run, "COMPLETED", steps(40, time="9.5") + steps(10, first=40), window=window)
    assert got.metrics.window == (first, 49)
    assert got.metrics.step_time == pytest.approx(2.693)


@pytest.mark.parametrize(
    ("state", "log", "status"),
    [
        (JobState(state="PENDING", reason="Priority"), None, "Pending"),
        (JobState(state="PENDING"), None, "Pending"),
        (JobState(state="CONFIGURING"), None, "Pending"),
        (JobState(state="REQUEUE_HOLD"), steps(3), "Pending"),
        (JobState(state="NOT_SUBMITTED", reason="cut off"), None, "Pending"),
        (JobState(state="UNKNOWN", reason="sacct is\x1b[0m down"), None, "Unknown"),
        (JobState(state="A_WORD_OF_2030"), None, "Unknown"),
        (JobState(state="RUNNING"), None, "Running"),
        (JobState(state="RUNNING"), steps(13), "Running"),
        (JobState(state="COMPLETING"), steps(13), "Running"),
    ],
)
def test_a_run_that_has_not_ended(
    run: RunRecord, state: JobState, log: str | None, status: str, wording: Wording
) -> None:
    if log is not None:
        run.log.write_text(log)
    got = result_of_run(run, state, READER, 989.0)
    assert got.status == status
    wording("results", str(got.reason))
    assert (got.is_open, got.is_failure) == (True, False)
    assert got.metrics.step_time is None
    assert got.metrics.steps == 50


@pytest.mark.parametrize(
    ("state", "log"),
    [
        ("COMPLETED", steps(21)),
        ("COMPLETED", None),
        ("COMPLETED", steps(11) + steps(30, first=20)),
        ("TIMEOUT", steps(21)),
        ("CANCELLED", steps(21)),
        ("NODE_FAIL", steps(21)),
        ("FAILED", steps(3) + OOM),
        ("FAILED", steps(50)),
    ],
)
def test_a_run_that_failed_says_why(
    run: RunRecord, state: str, log: str | None, wording: Wording
) -> None:
    got = result(run, state, log)
    assert got.status == ("Cancelled" if state == "CANCELLED" else "Failed")
    wording("results", str(got.reason))


def test_a_program_that_runs_other_steps_than_its_job_is_named(run: RunRecord) -> None:
    got = result(run, "COMPLETED", steps(30).replace("/49", "/29"))
    assert (got.status, got.metrics.step_time) == ("Failed", None)
    assert got.reason is not None
    assert got.reason.startswith(
        "the log lacks iterations of the window 11-44: its program planned 30 steps, and its job 50"
    )
    alike = result(run, "COMPLETED", steps(11) + steps(30, first=20))
    assert "planned" not in (alike.reason or "")


@pytest.mark.parametrize(
    ("log", "status"), [("hello from rank 0\n", "Unknown"), (f"hello\n{OOM}\n", "Failed")]
)
def test_an_unknown_program_that_ended_well_failed_only_if_its_log_has_a_cause(
    run: RunRecord, log: str, status: str
) -> None:
    assert result(run, "COMPLETED", log).status == status


def test_the_cause_may_be_in_the_log_of_the_script(run: RunRecord, wording: Wording) -> None:
    run.batch_log.write_text("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0\n")
    wording("results", str(result(run, "FAILED").reason))


def test_a_time_limit_after_the_measured_steps_leaves_the_measurement(
    run: RunRecord, wording: Wording
) -> None:
    got = result(run, "TIMEOUT", steps(47))
    assert got.status == "Success"
    wording("results", str(got.reason))
    assert got.metrics.step_time == 2.693


def test_the_last_attempt_is_the_one_that_counts(run: RunRecord, wording: Wording) -> None:
    got = result(run, "COMPLETED", steps(20, time="9.5") + steps(50))
    assert got.status == "Success"
    wording("results", str(got.reason))
    assert got.metrics.step_time == 2.693


def test_a_second_attempts_own_log(run: RunRecord) -> None:
    run.log.write_text(steps(3))
    for number, time in [(2, "9.5"), (10, "2.693")]:
        folder = run.directory / f"attempt-{number}"
        folder.mkdir()
        (folder / run.log.name).write_text(steps(50, time=time))
    assert log_of(run) == run.directory / "attempt-10" / run.log.name
    assert result(run, "COMPLETED").metrics.step_time == 2.693
    assert last_attempts(find_logs(run.directory)) == [log_of(run)]


def foreign(
    folder: Path, log: str, name: str = "log-x.out", window: Window | None = None
) -> Result:
    path = folder / name
    path.write_text(log)
    return result_of_log(path, READER, window)


def test_a_log_without_a_record(tmp_path: Path) -> None:
    got = foreign(tmp_path, steps(50))
    assert (got.status, got.reason, got.metrics.steps, got.metrics.window) == (
        "Success",
        None,
        50,
        (11, 44),
    )
    assert got.metrics.step_time == 2.693
    assert got.metrics.mean("tflops_per_gpu") == pytest.approx(571.8)
    own = got.metrics
    assert (own.mean("tokens_per_second"), own.mfu, own.model_flops, own.flops_convention) == (
        None,
    ) * 4


def test_a_loss_that_is_no_number_counts_wherever_it_is_there(tmp_path: Path) -> None:
    for at in (0, 5, 20, 49):
        lines = steps(50).splitlines(keepends=True)
        lines[at] = lines[at].replace("loss: 12.81", "loss: nan")
        assert foreign(tmp_path, "".join(lines)).metrics.invalid == (LOSS_NAN,)
        lines[at] = lines[at].replace("loss: nan", "loss: inf")
        # before the window, fp16 may still look for the scale of the loss
        assert bool(foreign(tmp_path, "".join(lines)).metrics.invalid) == (at >= 20)


def test_another_number_of_steps_has_its_own_window(tmp_path: Path) -> None:
    got = foreign(tmp_path, steps(100, last=99))
    assert (got.status, got.metrics.steps, got.metrics.window) == ("Success", 100, (22, 88))


@pytest.mark.parametrize(
    "log", ["", steps(47), steps(20) + "No space left on device", steps(10) + steps(10, first=40)]
)
def test_a_foreign_log_that_failed(tmp_path: Path, log: str, wording: Wording) -> None:
    got = foreign(tmp_path, log)
    assert got.status == "Failed"
    wording("results", str(got.reason))


@pytest.mark.parametrize(
    ("window", "kept"), [(Window(3, 5), Window(3, 5)), (LAST, None), (None, None)]
)
def test_the_window_of_a_log_without_steps(
    tmp_path: Path, window: Window | None, kept: Window | None
) -> None:
    got = foreign(tmp_path, "", window=window)
    assert (got.metrics.window, got.metrics.steps, got.metrics.max_iteration) == (kept, None, None)


def test_of_a_log_that_cannot_be_read_nothing_is_known_and_it_stops_no_other(
    tmp_path: Path, run: RunRecord, wording: Wording
) -> None:
    got = result_of_log(tmp_path / "log-x.out", READER)
    shown = f"{tmp_path / 'log-x.out'} cannot be read: No such file or directory"
    assert (got.identity.experiment, got.status, got.reason) == ("x", "Unknown", shown)
    run.log.mkdir()
    own = result(run, "COMPLETED")
    assert own.status == "Unknown"
    wording("results", str(own.reason))
    assert not own.is_failure  # its scheduler saw it end well


@pytest.mark.parametrize(
    ("name", "experiment"),
    [
        ("log-pretrain_x_gbs512.out", "pretrain_x_gbs512"),
        ("log-account-me.pretrain_x_gbs512_389757_0.out", "pretrain_x_gbs512_389757"),
        ("log-pretrain_llama3.1_405b_389757_1.out", "pretrain_llama3.1_405b_389757"),
        (
            "log-pretrain_llama3.1_405b_bf16_512_389757.out",
            "pretrain_llama3.1_405b_bf16_512_389757",
        ),
        ("log-gemm_8_1.out", "gemm_8_1"),
    ],
)
def test_the_experiment_of_a_log(tmp_path: Path, name: str, experiment: str) -> None:
    assert foreign(tmp_path, "", name).identity.experiment == experiment


def test_logs_are_found_and_records_known(tmp_path: Path, run: RunRecord) -> None:
    run.log.write_text("")
    run.batch_log.write_text("")
    other = tmp_path / "old" / "log-account.pretrain_x_731_0.out"
    other.parent.mkdir()
    other.write_text("")
    other.with_name("log-account.pretrain_x_731_1.out").write_text("")
    (other.parent / "log-folder.out").mkdir()
    logs = find_logs(tmp_path)
    assert logs == [run.log, other, other.with_name("log-account.pretrain_x_731_1.out")]
    assert last_attempts(logs) == [run.log, other.with_name("log-account.pretrain_x_731_1.out")]
    assert run_directory(run.log) == run.directory
    assert run_directory(other) is None
    with pytest.raises(UsageError) as caught:
        logs_at(tmp_path / "none")
    assert (caught.value.code, caught.value.value) == ("path-missing", str(tmp_path / "none"))


def test_two_jobs_of_one_name_are_no_attempts_of_each_other(tmp_path: Path) -> None:
    names = [
        "log-pretrain_llama3.1_70b_bf16_64_389757.out",
        "log-pretrain_llama3.1_70b_bf16_64_389760.out",
    ]
    for name in [*names, "log-pretrain_llama3.1_70b_bf16_64_389760_1.out"]:
        (tmp_path / name).write_text("")
    kept = [names[0], "log-pretrain_llama3.1_70b_bf16_64_389760_1.out"]
    assert [path.name for path in last_attempts(find_logs(tmp_path))] == kept


def test_numbers_of_one_or_two_digits_are_no_job(tmp_path: Path) -> None:
    names = [f"log-train_70b_64_{count}.out" for count in (2, 4, 8)]
    assert [path.name for path in last_attempts(map(tmp_path.joinpath, names))] == names


def test_a_log_of_two_names_is_one(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    log = tmp_path / "own" / "log-x.out"
    log.write_text("")
    (tmp_path / "log-latest.out").symlink_to(log)
    (tmp_path / "log-hard.out").hardlink_to(log)
    (tmp_path / "log-nowhere.out").symlink_to(tmp_path / "nowhere")
    (tmp_path / "log-itself.out").symlink_to(tmp_path / "log-itself.out")
    (tmp_path / "own" / "again").symlink_to(tmp_path, target_is_directory=True)
    assert find_logs(tmp_path) == [tmp_path / "log-hard.out"]


def test_what_cannot_be_looked_at_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, shut = tmp_path / "locked", tmp_path / "log-shut.out"
    locked.mkdir()
    for path in (shut, tmp_path / "log-x.out", locked / "log-y.out"):
        path.write_text("")
    scan, look = os.scandir, Path.stat

    def scandir(path: str) -> Any:
        if path == str(locked):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scan(path)

    def stat(path: Path, **how: Any) -> os.stat_result:
        if path == shut:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return look(path, **how)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(Path, "stat", stat)
    left = list[OSError]()
    assert find_logs(tmp_path, left.append) == [shut, tmp_path / "log-x.out"]
    assert [error.filename for error in left] == [str(locked)]


def test_the_report_counts_what_has_ended(tmp_path: Path, run: RunRecord) -> None:
    good, bad = foreign(tmp_path, steps(50)), foreign(tmp_path, steps(3))
    document = report([good, good, bad, result(run, "RUNNING")])
    assert document["analysis"] == {"min_iteration": 11, "max_iteration": 44}
    assert document["summary"] == {
        "success_experiments": 2,
        "failed_experiments": 1,
        "success_rate": 66,
    }
    assert len(document["results"]) == 4


def test_the_report_of_nothing_and_of_different_windows(tmp_path: Path) -> None:
    assert report([]) == {
        "schema_version": 1,
        "analysis": {"min_iteration": 11, "max_iteration": 44},
        "results": [],
        "sessions": [],
        "summary": {"success_experiments": 0, "failed_experiments": 0, "success_rate": None},
    }
    both = [foreign(tmp_path, steps(50)), foreign(tmp_path, steps(100, last=99))]
    assert report(both)["analysis"] == {"min_iteration": None, "max_iteration": None}


def test_all_that_a_folder_holds_is_searched_for_the_cause(
    run: RunRecord, wording: Wording
) -> None:
    (run.work / "rank5.err").write_text(f"[rank5]: {OOM}\n")
    run.batch_log.write_text(
        "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2025-04-11T14:48:45 ***\n"
    )
    got = result(run, "FAILED", "[rank0]: Watchdog caught collective operation timeout\n")
    wording("results", str(got.reason))


def test_a_cancelled_run_is_not_explained_by_the_line_that_says_so(run: RunRecord) -> None:
    """What else ended it is, as the scheduler may have cancelled the rest."""
    line = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2025-04-11T14:48:45 ***\n"
    run.batch_log.write_text(line)
    got = result(run, "CANCELLED", steps(3))
    assert got.cause is not None
    assert got.cause.kind == "cancelled"
    assert got.reason == "CANCELLED (by 1000); stopped at iteration 2 of 49"
    assert "out of memory" in str(result(run, "CANCELLED", steps(3) + OOM + "\n").reason)


def test_a_run_over_tcp_is_not_valid(run: RunRecord, wording: Wording) -> None:
    got = result(run, "COMPLETED", "n1:1:2 [0] NCCL INFO Using network Socket\n" + steps(50))
    assert got.status == "Success"
    wording("results", "\n".join(got.metrics.invalid))


def test_the_published_sample_line(tmp_path: Path) -> None:
    line = (
        "Training epoch 0, iteration 49/49 | lr: 4.491e-06 | global_batch_size: 256 | global_step:"
        " 49 | peak_memory_usage: 72972500992 | memory_allocated: 34466545664 | reduced_train_loss:"
        " 12.81 | train_step_timing in s: 2.693 | consumed_samples: 12800\n"
    )
    got = foreign(tmp_path, line, window=LAST)
    assert (got.status, got.metrics.step_time, got.metrics.window) == ("Success", 2.693, (49, 49))
    assert got.log is not None
    assert got.log.peak_memory_bytes == 72972500992


def test_the_published_row(tmp_path: Path) -> None:
    name = "pretrain_nemotron4_340b_fp8_gpus128_tp8_pp4_cp1_vp12_mbs1_gbs512_389757"
    halves = [("21.532", "1599.96"), ("21.552", "1601.52")] * 25
    log = "".join(
        steps(1, first=i, time=time, tflops=tflops) for i, (time, tflops) in enumerate(halves)
    )
    got = foreign(tmp_path, log, f"log-{name}_0.out")
    cells = table([got]).splitlines()[-1].split("  ")
    assert [cell.strip() for cell in cells if cell] == [
        name,
        "Success",
        "21.542",
        "0.010",
        "1600.74 ± 0.78",
    ]


def test_csv_has_every_field(run: RunRecord) -> None:
    got = result(run, "FAILED", steps(21))
    text = render(csv_columns([got]), csv_rows([got]), "csv")
    assert text.startswith(CSV_HEAD)
    (row,) = csv.DictReader(io.StringIO(text))
    assert set(row) >= {
        *FIELDS,
        "filename",
        "reference_release",
        "log_framework",
        "statistics_median",
    } - {"reference"}
    assert (row["filename"], row["window"], row["max_iteration"]) == (run.log.name, "11-44", "20")
    assert (row["time_mean_seconds"], row["verdict"]) == ("", "")


def test_a_table_at_a_glance(run: RunRecord) -> None:
    good, bad = result(run, "COMPLETED", steps(50)), result(run, "FAILED", steps(21))
    assert "reason" not in [column.key for column in table_of([good])[0]]
    _, _, first, second = table([good, bad]).splitlines()
    assert first.split()[2:] == ["Success", "2.693", "0.000", "6083.9", "57.82", "571.85", "389371"]
    assert second.split()[2:4] == ["Failed", "FAILED,"]


def table(results: list[Result], width: int = 300, most: int | None = 90) -> str:
    text, _ = fit(*table_of(results), width, longest=most)
    return text


def test_a_wide_name_loses_its_middle_unless_asked_for(tmp_path: Path) -> None:
    got = foreign(tmp_path, steps(50))
    got = replace(
        got, identity=replace(got.identity, experiment="pretrain_" + "x" * 100 + "_gbs512")
    )
    short, full = (table([got], most=most).splitlines()[-1].split()[0] for most in (90, None))
    assert len(short) == 90
    assert short.startswith("pretrain_x")
    assert short.endswith("_gbs512")
    assert full == got.identity.experiment
