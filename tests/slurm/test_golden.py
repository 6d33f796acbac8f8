# SPDX-License-Identifier: Apache-2.0
"""The whole script of each workload in a container and without, and of its tiny size, as golden/
has it. No Slurm.

One is of a plugin's benchmark that trains no model.
"""

import difflib
import importlib
import os
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.builtin.slurm.sbatch_script import Setting, render
from llmb.contract.entry import JobEntry
from llmb.contract.launch import Stamp
from llmb.contract.sbatch import SlurmConfig, SlurmOptions
from llmb.contract.schema import ClusterConfig, WorkloadConfig, WorkloadsConfig
from llmb.contract.switches import Switches
from llmb.plan.plan import make_plan
from llmb.plugins.loaded import Plugins
from llmb.plugins.loader import load_plugins
from llmb.run.prepare import site_of
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry
from llmb_testing.plugin_writer import write_benchmark

GOLDEN = Path(__file__).with_name("golden")
ACCEPT = "LLMB_TEST_ACCEPT"
PLUGINS = load_plugins(builtin_plugins())
STAMP = Stamp(id="k3x9ab2c", timestamp="1700000000", directory="/lustre/llmb/runs/job_1700000000")
FULL: dict[str, dict[str, Any]] = {
    "pretrain_nemotron4": {"size": "15b", "dtypes": ("bf16",), "scales": (64,)},
    "pretrain_llama3.1": {"size": "405b", "dtypes": ("fp8",), "scales": (512,)},
    "pretrain_nemotronh": {"size": "56b", "dtypes": ("fp8",), "scales": (32,)},
}
TINY: dict[str, Any] = {"size": "tiny", "dtypes": ("fp32",), "scales": (4,)}
SWITCHED = Switches(
    tokenizer="hub",
    save_checkpoint=True,
    gpu_metrics=True,
    profile_ranks="0-7,64",
    mounts=("/datasets:/datasets:ro",),
    image="nvcr.io/nvidia/nemo:25.09",
    time_limit="01:00:00",
)
# What each script is of: how ranks start, and the request.
CASES: dict[str, tuple[Literal["pyxis", "none"], JobEntry]] = {
    **{f"{key}.pyxis": ("pyxis", job_entry(workload=key, **full)) for key, full in FULL.items()},
    **{f"{key}.none": ("none", job_entry(workload=key, **full)) for key, full in FULL.items()},
    **{f"{key}.tiny": ("none", job_entry(workload=key, **TINY)) for key in FULL},
    "pretrain_llama3.1.switches": (
        "pyxis",
        job_entry(
            workload="pretrain_llama3.1",
            **FULL["pretrain_llama3.1"],
            profile=True,
            switches=SWITCHED,
        ),
    ),
}


# Megatron-Bridge: one row of each release.
BRIDGE = {
    "pretrain_llama3.1.bridge": ("gb300", "pyxis", "70b", "26.02.01"),
    "pretrain_llama3.1.bridge-none": ("h100", "none", "70b", "26.08"),
}


def config(
    container: Literal["pyxis", "none"], gpu_type: str = "h100", **slurm: Any
) -> ClusterConfig:
    own, per_node = (
        WorkloadConfig(venv_path=Path("/lustre/llmb/venvs/torch")),
        4 if gpu_type.startswith("gb") else 8,
    )
    return ClusterConfig(
        cluster_type="slurm",
        gpu_type=gpu_type,
        llmb_install=Path("/lustre/llmb"),
        environment={"NCCL_DEBUG": "WARN", "NOTE": "it's 5 o'clock"},
        pass_environment=("SITE_PROXY",),
        sections={
            "slurm": SlurmConfig(
                account="benchmarks",
                container=container,
                gpu=SlurmOptions({"partition": "batch", "gres": per_node}),
                **slurm,
            )
        },
        workloads=WorkloadsConfig(config=dict.fromkeys([*FULL, "netbench"], own)),
        kind=all_types()["slurm"],
    )


def script(
    request: JobEntry,
    container: Literal["pyxis", "none"],
    plugins: Plugins = PLUGINS,
    gpu_type: str = "h100",
) -> str:
    place, workloads = config(container, gpu_type), plugins.workloads()
    plan = make_plan([request], workloads, place)
    assert not plan.faults
    (job,) = plan.jobs
    launch = plugins.launch(workloads[job.workload], job, site_of(place, job))
    assert launch is not None
    return render(
        launch,
        STAMP,
        Setting(config=place, programs="/lustre/llmb/.llmb/programs/0", knows_segment=True),
    )


@pytest.mark.parametrize("name", CASES)
def test_the_script_is_as_it_was(name: str) -> None:
    container, request = CASES[name]
    check(name, script(request, container))


@pytest.mark.parametrize("name", BRIDGE)
def test_the_script_of_megatron_bridge(name: str) -> None:
    gpu_type, container, size, release = BRIDGE[name]
    request = job_entry(workload="pretrain_llama3.1", size=size, scales=(64,), release=release)
    check(name, script(request, container, gpu_type=gpu_type))  # type: ignore[arg-type]


@pytest.mark.parametrize("gpu_type", ["h100", "b200", "b300", "gb200", "gb300"])
@pytest.mark.parametrize(
    ("workload", "size"), [("pretrain_llama3.1", "70b"), ("pretrain_nemotronh", "56b")]
)
def test_every_gpu_type_has_a_script(workload: str, size: str, gpu_type: str) -> None:
    """One rank for each GPU of a node, NVIDIA's image, and a row of NVIDIA's."""
    request = job_entry(workload=workload, size=size, scales=(64,), framework="bridge")
    text = script(request, "pyxis", gpu_type=gpu_type)
    per_node = 4 if gpu_type.startswith("gb") else 8
    assert f"--ntasks-per-node={per_node}" in text
    assert f"--nodes={64 // per_node}" in text
    assert "nvcr.io/nvidia/nemo:26.08" in text or "nemo+26.08.sqsh" in text
    assert "llmb_workloads.bridge_pretrain" in text


def test_the_script_of_a_benchmark_that_trains_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_benchmark(tmp_path, "netbench")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    request = job_entry(
        workload="netbench_all_reduce",
        scales=(16,),
        parameters={"message_size": ("256M",)},
        env={"NCCL_ALGO": "Ring"},
    )
    now = script(request, "none", load_plugins(builtin_plugins()))
    sys.modules.pop("netbench")
    check("netbench.none", now.replace(str(tmp_path), "/plugins"))


def check(name: str, now: str) -> None:
    """Fail, with the difference, where ``now`` is not the golden script ``name``."""
    path = GOLDEN / f"{name}.sh"
    if os.environ.get(ACCEPT):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(now, encoding="utf-8")
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    changed = difflib.unified_diff(
        before.splitlines(), now.splitlines(), "golden", "now", lineterm=""
    )
    if difference := "\n".join(changed):
        how = f"{ACCEPT}=1 make test ARGS='{Path(__file__).relative_to(Path(__file__).parents[2])}'"
        pytest.fail(
            f"{path} is not what is rendered now:\n{difference}\n\nIf it should be: {how}",
            pytrace=False,
        )
