# SPDX-License-Identifier: Apache-2.0
"""Tests that a training whose batch grows is measured with the batch of its window."""

from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.log_settings import LogSettings
from llmb.contract.samples import Samples, Step
from llmb.contract.settings import Settings
from llmb.contract.window import Window, batches_in, measure
from llmb.judge.judge import judge
from llmb.judge.value import INVALID
from llmb.measure.log_reader import read_log, read_on
from llmb.measure.log_result import result_of_log
from llmb.measure.reader import LogReader
from llmb.measure.result import Result
from llmb.plugins.loader import load_plugins

SEQUENCE = 4096  # of Nemotron-4 15B


def nemo(n: int, batch: int, seconds: float) -> str:
    return (
        f"Training epoch 0, iteration {n}/99 | lr: 1e-4 | global_batch_size: {batch} |"
        f" global_step: {n} | reduced_train_loss: 9 | train_step_timing in s: {seconds}\n"
    )


def megatron(n: int, batch: int, seconds: float) -> str:
    return (
        f" iteration {n + 1:8}/     100 | elapsed time per iteration (ms): {1000 * seconds:.1f} |"
        f" global batch size: {batch:5} | lm loss: 9.0 | loss scale: 1.0 |\n"
    )


def result(
    folder: Path,
    log: str,
    window: Window | None = None,
    beside: LogSettings | None = None,
    **settings: Any,
) -> Result:
    path = folder / "x.log"
    path.write_text(log)
    described = Settings(
        workload="pretrain_nemotron4",
        model_size="15b",
        dtype="bf16",
        scale=16,
        gpu_type="h100",
        **settings,
    )
    workloads = load_plugins(builtin_plugins()).workloads()
    read = result_of_log(
        path,
        LogReader(),
        window,
        workloads=workloads,
        overrides=described,
        beside={} if beside is None else {path: beside},
    )
    (judged,) = judge([read], [])
    return judged


def ramp(line: Any, change: int, *, every: int = 1) -> str:
    """100 steps of 64 samples in 2 s, and from step ``change`` on of 128 samples in 4 s."""
    numbers = range(every - 1, 100, every)
    return "".join(line(n, 64, 2.0) if n < change else line(n, 128, 4.0) for n in numbers)


@pytest.mark.parametrize("line", [nemo, megatron])
def test_the_batch_of_the_window_is_used(tmp_path: Path, line: Any) -> None:
    log = ramp(line, 15)
    got = result(tmp_path, log)
    assert got.identity.configuration is not None
    assert got.identity.configuration.gbs == 128
    assert got.metrics.mean("tokens_per_second") == pytest.approx(128 * SEQUENCE / 4.0)
    assert not got.metrics.invalid
    before = result(tmp_path, log, Window(5, 14))
    assert before.identity.configuration is not None
    assert before.identity.configuration.gbs == 64
    assert before.metrics.mean("tokens_per_second") == pytest.approx(64 * SEQUENCE / 2.0)


@pytest.mark.parametrize("line", [nemo, megatron])
def test_a_window_with_two_batches_has_no_rates(tmp_path: Path, line: Any) -> None:
    got = result(tmp_path, ramp(line, 50))
    first = 1 if line is megatron else 0
    assert got.metrics.step_time is not None
    assert got.metrics.days_per_1t_tokens is None
    assert not {"tokens_per_second", "mfu", "model_tflops_per_gpu"} & {*got.metrics.measured}
    (reason,) = got.metrics.invalid
    assert "64 and 128" in reason
    assert f"--window {50 + first}-88" in reason
    assert got.verdict.word == INVALID
    part = result(tmp_path, ramp(line, 50), Window(50 + first, 88))
    assert part.metrics.mean("tokens_per_second") == pytest.approx(128 * SEQUENCE / 4.0)


def test_the_steps_up_to_the_end_are_suggested_for_a_late_change(tmp_path: Path) -> None:
    """A single step of the window has the larger batch, too few to measure."""
    (reason,) = result(tmp_path, ramp(nemo, 88)).metrics.invalid
    assert "--window 88-99" in reason
    (reason,) = result(tmp_path, ramp(megatron, 95), Window(50, 96)).metrics.invalid
    assert "--window 96-100" in reason


def test_the_batch_of_the_window_beside_a_log_is_used(tmp_path: Path) -> None:
    got = result(tmp_path, ramp(nemo, 15), beside=LogSettings(window=(0, 9)))
    assert got.identity.configuration is not None
    assert got.identity.configuration.gbs == 64
    assert not got.metrics.invalid


