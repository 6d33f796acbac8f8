# SPDX-License-Identifier: Apache-2.0
"""Wrappers of a rank's command: NUMA binding, Nsight Systems, an environment's libraries."""

from collections.abc import Sequence
from pathlib import Path

from llmb.contract.job import Job
from llmb.contract.launch import Site, Wrapper
from llmb.contract.switches import PROFILE_RANKS, rank_ranges

NSIGHT, PROFILE_FOLDER = "nsight", "nsys_profile"

# Runs in the rank. A rank that cannot be bound trains anyway, with a message in the log: numactl
# may be missing, a virtual machine may have only one node, a container may forbid it.
_BIND = """\
llmb_numa=$((LLMB_LOCAL_RANK / {ranks}))
if numactl --cpunodebind=$llmb_numa --membind=$llmb_numa true 2> /dev/null; then
    exec numactl --cpunodebind=$llmb_numa --membind=$llmb_numa "$@"
fi
(( LLMB_LOCAL_RANK % {ranks} )) ||
    echo "llmb: the ranks from $LLMB_RANK on are not bound: numactl cannot bind to NUMA node \
$llmb_numa here" >&2
exec "$@\""""

# With two cores for each rank, if they belong to its NUMA node: on a host with another numbering
# of cores they would be those of another socket.
_BIND_CORES = """\
llmb_core=$((LLMB_LOCAL_RANK * {step}))
llmb_numa=$((LLMB_LOCAL_RANK / {ranks}))
llmb_node={nodes}/node$llmb_numa
if [[ -e $llmb_node/cpu$llmb_core && -e $llmb_node/cpu$((llmb_core + 1)) ]] &&
    numactl --cpunodebind=$llmb_numa --membind=$llmb_numa -C $llmb_core,$((llmb_core + 1)) true \
2> /dev/null; then
    exec numactl --cpunodebind=$llmb_numa --membind=$llmb_numa -C $llmb_core,$((llmb_core + 1)) "$@"
fi
(( LLMB_LOCAL_RANK % {ranks} )) ||
    echo "llmb: the ranks from $LLMB_RANK on are not bound to cores: those of NVIDIA's hosts \
are not of NUMA node $llmb_numa here" >&2
"""
_CORE_STEP = 16
_NODES = "/sys/devices/system/node"

# Transformer Engine 2.2 loads the parts of cuDNN by name, and NVRTC from CUDA's folder or else by
# ldconfig. Source: transformer_engine/common/__init__.py.
_LIBRARIES = """\
llmb_venv=$1
shift
for llmb_nvidia in "$llmb_venv"/lib/python3*/site-packages/nvidia; do
    llmb_found=
    for llmb_folder in "$llmb_nvidia"/*/lib; do
        [[ ! -d $llmb_folder ]] || llmb_found+=${llmb_found:+:}$llmb_folder
    done
    [[ -n $llmb_found ]] || continue
    export LD_LIBRARY_PATH=$llmb_found${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    [[ -n ${CUDA_HOME:-}${CUDA_PATH:-} || -d /usr/local/cuda ]] || export CUDA_HOME=$llmb_nvidia
done
exec "$@\""""

_PROFILE = """\
{others}if ! command -v nsys > /dev/null; then
    echo "llmb error: a profile was asked for, and nsys is not here; \
use an image or a node with it" >&2
    exit 127
fi
{metrics}mkdir -p {folder}
exec {command} "$@\""""
_NOT_ALL = """\
{test} || exec "$@"
"""
_METRICS = """\
{test} && llmb_metrics=--gpu-metrics-devices=all
"""


