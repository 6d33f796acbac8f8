# SPDX-License-Identifier: Apache-2.0
"""A log of Megatron-Bridge, made by the format of its source, from its lines to a verdict by
NVIDIA's figure.

The lines are those of training_log in src/megatron/bridge/training/utils/train_utils.py of 0.3.1;
two ranks print them.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]
NAME = "pretrain_llama3.1_70b_fp8_cs_gpus64_tp1_pp1_cp1_mbs2_gbs256_bridge26.02.01"
TOKENS, TFLOPS = 5243, 2353  # of one GB300: 70b, 64 GPUs, FP8, image 26.02.01
STEP = 256 * 8192 / 64 / TOKENS


def write_log(path: Path, slower: float = 1.0) -> Path:
    """50 steps; only those of NVIDIA's window, 35 to 44, have the published time."""
    lines = []
    for number in range(1, 51):
        seconds = STEP * slower * (1 if 35 <= number <= 44 else 2)
        first = (
            f"Step Time : {seconds:.2f}s GPU utilization: {TFLOPS / slower:.1f}MODEL_TFLOP/s/GPU"
        )
        last = (
            f" [2026-11-22 09:41:{number:02d}] iteration {number:8d}/{50:8d} | consumed samples:"
            f" {256 * number:12d} | elapsed time per iteration (ms): {1000 * seconds:.1f} |"
            f" learning rate: 3.000000E-04 | global batch size: {256:5d} | lm loss: 1.187123E+01 |"
            f" loss scale: 1.0 | grad norm: 0.123 | number of skipped iterations: {0:3d} | number"
            f" of nan iterations: {0:3d} |"
        )
        lines += [first, last] if number % 2 else [last, first]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(("slower", "verdict"), [(1.0, "PASS"), (1.03, "WARN"), (1.1, "FAIL")])
def test_a_log_is_judged_by_the_figure_of_its_image(
    slower: float, verdict: str, tmp_path: Path, llmb_here: Command
) -> None:
    log = write_log(tmp_path / f"log-{NAME}.out", slower)
    done = llmb_here("parse", log, "--gpu-type", "gb300", "--format", "json")
    (result,) = json.loads(done.stdout)["results"]
    own = result["configuration"]
    assert (own["framework"], own["release"], own["dtype"], own["gbs"]) == (
        "bridge",
        "26.02.01",
        "fp8_cs",
        256,
    )
    assert result["window"] == [35, 44]
    assert result["tokens_per_second_per_gpu"] == pytest.approx(TOKENS / slower, rel=1e-3)
    assert (result["verdict"], result["same_window"]) == (verdict, True)
    assert result["ratio"] == pytest.approx(1 / slower, rel=1e-3)
    reference = result["reference"]
    assert (reference["release"], reference["metric"], reference["value"]) == (
        "26.02.01",
        "tokens_per_second_per_gpu",
        TOKENS,
    )


def test_a_log_of_nemo_has_another_reference(tmp_path: Path, llmb_here: Command) -> None:
    """The same configuration by NeMo was never published for GB300."""
    step = (
        "Training epoch 0, iteration {}/49 | lr: 0.0003 | train_step_timing in s: 6.25 |"
        " global_batch_size: 256\n"
    )
    log = tmp_path / "log-pretrain_llama3.1_70b_fp8_gpus64_tp1_pp1_cp1_mbs2_gbs256.out"
    log.write_text("".join(step.format(number) for number in range(50)), encoding="utf-8")
    done = llmb_here("parse", log, "--gpu-type", "gb300", "--format", "json")
    (result,) = json.loads(done.stdout)["results"]
    assert (result["configuration"]["framework"], result["verdict"]) == ("nemo", "NO_REFERENCE")


def test_the_log_itself_says_that_megatron_bridge_wrote_it(
    tmp_path: Path, llmb_here: Command
) -> None:
    """Only Megatron-Bridge prints ``Step Time : ...s GPU utilization``; without this line it may be
    Megatron-LM's.
    """
    log = write_log(tmp_path / "L.log")
    done = json.loads(llmb_here("parse", log, "--format", "json").stdout)
    (one,) = done["results"]
    assert (one["framework"], one["window"], one["configuration"]) == ("bridge", [35, 44], None)
    assert one["log"]["framework"] == "Megatron-Bridge"
    assert one["time_mean_seconds"] == pytest.approx(STEP, rel=1e-4)
    other = tmp_path / "M.log"
    lines = log.read_text("utf-8").splitlines(keepends=True)
    other.write_text("".join(line for line in lines if "Step Time" not in line), encoding="utf-8")
    found = {}
    for words in ((), ("--framework", "bridge"), ("--release", "26.02.01"), ("-w", "llama3.1_70b")):
        (one,) = json.loads(llmb_here("parse", other, *words, "--format", "json").stdout)["results"]
        found[words] = (one["framework"], one["window"])
    assert found.pop(()) == (None, [11, 44])
    assert set(map(str, found.values())) == {str(("bridge", [35, 44]))}


