# SPDX-License-Identifier: Apache-2.0
"""Tests of the figures of logs that other programs than NeMo write, each in the numbers and words
of its own.
"""

import codecs
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import harmonic_mean
from typing import Any

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.settings import Settings
from llmb.contract.spec import Workload
from llmb.contract.window import LAST, Window
from llmb.judge.judge import judge
from llmb.judge.value import INVALID, NO_REFERENCE
from llmb.measure.describe_log import describe_log
from llmb.measure.facts import GRADIENT_NAN
from llmb.measure.log_reader import read_on
from llmb.measure.log_result import result_of_log
from llmb.measure.reader import LogReader
from llmb.measure.result import Result
from llmb.plan.published import Figure
from llmb.plugins.loader import load_plugins

Wording = Callable[..., None]

Workloads = dict[str, Workload]
STEP_TIME = "Step Time : {}s GPU utilization: {}MODEL_TFLOP/s/GPU"
BRIDGE = "pretrain_llama3_70b_fp8_cs_gpus64_tp4_pp8_cp1_vp5_mbs1_gbs128_389757"

WINDOWS = load_plugins(builtin_plugins()).windows


def megatron(n: int, seconds: float, loss: str = "1.25E+01", flops: str = "") -> str:
    return (
        f" [2026-11-22 09:41:00] iteration {n:8}/      50 | consumed samples: {128 * n:12} |"
        f" elapsed time per iteration (ms): {1000 * seconds:.1f} | {flops}learning rate:"
        f" 2.999000E-04 | global batch size:   128 | lm loss: {loss} | loss scale: 1.0 | grad norm:"
        " 0.123 |"
    )


def read(
    folder: Path,
    log: str,
    name: str = "log-x.out",
    window: Window | None = None,
    workloads: Workloads | None = None,
    **given: Any,
) -> Result:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(log)
    return result_of_log(
        path,
        LogReader(),
        window,
        workloads=workloads,
        overrides=Settings(**given),
        windows=WINDOWS,
    )


def bridge(order: int = 0) -> str:
    """Fifty steps of n seconds each; the line without a number before its own (0), after it (1), or
    late (2).
    """
    own = [megatron(n, n) for n in range(1, 51)]
    found = [STEP_TIME.format(f"{n}.00", f"{1000 / n:.1f}") for n in range(1, 51)]
    if order < 2:
        return (
            "\n".join(
                "\n".join(pair if order == 0 else pair[::-1])
                for pair in zip(found, own, strict=True)
            )
            + "\n"
        )
    return (
        "\n".join([*own[:3], found[1], found[0], *own[3:], *found[2:40], *reversed(found[40:])])
        + "\n"
    )


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_window_of_megatron_is_of_its_printed_numbers(tmp_path: Path, order: int) -> None:
    got = read(tmp_path, bridge(order))
    own = got.metrics
    assert (got.status, own.window, own.first_iteration, own.steps) == ("Success", (11, 44), 1, 50)
    assert got.metrics.step_time == pytest.approx(sum(range(11, 45)) / 34)  # the printed 11 to 44
    late = read(tmp_path, bridge(order), window=Window(35, 44))
    assert late.metrics.step_time == pytest.approx(39.5)
    assert late.metrics.mean("tflops_per_gpu") == pytest.approx(
        harmonic_mean([round(1000 / n, 1) for n in range(35, 45)])
    )
    last = read(tmp_path, bridge(order), window=LAST)
    assert (last.metrics.window, last.metrics.step_time) == ((50, 50), 50.0)


def every(interval: int, steps: int = 50, missing: tuple[int, ...] = ()) -> str:
    """The log of Megatron-LM with ``--log-interval``: the line of iteration n is the mean of the
    steps before it.
    """
    return "".join(
        f" [2025-11-25 19:45:{n % 60:02}] iteration {n:8}/{steps:8} | consumed samples:"
        f" {128 * n:12} | elapsed time per iteration (ms): {1000.0 * n:.1f} | throughput per GPU"
        " (TFLOP/s/GPU): 611.5 | learning rate: 1.5E-04 | global batch size:   128 | lm loss:"
        " 1.2E+01 | loss scale: 1.0 | grad norm: 1.842 | number of skipped iterations:   0 |"
        " number of nan iterations:   0 |\n"
        for n in range(interval, steps + 1, interval)
        if n not in missing
    )


