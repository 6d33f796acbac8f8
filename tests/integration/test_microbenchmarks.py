# SPDX-License-Identifier: Apache-2.0
"""The microbenchmarks on this machine, with real torch and gloo: results, verdicts, comparison,
scaling, report.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import llmb_microbench
from llmb_testing.plugin_writer import copy_plugin

# torch may be installed first
pytestmark = [pytest.mark.slow, pytest.mark.local_install, pytest.mark.timeout(1800)]

PACKAGE = Path(llmb_microbench.__file__).parent
PAGE = Path(__file__).resolve().parents[2] / "docs" / "microbench.md"
MORE = """\
mybench_all_to_all: {scales: [2], dtypes: [bf16], defaults: {params: {message_size: 64K, max_steps: 9}}}
mybench_launch: {scales: [1], dtypes: [fp32], defaults: {params: {max_steps: 9}}}
mybench_storage: {scales: [2], dtypes: [fp32], defaults: {params: {file_size: 4M, max_steps: 9}}}
"""
TABLE = """\
  - {{release: "1", source: "this test", window: 2-8, steps: 9, size: {size}, dtype: fp32, gpu: cpu,
     parameters: {parameters}, metric: {metric}, values: {{1: {value}}}}}
"""


class Bench:
    """A copy of the plugin with the key mybench, whose published figures the test writes, in an
    install directory.
    """

    def __init__(self, machine: Any, folder: Path) -> None:
        self.machine, self.folder = machine, folder
        copy_plugin(PACKAGE, folder, "mybench", "tables: []\n")
        path = machine.install / "cluster_config.yaml"
        config = yaml.safe_load(path.read_text())
        venv = next(iter(config["workloads"]["config"].values()))["venv_path"]
        config["workloads"]["config"] = {"mybench": {"venv_path": venv}}
        config["workloads"]["installed"] = ["mybench"]
        path.write_text(yaml.safe_dump(config))

    def publish(self, *tables: dict[str, object]) -> None:
        """Write the published figures."""
        text = "tables:\n" + "".join(TABLE.format(**table) for table in tables)
        (self.folder / "mybench" / "published.yaml").write_text(text)

    def __call__(self, *arguments: object, code: int = 0) -> Any:
        """The JSON, or else the text, that llmb-run prints."""
        words = (*arguments, "--install", self.machine.install)
        done = self.machine.run(
            *words, LLMB_STATE_DIR=str(self.machine.state), PYTHONPATH=str(self.folder)
        )
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if "json" in arguments else done.stdout


@pytest.fixture
def bench(torch_machine: Any, tmp_path: Path) -> Bench:
    return Bench(torch_machine, tmp_path / "plugins")


def test_a_list_becomes_results_verdicts_a_comparison_and_a_report(
    bench: Bench, tmp_path: Path
) -> None:
    jobs = tmp_path / "jobs.yaml"
    (documented,) = re.findall(r"```yaml\n# sweep.yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    jobs.write_text(documented.replace("microbench_", "mybench_") + MORE)
    results = bench("submit-all", jobs, "--wait", "--format", "json")["results"]
    by_name = {one["experiment"].removeprefix("mybench_"): one for one in results}
    assert len(by_name) == len(results) == 8
    for one in results:
        assert (one["status"], one["steps"], one["log"]["device"]) == ("Success", 9, "CPU"), one
        assert {
            one[name] for name in ("time_mean_seconds", "tokens_per_second", "mfu", "model_flops")
        } == {None}
        assert all(metric["mean"] > 0 and metric["n"] == 7 for metric in one["metrics"].values())
    _check_collectives(by_name)
    mean = {name: one["metrics"][one["headline"]]["mean"] for name, one in by_name.items()}

    gemm, launch = mean["gemm_fp32_gpus1_matrix_size256_steps9"], mean["launch_fp32_gpus1_steps9"]
    bench.publish(
        {
            "size": "gemm",
            "parameters": "{matrix_size: 256}",
            "metric": "tflops",
            "value": 10 * gemm,
        },
        {"size": "launch", "parameters": "{}", "metric": "launch_latency", "value": launch},
    )
    judged = {
        one["experiment"]: one for one in bench("results", "--format", "json", code=3)["results"]
    }
    ratios = {name: one["ratio"] for name, one in judged.items() if one["ratio"] is not None}
    gemm_name, launch_name = (
        "mybench_gemm_fp32_gpus1_matrix_size256_steps9",
        "mybench_launch_fp32_gpus1_steps9",
    )
    assert ratios == {gemm_name: pytest.approx(0.1), launch_name: pytest.approx(1.0)}
    assert judged[gemm_name]["verdict"] == "FAIL"
    # steps of a busy machine may differ so much that one run decides nothing
    low, high = judged[launch_name]["ratio_interval"]
    is_open = low < 0.95 and high > 0.98
    assert judged[launch_name]["verdict"] == ("INCONCLUSIVE" if is_open else "PASS")
    rows = bench("compare", "--scaling", "--format", "json")
    assert [(row["size"], row["metric"], row["scale"]) for row in rows] == [
        ("gemm", "tflops", n) for n in (1, 2, 4)
    ]
    measured = [mean[f"gemm_fp32_gpus{n}_matrix_size256_steps9"] for n in (1, 2, 4)]
    assert [row["value"] for row in rows] == pytest.approx(measured)
    assert [row["relative"] for row in rows] == pytest.approx([one / gemm for one in measured])
    report = tmp_path / "report.html"
    bench("report", "-o", report, code=3)  # a verdict is FAIL
    page = report.read_text()
    assert all(word in page for word in ("GB/s", "TFLOPS/GPU", "mybench all_to_all"))


def _check_collectives(by_name: dict[str, Any]) -> None:
    """Busbw, algbw and latency of a run fit together, by nccl-tests' formulas."""
    factors = {"all_reduce_fp32_gpus2": 1.0, "all_to_all_bf16_gpus2": 0.5}
    for name, factor in factors.items():
        metrics = by_name[f"{name}_message_size64K_steps9"]["metrics"]
        assert metrics["busbw"]["mean"] == pytest.approx(
            factor * metrics["algbw"]["mean"], rel=1e-4
        )
        line = _last_line(by_name[f"{name}_message_size64K_steps9"])
        assert line["algbw"] * 1e9 * line["latency"] * 1e-6 == pytest.approx(65536, rel=1e-4)


