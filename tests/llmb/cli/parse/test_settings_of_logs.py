# SPDX-License-Identifier: Apache-2.0
"""Tests of what a log without a record is of: its parameters by name and by `--set`, and what
nothing says.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
Wording = Callable[..., None]
# The lines of NCCL 2.27 on one node (net_ib.cc, nvls.cc, init.cc), without which no fabric is known.
NCCL = "".join(
    f"node000:901:950 [0] NCCL INFO {line}\n"
    for line in (
        "Using network IB",
        "NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 24)",
        "comm 0x55f0 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0",
    )
)
LARGE = "microbench_all_reduce_fp32_gpus8_message_size8G"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / LARGE / f"log-{LARGE}.out"
    path.parent.mkdir()
    path.write_text(
        NCCL
        + "".join(
            f"llmb step {i}/19 busbw={478 + i % 2} algbw=273 latency=31000\n" for i in range(20)
        )
    )
    return path


def rows(done: Any) -> list[dict[str, Any]]:
    return list(json.loads(done.stdout)["results"])


def test_a_microbenchmark_has_the_parameters_of_its_case_and_a_verdict(
    log: Path, llmb_here: Run
) -> None:
    """480 GB/s is published for 8 H100s and messages of 8G."""
    done = llmb_here("parse", log, "--gpu-type", "h100", "--format", "json")
    (row,) = rows(done)
    assert (row["window"], row["same_window"]) == ([4, 18], True)
    assert row["configuration"]["parameters"] == {"message_size": "8G"}
    assert (row["verdict"], row["ratio"]) == ("PASS", pytest.approx(478.5 / 480, abs=1e-3))
    assert row["not_said"] == []


@pytest.mark.parametrize("folders", [("log-x.out",), ("bench", "log-x.out")])
def test_nothing_is_assumed(
    folders: tuple[str, ...], log: Path, tmp_path: Path, llmb_here: Run, wording: Wording
) -> None:
    path = tmp_path.joinpath("away", *folders)
    path.parent.mkdir(parents=True)
    shutil.move(log, path)
    words = (
        "parse",
        path,
        "-w",
        "microbench_all_reduce",
        "--dtype",
        "fp32",
        "--scale",
        8,
        "--gpu-type",
        "h100",
    )
    (row,) = rows(llmb_here(*words, "--format", "json"))
    assert (row["verdict"], row["configuration"], row["not_said"]) == (
        "NO_REFERENCE",
        None,
        ["message_size"],
    )
    wording("parse", llmb_here(*words).stderr)
    (row,) = rows(llmb_here(*words, "--set", "message_size=8G", "--format", "json"))
    assert (row["verdict"], row["configuration"]["parameters"], row["not_said"]) == (
        "PASS",
        {"message_size": "8G"},
        [],
    )
    (row,) = rows(llmb_here("parse", path, "-w", "microbench_launch", "--format", "json"))
    assert row["not_said"] == ["dtype", "scale", "gpu_type"]  # no parameter, and no global batch


def test_without_the_fabric_there_is_no_ratio(log: Path, llmb_here: Run) -> None:
    log.write_text(log.read_text().removeprefix(NCCL))
    (row,) = rows(llmb_here("parse", log, "--gpu-type", "h100", "--format", "json"))
    assert (row["verdict"], row["ratio"]) == ("NO_REFERENCE", None)
    assert "NCCL's transport" in row["reason"]


def test_set_overrides_a_name_and_says_so(log: Path, llmb_here: Run, wording: Wording) -> None:
    done = llmb_here(
        "parse", log, "--gpu-type", "h100", "--set", "message_size=1G", "--format", "json"
    )
    assert rows(done)[0]["configuration"]["parameters"] == {"message_size": "1G"}
    wording("parse", done.stderr)


@pytest.mark.parametrize(
    "words",
    [
        ("--set", "message_size=9G"),
        ("--set", "mesage_size=8G"),
        ("--set", "file_size=4M"),
        ("--set", "tp=2", "--gbs", 4),
        ("--set", "max_steps=20"),
        ("--set", "message_size"),
    ],
)
def test_settings_that_the_case_does_not_have(
    words: tuple[object, ...], log: Path, llmb_here: Run, wording: Wording
) -> None:
    done = llmb_here("parse", log, "-w", "microbench_all_reduce", *words)
    assert (done.returncode, done.stdout) == (2, "")
    wording("parse", done.stderr)


def test_settings_of_training(tmp_path: Path, llmb_here: Run) -> None:
    path = tmp_path / "log-x.out"
    path.write_text("".join(f"iteration {i}/49 | train_step_timing in s: 2 |\n" for i in range(50)))
    words = (
        "parse",
        path,
        "-w",
        "nemotron4_15b",
        "--dtype",
        "bf16",
        "--scale",
        16,
        "--gpu-type",
        "h100",
    )
    (row,) = rows(
        llmb_here(
            *words, "--set", "tp=4", "--set", "mbs=1", "--set", "num_layers=8", "--format", "json"
        )
    )
    own = row["configuration"]
    assert {name: own[name] for name in ("tp", "mbs", "num_layers", "ep", "etp")} == {
        **{"tp": 4, "mbs": 1, "num_layers": 8},
        **{"ep": 1, "etp": 1},
    }
    assert llmb_here(*words, "--gbs", 64, "--set", "gbs=32").returncode == 2


def test_hints_name_only_what_the_case_takes(
    log: Path, cluster: Callable[..., Path], llmb_here: Run, wording: Wording
) -> None:
    install = cluster("local", "cpu", workloads={"installed": ["microbench"]})
    for word in ("tp=2", "msg=1", "mesage_size=1M"):
        words = (
            "single",
            "-w",
            "microbench",
            "-s",
            "all_reduce",
            "--scale",
            2,
            "--install",
            install,
            "-d",
        )
        done = llmb_here(*words, "--set", word)
        assert done.returncode == 2
        wording("single", done.stderr)


def megatron_log(length: int | None, first: int = 1, every: int = 1) -> str:
    """A log of Megatron-LM. It begins with all arguments, in two columns (``print_args``)."""
    arguments = {"decoder_seq_length": None, "seq_length": length, "world_size": 8}
    dump = "".join(
        f"  {name} {'.' * (48 - len(name))} {value}\n"
        for name, value in arguments.items()
        if length is not None
    )
    steps = (
        f" iteration {step:8}/      50 | consumed samples: {128 * step:12} | elapsed time per"
        " iteration (ms): 8000.0 | learning rate: 3.0E-04 | global batch size:   128 | lm loss:"
        " 1.19E+01 | number of skipped iterations:   0 |\n"
        for step in range(first, 51, every)
    )
    return f"using world size: 8, data-parallel size: 8\n{dump}{''.join(steps)}"


@pytest.mark.parametrize("words", [[], ["--set", "seq_length=4096"]])
def test_the_sequence_of_a_log_is_not_assumed(
    words: list[str], tmp_path: Path, llmb_here: Run
) -> None:
    def of(length: int | None, *more: str) -> Any:
        path = tmp_path / "megatron.log"
        path.write_text(megatron_log(length))
        case = ("parse", path, "-w", "llama3.1_8b", "--dtype", "fp8_cs", "--gpu-type", "h100")
        (row,) = rows(llmb_here(*case, *more, "--format", "json"))
        return row

    short, long = of(None if words else 4096, *words), of(8192)
    assert (short["verdict"], long["verdict"]) == ("NO_REFERENCE", "SUSPICIOUS")
    assert short["tokens_per_second"] == pytest.approx(128 * 4096 / 8)
    assert long["tokens_per_second"] == pytest.approx(128 * 8192 / 8)
    # the operations of attention grow with the square of the sequence, all others in proportion
    assert 2 < long["model_flops"] / short["model_flops"] < 4


def test_a_log_without_the_window_names_the_steps_that_it_has(
    tmp_path: Path, llmb_here: Run
) -> None:
    path = tmp_path / "resumed.log"
    path.write_text(megatron_log(8192, first=31))
    case = ("parse", path, "-w", "llama3.1_8b", "--dtype", "fp8_cs", "--gpu-type", "h100")
    (row,) = rows(llmb_here(*case, "--window", "11-44", "--format", "json"))
    assert row["reason"].startswith(
        "the log lacks iterations of the window 11-44; it has 31 to 50 (--window 31-50)"
    )
    (row,) = rows(llmb_here(*case, "--window", "31-50", "--format", "json"))
    assert row["time_mean_seconds"] == 8
    (row,) = rows(llmb_here(*case, "--window", "40-60", "--format", "json"))
    assert "it has 31 to 50" in row["reason"]
    path.write_text(megatron_log(8192, first=40, every=5))  # the mean of five steps in each line
    (row,) = rows(llmb_here(*case, "--window", "11-44", "--format", "json"))
    assert "it has 36 to 50" in row["reason"]


def test_a_misspelt_sequence_is_suggested(tmp_path: Path, llmb_here: Run) -> None:
    path = tmp_path / "log-x.out"
    path.write_text(megatron_log(None))
    case = ("parse", path, "-w", "llama3.1_8b", "--dtype", "bf16", "--gpu-type", "h100")
    done = llmb_here(*case, "--set", "seq_lenght=4096")
    assert done.returncode == 2
    assert "did you mean 'seq_length'?" in done.stderr