@pytest.mark.parametrize(
    ("interval", "steps", "window", "mean"),
    [
        (5, 50, (11, 40), (15 + 20 + 25 + 30 + 35 + 40) / 6),
        (10, 50, (11, 40), 30.0),
        (10, 48, (11, 40), 30.0),  # the last steps have no line
    ],
)
def test_a_log_interval_of_megatron(
    tmp_path: Path, interval: int, steps: int, window: tuple[int, int], mean: float
) -> None:
    got = read(tmp_path, every(interval, steps))
    assert (got.status, got.reason, got.metrics.window) == ("Success", None, window)
    assert got.metrics.step_time == pytest.approx(mean)


@pytest.mark.parametrize(("before", "span"), [("", 20), ("successfully loaded", 1)])
def test_the_only_line_of_a_resumed_training_is_a_single_step(
    tmp_path: Path, before: str, span: int
) -> None:
    path = tmp_path / "x.log"
    loaded = f" {before} checkpoint from /there [ t 1/1, p 1/1 ] at iteration 19\n"
    path.write_text((loaded if before else "") + every(20, 20))
    assert [step.span for step in read_on(path).samples.steps] == [span]


def test_a_missing_line_makes_the_window_of_megatron_incomplete(tmp_path: Path) -> None:
    got = read(tmp_path, every(5, missing=(25,)))
    assert (got.status, got.metrics.step_time) == ("Failed", None)
    (judged,) = judge([got], [])
    assert judged.verdict.word == "INVALID"


def test_a_window_of_few_lines_is_named(tmp_path: Path, wording: Callable[..., None]) -> None:
    got = read(tmp_path, every(20))
    assert (got.status, got.metrics.window, got.metrics.step_time) == ("Success", (21, 40), 40.0)
    wording("parse", got.reason or "")


def test_a_truncated_log_with_an_interval_has_failed(tmp_path: Path) -> None:
    got = read(tmp_path, "".join(every(10).splitlines(keepends=True)[:3]))
    assert (got.status, got.metrics.max_iteration, got.metrics.step_time) == ("Failed", 29, None)


def test_every_step_of_megatron_bridge_keeps_its_tflops(tmp_path: Path) -> None:
    for order in (0, 1, 2):
        got = read(tmp_path, bridge(order), window=Window(1, 50))
        assert got.metrics.mean("tflops_per_gpu") == pytest.approx(
            harmonic_mean([round(1000 / n, 1) for n in range(1, 51)])
        )


def test_outliers_and_ends_are_reported_in_the_numbers_of_the_log(
    tmp_path: Path, wording: Wording
) -> None:
    lines = [megatron(n, 3.0 if n == 20 else 2.0) for n in range(1, 51)]
    got = read(tmp_path, "\n".join(lines) + "\n")
    assert got.metrics.statistics is not None
    assert got.metrics.statistics.outliers == (20,)
    wording("parse", str(read(tmp_path, "\n".join(lines[:30]) + "\n").reason))


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        (
            "\n".join(
                megatron(n, 2.0, flops="throughput per GPU (TFLOP/s/GPU): 300.0 | ")
                for n in range(1, 51)
            ),
            "0.08",
        ),
        (
            "\n".join(
                f"{megatron(n, 2.0)}\n{STEP_TIME.format('2.00', 3943.9)}" for n in range(1, 51)
            ),
            None,
        ),
        (
            "\n".join(
                f"completed step: {n}, seconds: 2.0, TFLOP/s/device: 4100.0, loss: 1"
                for n in range(50)
            ),
            "1.04",
        ),
    ],
)
def test_tflops_that_cannot_be_are_reported_for_every_program(
    tmp_path: Path, workloads: Workloads, log: str, shown: str | None
) -> None:
    name = "log-pretrain_llama3.1_70b_bf16_gpus64_gbs128.out"
    got = read(tmp_path, log + "\n", name, workloads=workloads)
    found = f"the logged TFLOPS are {shown} of the value computed from model, batch and GPUs" in (
        got.reason or ""
    )
    assert found == (shown is not None), got.reason


