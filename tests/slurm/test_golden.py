# SPDX-License-Identifier: Apache-2.0
"""The whole script of each workload with and without a container, as golden/ has it. Needs no Slurm."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any, Literal

import pytest

from llmb.clusters.slurm.script import Setting, render
from llmb.config import ClusterConfig
from llmb.config.schema import SlurmConfig, SlurmOptions, WorkloadConfig, WorkloadsConfig
from llmb.job import JobRequest
from llmb.launch import Launch, Program, StagedFile, Stamp, Wrapper
from llmb.loader import load_plugins
from llmb.plan import make_plan
from llmb.submit import site_of

GOLDEN = Path(__file__).with_name("golden")
ACCEPT = "LLMB_TEST_ACCEPT"
PLUGINS = load_plugins()
STAMP = Stamp(id="k3x9ab2c", timestamp="1700000000", directory="/lustre/llmb/runs/job_1700000000")
FULL = {
    "pretrain_nemotron4": {"size": "15b", "dtypes": ("bf16",), "scales": (64,)},
    "pretrain_llama3.1": {"size": "405b", "dtypes": ("fp8",), "scales": (512,)},
    "pretrain_nemotronh": {"size": "56b", "dtypes": ("fp8",), "scales": (32,)},
}  # fmt: skip
TINY = {key: {"size": "tiny", "dtypes": ("fp32",), "scales": (4,)} for key in FULL}


def config(container: Literal["pyxis", "none"], **slurm: Any) -> ClusterConfig:
    own = WorkloadConfig(venv_path=Path("/lustre/llmb/venvs/torch"))
    return ClusterConfig(
        cluster_type="slurm", gpu_type="h100", llmb_install=Path("/lustre/llmb"),
        environment={"NCCL_DEBUG": "WARN", "NOTE": "it's 5 o'clock"}, pass_environment=("SITE_PROXY",),
        slurm=SlurmConfig(
            account="benchmarks", container=container, gpu=SlurmOptions({"partition": "batch", "gres": 8}), **slurm
        ),
        workloads=WorkloadsConfig(config=dict.fromkeys(FULL, own)),
    )  # fmt: skip


def by_hand(name: str, *, nodes: int, ranks: int, limit: int, image: str | None, environment: dict[str, str]) -> Launch:
    """A launch of the kind that the full sizes need: image, NUMA binding, a secret, a staged recipe."""
    bind = 'exec numactl --cpunodebind=$((LLMB_LOCAL_RANK / 4)) --membind=$((LLMB_LOCAL_RANK / 4)) "$@"'
    return Launch(
        name=name, nodes=nodes, ranks_per_node=ranks, time_limit=limit,
        program=Program(module="llmb_workloads.nemo_pretrain"), args=("recipe.json",), image=image,
        mounts=("/datasets:/datasets:ro",), environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1", **environment},
        secrets=("HF_TOKEN",), wrappers=(Wrapper(name="numa", argv=("bash", "-c", bind, "_")),),
        files=(StagedFile(name="recipe.json", text='{\n  "tp": 2\n}\n'),), gpu_type="h100",
    )  # fmt: skip


def script(key: str, container: Literal["pyxis", "none"]) -> str:
    place = config(container)
    workloads = PLUGINS.workloads()
    wanted = TINY if container == "none" else FULL
    plan = make_plan([JobRequest(workload=key, **wanted[key])], workloads, place)  # type: ignore[arg-type]
    assert not plan.faults
    (job,) = plan.jobs
    launch: Launch | None
    if container == "none":
        launch = PLUGINS.launch(workloads[key], job, site_of(place, job))
        assert launch is not None
    else:
        launch = by_hand(
            job.experiment_name, nodes=job.nodes, ranks=job.gpus_per_node, limit=job.time_limit, image=job.image,
            environment=dict(job.env),
        )  # fmt: skip
    return render(launch, STAMP, Setting(config=place, programs="/lustre/llmb/.llmb/programs/0", knows_segment=True))


@pytest.mark.parametrize("container", ["pyxis", "none"])
@pytest.mark.parametrize("key", FULL)
def test_the_script_is_as_it_was(key: str, container: Literal["pyxis", "none"]) -> None:
    path = GOLDEN / f"{key}.{container}.sh"
    now = script(key, container)
    if os.environ.get(ACCEPT):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(now, encoding="utf-8")
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    changed = difflib.unified_diff(before.splitlines(), now.splitlines(), "golden", "now", lineterm="")
    if difference := "\n".join(changed):
        how = f"{ACCEPT}=1 make test ARGS='{Path(__file__).relative_to(Path(__file__).parents[2])}'"
        pytest.fail(f"{path} is not what is rendered now:\n{difference}\n\nIf it should be: {how}", pytrace=False)
