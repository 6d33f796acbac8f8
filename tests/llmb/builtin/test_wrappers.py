# SPDX-License-Identifier: Apache-2.0
"""Tests of the wrappers of a rank, run by a real bash with stand-ins for numactl and nsys."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.builtin import wrappers
from llmb.builtin.wrappers import (
    libraries,
    nsight,
    nsys_command,
    numa,
    profiled_ranks,
    sampling_ranks,
)
from llmb.contract.launch import Wrapper

NUMACTL = """#!/bin/bash
[[ $1 == --cpunodebind=[01] && $2 == --membind=[01] ]] || { echo "node out of range" >&2; exit 1; }
bound="$1 $2"
shift 2
if [[ $1 == -C ]]; then
    bound+=" $1 $2"
    shift 2
fi
BOUND=$bound exec "$@"
"""
NSYS = """#!/bin/bash
printf '%s\\n' "$@" > nsys.arguments
while [[ $1 != printenv ]]; do shift; done
exec "$@"
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder for stand-ins, first on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def run(
    wrapper: Wrapper, folder: Path, *, rank: int, ranks_per_node: int = 8
) -> subprocess.CompletedProcess[str]:
    """What ``printenv BOUND LLMB_RANK`` prints behind the wrapper."""
    place = {"LLMB_RANK": str(rank), "LLMB_LOCAL_RANK": str(rank % ranks_per_node)}
    environment = {**os.environ, **place, "PATH": f"{folder}:/usr/bin:/bin"}
    return subprocess.run(
        [*wrapper.argv, "printenv", "BOUND", "LLMB_RANK"],
        env=environment,
        cwd=folder.parent,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("gpu", "per_node", "nodes"),
    [("h100", 8, "00001111"), ("gb200", 4, "0011"), ("b200", 8, "00001111")],
)
def test_each_rank_is_bound_to_the_node_of_its_gpu(
    gpu: str, per_node: int, nodes: str, programs: Path
) -> None:
    put(programs, "numactl", NUMACTL)
    for rank in range(per_node, 2 * per_node):  # those of the second node
        done = run(numa(gpu), programs, rank=rank, ranks_per_node=per_node)
        node = nodes[rank - per_node]
        assert done.stdout == f"--cpunodebind={node} --membind={node}\n{rank}\n"
        assert done.stderr == ""


@pytest.mark.parametrize("numactl", [None, NUMACTL.replace("[01]", "0")])
def test_where_a_rank_cannot_be_bound_it_runs_and_the_log_says_so_once_for_a_node(
    numactl: str | None, programs: Path, wording: Callable[..., None]
) -> None:
    """No numactl, which only a PATH without it shows; or a machine of one NUMA node."""
    put(programs, "numactl", numactl or "#!/bin/bash\nexit 127\n")
    printed = [run(numa("h100"), programs, rank=rank) for rank in range(4, 8)]
    assert [done.stdout for done in printed] == [f"{rank}\n" for rank in range(4, 8)]
    first, *others = [done.stderr for done in printed]
    assert others == ["", "", ""]
    wording("submit-all", first)


