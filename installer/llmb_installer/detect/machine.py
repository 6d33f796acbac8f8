# SPDX-License-Identifier: Apache-2.0
"""This machine: the tools for Python environments, its GPUs, and what a folder can be used for."""

import os
import platform
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from llmb.system import files, shell
from llmb.text import yamlfile
from llmb.workload.gpus import CPU, known_types
from llmb_installer.answers.schema import AUTO

OLDEST = (3, 10)  # the oldest Python that runs the programs of compute nodes
ANSWER_WITHIN = 30.0  # seconds; nvidia-smi is slow where the driver's persistence mode is off


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFound:
    """This machine: ``pythons`` are programs by version (``3.12``), ``venv_types`` the available tools, best first."""

    architecture: str
    pythons: Mapping[str, str]
    venv_types: tuple[str, ...]


def find_machine(environ: Mapping[str, str] | None = None) -> MachineFound:
    """Detect the tools on PATH; starts no process."""
    search = (os.environ if environ is None else environ).get("PATH", os.defpath)
    tools = [("uv", "uv"), ("venv", None), ("conda", "conda")]
    kinds = [kind for kind, program in tools if program is None or shutil.which(program, path=search)]
    return MachineFound(architecture=platform.machine(), pythons=_pythons(search), venv_types=tuple(kinds))


def _pythons(search: str) -> dict[str, str]:
    """The first Python of each version on PATH, oldest version first."""
    found: dict[tuple[int, int], str] = {}
    for folder in filter(None, search.split(os.pathsep)):
        for path in sorted(Path(folder).glob("python3.*")):
            match = re.fullmatch(r"python3\.(\d+)", path.name)
            version = (3, int(match[1])) if match else (0, 0)
            if version >= OLDEST and version not in found and os.access(path, os.X_OK):
                found[version] = str(path)
    return {f"{major}.{minor}": found[major, minor] for major, minor in sorted(found)}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFound:
    """The GPU type to install for; ``note`` is what the user should know about its detection."""

    gpu_type: str
    note: str = ""


def find_gpu(answer: str) -> GpuFound:
    """The GPU type ``answer``; for ``auto`` the type of this machine's first GPU, ``cpu`` without one."""
    if answer != AUTO:
        return GpuFound(gpu_type=answer)
    if shutil.which("nvidia-smi") is None:
        return GpuFound(gpu_type=CPU)
    done = shell.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], timeout=ANSWER_WITHIN)
    if done.code != 0:
        lines = (done.out + done.err).strip().splitlines()
        reason = lines[0] if lines else f"exit code {done.code}"
        return GpuFound(gpu_type=CPU, note=f"nvidia-smi finds no GPU ({reason}): gpu_type is cpu")
    return gpu_of_products(done.out)


def gpu_of_products(names: str) -> GpuFound:
    """The GPU type for the output of nvidia-smi, one product name on each line."""
    name = names.strip().splitlines()[0].strip() if names.strip() else ""
    if (known := gpu_type_of(name)) is not None:
        return GpuFound(gpu_type=known)
    if not name:
        return GpuFound(gpu_type=CPU)
    return GpuFound(gpu_type=CPU, note=f"llmb does not know the GPU '{name}': gpu_type is cpu; set it to use the GPU")


def gpu_type_of(name: str) -> str | None:
    """The known GPU type in a product's name or a GRES type. Whole words match: B200 is not GB200, H100 not H1000."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return next((known for known in known_types() if known != CPU and known in words), None)


def own_name(name: str) -> str:
    """A name for an unknown GPU type: the word in ``name`` that has a model number, else all of ``name``."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    models = [word for word in words if re.fullmatch(r"[a-z]{1,3}\d{2,4}[a-z]{0,2}", word)]
    return next(iter(models), "-".join(words) or "gpu")


def likeliest(name: str) -> str:
    """The known GPU type whose configurations fit the GPU ``name`` best: the first of its family if it is unknown."""
    known = known_types().get(gpu_type_of(name) or "")
    if known is not None and known.like is not None:
        return known.like
    letters = re.match(r"[a-z]*", own_name(name))
    family = letters[0] if letters is not None else ""
    types = [known for known in known_types() if known != CPU]
    return next((known for known in types if re.sub(r"\d.*", "", known) == family), "h100")


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFound:
    """A folder that exists or will be created; ``nearest`` is the folder or its nearest existing parent.

    ``free`` is in bytes, on the file system mounted at ``mount``; ``shared`` is None where its type ``file_system``
    does not show whether other machines see it.
    """

    path: Path
    nearest: Path
    free: int
    mount: Path
    file_system: str
    shared: bool | None
    writable: bool


def find_folder(path: Path) -> FolderFound:
    """Examine ``path``, which need not exist."""
    path = files.expand(path).absolute()
    nearest = files.nearest_folder(path)
    mount, kind = file_system_of(nearest.resolve(), _mounts())
    return FolderFound(
        path=path,
        nearest=nearest,
        free=shutil.disk_usage(nearest).free,
        mount=mount,
        file_system=kind,
        shared=is_shared(kind),
        writable=not path.is_file() and os.access(nearest, os.W_OK | os.X_OK),
    )


def is_shared(file_system: str) -> bool | None:
    """Whether other machines can see a file system of this type; None where that is unknown."""
    types = yamlfile.load(Path(__file__).with_name("file_systems.yaml")).data
    return True if file_system in types["shared"] else False if file_system in types["local"] else None


def file_system_of(path: Path, mounts: Iterable[tuple[str, str]]) -> tuple[Path, str]:
    """The mount point and type of the file system of ``path``; ``mounts`` are mount points and types."""
    found, depth = (Path("/"), "unknown"), -1
    for point, kind in mounts:
        mount = Path(point)
        if (path == mount or mount in path.parents) and len(mount.parts) >= depth:
            found, depth = (mount, kind), len(mount.parts)
    return found


def _mounts() -> list[tuple[str, str]]:
    import psutil

    return [(part.mountpoint, part.fstype) for part in psutil.disk_partitions(all=True)]