def test_an_mfu_above_one_is_reported(
    tmp_path: Path, workloads: Workloads, wording: Wording
) -> None:
    log = "\n".join(megatron(n, 2.0) for n in range(1, 51)) + "\n"
    name = "log-pretrain_llama3.1_70b_bf16_gpus64_gbs128.out"
    got = read(tmp_path, log, name, workloads=workloads, gpu_type="h100")
    assert got.metrics.mfu == pytest.approx(128 * 3.94e15 / 2 / 64 / 989e12, rel=1e-2)
    wording("parse", str(got.reason or ""))


def test_names_of_25_12_and_later(workloads: Workloads) -> None:
    found = describe_log(Path(f"/runs/log-{BRIDGE}.out"), read_nothing(), workloads)
    assert (found.workload, found.model_size, found.dtype) == ("pretrain_llama3.1", "70b", "fp8_cs")
    assert (found.scale, found.gbs, found.tp, found.pp, found.vp) == (64, 128, 4, 8, 5)
    for word, dtype in [("fp8_mx", "fp8_mx"), ("nvfp4", "nvfp4"), ("bf16", "bf16"), ("fp8", "fp8")]:
        one = describe_log(
            Path(f"/r/log-pretrain_llama3_8b_{word}_gpus8_tp1.out"), read_nothing(), workloads
        )
        assert (one.workload, one.model_size, one.dtype) == ("pretrain_llama3.1", "8b", dtype)


def read_nothing() -> Any:
    from llmb.contract.samples import Samples

    return Samples()


def test_current_scaling_is_not_the_fp8_of_the_published_figures(
    tmp_path: Path, workloads: Workloads
) -> None:
    log = "\n".join(megatron(n, 2.0) for n in range(1, 51)) + "\n"
    figure = Figure(
        workload="pretrain_llama3.1",
        model_size="70b",
        dtype="fp8",
        gpu_type="h100",
        scale=64,
        gbs=128,
        seq_length=8192,
        num_layers=80,
        value=2.0,
        release="25.05",
        source="a table",
        window=Window(11, 44),
        steps=50,
    )
    scaled = read(tmp_path, log, f"log-{BRIDGE}.out", workloads=workloads, gpu_type="h100")
    # the peak is that of fp8
    assert scaled.metrics.mfu == pytest.approx(128 * 3.94e15 / 2 / 64 / 1979e12, rel=1e-2)
    (judged,) = judge([scaled], [figure])
    assert (judged.verdict.word, judged.verdict.ratio) == (NO_REFERENCE, None)
    assert "bridge" in (judged.verdict.reason or "")  # its lines are not NeMo's
    older = read(
        tmp_path,
        log,
        f"log-{BRIDGE.replace('fp8_cs', 'fp8')}.out",
        workloads=workloads,
        gpu_type="h100",
    )
    (judged,) = judge([older], [figure])
    assert (judged.verdict.word, judged.verdict.ratio) == (NO_REFERENCE, None)
    (judged,) = judge(
        [older], [replace(figure, framework="bridge", dtype="fp8_cs", window=Window(35, 44))]
    )
    assert (judged.verdict.ratio, judged.verdict.same_window) == (1.0, True)


NEMO = "".join(
    f"Training epoch 0, iteration {n}/49 | train_step_timing in s: 2.5 | x: 1\n" for n in range(50)
)


