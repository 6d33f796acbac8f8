# SPDX-License-Identifier: Apache-2.0
"""The questions for every cluster type."""

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

from llmb.contract.cluster_type import ClusterType
from llmb.contract.gpus import CPU, known_types
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.spec import NEMO
from llmb.core import files
from llmb.core.units import bytes_in_words
from llmb.plan.framework import brought_sizes
from llmb.plan.locate import CONFIG_FILE
from llmb.plugins.foreign import find_foreign
from llmb_installer.answers.checks import explain_unusable
from llmb_installer.answers.schema import ARCHITECTURES
from llmb_installer.cluster_types import all_plugins
from llmb_installer.detect.detected import Detected, detect_clusters
from llmb_installer.detect.machine import find_folder, find_gpu, find_likeliest, is_of_kernel
from llmb_installer.detect.slurm_checks import differing_gpus
from llmb_installer.wizard.question import AnswerOption, Question, WizardView, read_row

TINY = "tiny"


def _types(view: WizardView) -> list[AnswerOption]:
    options = []
    # This machine alone comes last: it is the answer if there is no scheduler.
    types = sorted(view.types.values(), key=lambda kind: kind.traits_of(None).one_machine)
    for kind in types:
        name = kind.name
        summary = _summarize_slurm(view) if kind.has(SlurmConfig) else _summarize_type(view, kind)
        options.append(
            AnswerOption(
                name,
                f"{name}: {kind.title or f'of {kind.source}'}{f' ({summary})' if summary else ''}",
            )
        )
    return options


def _summarize_slurm(view: WizardView) -> str:
    slurm = view.detected.slurm
    if slurm is None:
        return "no sbatch here"
    if not slurm.cluster:
        return "it does not answer"
    count = len(slurm.partitions)
    gpus = "" if slurm.gpu_kinds() else ", no GPUs as GRES"
    return f"{slurm.cluster}, {count} partition{'s' * (count != 1)}{gpus}"


def _summarize_type(view: WizardView, kind: ClusterType) -> str:
    """Describe the detected cluster of a type, or name the variable that would locate it."""
    variable = next((question.variable for question in kind.questions if question.variable), "")
    return detect_clusters(kind, view.detected.environ) or (
        f"{variable} is not set" if variable else ""
    )


def _default_folder(view: WizardView) -> str:
    detected = view.detected
    if detected.named is not None and detected.installed is None:
        return str(detected.named)
    if folder := detected.environ.get(view.of_type.folder_variable or "-"):
        return str(Path(folder) / "llmb")
    return str(find_empty_folder(detected) or detected.home / "llmb")


def find_empty_folder(detected: Detected) -> Path | None:
    """Return the current folder if it is empty and not the user's home folder, else None."""
    folder = detected.cwd
    is_empty = folder != detected.home and folder.is_dir() and not any(folder.iterdir())
    return folder if is_empty else None


def _check_folder(view: WizardView, value: Any) -> str | None:
    text = str(value).strip()
    if not text or "$" in text:
        return "write the full path"
    if (reason := explain_unusable(text)) is not None:
        return f"this folder cannot be used: {reason}"
    if str(files.expand(text)).startswith("~"):
        return f"the home folder in {text} is unknown: write the full path"
    folder = find_folder(Path(text))
    if is_of_kernel(folder.file_system):
        return (
            f"{folder.mount} is the kernel's own ({folder.file_system}): choose a folder on a disk"
        )
    above = (folder.path, *folder.path.parents)
    if (file := next((path for path in above if path.is_file()), None)) is not None:
        return f"{file} is a file: choose a folder"
    if not folder.writable:
        return f"you cannot write to {folder.nearest}: choose another folder"
    config = folder.path / CONFIG_FILE
    if (foreign := find_foreign(folder.path, all_plugins)) is not None:
        command = f"llmb-install import {shlex.quote(str(folder.path))}"
        return (
            f"{folder.path} belongs to {foreign.tool}: choose another folder, or press Ctrl-C and"
            f" take it over with: {command}"
        )
    if config.is_file() and not re.search(
        rf"^cluster_type: {view.kind}\b", config.read_text("utf-8"), re.MULTILINE
    ):
        return f"{folder.path} has an installation for another cluster type: choose another folder"
    return None


