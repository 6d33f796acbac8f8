# SPDX-License-Identifier: Apache-2.0
"""The questions about a Slurm cluster: partitions, GPUs, account, containers, build."""

from collections.abc import Callable
from typing import Any

from llmb.builtin.slurm.partitions import Partition
from llmb.contract.gpus import CPU, known_types
from llmb.contract.sbatch import gpu_count
from llmb.core.addresses import name_fault
from llmb_installer.detect import machine, scheduler
from llmb_installer.wizard.question import AnswerOption, Question, WizardView, read_row

_MOST_GPUS = 1024  # of a node


def _is_slurm(view: WizardView) -> bool:
    return view.is_slurm


def _has_gpus(partition: Partition) -> bool:
    return any(nodes.gpus for nodes in partition.nodes)


def _up(view: WizardView) -> list[Partition]:
    return [
        partition for partition in view.slurm.partitions.values() if partition.available == "up"
    ]


def _candidates(view: WizardView) -> list[Partition]:
    """Return the partitions with GPUs, or all if Slurm has no GPUs as GRES."""
    return [partition for partition in _up(view) if _has_gpus(partition)] or _up(view)


def _shows_gpus(view: WizardView) -> bool:
    """Return True if a partition has GPUs as GRES."""
    return any(map(_has_gpus, _up(view)))


def _summary(view: WizardView, partition: Partition) -> str:
    kinds = view.slurm.gpu_kinds(partition.name)
    nodes = sum(nodes.count for nodes in partition.nodes)
    gpus = ", ".join(
        f"{_nodes(number)} with {count} {kind.gres_type or 'GPUs'}"
        for kind in kinds
        for count, number in kind.counts.items()
    )
    return (gpus or _nodes(nodes)) + (", Slurm's default" if partition.is_default else "")


def _option(view: WizardView, partition: Partition) -> AnswerOption:
    return AnswerOption(partition.name, f"{partition.name}: {_summary(view, partition)}")


def _nodes(count: int) -> str:
    return f"{count} node{'s' * (count != 1)}"


def _default_partition(view: WizardView) -> str | None:
    """Slurm's default partition if it has GPUs, else the partition with the most GPU nodes."""
    candidates = _candidates(view)
    if not candidates:
        return None
    usual = next((partition for partition in candidates if partition.is_default), None)
    return (
        usual
        or max(
            candidates, key=lambda one: sum(kind.nodes for kind in view.slurm.gpu_kinds(one.name))
        )
    ).name


def _partition_layer(view: WizardView, value: Any) -> dict[str, Any]:
    kinds = view.slurm.gpu_kinds(str(value))
    gres = {"gres": min(kind.per_node for kind in kinds)} if kinds else {}
    return {"slurm": {"gpu": {"partition": value or None, **gres}}}


def _find_other_gpus(view: WizardView) -> list[scheduler.GpuKind]:
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


def _other_options(view: WizardView) -> list[AnswerOption]:
    options = []
    for kind in _find_other_gpus(view):
        like = _like(view, kind)
        configurations = f", using configurations of {like}" if like is not None else ""
        title = (
            f"{kind.gpu_type}: {_nodes(kind.nodes)} with {kind.per_node} in"
            f" {kind.partition}{configurations}"
        )
        options.append(AnswerOption(kind.gpu_type, title))
    return options


def _like(view: WizardView, kind: scheduler.GpuKind) -> str | None:
    """The type whose configurations fit best. None if the GPUs have their own."""
    return (
        None
        if view.has_configurations(str(kind.gpu_type))
        else machine.find_likeliest(kind.gres_type)
    )


def _make_gpu_entry(view: WizardView, kind: scheduler.GpuKind) -> dict[str, Any]:
    """The entry of gpu_types. In a partition with several kinds of GPUs, GRES has to name one."""
    alone = len(view.slurm.gpu_kinds(kind.partition)) == 1
    like = _like(view, kind)
    gres = kind.per_node if alone else f"{kind.gres_type}:{kind.per_node}"
    return {
        **({} if like is None else {"like": like}),
        "partition": kind.partition,
        "gres": gres,
        "gpus_per_node": kind.per_node,
    }


