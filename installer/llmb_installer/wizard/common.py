# SPDX-License-Identifier: Apache-2.0
"""The questions that every cluster type asks: what it is, where to, which workloads."""

import re
from pathlib import Path
from typing import Any

from llmb.config import CONFIG_FILE
from llmb.workload.gpus import CPU, known_types
from llmb_installer.answers import ARCHITECTURES
from llmb_installer.answers.read import unusable_in
from llmb_installer.detect.folder import FolderFound, find_folder
from llmb_installer.detect.gpu_names import likeliest
from llmb_installer.detect.site import find_gpu
from llmb_installer.registry import size
from llmb_installer.wizard.question import Option, Question, View

TINY = "tiny"


def _types(view: View) -> list[Option]:
    slurm, runai = view.detected.slurm, view.detected.runai
    found = (
        "no sbatch here"
        if slurm is None
        else f"{slurm.cluster}, {len(slurm.partitions)} partitions"
        if slurm.cluster
        else "it does not answer"
    )
    return [
        Option("slurm", f"slurm: jobs through sbatch ({found})"),
        Option("runai", f"runai: jobs through Run:ai ({runai.base_url or 'BASE_URL is not set'})"),
        Option("local", "local: this machine alone, no scheduler"),
    ]


def _default_folder(view: View) -> str:
    detected = view.detected
    if detected.named is not None and detected.installed is None:
        return str(detected.named)
    if view.kind == "runai" and detected.runai.pvc_folder is not None:
        return str(detected.runai.pvc_folder / "llmb")
    if detected.cwd != detected.home and detected.cwd.is_dir() and not any(detected.cwd.iterdir()):
        return str(detected.cwd)
    return str(detected.home / "llmb")


def _check_folder(view: View, value: Any) -> str | None:
    text = str(value).strip()
    if not text or "$" in text:
        return "write the folder out"
    if (odd := unusable_in(text)) is not None:
        return f"it cannot be used: {odd}"
    try:
        found = find_folder(Path(text))
    except RuntimeError:
        return f"nobody knows the home folder in {text}: write the folder out"
    if not found.writable:
        return f"{found.nearest} cannot be written by you: choose another folder"
    other = found.path / CONFIG_FILE
    if other.is_file() and not re.search(rf"^cluster_type: {view.kind}\b", other.read_text("utf-8"), re.MULTILINE):
        return f"{found.path} holds an installation for another cluster type: choose another folder"
    return None


def _tell_folder(view: View, value: Any) -> str | None:
    found = find_folder(Path(str(value)))
    told = f"{free_text(found)}{'; an installation is there, and is gone on from' if _holds(found.path) else ''}"
    return f"{told}: compute nodes have to see it too" if view.kind != "local" and found.shared is False else told


def _holds(folder: Path) -> bool:
    return (folder / CONFIG_FILE).is_file()


def free_text(found: FolderFound) -> str:
    """Free space, and whether other machines see the folder."""
    seen = {True: "shared with other machines", False: "this machine's own", None: "shared or not: not known"}
    return f"{size(found.free)} free on {found.file_system}, {seen[found.shared]}"


def _gpu_types(view: View) -> list[Option]:
    known = [name for name in known_types() if name != CPU or view.kind != "runai"]
    found = view.slurm.gpu_types_of(str(view.at("slurm.gpu.partition") or "")) if view.kind == "slurm" else []
    return [Option(name, name) for name in dict.fromkeys([*found, *known])]


def _default_gpu(view: View) -> str:
    if view.kind == "local":
        return find_gpu("auto").gpu_type
    found = view.slurm.gpu_types_of(str(view.at("slurm.gpu.partition") or ""))
    return found[0] if found else "h100"


def _gpu_is_clear(view: View) -> bool:
    if view.kind == "slurm":
        return len(view.slurm.gpu_types_of(str(view.at("slurm.gpu.partition") or ""))) == 1
    return view.kind == "local"


def _gpu_layer(view: View, value: Any) -> dict[str, Any]:
    """The GPU type; where a partition has several, GRES has to name the one meant."""
    kinds = view.slurm.gpu_kinds(str(view.at("slurm.gpu.partition") or "")) if view.kind == "slurm" else []
    own = next((kind for kind in kinds if kind.gpu_type == value), None)
    if own is None or len(kinds) == 1:
        return {"gpu_type": value}
    return {"gpu_type": value, "slurm": {"gpu": {"gres": f"{own.gres_type}:{own.per_node}"}}}


def _is_unlike(view: View) -> bool:
    name = str(view.at("gpu_type"))
    return name not in known_types() and not view.at(f"gpu_types.{name}.like")


