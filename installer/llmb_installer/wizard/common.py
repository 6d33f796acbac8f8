# SPDX-License-Identifier: Apache-2.0
"""The questions for every cluster type."""

import re
import shlex
from pathlib import Path
from typing import Any

from llmb.config import CONFIG_FILE
from llmb.config.cluster_type import ClusterType
from llmb.config.exemplar import TOOL, is_exemplar
from llmb.config.slurm import SlurmConfig
from llmb.system import files
from llmb.text.units import bytes_in_words
from llmb.workload.bridge import bridge_sizes
from llmb.workload.gpus import CPU, known_types
from llmb_installer.answers.checks import unusable_in
from llmb_installer.answers.schema import ARCHITECTURES
from llmb_installer.detect.detected import detects
from llmb_installer.detect.machine import find_folder, find_gpu, likeliest
from llmb_installer.detect.slurm_checks import differing_gpus
from llmb_installer.wizard.question import Option, Question, View, row

TINY = "tiny"


def _types(view: View) -> list[Option]:
    options = []
    for name, kind in view.types.items():
        found = _slurm_found(view) if kind.has(SlurmConfig) else _found(view, kind)
        options.append(Option(name, f"{name}: {kind.title or f'of {kind.source}'}{f' ({found})' if found else ''}"))
    return options


def _slurm_found(view: View) -> str:
    slurm = view.detected.slurm
    if slurm is None:
        return "no sbatch here"
    if not slurm.cluster:
        return "it does not answer"
    count = len(slurm.partitions)
    gpus = "" if slurm.gpu_kinds() else ", no GPUs as GRES"
    return f"{slurm.cluster}, {count} partition{'s' * (count != 1)}{gpus}"


def _found(view: View, kind: ClusterType) -> str:
    """What the cluster type finds here, or which variable would say where it is."""
    variable = next((one.variable for one in kind.questions if one.variable), "")
    return detects(kind, view.detected.environ) or (f"{variable} is not set" if variable else "")


def _default_folder(view: View) -> str:
    detected = view.detected
    if detected.named is not None and detected.installed is None:
        return str(detected.named)
    if folder := detected.environ.get(view.of_type.folder_variable or "-"):
        return str(Path(folder) / "llmb")
    if detected.cwd != detected.home and detected.cwd.is_dir() and not any(detected.cwd.iterdir()):
        return str(detected.cwd)
    return str(detected.home / "llmb")


def _check_folder(view: View, value: Any) -> str | None:
    text = str(value).strip()
    if not text or "$" in text:
        return "write the full path"
    if (reason := unusable_in(text)) is not None:
        return f"this folder cannot be used: {reason}"
    if str(files.expand(text)).startswith("~"):
        return f"the home folder in {text} is unknown: write the full path"
    found = find_folder(Path(text))
    if not found.writable:
        return f"you cannot write to {found.nearest}: choose another folder"
    config = found.path / CONFIG_FILE
    if is_exemplar(config):
        command = f"llmb-install import {shlex.quote(str(found.path))}"
        return (
            f"{found.path} belongs to {TOOL}: choose another folder, or press Ctrl-C and take it over with: {command}"
        )
    if config.is_file() and not re.search(rf"^cluster_type: {view.kind}\b", config.read_text("utf-8"), re.MULTILINE):
        return f"{found.path} has an installation for another cluster type: choose another folder"
    return None


def _folder_note(view: View, value: Any) -> str | None:
    found = find_folder(Path(str(value)))
    existing = "; it has an installation, which will be continued" if (found.path / CONFIG_FILE).is_file() else ""
    unseen = ". Compute nodes must see it too" if not view.traits.one_machine and found.shared is False else ""
    seen = {True: "shared with other machines", False: "only on this machine", None: "shared or not: unknown"}
    space = f"{bytes_in_words(found.free)} free on {found.mount} ({found.file_system}, {seen[found.shared]})"
    return f"{space}{existing}{unseen}"


def some(value: Any) -> str | None:
    """Why nothing cannot be selected."""
    return None if value else "select at least one (space bar)"


def _shows_no_gpus(view: View) -> bool:
    """Whether Slurm answers, and its partition has no GPUs as GRES."""
    return view.is_slurm and bool(view.slurm.partitions) and not view.slurm.gpu_kinds(view.partition)


def _gpu_types(view: View) -> list[Option]:
    known = [name for name in known_types() if name != CPU or not view.traits.pulls_images]
    found = view.slurm.gpu_types_of(view.partition) if view.is_slurm else []
    if _shows_no_gpus(view):
        title = "cpu: none, as Slurm shows no GPUs in this partition"
        return [Option(CPU, title), *(Option(name, name) for name in known if name != CPU)]
    return [Option(name, name) for name in dict.fromkeys([*found, *known])]


def _default_gpu(view: View) -> str:
    if view.traits.nodes == "this-machine":
        return find_gpu("auto").gpu_type
    found = view.slurm.gpu_types_of(view.partition)
    return found[0] if found else CPU if _shows_no_gpus(view) else "h100"


def _gpu_is_clear(view: View) -> bool:
    if view.is_slurm:
        return len(view.slurm.gpu_types_of(view.partition)) == 1
    return view.traits.nodes == "this-machine"


def _gpu_layer(view: View, value: Any) -> dict[str, Any]:
    """The GPU type; in a partition with several, GRES has to name it too."""
    kinds = view.slurm.gpu_kinds(view.partition) if view.is_slurm else []
    own = next((kind for kind in kinds if kind.gpu_type == value), None)
    if own is None or len(kinds) == 1:
        return {"gpu_type": value}
    return {"gpu_type": value, "slurm": {"gpu": {"gres": f"{own.gres_type}:{own.per_node}"}}}


