# SPDX-License-Identifier: Apache-2.0
"""This machine: the tools for Python environments, its GPUs, and what a folder can be used for."""

import os
import platform
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from llmb.contract.gpus import CPU, known_types
from llmb.core import files, shell, yamlfile
from llmb.core.values import dataclass
from llmb_installer.answers.schema import AUTO, OLDEST_PYTHON

ANSWER_WITHIN = 30.0  # seconds; nvidia-smi is slow where the driver's persistence mode is off


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFound:
    """This machine. ``pythons`` are programs by version (``3.12``), the best venv type is first."""

    architecture: str
    pythons: Mapping[str, str]
    venv_types: tuple[str, ...]


def find_machine(environ: Mapping[str, str] | None = None) -> MachineFound:
    """Detect the tools on PATH. Starts no process."""
    search = (os.environ if environ is None else environ).get("PATH", os.defpath)
    tools = [("uv", "uv"), ("venv", None), ("conda", "conda")]
    kinds = [
        kind for kind, program in tools if program is None or shutil.which(program, path=search)
    ]
    return MachineFound(
        architecture=platform.machine(), pythons=_pythons(search), venv_types=tuple(kinds)
    )


def _pythons(search: str) -> dict[str, str]:
    """The first Python of each version on PATH, oldest version first."""
    programs: dict[tuple[int, int], str] = {}
    for folder in filter(None, search.split(os.pathsep)):
        for path in _list_pythons(Path(folder)):
            match = re.fullmatch(r"python3\.(\d+)", path.name)
            version = (3, int(match[1])) if match else (0, 0)
            if version >= OLDEST_PYTHON and version not in programs and os.access(path, os.X_OK):
                programs[version] = str(path)
    return {f"{major}.{minor}": programs[major, minor] for major, minor in sorted(programs)}


def _list_pythons(folder: Path) -> list[Path]:
    """Return the Pythons of a folder on PATH, none of one that this user may not enter."""
    try:
        return sorted(folder.glob("python3.*"))
    except OSError:
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFound:
    """The GPU type to install for. ``note`` is what the user should know about its detection."""

    gpu_type: str
    note: str = ""


def find_gpu(answer: str) -> GpuFound:
    """The GPU type ``answer``.

    For ``auto`` the type of this machine's first GPU, ``cpu`` without one.
    """
    if answer != AUTO:
        return GpuFound(gpu_type=answer)
    if shutil.which("nvidia-smi") is None:
        return GpuFound(gpu_type=CPU)
    completed = shell.run(
        ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], timeout=ANSWER_WITHIN
    )
    if completed.code != 0:
        lines = (completed.out + completed.err).strip().splitlines()
        reason = lines[0] if lines else f"exit code {completed.code}"
        return GpuFound(gpu_type=CPU, note=f"nvidia-smi finds no GPU ({reason}): gpu_type is cpu")
    return gpu_of_products(completed.out)


def gpu_of_products(names: str) -> GpuFound:
    """The GPU type for the output of nvidia-smi, one product name on each line."""
    name = names.strip().splitlines()[0].strip() if names.strip() else ""
    if (gpu_type := find_gpu_type(name)) is not None:
        return GpuFound(gpu_type=gpu_type)
    if not name:
        return GpuFound(gpu_type=CPU)
    return GpuFound(
        gpu_type=CPU,
        note=f"llmb does not know the GPU '{name}': gpu_type is cpu; set it to use the GPU",
    )


def find_gpu_type(name: str) -> str | None:
    """The known GPU type in a product's name or a GRES type.

    Whole words match: B200 is not GB200, H100 not H1000.
    """
    words = re.split(r"[^a-z0-9]+", name.lower())
    return next(
        (gpu_type for gpu_type in known_types() if gpu_type != CPU and gpu_type in words), None
    )


def invent_gpu_name(name: str) -> str:
    """Return a name for an unknown GPU type: the word with a model number, or all of ``name``."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    models = [word for word in words if re.fullmatch(r"[a-z]{1,3}\d{2,4}[a-z]{0,2}", word)]
    return next(iter(models), "-".join(words) or "gpu")


def find_likeliest(name: str) -> str:
    """Return the known GPU type whose configurations fit best."""
    gpu = known_types().get(find_gpu_type(name) or "")
    if gpu is not None and gpu.like is not None:
        return gpu.like
    letters = re.match(r"[a-z]*", invent_gpu_name(name))
    family = letters[0] if letters is not None else ""
    types = [gpu for gpu in known_types() if gpu != CPU]
    return next((gpu for gpu in types if re.sub(r"\d.*", "", gpu) == family), "h100")


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFound:
    """A folder that exists or will be created.

    ``nearest`` is the folder or its nearest existing parent. ``free`` is in bytes, on the file
    system mounted at ``mount``. ``shared`` is None if its type ``file_system`` does not show
    whether other machines see it.
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
    mount, kind = find_file_system(nearest.resolve(), _mounts())
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
    """Return True if other machines can see a file system of this type. None if that is unknown."""
    types = _file_systems()
    return (
        True if file_system in types["shared"] else False if file_system in types["local"] else None
    )


def is_of_kernel(file_system: str) -> bool:
    """Return True for a file system of the kernel, such as /proc, which stores no files."""
    return file_system in _file_systems()["kernel"]


def _file_systems() -> dict[str, list[str]]:
    types: dict[str, list[str]] = yamlfile.load_packaged(
        Path(__file__).with_name("file_systems.yaml")
    ).data
    return types


def find_file_system(path: Path, mounts: Iterable[tuple[str, str]]) -> tuple[Path, str]:
    """The mount point and type of the file system of ``path``.

    ``mounts`` are mount points and types.
    """
    match, depth = (Path("/"), "unknown"), -1
    for point, kind in mounts:
        mount = Path(point)
        if (path == mount or mount in path.parents) and len(mount.parts) >= depth:
            match, depth = (mount, kind), len(mount.parts)
    return match


def _mounts() -> list[tuple[str, str]]:
    import psutil

    return [(part.mountpoint, part.fstype) for part in psutil.disk_partitions(all=True)]
