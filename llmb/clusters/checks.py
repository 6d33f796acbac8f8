# SPDX-License-Identifier: Apache-2.0
"""What may stand in the way of a run on any cluster type: its environment, inputs, secrets, GPUs, folders, disk."""

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from llmb.config import ClusterConfig
from llmb.errors import Fault, LlmbError
from llmb.runs import programs
from llmb.runs.launch import Launch
from llmb.system import secrets

_SITE = "lib/python3*/site-packages"


def lacking(venv: Path, wanted: Sequence[str]) -> dict[str, str]:
    """For each package that ``venv`` lacks what it has instead: ``no nemo``, ``torch 2.3.0 (needed: 2.4 or newer)``.

    ``wanted``: an importable folder's name, or a distribution with its least version, ``torch>=2.4``. Nothing can be
    said, and nothing is lacking, where the environment also takes the packages of another Python.
    """
    try:
        settings = (venv / "pyvenv.cfg").read_text(encoding="utf-8").lower().replace(" ", "")
    except (OSError, UnicodeDecodeError):  # conda's have none
        settings = ""
    if "include-system-site-packages=true" in settings:
        return {}
    return {one: said for one in wanted if (said := _lacks(venv, one)) is not None}


def _lacks(venv: Path, wanted: str) -> str | None:
    name, _, least = wanted.partition(">=")
    if not least:
        return None if any(venv.glob(f"{_SITE}/{name}")) else f"no {name}"
    found = version_of(venv, name)
    if found is None:
        return f"no {name}"
    return None if _numbers(found) >= _numbers(least) else f"{name} {found} (needed: {least} or newer)"


def version_of(venv: Path, name: str) -> str | None:
    """The version of a distribution, by the name of its dist-info folder; None where there is none."""
    for path in venv.glob(f"{_SITE}/*.dist-info"):
        own, _, version = path.name.removesuffix(".dist-info").partition("-")
        if _plain(own) == _plain(name):
            return version
    return None


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _numbers(version: str) -> tuple[int, ...]:
    """Major and minor version."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


MIN_FREE = 1_000_000_000  # bytes, for logs and profiles
_GB = 1e9
_OTHER_VENV = "venv_path in cluster_config.yaml names another environment"


def faults_of_venv(launch: Launch, config: ClusterConfig) -> Iterator[Fault]:
    """Whether the environment of Python that ``launch`` runs in is there."""
    hint = f"llmb-install add {workload_of(launch, config)} --install {shlex.quote(str(config.llmb_install))} --yes"
    if launch.venv is None:
        yield Fault(message=f"{launch.name} has no environment of Python installed", hint=hint)
    elif not os.access(python := f"{launch.venv}/bin/python", os.X_OK):
        yield Fault(message=f"{python} is not there", hint=f"{hint}; {_OTHER_VENV}")
    elif lacks := lacking(Path(launch.venv), launch.packages):
        message = f"the environment {launch.venv} of {launch.name} has {' and '.join(lacks.values())}"
        yield Fault(message=message, hint=launch.fixes.get(next(iter(lacks)), f"{hint}; {_OTHER_VENV}"))


def faults_of_launch(launch: Launch, config: ClusterConfig) -> Iterator[Fault]:
    """Whether the GPUs have the memory that ``launch`` needs, where it is known, and its input files are there."""
    gpu_type = launch.gpu_type or config.gpu_type
    has = config.gpu(gpu_type).memory_gb
    if launch.gpu_memory_gb is not None and has is not None and has < launch.gpu_memory_gb:
        message = f"{launch.name} needs GPUs with {launch.gpu_memory_gb:g} GB of memory, and {gpu_type} has {has:g} GB"
        hint = f"another configuration; gpu_types.{gpu_type}.memory_gb in cluster_config.yaml, where they have more"
        yield Fault(message=message, hint=hint)
    for pattern in launch.inputs:
        if not matches(pattern):
            yield Fault(
                message=f"{launch.name} reads {pattern}, and no such file is there", hint=launch.fixes.get(pattern)
            )


def matches(pattern: str) -> bool:
    """Whether a file matches ``pattern``, whose wildcards are in its last part alone."""
    path = Path(pattern)
    return path.parent.is_dir() and any(path.parent.glob(path.name))


def faults_of_secrets(launches: Sequence[Launch], environ: Mapping[str, str]) -> Iterator[Fault]:
    """The secrets that these launches name and nobody has set."""
    named = {name: launch for launch in reversed(launches) for name in launch.secrets}
    if not named:
        return
    try:
        found = secrets.find(list(named), environ)
    except LlmbError as error:
        yield Fault(message=error.message, hint=error.hint)
        return
    for name, launch in named.items():
        if name not in found:
            fix = launch.fixes.get(name, f"export it, or keep it in {secrets.SECRETS_FILE}")
            yield Fault(message=f"{name} is not set", hint=fix)


def faults_of_place(config: ClusterConfig, digest: str, launches: Sequence[Launch] = ()) -> Iterator[Fault]:
    """What stands in the way of any run: where runs and the programs of that ``digest`` are written, and the disk."""
    runs = config.experiments_root or config.llmb_install / "workloads"
    yield from _folder_faults(runs, "experiments_root in ~/.config/llmb/config.yaml names a folder of your own")
    staged = programs.path(config.llmb_install, digest)
    if not staged.is_dir():
        yield from _folder_faults(staged, "whoever owns the install directory submits once, or makes it writable")
    free, asked = shutil.disk_usage(_existing(runs)).free, sum(launch.disk_gb for launch in launches)
    if free < MIN_FREE + asked * _GB:
        needs = f"these runs need {asked:,.0f} GB for checkpoints" if asked else "a run needs 1 GB"
        yield Fault(message=f"{runs} has {free / _GB:,.1f} GB free, {needs}", hint="free some space there")


def workload_of(launch: Launch, config: ClusterConfig) -> str:
    """The workload of ``launch`` for a hint; of an older run's, which does not say it, as well as its name tells it."""
    keys = [*config.workloads.config, *(config.workloads.installed or ())]
    named = (key for key in keys if launch.name.startswith(key))
    return launch.workload or max(named, key=len, default=launch.name)


def _folder_faults(folder: Path, hint: str) -> Iterator[Fault]:
    nearest = _existing(folder)
    if not os.access(nearest, os.W_OK | os.X_OK):
        yield Fault(message=f"{nearest} is not writable", hint=hint)


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())
