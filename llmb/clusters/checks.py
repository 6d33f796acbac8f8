# SPDX-License-Identifier: Apache-2.0
"""Pre-submission checks of every cluster type: environment, inputs, secrets, GPUs, folders, disk."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmb.config import ClusterConfig
from llmb.errors import Fault, LlmbError, as_fault
from llmb.runs import programs
from llmb.runs.launch import ENVIRONMENT, PREVIEW_ID, PREVIEW_TIMESTAMP, Launch, Stamp
from llmb.system import files, secrets

if TYPE_CHECKING:
    from llmb.clusters.base import Cluster

MIN_FREE = 1_000_000_000  # bytes, for logs and profiles
_GB = 1e9
_OTHER_VENV = "or name another environment by venv_path in cluster_config.yaml"
_SITE = "lib/python3*/site-packages"


def faults_of_venv(launch: Launch, config: ClusterConfig) -> Iterator[Fault]:
    """Whether the Python environment of ``launch`` exists and has the packages that it needs."""
    hint = launch.fixes.get(ENVIRONMENT, install_command(launch, config))
    if launch.venv is None:
        if not any(one.is_python for one in launch.programs):
            return
        yield Fault(message=f"{launch.name} has no Python environment", hint=hint, code="venv-not-set", key=launch.name)
    elif not os.access(python := f"{launch.venv}/bin/python", os.X_OK):
        message = f"{python} does not exist"
        yield Fault(message=message, hint=f"{hint}; {_OTHER_VENV}", code="venv-missing", value=launch.venv)
    elif lacks := lacking(Path(launch.venv), launch.packages):
        yield Fault(
            message=f"the environment {launch.venv} of {launch.name} has {' and '.join(lacks.values())}",
            hint=launch.fixes.get(next(iter(lacks)), f"{hint}; {_OTHER_VENV}"),
            code="package-missing",
            key=launch.venv,
            value=tuple(lacks),
        )


def lacking(venv: Path, wanted: Sequence[str]) -> dict[str, str]:
    """What ``venv`` has instead of each package that it lacks: ``no nemo``, ``torch 2.3.0 (needed: 2.4 or newer)``.

    ``wanted``: an importable folder's name, or a distribution with its least version, ``torch>=2.4``. Reads files alone
    and starts no process. Empty where the environment also uses the packages of another Python: they are unknown.
    """
    try:
        settings = (venv / "pyvenv.cfg").read_text(encoding="utf-8").lower().replace(" ", "")
    except (OSError, UnicodeDecodeError):  # conda's environments have none
        settings = ""
    if "include-system-site-packages=true" in settings:
        return {}
    return {name: instead for name in wanted if (instead := _instead_of(venv, name)) is not None}


def _instead_of(venv: Path, wanted: str) -> str | None:
    name, _, least = wanted.partition(">=")
    if not least:
        return None if any(venv.glob(f"{_SITE}/{name}")) else f"no {name}"
    found = _version_of(venv, name)
    if found is None:
        return f"no {name}"
    return None if _numbers(found) >= _numbers(least) else f"{name} {found} (needed: {least} or newer)"


def _version_of(venv: Path, name: str) -> str | None:
    """The version of a distribution, from the name of its dist-info folder; None where there is none."""
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


def faults_of_launch(launch: Launch, config: ClusterConfig) -> Iterator[Fault]:
    """Whether the GPUs have the memory that ``launch`` needs, as far as it is known, and its input files exist."""
    gpu_type = launch.gpu_type or config.gpu_type
    has = config.gpu(gpu_type).memory_gb
    if launch.gpu_memory_gb is not None and has is not None and has < launch.gpu_memory_gb:
        needs = f"needs GPUs with {launch.gpu_memory_gb:g} GB of memory"
        yield Fault(
            message=f"{launch.name} {needs}, and {gpu_type} has {has:g} GB",
            hint="choose another configuration; if your GPUs have more memory, "
            f"set gpu_types.{gpu_type}.memory_gb in cluster_config.yaml",
            code="gpu-memory",
            key=f"gpu_types.{gpu_type}.memory_gb",
            value=has,
        )
    for pattern in launch.inputs:
        if not matches(pattern):
            message = f"{launch.name} reads {pattern}, and no such file exists"
            yield Fault(message=message, hint=launch.fixes.get(pattern), code="input-missing", value=pattern)


def matches(pattern: str) -> bool:
    """Whether a file matches ``pattern``, which has wildcards only in its last part."""
    path = Path(pattern)
    return path.parent.is_dir() and any(path.parent.glob(path.name))


def faults_of_secrets(launches: Sequence[Launch], environ: Mapping[str, str]) -> Iterator[Fault]:
    """The secrets that these launches need and that are not set."""
    named = {name: launch for launch in reversed(launches) for name in launch.secrets}
    if not named:
        return
    try:
        found = secrets.find(list(named), environ)
    except LlmbError as error:
        yield as_fault(error)
        return
    for name, launch in named.items():
        if name not in found:
            fix = launch.fixes.get(name, f"export it, or put it into {secrets.SECRETS_FILE}")
            yield Fault(message=f"{name} is not set", hint=fix, code="secret-missing", key=name)


def secrets_at(cluster: Cluster | None, launches: Sequence[Launch], environ: Mapping[str, str]) -> Iterable[Fault]:
    """The secrets that a submission of these launches would lack, as far as a dry run can see.

    They come from this shell, unless the cluster has a method ``faults_of_secrets(launches)``.
    """
    ask = getattr(cluster, "faults_of_secrets", None)
    found: Iterable[Fault] = ask(launches) if ask is not None else faults_of_secrets(launches, environ)
    return found


def faults_of_folders(config: ClusterConfig, digest: str, launches: Sequence[Launch] = ()) -> Iterator[Fault]:
    """Whether the folders of runs and of the programs of ``digest`` are writable, and the disk has enough space."""
    runs = config.experiments_root or config.llmb_install / "workloads"
    yield from _folder_faults(runs, "set experiments_root in ~/.config/llmb/config.yaml to a folder of yours")
    staged = programs.path(config.llmb_install, digest)
    if not staged.is_dir():
        yield from _folder_faults(staged, "let the owner of the install directory submit once, or make it writable")
    free, asked = shutil.disk_usage(files.nearest_folder(runs)).free, sum(launch.disk_gb for launch in launches)
    if free < MIN_FREE + asked * _GB:
        needs = f"these runs need {asked:,.0f} GB for checkpoints" if asked else "a run needs 1 GB"
        message = f"{runs} has {free / _GB:,.1f} GB free, {needs}"
        yield Fault(message=message, hint="free some space there", code="disk-full", key=str(runs), value=free)


def preview_stamp(launch: Launch, config: ClusterConfig, workload: str = "w") -> Stamp:
    """The stamp of a preview of ``launch``."""
    root = config.experiments(workload) / launch.name / f"{launch.name}_{PREVIEW_TIMESTAMP}"
    return Stamp(id=PREVIEW_ID, timestamp=PREVIEW_TIMESTAMP, directory=str(root))


def workload_of(launch: Launch, config: ClusterConfig) -> str:
    """The workload of ``launch``, for a hint; a run of an older release does not name it, so its name is used."""
    keys = [*config.workloads.config, *(config.workloads.installed or ())]
    named = (key for key in keys if launch.name.startswith(key))
    return launch.workload or max(named, key=len, default=launch.name)


def install_command(launch: Launch, config: ClusterConfig) -> str:
    """The command that installs the workload of ``launch`` as the recorded answers say."""
    where = shlex.quote(str(config.llmb_install))
    return f"llmb-install add {workload_of(launch, config)} --install {where} --yes"


def _folder_faults(folder: Path, hint: str) -> Iterator[Fault]:
    nearest = files.nearest_folder(folder)
    if not os.access(nearest, os.W_OK | os.X_OK):
        yield Fault(message=f"{nearest} is not writable", hint=hint, code="folder-not-writable", value=str(nearest))
