# SPDX-License-Identifier: Apache-2.0
"""Compares the Slurm options and the binding of every row with NVIDIA's, for both frameworks.

launch-*.json of tests/real_bridge and tests/real_nemo have them as NVIDIA's launchers set them
(record_launch.py there).
"""

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin import wrappers
from llmb.builtin.bridge.bridge_rows import table_of
from llmb.builtin.nvidia_images import releases
from llmb.builtin.plugins import builtin_plugins
from llmb.builtin.slurm.sbatch_script import Setting, render
from llmb.contract.gpus import known_types
from llmb.contract.launch import Launch, Stamp
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.schema import ClusterConfig
from llmb.plan.plan import make_plan
from llmb.plugins.loader import load_plugins
from llmb.run.prepare import site_of
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

RECORDS = Path(__file__).parent.parent / "real_bridge"
PLUGINS = load_plugins(builtin_plugins())
STAMP = Stamp(id="k3x9ab2c", timestamp="1700000000", directory="/lustre/llmb/runs/job_1700000000")
VERSIONS = ("0.3.1", "0.4.2", "0.5.1", "0.6.0")
# Rows of NVIDIA that are none of ours (docs/megatron-bridge.md): the library's own checks reject
# them.
FAULTY = {
    "nemotronh_56b b200 bf16 256",
    "nemotronh_56b gb300 bf16 256",
    *(f"deepseek_v3 h100 {dtype} 64" for dtype in ("bf16", "fp8_cs")),
    *(f"qwen3_235b_a22b gb200 {dtype} 64" for dtype in ("fp8_cs", "fp8_mx", "nvfp4")),
    *(f"qwen3_235b_a22b gb300 {dtype} 64" for dtype in ("bf16", "fp8_cs", "fp8_mx", "nvfp4")),
}


@cache
def record(version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDS / f"launch-{version}.json").read_text("utf-8"))
    assert found.pop("megatron-bridge") == version
    return found


def sizes() -> dict[str, tuple[str, str]]:
    """The workload and the size of each of NVIDIA's names of models."""
    return {
        size.model: (key, name)
        for key, workload in PLUGINS.workloads().items()
        for name, size in table_of(workload).sizes.items()
        if not size.cut
    }


def cluster(gpu: str) -> ClusterConfig:
    return ClusterConfig(
        cluster_type="slurm",
        gpu_type=gpu,
        llmb_install=Path("/lustre/llmb"),
        sections={"slurm": SlurmConfig(account="a", container="pyxis")},
        kind=all_types()["slurm"],
    )


def launched(label: str, version: str) -> tuple[Launch, str]:
    """The launch and the script of llmb's row."""
    model, gpu, dtype, gpus = label.split()[:4]
    key, size = sizes()[model]
    release = next(name for name, known in releases().items() if known.bridge == version)
    return rendered(
        gpu, workload=key, size=size, dtypes=(dtype,), scales=(int(gpus),), release=release
    )


def rendered(gpu: str, **wanted: Any) -> tuple[Launch, str]:
    """The launch and the script of a job on GPUs of this type."""
    config, workloads = cluster(gpu), PLUGINS.workloads()
    plan = make_plan([job_entry(**wanted)], workloads, config)
    assert not plan.faults, wanted
    workload = workloads[plan.jobs[0].workload]
    launch = PLUGINS.launch(workload, plan.jobs[0], site_of(config, plan.jobs[0]))
    assert launch is not None
    setting = Setting(config=config, programs="/lustre/llmb/.llmb/programs/0", knows_segment=True)
    return launch, render(launch, STAMP, setting)