def _folder_note(view: WizardView, value: Any) -> str | None:
    folder = find_folder(Path(str(value)))
    existing = (
        "; it has an installation, which will be continued"
        if (folder.path / CONFIG_FILE).is_file()
        else ""
    )
    unseen = (
        ". Compute nodes must see it too"
        if not view.traits.one_machine and folder.shared is False
        else ""
    )
    visibility = {
        True: "shared with other machines",
        False: "only on this machine",
        None: "shared or not: unknown",
    }
    space = (
        f"{bytes_in_words(folder.free)} free on {folder.mount} ({folder.file_system},"
        f" {visibility[folder.shared]})"
    )
    return f"{space}{existing}{unseen}"


def require_some(value: Any) -> str | None:
    """The reason why something must be selected."""
    return None if value else "select at least one (space bar)"


def _shows_no_gpus(view: WizardView) -> bool:
    """Return True if Slurm answers, and its partition has no GPUs as GRES."""
    return (
        view.is_slurm and bool(view.slurm.partitions) and not view.slurm.gpu_kinds(view.partition)
    )


def _gpu_types(view: WizardView) -> list[AnswerOption]:
    """Return what Slurm shows in the partition first, and says so, then all other types."""
    names = [name for name in known_types() if name != CPU or not view.traits.pulls_images]
    shown = {CPU: "Slurm shows no GPUs in this partition"} if _shows_no_gpus(view) else {}
    for kind in view.slurm.gpu_kinds(view.partition) if view.is_slurm else []:
        if kind.gpu_type is not None:
            nodes = f"{kind.nodes} node{'s' * (kind.nodes != 1)}"
            shown.setdefault(kind.gpu_type, f"Slurm shows {nodes} with {kind.per_node}")
    return [
        AnswerOption(name, f"{name}: {shown[name]}" if name in shown else name)
        for name in dict.fromkeys([*shown, *names])
    ]


def _default_gpu(view: WizardView) -> str:
    if view.traits.nodes == "this-machine":
        return find_gpu("auto").gpu_type
    detected = view.slurm.gpu_types_of(view.partition)
    return detected[0] if detected else CPU if _shows_no_gpus(view) else "h100"


def _gpu_is_clear(view: WizardView) -> bool:
    if view.is_slurm:
        return len(view.slurm.gpu_types_of(view.partition)) == 1
    return view.traits.nodes == "this-machine"


def _gpu_layer(view: WizardView, value: Any) -> dict[str, Any]:
    """The GPU type. In a partition with several, GRES has to name it too."""
    kinds = view.slurm.gpu_kinds(view.partition) if view.is_slurm else []
    match = next((kind for kind in kinds if kind.gpu_type == value), None)
    if match is None or len(kinds) == 1:
        return {"gpu_type": value}
    return {"gpu_type": value, "slurm": {"gpu": {"gres": f"{match.gres_type}:{match.per_node}"}}}


def _default_architecture(view: WizardView) -> str:
    if view.is_slurm:
        detected = view.slurm.architecture_of(view.partition)
        if detected in ARCHITECTURES:
            return str(detected)
    return "aarch64" if view.known_gpu_type.startswith("gb") else "x86_64"


def _workloads(view: WizardView) -> list[AnswerOption]:
    width = max((len(key) for key in view.workloads), default=0)
    gpus = [
        str(name) for name in dict.fromkeys([view.at("gpu_type"), *(view.at("gpu_types") or {})])
    ]
    options = []
    for key, workload in view.workloads.items():
        texts = []
        for gpu in gpus:
            like = str(view.at(f"gpu_types.{gpu}.like") or gpu)
            brought = itertools.chain.from_iterable(brought_sizes(workload, like).values())
            available = {*workload.on(like), *brought}
            sizes = [
                size
                for size in workload.sizes
                if size in available and (size != TINY or not view.uses_images)
            ]
            texts += [f"{', '.join(sizes)} on {gpu}"] if sizes else []
        refused = "" if texts else f"nothing for {', '.join(gpus)}"
        options.append(AnswerOption(key, f"{key:<{width}}  {'; '.join(texts)}".rstrip(), refused))
    return options