@pytest.mark.parametrize(
    ("cores_of_node", "options"),
    [
        (64, "--cpunodebind={node} --membind={node} -C {core},{next}"),
        (32, "--cpunodebind={node} --membind={node}"),  # rank 2 on: core 32 is of another node
    ],
)
def test_ranks_are_bound_to_two_cores_of_their_node(
    cores_of_node: int, options: str, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cpu in range(128):
        node = programs.parent / "nodes" / f"node{cpu // cores_of_node}"
        (node / f"cpu{cpu}").mkdir(parents=True)
    monkeypatch.setattr(wrappers, "_NODES", str(programs.parent / "nodes"))
    put(programs, "numactl", NUMACTL)
    wrapper = numa("b300", binds_cores=True)
    for rank in (3, 6):
        values = {"node": rank // 4, "core": 16 * rank, "next": 16 * rank + 1}
        assert run(wrapper, programs, rank=rank).stdout == f"{options.format(**values)}\n{rank}\n"


def test_a_host_with_other_cores_is_reported_once_for_a_node(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wrappers, "_NODES", str(programs / "none"))
    put(programs, "numactl", NUMACTL)
    wrapper = numa("b300", binds_cores=True)
    first, *others = [run(wrapper, programs, rank=rank).stderr for rank in range(4, 8)]
    assert first.startswith("llmb: the ranks from 4 on are not bound to cores")
    assert others == ["", "", ""]


def test_the_command_line_of_nsight() -> None:
    line = (
        "nsys profile -s none -t nvtx,cuda -o"
        " nsys_profile/profile_%q{SLURM_JOB_ID}_%q{SLURM_NODEID}_%q{SLURM_PROCID}"
        " --force-overwrite=true --capture-range=cudaProfilerApi --capture-range-end=stop"
        " --cuda-graph-trace=node --cuda-event-trace=false --nvtx-domain-include=NCCL"
    )
    assert [*nsys_command(slurm=True)] == line.split()
    assert "profile_%q{LLMB_RUN_ID}_%q{LLMB_NODE_RANK}_%q{LLMB_RANK}" in " ".join(
        nsys_command(slurm=False)
    )


@pytest.mark.parametrize(
    ("ranks", "profiled"),
    [
        ("0-7", {0, 1, 5, 7}),
        ("0,9", {0, 9}),
        ("8-9,1", {1, 8, 9}),
        ("all", {0, 1, 5, 7, 8, 9, 20}),
        ("20", {20}),
    ],
)
def test_only_the_ranks_named_are_profiled(ranks: str, profiled: set[int], programs: Path) -> None:
    put(programs, "nsys", NSYS)
    arguments = programs.parent / "nsys.arguments"
    found = set()
    for rank in (0, 1, 5, 7, 8, 9, 20):
        arguments.unlink(missing_ok=True)
        done = run(nsight(ranks, slurm=True), programs, rank=rank)
        assert done.stdout == f"{rank}\n"
        if arguments.exists():
            found.add(rank)
            assert tuple(arguments.read_text().split()) == (
                *nsys_command(slurm=True)[1:],
                "printenv",
                "BOUND",
                "LLMB_RANK",
            )
            assert (programs.parent / "nsys_profile").is_dir()
    assert found == profiled


@pytest.mark.parametrize(
    ("ranks", "sampling"),
    [("all", [0, 8, 16]), ("0-7", [0]), ("1,9-10,17", [1, 9, 17]), ("6-9", [6, 8])],
)
def test_gpu_metrics_are_sampled_by_one_rank_of_each_node(
    ranks: str, sampling: list[int], programs: Path
) -> None:
    profiled = profiled_ranks(ranks, 24)
    assert sampling_ranks(profiled, 8) == sampling
    put(programs, "nsys", NSYS)
    found = []
    for rank in profiled:
        run(nsight(ranks, sampling, slurm=True), programs, rank=rank)
        if "--gpu-metrics-devices=all" in (programs.parent / "nsys.arguments").read_text().split():
            found.append(rank)
    assert found == sampling


def test_a_profile_without_nsys_fails_and_says_why(
    programs: Path, wording: Callable[..., None]
) -> None:
    if any(Path(folder, "nsys").exists() for folder in ("/usr/bin", "/bin")):
        pytest.skip("nsys is installed in /usr/bin here")
    done = run(nsight("0-7", slurm=True), programs, rank=0)
    assert done.returncode == 127
    wording("submit-all", done.stderr)
    assert run(nsight("0-7", slurm=True), programs, rank=8).stdout == "8\n"


SITE = "lib/python3.12/site-packages/nvidia"


def environment(venv: Path, **given: str) -> dict[str, str]:
    """What a rank's program sees behind the wrapper of ``venv``, started with the variables
    ``given`` alone.
    """
    argv = [*libraries(str(venv)).argv, "env"]
    done = subprocess.run(
        argv, env={"PATH": "/usr/bin:/bin", **given}, capture_output=True, text=True, check=True
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def test_an_environments_own_libraries_come_first(tmp_path: Path) -> None:
    venv = tmp_path / "an environment"
    for name in ("cudnn/lib", "cuda_nvrtc/lib", "cuda_runtime/include"):
        (venv / SITE / name).mkdir(parents=True)
    own = f"{venv}/{SITE}/cuda_nvrtc/lib:{venv}/{SITE}/cudnn/lib"
    found = environment(venv)
    assert found["LD_LIBRARY_PATH"] == own
    there = Path("/usr/local/cuda").exists()
    assert found.get("CUDA_HOME") == (None if there else f"{venv}/{SITE}"), (
        "where there is no other CUDA"
    )
    found = environment(venv, LD_LIBRARY_PATH="/site/lib", CUDA_HOME="/site/cuda")
    assert (found["LD_LIBRARY_PATH"], found["CUDA_HOME"]) == (f"{own}:/site/lib", "/site/cuda")
    assert "CUDA_HOME" not in environment(venv, CUDA_PATH="/site/cuda")


def test_an_environment_without_libraries_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / SITE).mkdir(parents=True)
    assert not {"LD_LIBRARY_PATH", "CUDA_HOME"} & {*environment(tmp_path)}
    assert (
        environment(tmp_path / "gone", LD_LIBRARY_PATH="/site/lib")["LD_LIBRARY_PATH"]
        == "/site/lib"
    )


def test_ranks_end_where_the_job_does() -> None:
    assert profiled_ranks("0-7", 4) == [0, 1, 2, 3]
    assert profiled_ranks("6-9,2", 8) == [2, 6, 7]
    assert profiled_ranks("all", 3) == [0, 1, 2]
