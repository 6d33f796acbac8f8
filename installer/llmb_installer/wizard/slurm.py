# SPDX-License-Identifier: Apache-2.0
"""The questions about a Slurm cluster: partitions and their GPUs, account, containers, where to build."""

from collections.abc import Callable
from typing import Any

from llmb.clusters.slurm.partitions import Partition
from llmb.config.slurm import gpu_count
from llmb.text.addresses import name_fault
from llmb.workload.gpus import CPU, known_types
from llmb_installer.detect import machine, scheduler
from llmb_installer.wizard.question import Option, Question, View, row

_MOST_GPUS = 1024  # of a node


def _is_slurm(view: View) -> bool:
    return view.is_slurm


def _has_gpus(partition: Partition) -> bool:
    return any(nodes.gpus for nodes in partition.nodes)


def _up(view: View) -> list[Partition]:
    return [partition for partition in view.slurm.partitions.values() if partition.available == "up"]


def _candidates(view: View) -> list[Partition]:
    """The partitions for GPU jobs: those with GPUs, or all where Slurm has no GPUs as GRES."""
    return [partition for partition in _up(view) if _has_gpus(partition)] or _up(view)


def _shows_gpus(view: View) -> bool:
    """Whether a partition has GPUs as GRES."""
    return any(map(_has_gpus, _up(view)))


def _summary(view: View, partition: Partition) -> str:
    kinds = view.slurm.gpu_kinds(partition.name)
    nodes = sum(nodes.count for nodes in partition.nodes)
    gpus = ", ".join(f"{_nodes(kind.nodes)} with {kind.per_node} {kind.gres_type or 'GPUs'}" for kind in kinds)
    return (gpus or _nodes(nodes)) + (", Slurm's default" if partition.is_default else "")


def _option(view: View, partition: Partition) -> Option:
    return Option(partition.name, f"{partition.name}: {_summary(view, partition)}")


def _nodes(count: int) -> str:
    return f"{count} node{'s' * (count != 1)}"


def _default_partition(view: View) -> str | None:
    """Slurm's default partition if it has GPUs, else the partition with the most GPU nodes."""
    found = _candidates(view)
    if not found:
        return None
    usual = next((partition for partition in found if partition.is_default), None)
    return (usual or max(found, key=lambda one: sum(kind.nodes for kind in view.slurm.gpu_kinds(one.name)))).name


def _partition_layer(view: View, value: Any) -> dict[str, Any]:
    kinds = view.slurm.gpu_kinds(str(value))
    gres = {"gres": min(kind.per_node for kind in kinds)} if kinds else {}
    return {"slurm": {"gpu": {"partition": value or None, **gres}}}


def _others(view: View) -> list[scheduler.GpuKind]:
    """GPUs of types other than the default one, each in the partition with the most nodes."""
    best: dict[str, scheduler.GpuKind] = {}
    for kind in view.slurm.gpu_kinds():
        if kind.gpu_type is None or kind.gpu_type == view.at("gpu_type"):
            continue
        if view.slurm.partitions[kind.partition].available != "up":
            continue
        if kind.gpu_type not in best or kind.nodes > best[kind.gpu_type].nodes:
            best[kind.gpu_type] = kind
    return [*best.values()]


def _other_options(view: View) -> list[Option]:
    options = []
    for kind in _others(view):
        like = _like(view, kind)
        others = f", using configurations of {like}" if like is not None else ""
        title = f"{kind.gpu_type}: {_nodes(kind.nodes)} with {kind.per_node} in {kind.partition}{others}"
        options.append(Option(kind.gpu_type, title))
    return options


def _like(view: View, kind: scheduler.GpuKind) -> str | None:
    """The type whose configurations fit best; None where the GPUs have their own."""
    return None if view.has_configurations(str(kind.gpu_type)) else machine.likeliest(kind.gres_type)