def test_a_window_without_steps_has_no_batch(tmp_path: Path) -> None:
    got = result(tmp_path, "".join(nemo(n, 64 if n < 5 else 128, 2.0) for n in range(15)))
    assert (got.metrics.measured, got.metrics.invalid) == ({}, ())


def test_a_batch_that_changes_is_no_fault_of_an_unknown_configuration(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(ramp(nemo, 15))
    metrics = result_of_log(path, LogReader()).metrics
    assert metrics.mean("step_time") == 4.0
    assert not metrics.invalid


def test_a_stated_batch_replaces_a_constant_one(tmp_path: Path) -> None:
    got = result(tmp_path, ramp(nemo, 100), gbs=32)
    assert got.metrics.mean("tokens_per_second") == pytest.approx(32 * SEQUENCE / 2.0)
    assert not got.metrics.invalid


def test_samples_consumed_after_a_change_are_no_batch(tmp_path: Path) -> None:
    """10 steps of 64 samples and 10 of 128 are 20 steps of 96 on average."""
    log, consumed = "", 0
    for n in range(30):
        consumed += 64 if n < 10 else 128
        log += (
            f"Training epoch 0, iteration {n}/29 | global_step: {n} | consumed_samples: {consumed}"
            " | train_step_timing in s: 2.0\n"
        )
    path = tmp_path / "x.log"
    path.write_text(log)
    assert read_log(path).batches == ((0, 64),)


@pytest.mark.parametrize(
    "text", ["global_batch_size: 0", "global_batch_size: 1e13", "consumed_samples: {consumed}"]
)
def test_a_number_that_is_no_batch_is_ignored(text: str, tmp_path: Path) -> None:
    """The consumed samples are 64 in a step and a further one, so no whole number in a step."""
    log = "".join(
        f"Training epoch 0, iteration {n}/9 | global_step: {n} |"
        f" {text.format(consumed=64 * (n + 1) + 1)} | train_step_timing in s: 2.0\n"
        for n in range(2, 10)
    )
    path = tmp_path / "x.log"
    path.write_text(log)
    samples = read_log(path)
    assert (len(samples.steps), samples.gbs, samples.batches) == (8, None, ())


def test_a_line_for_several_steps_may_have_both_batches(tmp_path: Path) -> None:
    """The line of steps 31 to 40 is the first with the larger batch."""
    log = ramp(megatron, 35, every=10)
    assert result(tmp_path, log, Window(31, 80)).metrics.invalid
    assert result(tmp_path, log, Window(21, 80)).metrics.invalid
    after = result(tmp_path, log, Window(41, 80))
    assert after.metrics.mean("tokens_per_second") == pytest.approx(128 * SEQUENCE / 4.0)
    (reason,) = result(tmp_path, log, Window(21, 80)).metrics.invalid
    assert "--window 41-80" in reason


def test_a_stated_batch_that_the_window_contradicts_has_no_rates(tmp_path: Path) -> None:
    got = result(tmp_path, ramp(nemo, 15), gbs=64)
    assert got.metrics.mean("tokens_per_second") is None
    assert got.verdict.word == INVALID


def test_the_batch_of_another_attempt_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("".join(nemo(n, 64, 2.0) for n in range(9)) + ramp(nemo, 0))
    samples = read_log(path)
    assert (samples.attempts, samples.gbs, samples.batches) == (2, 128, ((0, 128),))


def test_a_change_is_found_in_a_log_that_grows(tmp_path: Path) -> None:
    path, log = tmp_path / "x.log", ramp(nemo, 15)
    path.write_text(log[: len(log) // 10])
    state = read_on(path).state
    path.write_text(log)
    assert read_on(path, state=state).samples.batches == ((0, 64), (15, 128))


def test_batches_in_a_window() -> None:
    steps = tuple(Step(iteration=n, step_time=1.0) for n in range(20))
    samples = Samples(steps=steps, batches=((0, 8), (5, 16), (10, 32)))
    windows = [Window(0, 4), Window(5, 9), Window(4, 5), Window(0, 19), Window(12, 19)]
    expected = [(8,), (16,), (8, 16), (8, 16, 32), (32,)]
    assert [batches_in(samples, window) for window in windows] == expected


def test_rates_that_are_rounded_to_0_have_their_arithmetic_mean() -> None:
    rates = (0.0, 0.1)
    steps = (Step(iteration=n, step_time=1.0, tflops=rate) for n, rate in enumerate(rates))
    measured = measure(Samples(steps=tuple(steps)), Window(0, 1))
    assert measured["tflops_per_gpu"].mean == pytest.approx(0.05)