def _frameworks(view: WizardView) -> list[AnswerOption]:
    """The frameworks that have rows for the GPU type, those of workload.yaml first."""
    gpu, workloads = view.known_gpu_type, list(view.workloads.values())
    own = [
        workload.framework
        for workload in workloads
        if any(gpu in row.gpu for size in workload.sizes.values() for row in size.rows)
    ]
    brought = [name for workload in workloads for name in brought_sizes(workload, gpu)]
    known = {name: item for workload in workloads for name, item in workload.frameworks.items()}
    options = [
        AnswerOption(name, f"{name}: {known[name].description or known[name].title}")
        for name in dict.fromkeys([*own, *brought])
        if name in known
    ]
    if len(options) > 1:
        number = "both" if len(options) == 2 else "all"
        options.append(AnswerOption("both", f"both: the images or environments of {number}"))
    return options or [AnswerOption(NEMO, f"{NEMO}: NeMo 2")]


def _only_brought(view: WizardView) -> bool:
    """Return True if a framework brings a size that its workload's own lacks on the GPU type.

    A workload that has brought rows alone is installed for these whatever the answer is.
    """
    gpu = view.known_gpu_type
    return any(
        name not in workload.on(gpu)
        for workload in view.workloads.values()
        if workload.on(gpu)
        for names in brought_sizes(workload, gpu).values()
        for name in names
    )


def _gpus_note(view: WizardView, value: str) -> str | None:
    """A warning if nodes have another number of GPUs than llmb knows for their type."""
    if not view.is_slurm:
        return None
    answered = view.over(_gpu_layer(view, value))
    kinds = [kind for kind in view.slurm.gpu_kinds(view.partition) if kind.gpu_type == value]
    return next(differing_gpus(value, answered.known_gpu_type, kinds), None)


VENV_TITLES = {"uv": "uv: the fastest", "venv": "venv: Python's own, with pip", "conda": "conda"}

CLUSTER_TYPE = Question(
    **read_row("CLUSTER_TYPE"),
    options=_types,
    default=lambda view: view.detected.likely_type(view.types),
)
FOLDER = Question(
    **read_row("FOLDER"),
    default=_default_folder,
    check=_check_folder,
    note=_folder_note,
    layer=lambda _, value: {"install": str(files.expand(str(value).strip()).absolute())},
)
GPU_TYPE = Question(
    **read_row("GPU_TYPE"),
    options=_gpu_types,
    default=_default_gpu,
    clear=_gpu_is_clear,
    layer=_gpu_layer,
    note=lambda view, value: _gpus_note(view, str(value)),
)
LIKE = Question(
    **read_row("LIKE"),
    options=lambda view: [
        AnswerOption(name, name)
        for name in known_types()
        if name != CPU and view.has_configurations(name)
    ],
    default=lambda view: find_likeliest(str(view.at("gpu_type"))),
    applies=lambda view: not view.has_configurations(view.known_gpu_type),
    layer=lambda view, value: {"gpu_types": {str(view.at("gpu_type")): {"like": value}}},
)
ARCHITECTURE = Question(
    **read_row("ARCHITECTURE"),
    options=lambda _: [
        AnswerOption("x86_64", "x86_64: Intel, AMD"),
        AnswerOption("aarch64", "aarch64: Arm, such as Grace"),
    ],
    default=_default_architecture,
    applies=lambda view: view.traits.nodes != "this-machine",
    clear=lambda view: (
        view.traits.pulls_images or view.slurm.architecture_of(view.partition) in ARCHITECTURES
    ),
)
VENV_TYPE = Question(
    **read_row("VENV_TYPE"),
    options=lambda view: [
        AnswerOption(kind, VENV_TITLES[kind]) for kind in view.detected.machine.venv_types
    ],
    default=lambda view: view.detected.machine.venv_types[0],
    applies=lambda view: not view.uses_images,
    clear=lambda view: len(view.detected.machine.venv_types) == 1,
)
FRAMEWORK = Question(
    **read_row("FRAMEWORK"),
    options=_frameworks,
    default=lambda view: _frameworks(view)[0].value,
    applies=lambda view: view.traits.trains == "nemo" and view.known_gpu_type != CPU,
    clear=lambda view: len(_frameworks(view)) == 1 or not _only_brought(view),
)
WORKLOADS = Question(
    **read_row("WORKLOADS"),
    options=_workloads,
    default=lambda view: [option.value for option in _workloads(view) if not option.refused],
    check=lambda _, value: require_some(value),
)
NAME = Question(
    **read_row("NAME"),
    default=lambda view: (view.slurm.cluster if view.is_slurm else None) or view.kind,
    clear=lambda _: True,
    check=lambda _, value: None if str(value).strip() else "write any name",
)