def _default_architecture(view: View) -> str:
    if view.is_slurm:
        found = view.slurm.architecture_of(view.partition)
        if found in ARCHITECTURES:
            return str(found)
    return "aarch64" if view.known_gpu_type.startswith("gb") else "x86_64"


def _workloads(view: View) -> list[Option]:
    width = max((len(key) for key in view.workloads), default=0)
    gpus = [str(name) for name in dict.fromkeys([view.at("gpu_type"), *(view.at("gpu_types") or {})])]
    options = []
    for key, workload in view.workloads.items():
        texts = []
        for gpu in gpus:
            known = str(view.at(f"gpu_types.{gpu}.like") or gpu)
            here = {*workload.on(known), *bridge_sizes(workload, known)}
            sizes = [size for size in workload.sizes if size in here and (size != TINY or not view.uses_images)]
            texts += [f"{', '.join(sizes)} on {gpu}"] if sizes else []
        refused = "" if texts else f"nothing for {', '.join(gpus)}"
        options.append(Option(key, f"{key:<{width}}  {'; '.join(texts)}".rstrip(), refused))
    return options


def _frameworks(view: View) -> list[Option]:
    """The frameworks that have rows for the GPU type."""
    gpu, workloads = view.known_gpu_type, list(view.workloads.values())
    has_nemo = any(gpu in row.gpu for own in workloads for size in own.sizes.values() for row in size.rows)
    has_bridge = any(bridge_sizes(own, gpu) for own in workloads)
    nemo = Option("nemo", "nemo: NeMo 2")
    bridge = Option("bridge", "bridge: Megatron-Bridge, in NVIDIA's newer images")
    if has_nemo and has_bridge:
        return [nemo, bridge, Option("both", "both: the images or environments of both")]
    return [bridge] if has_bridge else [nemo]


def _only_with_bridge(view: View) -> bool:
    """Whether Megatron-Bridge has a size on the GPU type that the other rows do not have."""
    gpu = view.known_gpu_type
    return any(name not in own.on(gpu) for own in view.workloads.values() for name in bridge_sizes(own, gpu))


def _gpus_note(view: View, value: str) -> str | None:
    """A warning where nodes have another number of GPUs than llmb knows for their type."""
    if not view.is_slurm:
        return None
    own = view.over(_gpu_layer(view, value))
    kinds = [kind for kind in view.slurm.gpu_kinds(view.partition) if kind.gpu_type == value]
    return next(differing_gpus(value, own.known_gpu_type, kinds), None)


VENV_TITLES = {"uv": "uv: the fastest", "venv": "venv: Python's own, with pip", "conda": "conda"}

CLUSTER_TYPE = Question(
    **row("CLUSTER_TYPE"), options=_types, default=lambda view: view.detected.likely_type(view.types)
)
FOLDER = Question(
    **row("FOLDER"),
    default=_default_folder,
    check=_check_folder,
    note=_folder_note,
    layer=lambda _, value: {"install": str(files.expand(str(value).strip()).absolute())},
)
GPU_TYPE = Question(
    **row("GPU_TYPE"),
    options=_gpu_types,
    default=_default_gpu,
    clear=_gpu_is_clear,
    layer=_gpu_layer,
    note=lambda view, value: _gpus_note(view, str(value)),
)
LIKE = Question(
    **row("LIKE"),
    options=lambda view: [
        Option(name, name) for name in known_types() if name != CPU and view.has_configurations(name)
    ],
    default=lambda view: likeliest(str(view.at("gpu_type"))),
    applies=lambda view: not view.has_configurations(view.known_gpu_type),
    layer=lambda view, value: {"gpu_types": {str(view.at("gpu_type")): {"like": value}}},
)
ARCHITECTURE = Question(
    **row("ARCHITECTURE"),
    options=lambda _: [Option("x86_64", "x86_64: Intel, AMD"), Option("aarch64", "aarch64: Arm, such as Grace")],
    default=_default_architecture,
    applies=lambda view: view.traits.nodes != "this-machine",
    clear=lambda view: view.traits.pulls_images or view.slurm.architecture_of(view.partition) in ARCHITECTURES,
)
VENV_TYPE = Question(
    **row("VENV_TYPE"),
    options=lambda view: [Option(kind, VENV_TITLES[kind]) for kind in view.detected.machine.venv_types],
    default=lambda view: view.detected.machine.venv_types[0],
    applies=lambda view: not view.uses_images,
    clear=lambda view: len(view.detected.machine.venv_types) == 1,
)
FRAMEWORK = Question(
    **row("FRAMEWORK"),
    options=_frameworks,
    default=lambda view: _frameworks(view)[0].value,
    applies=lambda view: view.traits.trains == "nemo" and view.known_gpu_type != CPU,
    clear=lambda view: len(_frameworks(view)) == 1 or not _only_with_bridge(view),
)
WORKLOADS = Question(
    **row("WORKLOADS"),
    options=_workloads,
    default=lambda view: [option.value for option in _workloads(view) if not option.refused],
    check=lambda _, value: some(value),
)
NAME = Question(
    **row("NAME"),
    default=lambda view: (view.slurm.cluster if view.is_slurm else None) or view.kind,
    clear=lambda _: True,
    check=lambda _, value: None if str(value).strip() else "write any name",
)