def _cpu_options(view: WizardView) -> list[AnswerOption]:
    options = [_option(view, partition) for partition in _up(view) if not _has_gpus(partition)]
    return [*options, AnswerOption("", "no partition for them")]


def _default_cpu(view: WizardView) -> str:
    """Return the partition of all jobs, else Slurm's default, else the first without GPUs."""
    names = [option.value for option in _cpu_options(view)]
    usual = (view.at("slurm.partition"), view.slurm.default_partition)
    return str(next((name for name in usual if name in names), names[0]))


def _may_have_pyxis(view: WizardView) -> bool:
    return view.slurm.pyxis or bool(view.slurm.fault)


def _container_options(view: WizardView) -> list[AnswerOption]:
    refused = "" if _may_have_pyxis(view) else "srun has no --container-image"
    return [
        AnswerOption("pyxis", "pyxis: yes, in container images", refused),
        AnswerOption("none", "none: no, in Python environments"),
    ]


def _default_mpi(view: WizardView) -> str:
    """Return the MPI type nearest to llmb's default, empty if Slurm has the default itself."""
    kinds = view.slurm.mpi
    if view.at("slurm.container") == "none" or not kinds or "pmix" in kinds:
        return ""
    return next(
        (kind for kind in (*(k for k in kinds if k.startswith("pmix")), "pmi2") if kind in kinds),
        "",
    )


def _check_gres(_: WizardView, value: Any) -> str | None:
    text = str(value).strip()
    if gpu_count(text):
        return name_fault(text, "a GRES")
    return f"'{text}' is not a number of GPUs: write 8 or h100:8, or none"


def _check_count(_: WizardView, value: Any) -> str | None:
    text = str(value).strip()
    return (
        None
        if text.isdecimal() and 0 < int(text) <= _MOST_GPUS
        else f"write a number from 1 to {_MOST_GPUS}"
    )


def _shows_no_gpus(view: WizardView) -> bool:
    """Return True if Slurm shows no GPUs as GRES in the partition of GPU jobs, or is silent."""
    if not _is_slurm(view) or view.at("gpu_type") == CPU:
        return False
    return not view.slurm.gpu_kinds(view.partition)


def _known_count(view: WizardView) -> int | None:
    gpu = known_types().get(view.known_gpu_type)
    return gpu.gpus_per_node if gpu is not None else None


def _count(view: WizardView) -> int | None:
    configured = view.at(f"gpu_types.{view.at('gpu_type')}.gpus_per_node")
    return configured if isinstance(configured, int) else _known_count(view)


def _count_layer(view: WizardView, value: Any) -> dict[str, Any]:
    """Return the number of GPUs of a node, unless llmb knows the same one for their type."""
    count = int(str(value).strip())
    return (
        {}
        if count == _known_count(view)
        else {"gpu_types": {str(view.at("gpu_type")): {"gpus_per_node": count}}}
    )


def _count_note(view: WizardView, value: Any) -> str | None:
    usual, count = _known_count(view), int(str(value).strip())
    if usual is None or count == usual:
        return None
    return (
        f"llmb knows {usual} for {view.known_gpu_type}: check the GPU type; jobs will use {count}"
        " of a node"
    )


def _method_options(view: WizardView) -> list[AnswerOption]:
    machine, nodes = view.detected.machine.architecture, view.at("node_architecture")
    difference = (
        ""
        if machine == nodes or view.uses_images
        else f"the nodes are {nodes}, this machine is {machine}"
    )
    return [
        AnswerOption("here", "here: on this machine", difference),
        AnswerOption("srun", "srun: on a compute node, waiting for it"),
        AnswerOption("sbatch", "sbatch: in batch jobs, where interactive jobs are not allowed"),
    ]


def _name(of: str, *, several: bool = False) -> Callable[[WizardView, Any], str | None]:
    return lambda _, value: name_fault(str(value), of, several=several)


