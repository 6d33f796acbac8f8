# SPDX-License-Identifier: Apache-2.0
"""Checks before a submission: environment, inputs, secrets, GPUs, folders, disk."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmb.contract.launch import ENVIRONMENT, PREVIEW_ID, PREVIEW_TIMESTAMP, Launch, Stamp
from llmb.contract.schema import ClusterConfig
from llmb.core import files, secrets
from llmb.core.versions import minor_of
from llmb.errors import Fault, LlmbError, as_fault
from llmb.kit import programs

if TYPE_CHECKING:
    from llmb.contract.cluster import Cluster

MIN_FREE = 1_000_000_000  # bytes, for logs and profiles
_GB = 1e9
_OTHER_VENV = "or name another environment by venv_path in cluster_config.yaml"
_SITE = "lib/python3*/site-packages"


def faults_of_venv(launch: Launch, config: ClusterConfig) -> Iterator[Fault]:
    """Check that the Python environment of ``launch`` exists and has the packages that it needs."""
    hint = launch.fixes.get(ENVIRONMENT, install_command(launch, config))
    if launch.venv is None:
        if not any(program.is_python for program in launch.programs):
            return
        yield Fault(
            message=f"{launch.name} has no Python environment",
            hint=hint,
            code="venv-not-set",
            key=launch.name,
        )
    elif not os.access(python := f"{launch.venv}/bin/python", os.X_OK):
        message, hint = f"{python} does not exist", f"{hint}; {_OTHER_VENV}"
        if _is_hidden(python):  # a new installation would be refused too
            message = f"you may not use {os.path.realpath(python)}, the Python of {launch.venv}"
            hint = f"ask its owner for read permission; {_OTHER_VENV}"
        yield Fault(message=message, hint=hint, code="venv-missing", value=launch.venv)
    elif lacks := lacking(Path(launch.venv), launch.packages):
        yield Fault(
            message=(
                f"the environment {launch.venv} of {launch.name} has {' and '.join(lacks.values())}"
            ),
            hint=launch.fixes.get(next(iter(lacks)), f"{hint}; {_OTHER_VENV}"),
            code="package-missing",
            key=launch.venv,
            value=tuple(lacks),
        )


def _is_hidden(path: str) -> bool:
    """Return True if a program is, or may be, at ``path``, and this user may not start it.

    A Python in its owner's home folder is such a one.
    """
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except PermissionError:
        return True
    except OSError:
        return False


def lacking(venv: Path, packages: Sequence[str]) -> dict[str, str]:
    """Return what ``venv`` has instead of each package that it lacks.

    For example ``no nemo`` or ``torch 2.3.0 (needed: 2.4 or newer)``. ``packages``: an importable
    folder's name, or a distribution with its least version, ``torch>=2.4``. Reads files alone and
    starts no process. Empty if the environment also uses the packages of another Python: they are
    unknown.
    """
    try:
        settings = (venv / "pyvenv.cfg").read_text(encoding="utf-8").lower().replace(" ", "")
    except (OSError, UnicodeDecodeError):  # conda's environments have none
        settings = ""
    if "include-system-site-packages=true" in settings:
        return {}
    return {name: instead for name in packages if (instead := _instead_of(venv, name)) is not None}


def _instead_of(venv: Path, package: str) -> str | None:
    name, _, least = package.partition(">=")
    if not least:
        return None if any(venv.glob(f"{_SITE}/{name}")) else f"no {name}"
    version = _version_of(venv, name)
    if version is None:
        return f"no {name}"
    return (
        None
        if minor_of(version) >= minor_of(least)
        else f"{name} {version} (needed: {least} or newer)"
    )


def _version_of(venv: Path, name: str) -> str | None:
    """Return the version of a distribution by the name of its dist-info folder, or None."""
    for path in venv.glob(f"{_SITE}/*.dist-info"):
        distribution, _, version = path.name.removesuffix(".dist-info").partition("-")
        if _plain(distribution) == _plain(name):
            return version
    return None


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def faults_of_launch(launch: Launch, config: ClusterConfig) -> Iterator[Fault]:
    """Check the memory of the GPUs, as far as it is known, and the input files of ``launch``."""
    gpu_type = launch.gpu_type or config.gpu_type
    has = config.gpu(gpu_type).memory_gb
    if launch.gpu_memory_gb is not None and has is not None and has < launch.gpu_memory_gb:
        needs = f"needs GPUs with {launch.gpu_memory_gb:g} GB of memory"
        yield Fault(
            message=f"{launch.name} {needs}, and {gpu_type} has {has:g} GB",
            hint=(
                "choose another configuration; if your GPUs have more memory, "
                f"set gpu_types.{gpu_type}.memory_gb in cluster_config.yaml"
            ),
            code="gpu-memory",
            key=f"gpu_types.{gpu_type}.memory_gb",
            value=has,
        )
    for pattern in launch.inputs:
        if not matches(pattern):
            message = f"{launch.name} reads {pattern}, and no such file exists"
            yield Fault(
                message=message, hint=launch.fixes.get(pattern), code="input-missing", value=pattern
            )


def matches(pattern: str) -> bool:
    """Return True if a file matches ``pattern``, which has wildcards only in its last part."""
    path = Path(pattern)
    return path.parent.is_dir() and any(path.parent.glob(path.name))


def faults_of_secrets(launches: Sequence[Launch], environ: Mapping[str, str]) -> Iterator[Fault]:
    """Yield a fault for each secret that these launches need and that is not set."""
    named = {name: launch for launch in reversed(launches) for name in launch.secrets}
    if not named:
        return
    try:
        values = secrets.find(list(named), environ)
    except LlmbError as error:
        yield as_fault(error)
        return
    for name, launch in named.items():
        if name not in values:
            fix = launch.fixes.get(name, f"export it, or put it into {secrets.SECRETS_FILE}")
            yield Fault(message=f"{name} is not set", hint=fix, code="secret-missing", key=name)


def secrets_at(
    cluster: Cluster | None, launches: Sequence[Launch], environ: Mapping[str, str]
) -> Iterable[Fault]:
    """The secrets that a submission of these launches would lack, as far as a dry run can see.

    They come from this shell, unless the cluster has a method ``faults_of_secrets(launches)``.
    """
    ask = getattr(cluster, "faults_of_secrets", None)
    faults: Iterable[Fault] = (
        ask(launches) if ask is not None else faults_of_secrets(launches, environ)
    )
    return faults


def faults_of_folders(
    config: ClusterConfig, digest: str, launches: Sequence[Launch] = ()
) -> Iterator[Fault]:
    """Check that the folders of runs and of the programs are writable, and the disk has space."""
    runs = config.runs_root
    yield from _folder_faults(
        runs, "set experiments_root in ~/.config/llmb/config.yaml to a folder of yours"
    )
    staged = programs.path(config.llmb_install, digest)
    if not files.is_folder(staged):
        yield from _folder_faults(
            staged, "let the owner of the install directory submit once, or make it writable"
        )
    needed = sum(launch.disk_gb for launch in launches)
    try:
        free = shutil.disk_usage(files.nearest_folder(runs)).free
    except OSError as error:
        message, hint = f"{runs} cannot be read: {error.strerror}", "check its file system"
        yield Fault(message=message, hint=hint, code="folder-unreadable", key=str(runs))
        return
    if free < MIN_FREE + needed * _GB:
        needs = (
            f"these runs need {needed:,.0f} GB for checkpoints" if needed else "a run needs 1 GB"
        )
        yield Fault(
            message=f"{runs} has {free / _GB:,.1f} GB free, {needs}",
            hint="free some space there",
            code="disk-full",
            key=str(runs),
            value=free,
        )


def preview_stamp(launch: Launch, config: ClusterConfig, workload: str = "w") -> Stamp:
    """The stamp of a preview of ``launch``."""
    folder = f"{launch.name}_{PREVIEW_TIMESTAMP}"
    path = config.experiments(workload).joinpath(launch.name, folder)
    return Stamp(id=PREVIEW_ID, timestamp=PREVIEW_TIMESTAMP, directory=str(path))


def workload_of(launch: Launch, config: ClusterConfig) -> str:
    """Return the workload of ``launch``, for a hint.

    A run of an older release does not name it, so its name is used.
    """
    keys = [*config.workloads.config, *(config.workloads.installed or ())]
    named = (key for key in keys if launch.name.startswith(key))
    return launch.workload or max(named, key=len, default=launch.name)


def install_command(launch: Launch, config: ClusterConfig) -> str:
    """The command that installs the workload of ``launch`` as the recorded answers say."""
    folder = shlex.quote(str(config.llmb_install))
    return f"llmb-install add {workload_of(launch, config)} --install {folder} --yes"


def _folder_faults(folder: Path, hint: str) -> Iterator[Fault]:
    nearest = files.nearest_folder(folder)
    if not os.access(nearest, os.W_OK | os.X_OK):
        yield Fault(
            message=f"{nearest} is not writable",
            hint=hint,
            code="folder-not-writable",
            value=str(nearest),
        )
