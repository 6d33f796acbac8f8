# SPDX-License-Identifier: Apache-2.0
"""Lines of other releases and branches of the known programs, as their print statements write them.

Megatron-LM: training_log in megatron/training/training.py; Megatron-DeepSpeed: the same function of
its branch; torchtitan: metrics of its releases of 2024, which print words per second.
"""

from pathlib import Path

import pytest

from llmb.contract.formats import ParseSpec
from llmb.contract.samples import Samples, Step
from llmb.contract.state import FAILED as FAILED_STATE, JobState
from llmb.contract.window import LAST
from llmb.measure.facts import LOSS_NAN
from llmb.measure.log_result import result_of_log
from llmb.measure.reader import LogReader
from llmb.measure.result import FAILED, Metrics, Result
from llmb.measure.result_notes import of_run


def read(folder: Path, log: str) -> Result:
    path = folder / "log-x.out"
    path.write_text(log, encoding="utf-8")
    return result_of_log(path, LogReader())


def megatron(
    n: int,
    throughput: str = "",
    *,
    loss: str = " lm loss: 1.187123E+01 |",
    skipped: int = 0,
    nan: int = 0,
) -> str:
    return (
        f" [2026-11-22 09:41:00] iteration {n:8d}/{50:8d} | consumed samples: {256 * n:12d} |"
        f" elapsed time per iteration (ms): {2000 + n:.1f} |{throughput} learning rate: 3.0E-04 |"
        f" global batch size:   256 |{loss} loss scale: 1.0 | grad norm: 0.123 | number of skipped"
        f" iterations: {skipped:3d} | number of nan iterations: {nan:3d} |\n"
    )


@pytest.mark.parametrize(
    ("bad", "because"),
    [
        ({20: {"nan": 1, "skipped": 1, "loss": ""}}, LOSS_NAN),
        ({5: {"nan": 1, "skipped": 1, "loss": ""}}, LOSS_NAN),  # it spoils all later steps
        ({5: {"loss": ""}}, LOSS_NAN),  # omitted, since it is not above 0
        ({20: {"skipped": 1, "loss": ""}}, "the program skipped iterations of the window (20)"),
        (
            {n: {"skipped": 1, "loss": ""} for n in (20, 21, 30)},
            "the program skipped iterations of the window (20 and 2 more)",
        ),
        ({1: {"skipped": 1, "loss": ""}}, None),  # fp16 looks for the scale of the loss
        ({}, None),
    ],
)
def test_steps_that_megatron_calls_bad_are_invalid(
    bad: dict[int, dict[str, object]], because: str | None, tmp_path: Path
) -> None:
    log = "".join(megatron(n, **bad.get(n, {})) for n in range(1, 51))  # type: ignore[arg-type]
    got = read(tmp_path, log)
    assert got.status == "Success"
    assert got.metrics.invalid == (() if because is None else (because,))


@pytest.mark.parametrize(
    "throughput",
    [
        " throughput per GPU (TFLOP/s/GPU): 611.5 |",
        " compute per GPU (TFLOP/s/GPU): 611.5 | TPS per GPU: 5243 |",
        " samples per second: 12.345 | tokens per gpu per second (tgs): 5243.0 | TFLOPs: 611.50 |",
    ],
)
def test_the_tflops_of_megatrons_releases(throughput: str, tmp_path: Path) -> None:
    got = read(tmp_path, "".join(megatron(n, throughput) for n in range(1, 51)))
    assert got.metrics.mean("tflops_per_gpu") == pytest.approx(611.5)
    assert got.metrics.step_time == pytest.approx(2.0275)  # 2000 + n ms, n from 11 to 44
    if "tgs" in throughput:
        assert got.metrics.mean("tokens_per_second_per_gpu") == pytest.approx(5243)


