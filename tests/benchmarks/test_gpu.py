# SPDX-License-Identifier: Apache-2.0
"""`make gpu` on a machine without a GPU: its limits, its parts on the CPU, a fake NVML, its page."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from llmb.contract.flops import model_flops
from llmb.contract.model import ModelShape
from llmb_testing import nvml
from llmb_testing.nvml import Change

ROOT = Path(__file__).resolve().parents[2]
MOST_FILES, MOST_BYTES = 8, 16 << 20

#: A torch that only says that there is no GPU: the limits need no more.
TORCH = "class cuda:\n    is_available = staticmethod(bool)\n    device_count = staticmethod(int)\n"
TORCH += "class version:\n    cuda = None\n__version__ = '0'\n"
PARTS = {
    "hangs": """\
import subprocess, sys, time
def run(context):
    # a process that no longer belongs to the part's session, as the queue of the local cluster
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    context.record("child", child.pid, f"child {child.pid}")
    time.sleep(600)
""",
    "raises": """\
def run(context):
    context.record("measured", 1, "measured 1")
    raise ValueError("nothing works")
""",
    "keeps": """\
import os
def run(context, *words):
    (context.kept / "folder").mkdir()
    (context.kept / "folder" / "large").write_bytes(os.urandom(17 << 20))
    (context.kept / "small").write_text("small")
    context.record("kept", True, "kept two files")
""",
    "lacks": """\
from gpu.context import CannotRunError
def run(context):
    raise CannotRunError("this machine has no oven")