def _own(view: View, kind: scheduler.GpuKind) -> dict[str, Any]:
    """The entry of gpu_types; in a partition with several kinds of GPUs, GRES has to name one."""
    alone = len(view.slurm.gpu_kinds(kind.partition)) == 1
    like = _like(view, kind)
    gres = kind.per_node if alone else f"{kind.gres_type}:{kind.per_node}"
    return {
        **({} if like is None else {"like": like}),
        "partition": kind.partition,
        "gres": gres,
        "gpus_per_node": kind.per_node,
    }


def _cpu_options(view: View) -> list[Option]:
    options = [_option(view, one) for one in _up(view) if not _has_gpus(one)]
    return [*options, Option("", "no partition for them")]


def _default_cpu(view: View) -> str:
    """The partition of all jobs if there is one, else Slurm's default, else the first without GPUs."""
    names = [option.value for option in _cpu_options(view)]
    usual = (view.at("slurm.partition"), view.slurm.default_partition)
    return str(next((name for name in usual if name in names), names[0]))


def _may_have_pyxis(view: View) -> bool:
    return view.slurm.pyxis or bool(view.slurm.fault)


def _container_options(view: View) -> list[Option]:
    refused = "" if _may_have_pyxis(view) else "srun has no --container-image"
    return [
        Option("pyxis", "pyxis: yes, in container images", refused),
        Option("none", "none: no, in Python environments"),
    ]


def _default_mpi(view: View) -> str:
    """Empty where Slurm has llmb's default (pmix in containers), else the nearest type that Slurm has."""
    kinds = view.slurm.mpi
    if view.at("slurm.container") == "none" or not kinds or "pmix" in kinds:
        return ""
    return next((kind for kind in (*(k for k in kinds if k.startswith("pmix")), "pmi2") if kind in kinds), "")


def _check_gres(_: View, value: Any) -> str | None:
    text = str(value).strip()
    if gpu_count(text):
        return name_fault(text, "a GRES")
    return f"'{text}' is not a number of GPUs: write 8 or h100:8, or none"


def _check_count(_: View, value: Any) -> str | None:
    text = str(value).strip()
    return None if text.isdecimal() and 0 < int(text) <= _MOST_GPUS else f"write a number from 1 to {_MOST_GPUS}"


def _shows_no_gpus(view: View) -> bool:
    """Whether Slurm cannot be asked for GPUs, or has none as GRES in the partition of GPU jobs."""
    if not _is_slurm(view) or view.at("gpu_type") == CPU:
        return False
    return not view.slurm.gpu_kinds(view.partition)


def _known_count(view: View) -> int | None:
    known = known_types().get(view.known_gpu_type)
    return known.gpus_per_node if known is not None else None


def _count(view: View) -> int | None:
    own = view.at(f"gpu_types.{view.at('gpu_type')}.gpus_per_node")
    return own if isinstance(own, int) else _known_count(view)


def _count_layer(view: View, value: Any) -> dict[str, Any]:
    """The number of GPUs of a node, where llmb knows another one for their type."""
    count = int(str(value).strip())
    return {} if count == _known_count(view) else {"gpu_types": {str(view.at("gpu_type")): {"gpus_per_node": count}}}


def _count_note(view: View, value: Any) -> str | None:
    known, count = _known_count(view), int(str(value).strip())
    if known is None or count == known:
        return None
    return f"llmb knows {known} for {view.known_gpu_type}: check the GPU type; jobs will use {count} of a node"


def _method_options(view: View) -> list[Option]:
    here, nodes = view.detected.machine.architecture, view.at("node_architecture")
    other = "" if here == nodes or view.uses_images else f"the nodes are {nodes}, this machine is {here}"
    return [
        Option("here", "here: on this machine", other),
        Option("srun", "srun: on a compute node, waiting for it"),
        Option("sbatch", "sbatch: in batch jobs, where interactive jobs are not allowed"),
    ]


def _name(of: str, *, several: bool = False) -> Callable[[View, Any], str | None]:
    return lambda _, value: name_fault(str(value), of, several=several)