def test_megatron_deepspeeds_whole_line(tmp_path: Path) -> None:
    """Its throughput is at the end of the line."""
    log = "".join(
        f" iteration {n:8d}/{50:8d} | consumed samples: {256 * n:12d} | consumed tokens:"
        f" {256 * n * 2048:12d} | elapsed time per iteration (ms): 1234.5 | learning rate: 1.000E-04"
        " | global batch size:   256 | lm loss: 1.034567E+01 | loss scale: 1.0 | grad norm: 1.234 |"
        " actual seqlen:  2048 | number of skipped iterations:   0 | number of nan iterations:   0 |"
        " samples per second: 207.372 | tokens per gpu per second (tgs): 6635.9 | TFLOPs: 45.67 |\n"
        for n in range(1, 51)
    )
    got = read(tmp_path, log)
    assert got.status == "Success"
    assert got.metrics.step_time == pytest.approx(1.2345)
    assert got.metrics.mean("tflops_per_gpu") == pytest.approx(45.67)


def test_the_words_per_second_of_torchtitan(tmp_path: Path) -> None:
    log = "".join(
        f"[rank0]:2024-07-25 23:43:{n:02d},371 - root - INFO - \x1b[36mstep: {n:2d}  \x1b[32mloss:"
        f"  8.0277  \x1b[33mmemory: 42.55GiB(44.79%)  \x1b[34mwps: {7000 + n:,}  \x1b[35mmfu:"
        " 41.76%\x1b[39m\n"
        for n in range(1, 51)
    )
    got = read(tmp_path, log)
    assert (got.status, got.log and got.log.framework) == ("Success", "torchtitan")
    assert got.metrics.mean("tokens_per_second_per_gpu") == pytest.approx(
        34 / sum(1 / (7000 + n) for n in range(11, 45))
    )


def test_each_rank_prints_the_summary_of_hugging_faces_trainer(tmp_path: Path) -> None:
    log = "".join(
        f"[rank{rank}]: {{'train_runtime': {110.59 + rank / 100:.4f}, 'train_samples_per_second':"
        " 28.93, 'train_steps_per_second': 1.808, 'train_loss': 2.85, 'epoch': 3.0}\n"
        for rank in range(16)
    )
    got = read(tmp_path, log)
    assert (got.status, got.metrics.steps) == ("Success", 200)
    assert "attempts" not in (got.reason or "")
    assert got.metrics.step_time == pytest.approx(110.59 / 200)


def test_a_second_run_of_hugging_faces_trainer_is_another_attempt(tmp_path: Path) -> None:
    line = (
        "{{'train_runtime': {}, 'train_samples_per_second': {}, 'train_steps_per_second': {},"
        " 'train_loss': 2.85, 'epoch': 3.0}}\n"
    )
    got = read(tmp_path, line.format(100.0, 32.0, 2.0) + line.format(80.0, 40.0, 2.5))
    assert "the last of 2 attempts" in (got.reason or "")
    assert got.metrics.step_time == pytest.approx(0.4)


NEMO = (
    "Training epoch {}, iteration {}/24 | lr: 7.496e-06 | global_batch_size: 128 | global_step: {} |"
    " reduced_train_loss: 11.96 | train_step_timing in s: {}\n"
)
BAR = (
    "Epoch {}: : 100%|##| {}/25 [07:57<00:00, reduced_train_loss=7.310, global_step={}.0,"
    " consumed_samples={}.0, train_step_timing in s={}]\n"
)