PARTITION = Question(
    **read_row("PARTITION"),
    options=lambda view: [_option(view, one) for one in _candidates(view)],
    default=_default_partition,
    layer=_partition_layer,
    applies=lambda view: _is_slurm(view) and _shows_gpus(view),
    clear=lambda view: len(_candidates(view)) == 1,
)
PARTITION_OF_ALL = Question(
    **read_row("PARTITION_OF_ALL"),
    options=lambda view: [_option(view, one) for one in _up(view)],
    default=_default_partition,
    applies=lambda view: _is_slurm(view) and bool(_up(view)) and not _shows_gpus(view),
    clear=lambda view: len(_up(view)) == 1,
)
NAMED_PARTITION = Question(
    **read_row("NAMED_PARTITION"),
    check=_name("a partition", several=True),
    applies=lambda view: _is_slurm(view) and not _up(view),
)
OTHERS = Question(
    **read_row("OTHERS"),
    options=_other_options,
    default=lambda view: [kind.gpu_type for kind in _find_other_gpus(view)],
    layer=lambda view, value: {
        "gpu_types": {
            str(kind.gpu_type): _make_gpu_entry(view, kind)
            for kind in _find_other_gpus(view)
            if kind.gpu_type in value
        }
    },
    value=lambda answer: [*(answer or {})],
    applies=lambda view: (
        _is_slurm(view) and view.at("gpu_type") != CPU and bool(_find_other_gpus(view))
    ),
)
ACCOUNT = Question(
    **read_row("ACCOUNT"),
    options=lambda view: [
        *(AnswerOption(name, name) for name in view.slurm.accounts),
        AnswerOption("", "none: Slurm's default"),
    ],
    default=lambda view: view.slurm.accounts[0],
    applies=lambda view: _is_slurm(view) and bool(view.slurm.accounts),
    clear=lambda view: len(view.slurm.accounts) == 1,
)
NAMED_ACCOUNT = Question(
    **read_row("NAMED_ACCOUNT"),
    check=_name("an account"),
    applies=lambda view: _is_slurm(view) and not view.slurm.accounts,
    clear=lambda view: not view.slurm.accounting and not view.slurm.fault,
)
QOS = Question(**read_row("QOS"), check=_name("a QOS"), applies=_is_slurm, clear=lambda _: True)
CPU_PARTITION = Question(
    **read_row("CPU_PARTITION"),
    options=_cpu_options,
    default=_default_cpu,
    clear=lambda _: True,
    layer=lambda _, value: {"slurm": {"cpu": {"partition": value or None, "gres": None}}},
    value=lambda answer: (
        answer.get("partition") or "" if isinstance(answer, dict) else answer or ""
    ),
    applies=lambda view: _is_slurm(view) and len(_cpu_options(view)) > 1,
)
CONTAINER = Question(
    **read_row("CONTAINER"),
    options=_container_options,
    default=lambda view: "pyxis" if view.slurm.pyxis and view.at("gpu_type") != CPU else "none",
    applies=_is_slurm,
    clear=lambda view: not _may_have_pyxis(view),
)
MPI = Question(
    **read_row("MPI"),
    default=_default_mpi,
    check=_name("an MPI type"),
    applies=_is_slurm,
    clear=lambda _: True,
)
GPUS_PER_NODE = Question(
    **read_row("GPUS_PER_NODE"),
    default=lambda view: str(_count(view) or ""),
    check=_check_count,
    layer=_count_layer,
    note=_count_note,
    applies=lambda view: (
        _shows_no_gpus(view)
        and not any(view.at(key) for key in ("slurm.gres", "slurm.gpus_per_node"))
    ),
)
GRES = Question(
    **read_row("GRES"),
    default=lambda view: str(_count(view) or "") if view.slurm.fault else "",
    check=_check_gres,
    layer=lambda _, value: {
        "slurm": {
            "gpu": {"gres": int(text) if (text := str(value).strip()).isdecimal() else text or None}
        }
    },
    applies=_shows_no_gpus,
)
METHOD = Question(
    **read_row("METHOD"),
    options=_method_options,
    default=lambda view: (
        "here" if view.detected.machine.architecture == view.at("node_architecture") else "srun"
    ),
    applies=_is_slurm,
)