def _last_line(result: dict[str, Any]) -> dict[str, float]:
    words = Path(result["path"]).read_text().splitlines()[-1].split()[3:]
    return {name: float(value) for name, value in (word.split("=") for word in words)}


def test_runs_are_compared_with_an_accepted_baseline(bench: Bench) -> None:
    run = (
        "single",
        "-w",
        "mybench",
        "-s",
        "memory",
        "--scale",
        1,
        "--set",
        "buffer_size=1M",
        "--max-steps",
        5,
    )
    bench(*run, "--wait")
    bench("baseline", "accept", "first")
    (result,) = bench("results", "--format", "json")["results"]
    against = ("compare", result["run"], "--baseline", "first", "--format", "json")
    (row,) = bench(*against)["comparisons"]
    # with itself
    assert (row["metric"], row["ratio"], row["same_window"]) == (
        "copy_bw",
        pytest.approx(1.0),
        True,
    )


CHECK = """\
import sys
import torch
from llmb_microbench.program import collectives, device, formulas
from llmb_microbench.program.ranks import TorchRanks, WrongResultError
from llmb_microbench.program.settings import RankProcess, CaseSettings
from torch.utils.flop_counter import FlopCounterMode

ranks = TorchRanks(RankProcess())
case = device.gemm(CaseSettings(case="gemm", dtype="fp32", steps=1, sizes={"matrix_size": 128}), ranks)
with FlopCounterMode(display=False) as counter:
    case.operations[0]()
assert case.values(1.0)["tflops"] * 1e12 == counter.get_total_flops(), "not the FLOPs that torch counts"
assert case.check()

real = torch.mm
torch.mm = lambda a, b, out: real(a, b, out=out).mul_(1.01)
assert not case.check(), "a wrong product is not noticed"
try:
    ranks.require(False, "gemm")
except WrongResultError:
    pass
else:
    sys.exit("no error")
print("checked")
"""
WRONG = """\
import runpy, sys
import torch.distributed as dist
real = dist.all_reduce

def wrong(tensor, *arguments, **options):
    result = real(tensor, *arguments, **options)
    if tensor.dim() == 1 and len(tensor) > 100 and dist.get_rank() == 1:
        tensor[-1] += 1  # one number on one rank
    return result

dist.all_reduce = wrong
sys.argv = ["program", "--case=all_reduce", "--dtype=bf16", "--steps=2", "--message_size=4K"]
runpy.run_module("llmb_microbench.program", run_name="__main__")
"""


@pytest.fixture
def python(
    torch_install: Path, tmp_path: Path
) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs a text with the Python that has torch, and the program staged as on a node."""
    shutil.copytree(PACKAGE / "program", tmp_path / "llmb_microbench" / "program")
    (tmp_path / "llmb_microbench" / "__init__.py").touch()
    folder = torch_install / "venvs" / "torch" / "bin"
    environment = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}

    def run(text: str, *launcher: str) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "text.py").write_text(text)
        argv = [str(folder / (launcher[0] if launcher else "python")), *launcher[1:], "text.py"]
        environment["PYTHONPATH"] = str(tmp_path)
        return subprocess.run(
            argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return run


def test_the_product_has_the_flops_that_torch_counts_and_a_wrong_one_is_noticed(
    python: Callable[..., Any],
) -> None:
    done = python(CHECK)
    assert done.stdout == "checked\n", done.stderr


def test_a_wrong_sum_fails_the_run_on_every_rank(python: Callable[..., Any]) -> None:
    done = python(WRONG, "torchrun", "--standalone", "--nproc-per-node=2")
    assert done.returncode != 0
    assert "WrongResultError" in done.stderr
    assert "llmb step" not in done.stdout
