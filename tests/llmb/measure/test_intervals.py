# SPDX-License-Identifier: Apache-2.0
"""Lines that measure several steps, and the ends of logs: which of them are figures and verdicts.

The lines are those of training_log of Megatron-LM and Megatron-Bridge, and of NeMo 2's loggers.
"""

import gzip
import json
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.contract.window import Window
from llmb.judge.judge import judge
from llmb.measure.log_result import result_of_log
from llmb.measure.reader import LogReader
from llmb.measure.result import Result

Command = Callable[..., "subprocess.CompletedProcess[str]"]
NAME = "pretrain_llama3.1_70b_fp8_cs_gpus64_tp1_pp1_cp1_mbs2_gbs256_bridge26.02.01"
SECONDS = 256 * 8192 / 64 / 5243  # of a step at the published rate: 5,243 tokens/s/GPU
START = 60.0  # seconds that the first step takes longer


def line(number: int, steps: int, seconds: float, more: str = "") -> str:
    return (
        f" [2026-11-22 09:41:00] iteration {number:8d}/{steps:8d} | consumed samples:"
        f" {256 * number:12d} | elapsed time per iteration (ms): {1000 * seconds:.1f} |{more}"
        f" learning rate: 3.000000E-04 | global batch size: {256:5d} | lm loss: 1.187123E+01 |"
        f" loss scale: 1.0 | grad norm: 0.123 | number of skipped iterations: {0:3d} | number of nan"
        f" iterations: {0:3d} |\n"
    )


def bridge(steps: int, interval: int) -> str:
    """A healthy run at the published rate; its first line has the start in it."""
    means = {
        number: SECONDS + (START / interval if number == interval else 0)
        for number in range(interval, steps + 1, interval)
    }
    return "".join(
        line(number, steps, seconds)
        + f"Step Time : {seconds:.2f}s GPU utilization: {12650 / seconds:.1f}MODEL_TFLOP/s/GPU\n"
        for number, seconds in means.items()
    )


def read(folder: Path, log: str | bytes, window: Window | None = None) -> Result:
    path = folder / "log-x.out"
    path.write_bytes(log.encode() if isinstance(log, str) else log)
    (result,) = judge([result_of_log(path, LogReader(), window)], [])
    return result


@pytest.mark.parametrize(
    ("steps", "interval", "window", "verdict"),
    [
        (50, 1, [35, 44], "PASS"),
        (50, 5, [31, 45], "PASS"),
        (50, 10, [31, 50], "PASS"),
        (100, 20, [61, 100], "PASS"),
        (100, 10, [61, 90], "PASS"),
        (20, 10, [11, 20], None),
        (50, 25, [26, 50], None),
        (150, 100, [1, 100], None),
        (1000, 100, [601, 900], "PASS"),
    ],
)
def test_the_lines_that_overlap_the_window_measure_it(
    steps: int,
    interval: int,
    window: list[int],
    verdict: str | None,
    tmp_path: Path,
    llmb_here: Command,
) -> None:
    log = tmp_path / f"log-{NAME}.out"
    log.write_text(bridge(steps, interval), encoding="utf-8")
    done = llmb_here("parse", log, "--gpu-type", "gb300", "--format", "json")
    (result,) = json.loads(done.stdout)["results"]
    assert (result["status"], result["window"]) == ("Success", window)
    assert result["verdict"] == verdict
    if verdict is None:
        assert "one line" in result["verdict_reason"]
    else:
        assert result["time_mean_seconds"] == pytest.approx(SECONDS, rel=1e-3)


def test_whole_lines_inside_the_window_are_preferred(tmp_path: Path) -> None:
    got = read(tmp_path, bridge(50, 10).replace("Step Time", "x"))
    assert (got.status, got.metrics.window) == ("Success", (11, 40))


NEMO = (
    "Training epoch 0, iteration {}/{} | lr: 7.496e-06 | global_batch_size: 128 | global_step: {} |"
    " reduced_train_loss: 11.96 | train_step_timing in s: {}\n"
)
REACHED = "`Trainer.fit` stopped: `max_steps={}` reached.\n"


def every_tenth(steps: int) -> str:
    """NeMo 2 with log_every_n_steps=10: lines of the iterations 0, 10, 20, ..."""
    return "".join(
        NEMO.format(n, steps - 1, n, 12.5 if n >= 220 else 30.5) for n in range(0, steps, 10)
    )


def test_a_line_of_nemo_every_ten_steps(tmp_path: Path) -> None:
    got = read(tmp_path, every_tenth(1000) + REACHED.format(1000))
    assert (got.status, got.metrics.window) == ("Success", (221, 880))
    assert (got.metrics.step_time, got.metrics.max_iteration) == (12.5, 990)


@pytest.mark.parametrize("end", ["", "`Trainer.fit` stopped: `max_time=00:04:00:00` reached.\n"])
def test_a_log_of_nemo_without_its_end_is_not_complete(end: str, tmp_path: Path) -> None:
    got = read(tmp_path, every_tenth(1000) + end)
    assert got.status == "Failed"
    assert "stopped at iteration 990 of 999" in (got.reason or "")


def test_one_line_of_a_long_run_is_no_success(tmp_path: Path) -> None:
    got = read(tmp_path, line(168000, 311541, 5.5))
    assert (got.status, got.metrics.step_time, got.verdict.word) == ("Failed", None, None)
    assert "stopped at iteration 168000 of 311541" in (got.reason or "")