def rows(version: str) -> list[str]:
    """Those of NVIDIA that llmb has. Beside a variant v2 it has no v1."""
    labels = [label for label in record(version) if label != "*" and label not in FAULTY]
    later = {tuple(label.split()[:3]) for label in labels if label.endswith(" v2")}
    return [
        label
        for label in labels
        if not label.endswith(" v1") or tuple(label.split()[:3]) not in later
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_options_of_sbatch_and_srun_are_nvidias(version: str) -> None:
    """exclusive, mem, nodes, ranks and segment; PMIx, and what the container may do."""
    shared = record(version)["*"]
    assert (shared["exclusive"], shared["mem"]) == (True, "0")
    for label in rows(version):
        theirs = record(version)[label]
        _, script = launched(label, version)
        ours = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", script, re.MULTILINE))
        assert {"exclusive": "", "mem": "0"}.items() <= ours.items(), label
        assert ours["nodes"] == str(theirs["nodes"]), label
        assert ours["ntasks-per-node"] == str(theirs["ranks_per_node"]), label
        segment = theirs["segment"]
        assert ours.get("segment") == (None if segment is None else str(segment)), label
        for option in shared["srun_args"]:
            assert re.search(rf"{option}(\s|$)", script, re.MULTILINE), (label, option)


def bound(command: list[str], rank: int, folder: Path) -> str:
    """What ``numactl`` is called with by a rank."""
    done = subprocess.run(
        command,
        env={
            "PATH": f"{folder}:/usr/bin:/bin",
            "SLURM_LOCALID": str(rank),
            "LLMB_LOCAL_RANK": str(rank),
            "LLMB_RANK": str(rank),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("version", VERSIONS)
def test_ranks_are_bound_as_by_nvidia(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a node with 64 cores in each NUMA node, each distinct binding by every rank."""
    for cpu in range(128):
        (tmp_path / f"node{cpu // 64}" / f"cpu{cpu}").mkdir(parents=True)
    monkeypatch.setattr(wrappers, "_NODES", str(tmp_path))
    program = tmp_path / "numactl"
    program.write_text('#!/bin/bash\n[[ ${!#} == true ]] || echo "${@:1:$#-1}"\n')
    program.chmod(0o755)
    seen = set()
    for label in rows(version):
        theirs = record(version)[label]["binding"]
        launch, _ = launched(label, version)
        ours = next(wrapper for wrapper in launch.wrappers if wrapper.name == "numa")
        if (theirs, ours.argv) in seen:
            continue
        seen.add((theirs, ours.argv))
        for rank in range(known_types()[label.split()[1]].gpus_per_node):
            expected = bound(["bash", "-c", f"{theirs} train"], rank, tmp_path)
            assert bound([*ours.argv, "train"], rank, tmp_path) == expected, label
    assert len(seen) == 3


@cache
def nemo_record() -> dict[str, Any]:
    file = RECORDS.parent / "real_nemo" / "launch-2.3.1.json"
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    assert found["nemo"] == "2.3.1"
    return found


def nemo_rows() -> dict[tuple[str, int], dict[str, Any]]:
    """A job for each GPU type and GPU count of the rows that train with NeMo."""
    return {
        (gpu, scale): {
            "workload": key,
            "size": name,
            "dtypes": row.dtype[:1],
            "scales": (scale,),
            "framework": "nemo",
        }
        for key, workload in PLUGINS.workloads().items()
        for name, size in workload.sizes.items()
        if size.nemo is not None
        for row in size.rows
        if not row.strong_scaling
        for gpu in row.gpu
        if gpu in known_types()
        for scale in row.scales.counts
    }


def test_options_of_nemos_jobs_are_nvidias() -> None:
    """exclusive, mem, nodes, ranks, segment, PMIx, and the NUMA node of each rank.

    Two differ on purpose: llmb's containers are writable and have no home of the host, as those of
    NVIDIA's launcher from NeMo 2.4 on, and on gb200 two ranks share a NUMA node, as in its fork for
    these images, which 2.3.1 does not know yet.
    """
    shared = nemo_record()["*"]
    assert (shared["exclusive"], shared["mem"]) == (True, "0")
    assert nemo_rows()
    for (gpu, scale), wanted in nemo_rows().items():
        launch, script = rendered(gpu, **wanted)
        ours = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", script, re.MULTILINE))
        assert {"exclusive": "", "mem": "0"}.items() <= ours.items(), wanted
        per_node = min(known_types()[gpu].gpus_per_node, scale)
        nodes = scale // per_node
        assert (ours["nodes"], ours["ntasks-per-node"]) == (str(nodes), str(per_node)), wanted
        segment = nemo_record().get(str(per_node), {}).get(str(nodes))
        assert ours.get("segment") == (None if segment is None else str(segment)), wanted
        mpi, binding = shared["srun_args"]
        assert re.search(rf"{mpi}(\s|$)", script, re.MULTILINE), wanted
        (numa,) = (wrapper for wrapper in launch.wrappers if wrapper.name == "numa")
        ranks = set(re.findall(r"LLMB_LOCAL_RANK / (\d)", numa.argv[2]))
        theirs = set(re.findall(r"bind=\$\(\(SLURM_LOCALID/(\d)\)\)", binding))
        assert theirs == {"4"}
        assert ranks == {"2" if gpu == "gb200" else "4"}, wanted