@pytest.mark.parametrize(
    ("dtype", "named", "figure"),
    [
        ("fp8_cs", "fp8_cs", 2353),
        ("fp8", "fp8_cs", 2353),
        ("fp8_mx", "fp8_mx", 2157),
        ("mxfp8", "fp8_mx", 2157),
    ],
)
def test_a_description_has_every_dtype(
    dtype: str, named: str, figure: int, tmp_path: Path, llmb_here: Command
) -> None:
    """The figures of 26.02.01: 70b on 64 GB300, FP8 2353 TFLOPS per GPU, MXFP8 2157."""
    words = (
        "-w",
        "llama3.1_70b",
        "--dtype",
        dtype,
        "--scale",
        "64",
        "--gpu-type",
        "gb300",
        "--release",
        "26.02.01",
    )
    done = llmb_here("parse", write_log(tmp_path / "L.log"), *words, "--format", "json")
    (one,) = json.loads(done.stdout)["results"]
    assert (one["configuration"]["dtype"], one["configuration"]["release"], one["framework"]) == (
        named,
        "26.02.01",
        "bridge",
    )
    tokens = {2353: 5243, 2157: 4798}[figure]
    assert (one["reference"]["release"], one["reference"]["value"]) == ("26.02.01", tokens)


@pytest.mark.parametrize(
    "words", [("--framework", "megatron"), ("--framework", "nemo", "--release", "26.08")]
)
def test_a_framework_that_cannot_be(
    words: tuple[str, ...], tmp_path: Path, llmb_here: Command
) -> None:
    assert llmb_here("parse", write_log(tmp_path / "L.log"), *words).returncode == 2


def parsed(llmb_here: Command, log: Path, *options: str) -> Any:
    done = llmb_here("parse", log, "--gpu-type", "gb300", *options, "--format", "json")
    (result,) = json.loads(done.stdout)["results"]
    return result


def test_a_crash_after_the_last_step_is_named(tmp_path: Path, llmb_here: Command) -> None:
    """Its steps are measured all the same."""
    log = write_log(tmp_path / f"log-{NAME}.out")
    text = log.read_text()
    log.write_text(
        f"[rank0]: OSError: [Errno 2] No such file, which is retried\n{text}"
        "saving checkpoint at iteration 50 to /x in torch_dist format\n"
        "[rank3]: Traceback (most recent call last):\n"
        '[rank3]:   File "/opt/train.py", line 7, in <module>\n'
        "[rank3]: OSError: [Errno 28] No space left on device\n"
        "srun: error: node1: task 3: Exited with exit code 1\n"
    )
    result = parsed(llmb_here, log)
    assert (result["status"], result["verdict"]) == ("Success", "PASS")
    assert "after its last step: disk (rank 3): OSError" in result["reason"]
    assert "No space left on device" in result["reason"]
    log.write_text(f"{text}[rank0]:[W] Warning: destroy_process_group() was not called\n")
    assert "after its last step" not in (parsed(llmb_here, log)["reason"] or "")


def test_delayed_scaling_is_not_judged_as_current_scaling(
    tmp_path: Path, llmb_here: Command
) -> None:
    log = write_log(tmp_path / f"log-{NAME.replace('fp8_cs', 'fp8_ds')}.out")
    result = parsed(llmb_here, log)
    assert (result["configuration"]["dtype"], result["verdict"]) == ("fp8_ds", "NO_REFERENCE")
    assert result["mfu"] > 0  # by the peak of fp8


def test_a_release_that_nobody_knows_is_named(tmp_path: Path, llmb_here: Command) -> None:
    log = write_log(tmp_path / f"log-{NAME.removesuffix('_bridge26.02.01')}.out")
    arguments = ("parse", log, "--gpu-type", "gb300", "--release")
    for unknown in ("27.77", "25.05"):  # the latter is NeMo's
        done = llmb_here(*arguments, unknown)
        assert f"--release {unknown} is none that llmb knows" in done.stderr
    for known in ("26.02.01", "25.11"):  # with rows here, and with figures only
        assert "none that llmb knows" not in llmb_here(*arguments, known).stderr


def test_nemotron_35_lightning_has_the_name_of_nvidias_function(
    tmp_path: Path, llmb_here: Command
) -> None:
    name = "pretrain_nemotron_3_5_lightning_fp8_mx_gpus8_tp1_pp1_cp1_vpNone_ep8_mbs2_gbs512"
    result = parsed(llmb_here, write_log(tmp_path / f"log-{name}.out"))
    own = result["configuration"]
    assert (own["workload"], own["model_size"]) == ("pretrain_nemotron3", "lightning")