PARTITION = Question(
    **row("PARTITION"),
    options=lambda view: [_option(view, one) for one in _candidates(view)],
    default=_default_partition,
    layer=_partition_layer,
    applies=lambda view: _is_slurm(view) and _shows_gpus(view),
    clear=lambda view: len(_candidates(view)) == 1,
)
PARTITION_OF_ALL = Question(
    **row("PARTITION_OF_ALL"),
    options=lambda view: [_option(view, one) for one in _up(view)],
    default=_default_partition,
    applies=lambda view: _is_slurm(view) and bool(_up(view)) and not _shows_gpus(view),
    clear=lambda view: len(_up(view)) == 1,
)
NAMED_PARTITION = Question(
    **row("NAMED_PARTITION"),
    check=_name("a partition", several=True),
    applies=lambda view: _is_slurm(view) and not _up(view),
)
OTHERS = Question(
    **row("OTHERS"),
    options=_other_options,
    default=lambda view: [kind.gpu_type for kind in _others(view)],
    layer=lambda view, value: {
        "gpu_types": {str(kind.gpu_type): _own(view, kind) for kind in _others(view) if kind.gpu_type in value}
    },
    value=lambda answer: [*(answer or {})],
    applies=lambda view: _is_slurm(view) and bool(_others(view)),
)
ACCOUNT = Question(
    **row("ACCOUNT"),
    options=lambda view: [*(Option(name, name) for name in view.slurm.accounts), Option("", "none: Slurm's default")],
    default=lambda view: view.slurm.accounts[0],
    applies=lambda view: _is_slurm(view) and bool(view.slurm.accounts),
    clear=lambda view: len(view.slurm.accounts) == 1,
)
NAMED_ACCOUNT = Question(
    **row("NAMED_ACCOUNT"),
    check=_name("an account"),
    applies=lambda view: _is_slurm(view) and not view.slurm.accounts,
    clear=lambda view: not view.slurm.accounting and not view.slurm.fault,
)
QOS = Question(**row("QOS"), check=_name("a QOS"), applies=_is_slurm, clear=lambda _: True)
CPU_PARTITION = Question(
    **row("CPU_PARTITION"),
    options=_cpu_options,
    default=_default_cpu,
    clear=lambda _: True,
    layer=lambda _, value: {"slurm": {"cpu": {"partition": value or None, "gres": None}}},
    value=lambda answer: answer.get("partition") or "" if isinstance(answer, dict) else answer or "",
    applies=lambda view: _is_slurm(view) and len(_cpu_options(view)) > 1,
)
CONTAINER = Question(
    **row("CONTAINER"),
    options=_container_options,
    default=lambda view: "pyxis" if view.slurm.pyxis and view.at("gpu_type") != CPU else "none",
    applies=_is_slurm,
    clear=lambda view: not _may_have_pyxis(view),
)
MPI = Question(**row("MPI"), default=_default_mpi, check=_name("an MPI type"), applies=_is_slurm, clear=lambda _: True)
GPUS_PER_NODE = Question(
    **row("GPUS_PER_NODE"),
    default=lambda view: str(_count(view) or ""),
    check=_check_count,
    layer=_count_layer,
    note=_count_note,
    applies=lambda view: (
        _shows_no_gpus(view) and not any(view.at(key) for key in ("slurm.gres", "slurm.gpus_per_node"))
    ),
)
GRES = Question(
    **row("GRES"),
    default=lambda view: str(_count(view) or "") if view.slurm.fault else "",
    check=_check_gres,
    layer=lambda _, value: {
        "slurm": {"gpu": {"gres": int(text) if (text := str(value).strip()).isdecimal() else text or None}}
    },
    applies=_shows_no_gpus,
)
METHOD = Question(
    **row("METHOD"),
    options=_method_options,
    default=lambda view: "here" if view.detected.machine.architecture == view.at("node_architecture") else "srun",
    applies=_is_slurm,
)