""",
}

Gpu = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def gpu(tmp_path: Path) -> Gpu:
    """Runs `python -m gpu`, with the results in tmp_path/out."""

    def run(
        *words: str,
        variables: Mapping[str, str] | None = None,
        folders: str = "",
        python: Path | str = sys.executable,
    ) -> "subprocess.CompletedProcess[str]":
        argv = [str(python), "-m", "gpu", "--out", str(tmp_path / "out"), *words]
        path = os.pathsep.join(filter(None, [str(ROOT / "benchmarks"), folders]))
        environment = {**os.environ, "PYTHONPATH": path, **(variables or {})}
        return subprocess.run(
            argv, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return run


def results(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return data


def test_a_part_that_hangs_raises_or_keeps_too_much_stops_no_other(
    gpu: Gpu, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "torch.py").write_text(TORCH)
    for name, text in PARTS.items():
        (own / f"{name}.py").write_text(text)
    words = [f"{name}={name}:{4 if name == 'hangs' else 60}" for name in PARTS]
    done = gpu(*words, folders=str(own))
    assert (done.returncode, done.stderr) == (1, "")

    parts = results(tmp_path / "out")["parts"]
    states = {name: part["state"] for name, part in parts.items()}
    assert states == {
        "hangs": "timed out",
        "raises": "failed",
        "keeps": "done",
        "lacks": "not run",
    }
    # What a part recorded before its end is in the results, and nothing of it still runs.
    assert parts["raises"]["figures"]["measured"] == 1
    assert parts["raises"]["reason"].endswith("ValueError: nothing works")
    assert parts["lacks"]["reason"] == "this machine has no oven"
    assert not psutil.pid_exists(parts["hangs"]["figures"]["child"])
    assert parts["keeps"]["omitted"] == {"folder/large": 17 << 20}
    with tarfile.open(tmp_path / "out" / "keeps.tar.gz") as tar:
        assert sorted(tar.getnames()) == ["output.txt", "small"]
    sizes = [path.stat().st_size for path in (tmp_path / "out").iterdir()]
    assert len(sizes) == 1 + len(PARTS) <= MOST_FILES
    assert max(sizes) <= MOST_BYTES

    _, summary = done.stdout.split("\nSummary, ")
    lines = summary.splitlines()
    assert [line.split(":")[0] for line in lines[1:] if not line.startswith(" ")] == [
        *PARTS,
        "Results",
    ]
    assert "  measured 1" in lines
    assert f"  not kept: folder/large, too large ({17 << 20:,} bytes)" in lines


def test_each_part_has_a_limit_of_nine_minutes_at_most(tmp_path: Path) -> None:
    code = (
        "from gpu.catalogue import ALL, DEFAULT\n"
        "from gpu.runner import MOST_PARTS\n"
        "import json; print(json.dumps([[part.limit for part in ALL.values()], len(DEFAULT), MOST_PARTS]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "benchmarks")}
    argv = [sys.executable, "-c", code]
    out = subprocess.check_output(argv, env=environment, cwd=tmp_path, text=True)
    limits, parts, most_parts = json.loads(out)
    assert max(limits) <= 9 * 60
    assert 1 + parts <= 1 + most_parts <= MOST_FILES


def test_an_unknown_part_and_a_python_without_torch_are_named(gpu: Gpu) -> None:
    assert "'fact' is no part; choose from facts, load" in gpu("fact").stderr
    done = gpu("facts")
    assert (done.returncode, done.stderr.split(";")[0]) == (
        2,
        f"error: {sys.executable} has no torch",
    )


@pytest.mark.slow
@pytest.mark.local_install
@pytest.mark.skipif(not nvml.has_compiler(), reason="needs a C compiler")
def test_the_facts_of_a_pretended_h200_have_return_codes_and_those_of_the_bindings(
    gpu: Gpu, torch_install: Path, tmp_path: Path
) -> None:
    library = nvml.build(tmp_path / "lib")
    changes = [
        Change(key="gpus", value=1),
        Change(key="applications_clock", value=1830),
        Change(key="power_limit", value=600000),
        Change(key="nvmlDeviceGetTotalEccErrors", value=0),
    ]
    variables = nvml.environment(library, tmp_path / "script", changes)
    torch = torch_install / "venvs" / "torch" / "bin" / "python"
    done = gpu("facts", "--torch", str(torch), variables={**variables, "NVML_NAME": "NVIDIA H200"})
    assert done.returncode == 0, done.stdout + done.stderr

    data = results(tmp_path / "out")
    figures = data["parts"]["facts"]["figures"]
    assert data["machine"]["driver"] == "570.86.15"
    assert figures["size"] == "CPU, small"
    assert '"gpu": "NVIDIA H200"' in figures["idle"]["node_line"]
    assert '"power_limit_w": 600.0' in figures["idle"]["node_line"]
    clocks = {"ApplicationsClock": 1830, "ClockInfo": 1980, "MaxClockInfo": 1980}
    assert (figures["clocks idle"], figures["clocks under load"]) == (clocks, clocks)
    # NVML_ERROR_NOT_SUPPORTED, and a function that this library does not have.
    failed = figures["failed_calls"]
    assert failed["nvmlDeviceGetTotalEccErrors[1, 0]"] == 3
    assert failed["nvmlDeviceGetComputeMode"] == "no such function"
    assert figures["differences"] == []
    theirs = {row["function"]: row["theirs"] for row in figures["load"]["sampled"]}
    assert theirs["nvmlDeviceGetPowerUsage"] == 650000
    assert theirs["nvmlDeviceGetTotalEccErrors"] == "Not Supported"


@pytest.mark.slow
@pytest.mark.local_install
@pytest.mark.timeout(600)
def test_quick_parts_run_on_the_cpu_in_the_flow_of_a_user(
    gpu: Gpu, torch_install: Path, tmp_path: Path
) -> None:
    # As on a machine with a GPU: one Python has torch and what llmb requires, and no llmb.
    torch = torch_install / "venvs" / "torch" / "bin" / "python"
    done = gpu(
        "facts", "launch", "megatron", python=torch, folders=str(Path(yaml.__file__).parents[1])
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parts = results(tmp_path / "out")["parts"]
    assert {part["figures"].get("size", "CPU, small") for part in parts.values()} == {"CPU, small"}
    launch = parts["launch"]["figures"]["launch_fp32_gpus1_steps5"]
    assert (launch["status"], launch["verdict"]) == ("Success", "NO_REFERENCE")
    assert launch["metrics"]["launch_latency"]["mean"] > 0
    assert parts["megatron"]["state"] == "not run"
    assert "megatron-core is not importable" in done.stdout
    with tarfile.open(tmp_path / "out" / "launch.tar.gz") as tar:
        commands = tar.extractfile("commands.txt")
        assert commands is not None
        text = commands.read().decode()
    called = [line.split()[:3] for line in text.splitlines() if line.startswith("$ ")]
    assert [words[1:] for words in called] == [
        ["llmb-install", "--config"],
        ["llmb-run", "submit"],
        ["llmb-run", "results"],
        ["llmb-run", "list"],
        ["llmb-run", "report"],
    ]


#: The size 1b, as the torch program gets it.
SHAPE = ("architecture", "layers", "hidden", "ffn", "heads", "kv_groups", "vocab", "seq_length")
RECIPE: dict[str, Any] = {
    "program": "torch_pretrain",
    "model": {
        "architecture": "llama",
        "layers": 16,
        "hidden": 2048,
        "ffn": 8192,
        "heads": 32,
        "kv_groups": 8,
        "head_dim": None,
        "vocab": 128256,
        "seq_length": 4096,
        "pattern": None,
        "mamba": None,
    },
    "parallelism": {"tp": 1, "pp": 1, "cp": 1, "vp": None},
    "dtype": "bf16",
    "micro_batch": 1,
    "global_batch": 1,
    "max_steps": 5,
    "learning_rate": 3e-4,
    "seed": 1,
    "model_flops": None,
    "checkpoint": None,
    "profile": None,
}


@pytest.mark.slow
@pytest.mark.local_install
def test_torch_counts_the_flops_of_the_trained_shape_as_llmb_computes_them(
    torch_install: Path, tmp_path: Path
) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps(RECIPE))
    torch = torch_install / "venvs" / "torch" / "bin" / "python"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'benchmarks'}:{ROOT / 'workloads'}"}
    argv = [str(torch), "-m", "gpu.flops", "recipe.json"]
    out = subprocess.check_output(argv, env=environment, cwd=tmp_path, text=True)
    shape = ModelShape(**{key: RECIPE["model"][key] for key in SHAPE}, gated=True)
    assert json.loads(out)["flops"] == model_flops(shape)


GPU_RESULTS: dict[str, Any] = {
    "machine": {
        "gpu": "NVIDIA H200",
        "gpus": 1,
        "driver": "580.1",
        "torch": "2.11.0",
        "cuda": "13.0",
        "cpus": 16,
        "kernel": "6.18",
        "python": "3.12.3",
        "date": "2030-01-02",
    },
    "parts": {
        "load": {
            "state": "timed out",
            "seconds": 300.4,
            "reason": "stopped at its limit of 300 s",
            "figures": {},
            "lines": ["8192 x 8192 products: 700 TFLOPS over 90 s"],
            "omitted": {"trace": 20000000},
        }
    },
}


def test_the_page_is_written_from_the_results_of_a_gpu(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "gpu.py").write_bytes((ROOT / "docs" / "gpu.py").read_bytes())
    (docs / "gpu.json").write_text("[]")
    (tmp_path / "results.json").write_text(json.dumps(GPU_RESULTS))

    def write(*words: object) -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, str(docs / "gpu.py"), *map(str, words)]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    assert write().returncode == 0
    assert "no machine with a GPU was at hand" in (docs / "gpu.md").read_text()
    assert write(tmp_path).returncode == 0
    page = (docs / "gpu.md").read_text()
    assert "no machine with a GPU was at hand" not in page
    assert "## NVIDIA H200, 2030-01-02" in page
    for line in (
        "`load` (timed out, 300 s):",
        "8192 x 8192 products: 700 TFLOPS over 90 s",
        "stopped at its limit of 300 s",
        "not kept: trace (20,000,000 bytes)",
        "Not run there: `facts`, `microbench`, `train`, `failures`, `profile`, `megatron`.",
    ):
        assert line in page.splitlines()
    assert write("--check").returncode == 0

    cpu = GPU_RESULTS["machine"] | {"gpu": None}
    (tmp_path / "results.json").write_text(json.dumps({**GPU_RESULTS, "machine": cpu}))
    refused = write(tmp_path)
    assert (refused.returncode, "is from a CPU" in refused.stderr) == (2, True)