@pytest.mark.parametrize("program", ["NeMo 2", "NeMo 1"])
def test_a_second_epoch_is_no_second_attempt(program: str, tmp_path: Path) -> None:
    log = "".join(
        NEMO.format(n // 25, n % 25, n, f"{2 + n / 100:.4g}")
        if program == "NeMo 2"
        else BAR.format(n // 25, n % 25 + 1, n, 128 * (n + 1), f"{2 + n / 100:.4g}")
        for n in range(50)
    )
    got = read(tmp_path, log)
    assert (got.status, got.reason) == ("Success", None)
    assert (got.metrics.steps, got.metrics.window) == (50, (11, 44))
    assert got.metrics.step_time == pytest.approx(2.275)  # n from 11 to 44
    cut = read(tmp_path, "".join(log.splitlines(keepends=True)[:40]))
    assert cut.status == "Failed"
    assert "stopped at iteration 39 of 49" in (cut.reason or "")


def test_attempts_of_a_program_without_ranks_may_be_ranks(tmp_path: Path) -> None:
    spec = ParseSpec(metrics=("busbw",))
    path = tmp_path / "log-x.out"
    lines = "".join(f"llmb step {n}/19 busbw={480 + n}\n" for n in range(20))
    path.write_text(lines * 2)
    got = result_of_log(path, LogReader(spec=spec))
    assert "the last of 2 attempts in the log, or ranks that all print their steps" in (
        got.reason or ""
    )
    path.write_text(lines)
    assert "attempts" not in (result_of_log(path, LogReader(spec=spec)).reason or "")


def test_a_second_attempt_with_epochs_is_still_one(tmp_path: Path) -> None:
    first = "".join(NEMO.format(0, n, n, 9.5) for n in range(20))
    second = "".join(NEMO.format(0, n, n, 2.5) for n in range(25))
    third = "".join(NEMO.format(1, n, 25 + n, 2.5) for n in range(25))
    got = read(tmp_path, first + second + third)
    assert got.reason == "the last of 2 attempts in the log"
    assert (got.metrics.steps, got.metrics.step_time) == (50, 2.5)


def test_a_line_of_maxtext_with_impossible_rates_is_no_step(tmp_path: Path) -> None:
    line = (
        "completed step: {}, seconds: {}, TFLOP/s/device: {}, Tokens/s/device: 1055.949,"
        " total_weights: 4194304, loss: 0.125\n"
    )
    log = "".join(line.format(n, "15.570", "508.371") for n in range(50))
    got = read(tmp_path, log + line.format(49, "0.009", "917442.125"))
    whole = read(tmp_path, log)
    assert (got.metrics, got.status) == (whole.metrics, "Success")
    (tmp_path / "log-x.out").write_text(log + line.format(49, "0.009", "917442.125"))
    last = result_of_log(tmp_path / "log-x.out", LogReader(), LAST)
    assert last.metrics.step_time == pytest.approx(15.57)


@pytest.mark.parametrize(
    ("last", "planned", "is_reported"), [(39, 40, False), (49, 50, True), (49, 31, False)]
)
def test_a_failed_run_has_not_stopped_early_if_its_last_line_is_a_mean_up_to_the_end(
    last: int, planned: int, is_reported: bool
) -> None:
    """Nor if the log announces more steps than the job, which has them all."""
    steps = tuple(Step(iteration=n, step_time=2.0, span=10) for n in range(0, 31, 10))
    samples = Samples(steps=steps, last=last)
    metrics = Metrics(steps=planned, max_iteration=30)
    state = JobState(state=FAILED_STATE, exit_code=1)
    reason = of_run(FAILED, state, samples, metrics, ParseSpec(), None, None)
    assert ("stopped at iteration" in (reason or "")) is is_reported


def test_the_rate_of_a_window_is_its_tokens_by_its_time(tmp_path: Path) -> None:
    """Three of the steps 11 to 44 of 8192 tokens a GPU take 12 s, and 31 take 1 s."""
    seconds = {n: 12.0 if n in (15, 25, 35) else 1.0 for n in range(50)}
    log = "".join(
        f"completed step: {n}, seconds: {seconds[n]:.3f}, TFLOP/s/device: {6000 / seconds[n]:.3f},"
        f" Tokens/s/device: {8192 / seconds[n]:.3f}, total_weights: 1, loss: 9.1\n"
        for n in seconds
    )
    metrics = read(tmp_path, log).metrics
    time = sum(seconds[n] for n in range(11, 45))
    rate = metrics.measured["tokens_per_second_per_gpu"]
    assert rate.mean == pytest.approx(34 * 8192 / time, rel=1e-4)
    assert metrics.mean("tflops_per_gpu") == pytest.approx(34 * 6000 / time, rel=1e-4)
    deviation = metrics.measured["step_time"].std
    assert deviation is not None
    assert rate.std == pytest.approx(rate.mean * deviation / (time / 34), rel=1e-4)