def _like_layer(view: View, value: Any) -> dict[str, Any]:
    return {"gpu_types": {str(view.at("gpu_type")): {"like": value}}}


def _default_architecture(view: View) -> str:
    if view.kind == "slurm":
        found = view.slurm.architecture_of(str(view.at("slurm.gpu.partition") or ""))
        if found in ARCHITECTURES:
            return str(found)
    return "aarch64" if view.rows == "gb200" else "x86_64"


def _architecture_is_clear(view: View) -> bool:
    found = view.slurm.architecture_of(str(view.at("slurm.gpu.partition") or ""))
    return view.kind == "runai" or found in ARCHITECTURES


def _workloads(view: View) -> list[Option]:
    width = max((len(key) for key in view.workloads), default=0)
    options = []
    for key, workload in view.workloads.items():
        told = []
        for gpu in gpu_types_of(view):
            sizes = [size for size in workload.on(_rows_of(view, gpu)) if size != TINY or _runs_tiny(view)]
            told += [f"{', '.join(sizes)} on {gpu}"] if sizes else []
        refused = "" if told else f"nothing for {', '.join(gpu_types_of(view))}"
        options.append(Option(key, f"{key:<{width}}  {'; '.join(told)}".rstrip(), refused))
    return options


def gpu_types_of(view: View) -> list[str]:
    """The cluster's GPU types by its own names, the default one first."""
    return [str(name) for name in dict.fromkeys([view.at("gpu_type"), *(view.at("gpu_types") or {})])]


def _rows_of(view: View, gpu: str) -> str:
    return str(view.at(f"gpu_types.{gpu}.like") or gpu)


def _runs_tiny(view: View) -> bool:
    return not view.uses_images


def _all_workloads(view: View) -> list[str]:
    return [option.value for option in _workloads(view) if not option.refused]


def _some(_: View, value: Any) -> str | None:
    return None if value else "choose at least one (space bar)"


VENV_TITLES = {"uv": "uv: quickest", "venv": "venv: Python's own, with pip", "conda": "conda"}

CLUSTER_TYPE = Question(
    key="cluster_type",
    label="cluster type",
    text="What runs the jobs?",
    kind="one",
    options=_types,
    default=lambda view: view.detected.cluster_type,
)
FOLDER = Question(
    key="install",
    label="install folder",
    text="Install folder:",
    kind="folder",
    default=_default_folder,
    check=_check_folder,
    note=_tell_folder,
    layer=lambda _, value: {"install": str(Path(str(value).strip()).expanduser().absolute())},
)
GPU_TYPE = Question(
    key="gpu_type",
    label="GPU type",
    text="Which GPUs?",
    kind="one",
    options=_gpu_types,
    default=_default_gpu,
    clear=_gpu_is_clear,
    layer=_gpu_layer,
)
LIKE = Question(
    key="like",
    label="its configurations",
    kind="one",
    text="llmb has no configurations for these GPUs. Take those of:",
    options=lambda _: [Option(name, name) for name in known_types() if name != CPU],
    default=lambda view: likeliest(str(view.at("gpu_type"))),
    applies=_is_unlike,
    layer=_like_layer,
)
ARCHITECTURE = Question(
    key="node_architecture",
    label="compute nodes are",
    text="Which processors do the compute nodes have?",
    kind="one",
    options=lambda _: [Option("x86_64", "x86_64: Intel, AMD"), Option("aarch64", "aarch64: Arm, as Grace is")],
    default=_default_architecture,
    applies=lambda view: view.kind != "local",
    clear=_architecture_is_clear,
)
VENV_TYPE = Question(
    key="venv_type",
    label="environments",
    text="How are environments of Python made?",
    kind="one",
    options=lambda view: [Option(kind, VENV_TITLES[kind]) for kind in view.detected.machine.venv_types],
    default=lambda view: view.detected.machine.venv_types[0],
    applies=lambda view: not view.uses_images,
    clear=lambda view: len(view.detected.machine.venv_types) == 1,
)
WORKLOADS = Question(
    key="workloads",
    label="workloads",
    text="Which workloads?",
    kind="many",
    options=_workloads,
    default=_all_workloads,
    check=_some,
)
NAME = Question(
    key="cluster_name",
    label="cluster name",
    text="Name of the cluster, for reports:",
    kind="text",
    default=lambda view: view.slurm.cluster or "slurm" if view.kind == "slurm" else view.kind,
    clear=lambda _: True,
    check=lambda _, value: None if str(value).strip() else "any name",
)
