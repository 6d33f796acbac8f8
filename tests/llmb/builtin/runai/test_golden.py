# SPDX-License-Identifier: Apache-2.0
"""The whole script of each workload, its request to Run:ai at the head, as golden/ has it. No
control plane.
"""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.entry import JobEntry
from llmb.contract.launch import Stamp
from llmb.contract.schema import ClusterConfig, WorkloadConfig, WorkloadsConfig
from llmb.contract.switches import Switches
from llmb.plan.plan import make_plan
from llmb.plugins.loader import load_plugins
from llmb.run.prepare import site_of
from llmb_installer.cluster_types import all_types
from llmb_runai.pod_script import render
from llmb_runai.request import from_script
from llmb_runai.runai_config import RunaiConfig, RunaiPvc, RunaiSecret
from llmb_testing.entries import job_entry
from llmb_testing.runai.routes import faults_of

GOLDEN = Path(__file__).with_name("golden")
ACCEPT = "LLMB_TEST_ACCEPT"
PLUGINS = load_plugins(builtin_plugins())
STAMP = Stamp(id="k3x9ab2c", timestamp="1700000000", directory="/mnt/pvc/llmb/runs/job_1700000000")
ELSEWHERE = RunaiPvc(name="work", path="/workspace", claim="work-claim", local=Path("/mnt/pvc"))
SAME = RunaiPvc(name="work", path="/mnt/pvc", claim="work-claim")
MORE: Mapping[str, Any] = {
    "secrets": {"HF_TOKEN": RunaiSecret(name="hub", key="token")},
    "node_pools": ("h100", "spare"),
    "keep_days": 2,
    "spec": {"priorityClass": "high", "compute": {"cpuMemoryRequest": "1T"}},
    "extended_resources": {"rdma/ib": 8},
    "annotations": {"k8s.v1.cni.cncf.io/networks": "ib0,ib1"},
}
SWITCHED = Switches(
    tokenizer="hub",
    save_checkpoint=True,
    gpu_metrics=True,
    profile_ranks="0-7",
    time_limit="01:00:00",
)
# What each script is of: the volume, further keys of the section, and the request.
CASES: dict[str, tuple[RunaiPvc, Mapping[str, Any], JobEntry]] = {
    "pretrain_nemotron4": (
        SAME,
        {},
        job_entry(workload="pretrain_nemotron4", size="15b", dtypes=("bf16",), scales=(64,)),
    ),
    "pretrain_llama3.1": (
        SAME,
        MORE,
        job_entry(
            workload="pretrain_llama3.1",
            size="405b",
            dtypes=("fp8",),
            scales=(512,),
            profile=True,
            switches=SWITCHED,
        ),
    ),
    "pretrain_nemotronh": (
        ELSEWHERE,
        {},
        job_entry(workload="pretrain_nemotronh", size="56b", dtypes=("fp8",), scales=(32,)),
    ),
    "bridge": (
        SAME,
        MORE,
        job_entry(workload="pretrain_llama3.1", size="70b", scales=(64,), framework="bridge"),
    ),
    "tiny": (
        ELSEWHERE,
        {},
        job_entry(workload="pretrain_llama3.1", size="tiny", dtypes=("fp32",), scales=(4,)),
    ),
}


def script(name: str) -> str:
    pvc, more, request = CASES[name]
    own = WorkloadConfig(venvs={"torch": pvc.mount / "venvs/torch"})
    place = ClusterConfig(
        cluster_type="runai",
        gpu_type="h100",
        llmb_install=pvc.mount / "llmb",
        environment={
            "NCCL_DEBUG": "WARN",
            "NOTE": "it's 5 o'clock",
            "DATA": f"{pvc.mount}/data:{pvc.mount}2",
        },
        pass_environment=("SITE_PROXY",),
        sections={
            "runai": RunaiConfig(
                base_url="https://host/api/v1", project="benchmarks", pvc=pvc, **more
            )
        },
        workloads=WorkloadsConfig(config={"pretrain_llama3.1": own}),
        kind=all_types()["runai"],
    )
    workloads = PLUGINS.workloads()
    plan = make_plan([request], workloads, place)
    assert not plan.faults
    (job,) = plan.jobs
    launch = PLUGINS.launch(workloads[job.workload], job, site_of(place, job))
    assert launch is not None
    return render(launch, STAMP, place, pvc.mount / "llmb/.llmb/programs/0")


@pytest.mark.parametrize("name", CASES)
def test_the_script_is_as_it_was(name: str) -> None:
    path = GOLDEN / f"{name}.sh"
    now = script(name)
    if os.environ.get(ACCEPT):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(now, encoding="utf-8")
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    changed = difflib.unified_diff(
        before.splitlines(), now.splitlines(), "golden", "now", lineterm=""
    )
    if difference := "\n".join(changed):
        how = f"{ACCEPT}=1 make test ARGS='{Path(__file__).relative_to(Path(__file__).parents[4])}'"
        pytest.fail(
            f"{path} is not what is rendered now:\n{difference}\n\nIf it should be: {how}",
            pytrace=False,
        )


@pytest.mark.parametrize("name", CASES)
def test_the_api_takes_the_request_at_its_head(name: str) -> None:
    kind, content = from_script(script(name))
    assert faults_of(kind, {"projectId": "1", "clusterId": "c1", **content}) == []
