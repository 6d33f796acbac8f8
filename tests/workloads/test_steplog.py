# SPDX-License-Identifier: Apache-2.0
"""Every line is NeMo 2's, to the character."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest

from llmb_workloads.steplog import (
    LoggedStep,
    checkpoint_line,
    checkpoint_name,
    end_line,
    format_value,
    opening_line,
    step_line,
    tflops_per_gpu,
)
from llmb_workloads.torch_recipe import parse_recipe
from llmb_workloads.world import Process

RECORD = LoggedStep(
    step=0,
    max_steps=50,
    learning_rate=0.0003,
    global_batch=8,
    peak_memory=70833405952,
    memory=44271689728,
    loss=6.93147,
    seconds=0.12344,
    tflops=0.0123412,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12.0, "12"),
        (70833405952, "70833405952"),
        (1234.0, "1234"),
        (1234.5, "1.234e+03"),
        (1000.4, "1e+03"),
        (999.94, "999.9"),
        (11.9612, "11.96"),
        (11.99999, "12.0"),
        (0.00034567, "0.0003457"),
        (0.0000045, "4.5e-06"),
        (0.0, "0"),
        (math.nan, "nan"),
        (math.inf, "inf"),
    ],
)
def test_numbers_are_printed_as_nemo_does(value: float, text: str) -> None:
    assert format_value(value) == text


def test_the_first_step_has_no_consumed_samples() -> None:
    line = (
        "Training epoch 0, iteration 0/49 | lr: 0.0003 | global_batch_size: 8 | global_step: 0 |"
        " peak_memory_usage: 70833405952 | memory_allocated: 44271689728 | reduced_train_loss:"
        " 6.931 | train_step_timing in s: 0.1234 | TFLOPS_per_GPU: 0.01234"
    )
    assert step_line(RECORD) == line


def test_later_steps_have_consumed_samples() -> None:
    keys = step_line(dataclasses.replace(RECORD, step=1)).split(" | ")
    assert keys[-2:] == ["TFLOPS_per_GPU: 0.01234", "consumed_samples: 16"]


def test_unknown_flops_leave_their_key_out() -> None:
    first, *_, time, samples = step_line(dataclasses.replace(RECORD, step=49, tflops=None)).split(
        " | "
    )
    assert first.split(", ") == ["Training epoch 0", "iteration 49/49"]
    assert (time.split()[-1], samples) == ("0.1234", "consumed_samples: 400")


def test_tflops_are_those_of_one_rank() -> None:
    assert tflops_per_gpu(3.85e14, 256, 2.693, 64) == pytest.approx(571.8, abs=0.1)


def test_the_end_is_reported() -> None:
    lightnings = "`Trainer.fit` stopped: `max_steps=50` reached."
    assert end_line(50) == lightnings


def test_a_checkpoint_is_reported_and_named() -> None:
    line = checkpoint_line(iteration=50, started=1744408121.1514, seconds=4.3891)
    nemos = (
        "nemo_logging:393] Global Checkpoint Save : Rank: 0 : Iteration: 50 : "
        "Start time: 1744408121.151s : Save duration: 4.389s"
    )
    assert line.startswith("[NeMo I 2025-04-1")
    assert line.endswith(f" {nemos}")
    name = "default--reduced_train_loss=11.9612-epoch=0-consumed_samples=400"
    assert checkpoint_name(11.96123, 400) == name


def test_the_opening_says_what_runs_on_what(
    raw_recipe: Callable[..., dict[str, Any]], wording: Callable[..., None]
) -> None:
    recipe = parse_recipe(raw_recipe(dtype="bf16"))
    line = opening_line(recipe, Process(rank=0, world=2, local_rank=0), "CPU, torch 2", 1_312_000)
    wording("torch_pretrain", line)