def of_job(
    job: Job, site: Site, venv: Path | None, *, binds_cores: bool = False
) -> tuple[Wrapper, ...]:
    """Return the wrappers of the ranks: NUMA binding, a profile, the libraries of ``venv``."""
    wrappers = [numa(site.gpu_type, binds_cores=binds_cores)]
    if job.profile:
        ranks = job.switches.profile_ranks or PROFILE_RANKS
        profiled = profiled_ranks(ranks, job.scale)
        sampling = sampling_ranks(profiled, job.gpus_per_node) if job.switches.gpu_metrics else ()
        wrappers.append(nsight(ranks, sampling, slurm=site.runs.slurm_variables))
    return (*wrappers, libraries(str(venv))) if venv is not None else tuple(wrappers)


def numa(gpu: str, *, binds_cores: bool = False) -> Wrapper:
    """Bind a rank and its memory to its GPU's NUMA node: 2 ranks a node on gb types, else 4.

    ``binds_cores`` also binds it to two cores, every sixteenth pair.
    """
    ranks = 2 if gpu in ("gb200", "gb300") else 4
    values = {"ranks": ranks, "step": _CORE_STEP, "nodes": _NODES}
    cores = _BIND_CORES.format(**values) if binds_cores else ""
    return Wrapper(name="numa", argv=("bash", "-c", cores + _BIND.format(ranks=ranks), "_"))


def nsight(ranks: str, sampling: Sequence[int] = (), *, slurm: bool) -> Wrapper:
    """Profile ``ranks`` (``0-7``, ``0,8``, ``all``) into nsys_profile/, between two markers.

    ``sampling``: the ranks that also sample the GPUs of their node.
    """
    test = _test(ranks)
    command = " ".join(nsys_command(slurm=slurm)) + (" ${llmb_metrics-}" if sampling else "")
    script = _PROFILE.format(
        others=_NOT_ALL.format(test=test) if test else "",
        metrics=_METRICS.format(test=_test(",".join(map(str, sampling)))) if sampling else "",
        folder=PROFILE_FOLDER,
        command=command,
    )
    return Wrapper(name=NSIGHT, argv=("bash", "-c", script, "_"))


def libraries(venv: str) -> Wrapper:
    """Put the CUDA libraries that pip installed in ``venv`` first in the library path."""
    return Wrapper(name="libraries", argv=("bash", "-c", _LIBRARIES, "_", venv))


def sampling_ranks(profiled: Sequence[int], ranks_per_node: int) -> list[int]:
    """Return the first profiled rank of each node: only one process can sample a node's GPUs."""
    return list({rank // ranks_per_node: rank for rank in reversed(profiled)}.values())[::-1]


def nsys_command(*, slurm: bool) -> tuple[str, ...]:
    """Return the nsys command without the program. It names files by job, node and rank."""
    names = (
        ("SLURM_JOB_ID", "SLURM_NODEID", "SLURM_PROCID")
        if slurm
        else ("LLMB_RUN_ID", "LLMB_NODE_RANK", "LLMB_RANK")
    )
    file = "_".join(["profile", *(f"%q{{{name}}}" for name in names)])
    return (
        "nsys",
        "profile",
        "-s",
        "none",
        "-t",
        "nvtx,cuda",
        "-o",
        f"{PROFILE_FOLDER}/{file}",
        "--force-overwrite=true",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--cuda-graph-trace=node",
        "--cuda-event-trace=false",
        "--nvtx-domain-include=NCCL",
    )


def profiled_ranks(ranks: str, total: int) -> list[int]:
    """Return the ranks below ``total`` that are in ``ranks``, ascending."""
    selected: set[int] = set()
    for first, last in rank_ranges(ranks):
        selected.update(range(first, total if last is None else min(last + 1, total)))
    return sorted(selected)


def _test(ranks: str) -> str:
    """Return a bash test that is true in these ranks, empty for all ranks."""
    ranges = rank_ranges(ranks)
    if any(last is None for _, last in ranges):
        return ""
    tests = [
        f"LLMB_RANK == {first}" if first == last else f"LLMB_RANK >= {first} && LLMB_RANK <= {last}"
        for first, last in ranges
    ]
    return f"(( {tests[0] if len(tests) == 1 else ' || '.join(f'({test})' for test in tests)} ))"
