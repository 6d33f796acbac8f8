# SPDX-License-Identifier: Apache-2.0
"""The options of sbatch for a run, from the launch, the configuration and the command line.
Pure.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from llmb.contract.gpus import CPU
from llmb.contract.launch import Launch, Stamp
from llmb.contract.sbatch import SLURM_OPTIONS, SlurmConfig, long_name
from llmb.contract.schema import ClusterConfig, GpuTypeConfig
from llmb.core.times import clock
from llmb.errors import UsageError
from llmb.kit.bashscript import CONTROL

_PLAIN = re.compile(r"[A-Za-z0-9_./,:;=+@%\[\]<>^*-]+")
RACK_NODES = 18  # nodes of 4 GPUs that one NVLink domain of 72 holds
_RACK_GPUS = 4
GPU_OPTIONS = ("gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task")

Value = str | int | bool | None  # True: an option without a value; False, None: omitted


def options_of(
    launch: Launch, stamp: Stamp, config: ClusterConfig, *, knows_segment: bool
) -> dict[str, str | None]:
    """Each option's long name with its value, None for an option without one, in the order of the
    script.
    """
    work = stamp.work(launch.name)
    options: dict[str, Value] = {
        "job-name": job_name(launch, stamp),
        "nodes": launch.nodes,
        "ntasks-per-node": launch.ranks_per_node,
        "time": clock(launch.time_limit),
        "chdir": work,
        "output": path_pattern(f"{work}/sbatch_{launch.name}.out"),
        "open-mode": "append",
        "export": "ALL",
        "no-requeue": True,
        "exclusive": True,
        "mem": 0,
        **resources(launch, config),
        "segment": _segment(launch, config) if knows_segment else None,
    }
    return with_args(options, launch, config)


def with_args(
    options: Mapping[str, Value], launch: Launch, config: ClusterConfig
) -> dict[str, str | None]:
    """``options``, overridden by ``slurm.args`` and then the command line, as text. Unset options
    are omitted.

    The time limit of ``slurm.args`` is in the launch already, unless a list or the command line set
    another. Where GPUs are requested by another option than ``gres``, the gres requests none.
    """
    configured = {
        long_name(key): value for key, value in (config.slurm or SlurmConfig()).args.items()
    }
    configured.pop("time", None)
    arguments = {
        **configured,
        **{long_name(key): value for key, value in launch.slurm_args.items()},
    }
    merged = {**options, **arguments}
    counted = [name for name in GPU_OPTIONS if merged.get(name)]
    if "gres" in arguments and not any(name in arguments for name in counted):
        merged |= dict.fromkeys(counted)
    elif counted and "gres" not in arguments:
        merged["gres"] = _without_gpus(merged.get("gres"))
    options_set = {
        name: value for name, value in merged.items() if value is not None and value is not False
    }
    return {name: None if value is True else str(value) for name, value in options_set.items()}


def job_name(launch: Launch, stamp: Stamp) -> str:
    """The job's name, by which llmb finds a run whose submission was never answered.

    Commas and quotes have a meaning for Slurm's commands, so the name has none.
    """
    return re.sub(r"""[,'"\\\s]""", "_", f"{launch.name}.{stamp.id}")


def resources(launch: Launch, config: ClusterConfig) -> dict[str, Value]:
    """Account, partition, GPUs and the configuration's other options, without the segment."""
    gpu_config = config.gpu_types.get(_gpu_type(launch, config), GpuTypeConfig())
    slurm, kind = config.slurm or SlurmConfig(), kind_of(launch, config)
    options = {
        name.replace("_", "-"): slurm.option(name, kind)
        for name in SLURM_OPTIONS
        if name != "segment"
    }
    if gpu_config.partition is not None:
        options["partition"] = gpu_config.partition
    if gpu_config.gres is not None:
        options |= {"gres": gpu_config.gres, "gpus-per-node": None}
    gres = options["gres"]
    options["gres"] = _gres(gres) if gres is not None else None
    return dict(options)


def option(name: str, launch: Launch, config: ClusterConfig) -> str | int | None:
    """The configuration's value of one option for this launch."""
    return (config.slurm or SlurmConfig()).option(name, kind_of(launch, config))


def kind_of(launch: Launch, config: ClusterConfig) -> Literal["gpu", "cpu"]:
    """Return the kind of job that a launch is: for GPUs or for CPUs."""
    return "cpu" if config.rows_for(_gpu_type(launch, config)) == CPU else "gpu"


def gpus_asked(options: Mapping[str, str | None]) -> tuple[str | None, int | None]:
    """Return the ``gpu_request`` of a job's options."""
    per_node = options.get("gpus-per-node")
    return gpu_request(_gres(per_node) if per_node is not None else options.get("gres"))


def gpu_request(gres: object) -> tuple[str | None, int | None]:
    """Type (None: any) and number of GPUs that a gres requests on each node, no number if it
    requests none.
    """
    match = re.search(r"(?:^|,)gpu(?::([a-zA-Z][^:,]*))?(?::(\d+))?(?=,|$)", str(gres))
    return (match[1], int(match[2] or 1)) if match else (None, None)


def _gpu_type(launch: Launch, config: ClusterConfig) -> str:
    return launch.gpu_type or config.gpu_type


def _gres(gres: str | int) -> str:
    """``8`` and ``h100:8`` are numbers of GPUs. A gres that starts with ``gpu``, or lists several
    kinds, stays.
    """
    text = str(gres)
    return text if text.partition(":")[0] == "gpu" or "," in text else f"gpu:{text}"


def _without_gpus(gres: Value) -> str | None:
    kinds = [
        kind for kind in str(gres or "").split(",") if kind and kind.partition(":")[0] != "gpu"
    ]
    return ",".join(kinds) or None


def _segment(launch: Launch, config: ClusterConfig) -> str | int | None:
    """Return the configured segment, else a rule for nodes of 4 GPUs, None for others.

    A job that fills more than a rack has the largest segment that divides it. A smaller one has
    all its nodes in one rack if its launch asks for that.
    """
    slurm = config.slurm or SlurmConfig()
    options = (slurm.gpu if kind_of(launch, config) == "gpu" else slurm.cpu).given
    if "segment" in options or slurm.segment is not None:
        return option("segment", launch, config)
    if launch.ranks_per_node != _RACK_GPUS:
        return None
    if launch.nodes <= RACK_NODES:
        return launch.nodes if launch.one_rack else None
    return next(size for size in range(RACK_NODES, 0, -1) if launch.nodes % size == 0)


@lru_cache(maxsize=256)
def directive(text: str) -> str:
    """``text`` as the value of an option on an #SBATCH line. Raises UsageError for a line break."""
    if _PLAIN.fullmatch(text):
        return text
    if CONTROL.search(text) or "\n" in text:
        message = (
            f"{text!r} contains a line break or another control character, and Slurm's options"
            " cannot"
        )
        raise UsageError(message, hint="rename it", code="control-character", value=text)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def path_pattern(path: str) -> str:
    """``path`` for an option that expands ``%j`` and similar patterns."""
    return path.replace("%", "%%")