@pytest.mark.parametrize(
    ("log", "part", "seconds"),
    [
        ("".join(line(n, 50, 2.5 + (n < 11)) for n in range(1, 31)), "11-30", "2.500 s"),
        ("".join(line(n, 311541, 5.5) for n in range(168000, 168041)), "168001-168040", "5.500 s"),
        ("".join(line(n, 90000, 5.5) for n in range(700, 1100, 100)), "701-1000", "5.500 s"),
        ("".join(NEMO.format(n, 49, n, 12.5) for n in range(8)), "1-7", "12.50 s"),
    ],
)
def test_an_incomplete_log_shows_what_its_steps_measured(
    log: str, part: str, seconds: str, tmp_path: Path
) -> None:
    got = read(tmp_path, log)
    assert (got.status, got.metrics.step_time, got.verdict.word) == ("Failed", None, None)
    reason = got.reason or ""
    assert f"partial, without a verdict: step_time {seconds}" in reason
    assert f"(--window {part})" in reason
    first, last = map(int, part.split("-"))
    again = read(tmp_path, log, Window(first, last))
    assert (again.status, again.verdict.word) == ("Failed", None)
    assert again.metrics.step_time == pytest.approx(float(seconds.removesuffix(" s")))


def test_the_partial_figures_of_a_long_log_take_no_time(tmp_path: Path) -> None:
    """Comparing every step with every other one would take minutes."""
    log = "".join(line(n, 100_000, 2.5) for n in range(1, 40_001))
    started = time.process_time()
    got = read(tmp_path, log)
    assert "--window 22000-40000" in (got.reason or "")
    assert time.process_time() - started < 30


@pytest.mark.parametrize(
    ("steps", "window", "is_judged"),
    [(1, "", False), (2, "", False), (2, "1-1", True), (3, "", True), (3, "0-2", True)],
)
def test_a_training_with_no_step_behind_its_first_has_no_verdict(
    steps: int, window: str, *, is_judged: bool, tmp_path: Path, llmb_here: Command
) -> None:
    name = "pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256"
    log = tmp_path / f"log-{name}_1.out"
    lines = [NEMO.format(n, steps - 1, n, 2.7 if n else 21.5) for n in range(steps)]
    text = "".join(lines).replace("size: 128", "size: 256") + REACHED.format(steps)
    log.write_text(text, encoding="utf-8")
    words = ["--window", window] if window else []
    done = llmb_here("parse", log, "--gpu-type", "h100", "--format", "json", *words)
    (result,) = json.loads(done.stdout)["results"]
    assert result["status"] == "Success"
    assert result["verdict"] != "NO_REFERENCE"
    assert (result["verdict"] is not None) == is_judged
    assert is_judged or "which is a warm-up" in result["verdict_reason"]
    shown = llmb_here("parse", log, "--gpu-type", "h100", *words).stdout
    assert ("run 3 steps or more" in shown) != is_judged
    if steps == 1:
        log.write_text(text.replace("loss: 11.96", "loss: nan"), encoding="utf-8")
        assert "INVALID" in llmb_here("parse", log, "--gpu-type", "h100").stdout


def test_a_log_in_gzip_that_is_cut_off_is_unknown_not_a_run_that_stopped(tmp_path: Path) -> None:
    lines = "".join(NEMO.format(n, 49, n, 2.7 + n / 1000) for n in range(50))
    whole = gzip.compress(lines.encode())
    assert read(tmp_path, whole).status == "Success"
    got = read(tmp_path, whole[:-60])
    assert (got.status, got.verdict.word) == ("Unknown", None)
    assert "is cut off or damaged: gzip -t fails" in (got.reason or "")
    stopped = read(tmp_path, gzip.compress(lines[: len(lines) // 2].encode()))
    assert (stopped.status, stopped.reason) != ("Unknown", got.reason)
    assert "stopped at iteration 24 of 49" in (stopped.reason or "")
    # its last line is there, so that nothing is missing
    assert read(tmp_path, whole[:-8]).status == "Success"


def test_lines_for_several_steps_do_not_make_a_run_look_calmer(tmp_path: Path) -> None:
    """By hand: the mean of ten steps deviates by the root of ten less than one of them."""
    rng = random.Random(5)
    times = [2.7 * (1 + 0.02 * rng.gauss(0, 1)) for _ in range(1000)]
    logs = [
        "".join(line(n, 1000, sum(times[n - every : n]) / every) for n in range(every, 1001, every))
        for every in (1, 10)
    ]
    each, tenth = (read(tmp_path, log).metrics.statistics for log in logs)
    assert each is not None
    assert tenth is not None
    assert (each.count, tenth.count) == (661, 66)
    assert each.deviation == pytest.approx(0.02, rel=0.1)
    assert tenth.deviation == pytest.approx(each.deviation, rel=0.2)


def test_parse_warns_of_a_copy_of_a_log(tmp_path: Path, llmb_here: Command) -> None:
    """In one night. Another run, a failed one, and the same file in another night are no copies."""
    text = "".join(NEMO.format(n, 49, n, 2.7 + n / 1000) for n in range(50)) + REACHED.format(50)
    other = text.replace("2.71\n", "2.72\n")
    assert len(other) == len(text)
    stopped = text[: len(text) // 2]
    name, failed = "log-x_1234.out", "log-y_1235.out"
    for folder, content in (("a", text), ("a/backup", text), ("a/other", other), ("b", text)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(content)
        (tmp_path / folder / failed).write_text(stopped)
    for folders in (["a"], ["a", "b"]):
        done = llmb_here("parse", *(tmp_path / folder for folder in folders))
        assert done.stderr.count("a copy is no repeat") == 1
    assert "a copy is no repeat" not in llmb_here("parse", tmp_path / "a" / "other").stderr