@pytest.mark.parametrize(
    ("files", "profiled"),
    [
        ({}, False),
        ({"nsys_profile/rank0.nsys-rep": ""}, True),
        ({"profile_7001_node0.nsys-rep": ""}, True),
        ({"a_7002.nsys-rep": "", "log-x_7002_0.out": NEMO}, False),
        ({"a_7001.nsys-rep": "", "log-x_7002_0.out": NEMO}, True),
        ({"nsys_profile/a_7002.nsys-rep": "", "log-x_7002_0.out": NEMO}, False),
    ],
)
def test_a_run_with_a_profile_beside_its_log_is_invalid(
    tmp_path: Path, files: dict[str, str], profiled: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (got,) = judge([read(tmp_path, NEMO, "log-x_7001_0.out")], [])
    assert (got.status, got.verdict.word == INVALID) == ("Success", profiled)
    assert any("profiled" in why for why in got.metrics.invalid) == profiled


def test_a_profile_above_the_folder_of_the_log_is_its_runs(
    tmp_path: Path, wording: Wording
) -> None:
    run = tmp_path / "x" / "x_1744408121"
    (run / "x").mkdir(parents=True)
    (run / "x_7001.nsys-rep").touch()
    (why,) = read(run / "x", NEMO, "log-x_7001_0.out").metrics.invalid
    wording("parse", why)
    assert read(tmp_path / "x" / "y", NEMO, "log-x_7001_0.out").metrics.invalid == ()


def test_the_checkpoints_of_megatron_bridge(tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    log = "\n".join(megatron(n, 2.0) for n in range(1, 51))
    log += (
        f"\n  successfully saved checkpoint from iteration      50 to {folder} [ t 1/4, p 1/8 ]\n"
        "(min, max) time across ranks (ms):\n"
        "    save-checkpoint ................................: (24895.07, 24895.13)\n"
    )
    elsewhere = read(tmp_path, log).checkpoints
    assert elsewhere is not None
    assert elsewhere.saved is not None
    saved = elsewhere.saved
    assert (saved.iteration, saved.seconds, saved.files) == (50, 24.89513, 0)
    assert elsewhere.problems == ()
    (folder / "iter_0000050").mkdir(parents=True)
    (folder / "iter_0000050" / "__0_0.distcp").write_bytes(b"x" * 7)
    found = read(tmp_path, log).checkpoints
    assert found is not None
    assert found.saved is not None
    assert (found.saved.folder, found.saved.files, found.saved.bytes) == (
        str(folder / "iter_0000050"),
        1,
        7,
    )
    assert found.problems == ()


@pytest.mark.parametrize("log", ["step 1 took 2.5 s\nstep 2 took 2.5 s\n", "hello\n" * 10])
def test_a_log_of_an_unknown_program_has_not_failed(tmp_path: Path, log: str) -> None:
    got = read(tmp_path, log)
    assert got.status == "Unknown"
    assert (got.reason or "").startswith("unknown format")


@pytest.mark.parametrize(
    "log",
    [
        "",
        "[NeMo I 2025-04-11 14:48:45 nemo_logging:393] building the model\n",
        "hello\ntorch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB\n",
        "hello\nTraceback (most recent call last):\n  File 'x'\nValueError: no\n",
    ],
)
def test_a_log_that_says_what_it_is_of_or_why_it_failed_has_failed(
    tmp_path: Path, log: str
) -> None:
    assert read(tmp_path, log).status == "Failed"


def test_the_steps_of_maxtext(tmp_path: Path, wording: Wording) -> None:
    lines = [
        f"I0601 22:14:54.1 1 metric_logger.py:181] completed step: {n}, seconds:"
        f" {15 + n / 100:.3f}, TFLOP/s/device: 508.371, Tokens/s/device: 1055.949, total_weights:"
        " 4194304, loss: 0.125\n"
        for n in range(50)
    ]
    got = read(tmp_path, "".join(lines))
    assert (got.status, got.metrics.window, got.metrics.steps) == ("Success", (11, 44), 50)
    assert got.metrics.step_time == pytest.approx(15.275)
    assert got.metrics.mean("tflops_per_gpu") == pytest.approx(508.371)
    assert got.metrics.mean("tokens_per_second_per_gpu") == pytest.approx(1055.949)
    assert got.log is not None
    assert got.log.framework == "MaxText"
    wording("parse", str(got.reason or ""))
    failed = read(
        tmp_path, "".join(lines[:20]) + "Traceback (most recent call last):\n  x\nValueError: no\n"
    )
    assert failed.status == "Failed"


TITAN_JOB = (
    "[rank0]:[titan] 2025-11-25 19:44:57,838 - root - INFO - Building device mesh with parallelism:"
    " pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, ep=1\n[rank0]:[titan] 2025-11-25 19:44:58,838 -"
    " root - INFO - Trainer is initialized with local batch size 8, global batch size 64, gradient"
    " accumulation steps 1, sequence length 8192, total steps 50 (warmup 2)\n"
)


def titan(step: int, rate: str) -> str:
    return (
        f"[rank0]:[titan] 2025-11-25 19:45:01,441 - root - INFO - \x1b[31mstep: {step:2} "
        " \x1b[32mloss:  8.0277  \x1b[38;2;180;60;0mgrad_norm:  1.4604  \x1b[36mmemory:"
        f" 42.55GiB(44.79%)  \x1b[34mtps: {rate}  \x1b[36mtflops: 1,412.99  \x1b[35mmfu:"
        " 41.76%\x1b[39m\n"
    )


def test_the_steps_of_torchtitan(tmp_path: Path, wording: Wording) -> None:
    """A line each ten steps, the mean of those since the line before; times follow from tokens,
    batch and GPUs.
    """
    lines = "".join(titan(n, "8,192" if n > 10 else "4,096") for n in (1, 10, 20, 30, 40, 50))
    got = read(tmp_path, TITAN_JOB + lines)
    own = got.metrics
    assert (got.status, own.steps, own.window, own.first_iteration) == ("Success", 50, (11, 40), 1)
    assert got.metrics.mean("tokens_per_second_per_gpu") == 8192
    assert got.metrics.mean("tflops_per_gpu") == pytest.approx(1412.99)
    # no shape is known, but all that makes a time is: see below
    assert got.metrics.step_time is None
    assert got.reason is None
    short = read(tmp_path, TITAN_JOB + "".join(titan(n, "8,192") for n in (1, 10, 20)))
    assert short.status == "Failed"
    wording("parse", str(short.reason))


def test_the_step_time_of_torchtitan_follows_from_its_tokens(
    tmp_path: Path, workloads: Workloads
) -> None:
    lines = "".join(titan(n, "8,192") for n in (1, 10, 20, 30, 40, 50))
    got = read(tmp_path, TITAN_JOB + lines, workloads=workloads)
    assert got.metrics.step_time == pytest.approx(64 * 8192 / 8 / 8192)
    assert (got.metrics.mean("tokens_per_second_per_gpu"), got.log and got.log.framework) == (
        8192,
        "torchtitan",
    )


def test_a_gradient_of_torchtitan_that_is_no_number_is_invalid(tmp_path: Path) -> None:
    line = (
        "step: {:2}  loss: 10.1  grad_norm: {}  memory: 40.0GiB(50.5%)  tps: 6,068"
        "  tflops: 412.99  mfu: 41.76%\n"
    )
    lines = [line.format(n, "1.0042") for n in range(1, 51)]
    assert read(tmp_path, "".join(lines)).metrics.invalid == ()
    lines[19] = line.format(20, "nan")
    assert read(tmp_path, "".join(lines)).metrics.invalid == (GRADIENT_NAN,)


@pytest.mark.parametrize(
    ("step", "last", "invalid"),
    [
        ("{'loss': nan, 'grad_norm': nan, 'epoch': 0.5}", "'train_loss': nan", True),
        # the Trainer replaces such a loss by the mean of the others
        ("{'loss': 2.9, 'grad_norm': nan, 'epoch': 0.5}", "'train_loss': 2.9", True),
        ("{'loss': '2.9', 'grad_norm': 'nan', 'epoch': '0.5'}", "'train_loss': '2.9'", True),
        ("{'loss': 2.9, 'grad_norm': 1.5, 'epoch': 0.5}", "'train_loss': 2.9", False),
        ("{'loss': 2.9, 'epoch': 0.5}", "'train_loss': inf", True),
    ],
)
@pytest.mark.parametrize("good_before", [False, True])
def test_a_training_of_the_trainer_that_is_no_number_is_invalid(
    tmp_path: Path, step: str, last: str, invalid: bool, good_before: bool
) -> None:
    good = "{'loss': 3.1, 'grad_norm': 2.5, 'epoch': 0.1}\n" if good_before else ""
    after = "{'loss': 2.8, 'grad_norm': 1.4, 'epoch': 0.9}\n"
    summary = (
        "{'train_runtime': 135.0, 'train_samples_per_second': 23.7,"
        f" 'train_steps_per_second': 0.3704, {last}}}\n"
    )
    got = read(tmp_path, f"{good}{step}\n{after}{summary}")
    assert got.metrics.step_time == pytest.approx(2.7, rel=1e-3)
    assert bool(got.metrics.invalid) is invalid
    path = tmp_path / "growing.out"
    path.write_text(f"{good}{step}\n")
    _, state = read_on(path)
    path.write_text(f"{good}{step}\n{after}{summary}")
    assert read_on(path, state=state).samples.has_nan_gradient is (
        "'grad_norm': nan" in step or "'grad_norm': 'nan'" in step
    )


def test_a_time_of_the_trainer_in_groups_of_digits_is_not_read(tmp_path: Path) -> None:
    log = (
        "{'train_runtime': '1,110.6', 'train_samples_per_second': 28.93,"
        " 'train_steps_per_second': 1.808, 'train_loss': 1.0, 'epoch': 1.0}\n"
    )
    assert read(tmp_path, log).metrics.step_time is None
    plain = log.replace("'1,110.6'", "'1110.6'")
    assert read(tmp_path, plain).metrics.steps == 2008


@pytest.mark.parametrize(
    "line",
    [
        (
            "{'train_runtime': 110.5948, 'train_samples_per_second': 28.93,"
            " 'train_steps_per_second': 1.808, 'train_loss': 2.85, 'epoch': 3.0}\n"
        ),
        (
            "100%|##| 200/200 [01:50<00:00]\r{'train_runtime': '110.5948',"
            " 'train_samples_per_second': '28.93', 'train_steps_per_second': '1.808', 'train_loss':"
            " '2.85', 'epoch': '3'}\n"
        ),
    ],
)
def test_the_last_line_of_hugging_faces_trainer(
    tmp_path: Path, line: str, wording: Wording
) -> None:
    log = "{'loss': 2.9, 'grad_norm': 1.1, 'learning_rate': 5e-05, 'epoch': 0.1}\n" + line
    got = read(tmp_path, log)
    assert (got.status, got.metrics.steps, got.metrics.window) == ("Success", 200, (0, 199))
    assert got.metrics.step_time == pytest.approx(110.5948 / 200)
    assert got.log is not None
    wording("parse", str(got.log.framework))
    wording("parse", str(got.reason or ""))


def opening_of_trainer(planned: int, resumed: int | None = None) -> str:
    lines = ["***** Running training *****", f"  Total optimization steps = {planned:,}"]
    if resumed is not None:
        lines += ["  Continuing training from epoch 0"]
        lines += [f"  Continuing training from global step {resumed}"]
    return "".join(f"{line}\n" for line in lines)


def summary_of_trainer(runtime: float, steps: int, batch: int = 16) -> str:
    """As the Trainer rounds: ``steps`` are those that it divides by the time."""
    rates = round(batch * steps / runtime, 3), round(steps / runtime, 3)
    return (
        f"{{'train_runtime': {runtime}, 'train_samples_per_second': {rates[0]},"
        f" 'train_steps_per_second': {rates[1]}, 'train_loss': 2.85, 'epoch': 1.0}}\n"
    )


@pytest.mark.parametrize("steps", [28, 30, 31])
@pytest.mark.parametrize(
    "log",
    [
        "{opening}{summary}",
        "100%|##| {steps}/{steps} [06:40<00:00, 4.0s/it]{summary}",
        "{summary}\r100%|##| {steps}/{steps} [06:40<00:00, 4.0s/it]\n",
        "Loading checkpoint shards: 100%|##| 7/7 [00:01<00:00]\n{opening}{summary}",
    ],
)
def test_the_trainers_steps_are_counted_where_its_rate_is_too_coarse(
    tmp_path: Path, log: str, steps: int
) -> None:
    """Of 30 steps in an hour, three decimals of the rate mean 27 to 31."""
    parts = {"opening": opening_of_trainer(steps), "summary": summary_of_trainer(3600.0, steps)}
    got = read(tmp_path, log.format(steps=steps, **parts))
    assert got.metrics.steps == steps
    assert got.metrics.step_time == pytest.approx(3600.0 / steps)
    assert not got.metrics.invalid


@pytest.mark.parametrize("divided", [1000, 100])
def test_a_resumed_training_has_the_steps_since_its_checkpoint(
    tmp_path: Path, divided: int
) -> None:
    """Releases before 5 divide all planned steps by the time since the checkpoint."""
    log = opening_of_trainer(1000, 900) + summary_of_trainer(100.0, divided)
    got = read(tmp_path, log)
    assert (got.metrics.steps, got.metrics.step_time) == (100, 1.0)
    path = tmp_path / "log-x.out"
    assert read_on(path).samples.gbs == 16


def test_the_checkpoint_of_an_attempt_without_an_end_does_not_count(tmp_path: Path) -> None:
    log = opening_of_trainer(1000, 900) + opening_of_trainer(1000) + summary_of_trainer(500.0, 1000)
    assert read(tmp_path, log).metrics.step_time == 0.5


@pytest.mark.parametrize("runtime", [0.5, 1000.0])
def test_a_resumed_training_without_further_steps_has_no_step_time(
    tmp_path: Path, runtime: float
) -> None:
    log = opening_of_trainer(1000, 1000) + summary_of_trainer(runtime, 1000)
    assert read(tmp_path, log).metrics.step_time is None


@pytest.mark.parametrize("planned", ["0", "", "unknown"])
def test_without_planned_steps_the_bar_counts(tmp_path: Path, planned: str) -> None:
    bar = "100%|##| 30/30 [06:40<00:00, 4.0s/it]"
    log = f"  Total optimization steps = {planned}\n{bar}{summary_of_trainer(3600.0, 30)}"
    assert read(tmp_path, log).metrics.step_time == 120.0


def test_a_bar_without_steps_does_not_count(tmp_path: Path) -> None:
    bar = "  0%|  | 0/30 [00:00<?, ?it/s]\n"
    assert read(tmp_path, bar + summary_of_trainer(3600.0, 30)).metrics.invalid


def test_a_bar_that_does_not_fit_the_rate_does_not_count(tmp_path: Path) -> None:
    """The rate of 0.008 means 27 to 31 steps: 40 are of another bar, 29 and 30 leave it open."""
    for totals in ((40,), (29, 30)):
        bars = "".join(f"100%|##| {n}/{n} [06:40<00:00, 4.0s/it]\n" for n in totals)
        assert read(tmp_path, bars + summary_of_trainer(3600.0, 30)).metrics.invalid


def test_each_training_of_a_log_has_the_checkpoint_that_it_loads(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(
        opening_of_trainer(100)
        + summary_of_trainer(200.0, 100)
        + opening_of_trainer(1000, 900)
        + summary_of_trainer(100.0, 1000)
    )
    samples = read_on(path).samples
    assert (samples.attempts, [step.span for step in samples.steps]) == (2, [100])


def test_a_bar_of_a_slower_rank_does_not_count(tmp_path: Path) -> None:
    bars = " 100%|##| 30/30 [06:40<00:00, 4.0s/it]\r 97%|##| 29/30 [06:36<00:04, 4.0s/it]\n"
    assert read(tmp_path, bars + summary_of_trainer(3600.0, 30)).metrics.step_time == 120.0


@pytest.mark.parametrize("rate", ["0.0", "1e30", "1e999"])
def test_a_rate_of_samples_that_cannot_be_gives_no_batch(tmp_path: Path, rate: str) -> None:
    summary = summary_of_trainer(100.0, 100).replace("16.0", rate)
    assert rate in summary
    path = tmp_path / "x.log"
    path.write_text(opening_of_trainer(100) + summary)
    samples = read_on(path).samples
    assert (len(samples.steps), samples.gbs) == (1, None)


def test_a_training_that_stopped_early_has_the_steps_of_its_bar(tmp_path: Path) -> None:
    bar = "  2%|# | 20/1000 [00:40<32:00, 2.0s/it]\n"
    log = opening_of_trainer(1000) + bar + summary_of_trainer(40.0, 1000)
    assert (read(tmp_path, log).metrics.steps, read(tmp_path, log).metrics.step_time) == (20, 2.0)


@pytest.mark.parametrize(("runtime", "invalid"), [(2800.0, False), (3600.0, True), (25e3, True)])
def test_a_rate_that_is_too_coarse_gives_no_verdict(
    tmp_path: Path, runtime: float, invalid: bool
) -> None:
    """Of 300 steps, a rate of 0.107 is within 0.5 %, one of 0.083 is not."""
    got = read(tmp_path, summary_of_trainer(runtime, 300))
    assert bool(got.metrics.invalid) is invalid
    (judged,) = judge([got], [])
    assert (judged.verdict.word == INVALID) is invalid


def test_a_batch_that_rounded_rates_leave_open_is_unknown(tmp_path: Path) -> None:
    """0.133 and 0.008 in a second are 16 samples in a step, or 17."""
    path = tmp_path / "x.log"
    path.write_text(summary_of_trainer(3600.0, 30))
    assert read_on(path).samples.gbs is None
    path.write_text(opening_of_trainer(30) + summary_of_trainer(3600.0, 30))
    assert read_on(path).samples.gbs == 16


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_the_reason_for_a_log_in_utf16_converts_it(tmp_path: Path, encoding: str) -> None:
    log = "".join(f"{megatron(n, 2.0)}\n" for n in range(1, 51)) + "größer\n"
    path = tmp_path / "log-x.out"
    path.write_bytes(log.encode(encoding))
    got = result_of_log(path, LogReader())
    assert (got.status, got.metrics.step_time) == ("Unknown", None)
    command = (got.reason or "").partition("convert it with ")[2].split()
    converted = subprocess.run([*command, path], check=True, capture_output=True).stdout
    assert read(tmp_path, converted.decode()).metrics.step_time == 2.0


def test_a_mark_names_utf16_without_latin_text(tmp_path: Path) -> None:
    path = tmp_path / "log-x.out"
    for mark, encoding in ((codecs.BOM_UTF16_BE, "utf-16-be"), (codecs.BOM_UTF16_LE, "utf-16-le")):
        path.write_bytes(mark + ("\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 100).encode(encoding))
        assert "iconv -f UTF-16 -t" in (result_of_log(path, LogReader()).reason or "")


@pytest.mark.parametrize("data", [b"hello\n", bytes(5000), b"a" + bytes(999), b"", b"\xff"])
def test_other_logs_of_an_unknown_format_are_not_in_utf16(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "log-x.out"
    path.write_bytes(data)
    assert "UTF-16" not in (result_of_log(path, LogReader()).reason or "")
