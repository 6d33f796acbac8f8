# SPDX-License-Identifier: Apache-2.0
"""Everything that is detected before the first question: machine, Slurm, an installation."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmb.config import CONFIG_FILE, ClusterConfig, find_install
from llmb.config.cluster_type import ClusterType
from llmb.config.exemplar import CODE as EXEMPLAR
from llmb.config.slurm import SlurmConfig
from llmb.errors import UsageError
from llmb.system import files
from llmb.text import typed, yamlfile
from llmb_installer.answers.layers import given, joined, nested, with_layer
from llmb_installer.answers.schema import AUTO, sections_of, without_nulls
from llmb_installer.cluster_types import type_in
from llmb_installer.detect.machine import MachineFound, find_machine
from llmb_installer.detect.scheduler import SlurmFound, find_slurm
from llmb_installer.record import answers_path, own_config


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An install directory with its configuration."""

    path: Path
    config: ClusterConfig

    def answers(self) -> dict[str, Any]:
        """The answers it was installed by, overridden by its configuration, which a person may have edited."""
        path = answers_path(self.path)
        method = {"method": "srun"} if self.config.install.method == "slurm" else {}
        recorded: dict[str, Any] = yamlfile.load(path).data if path.is_file() else method
        found: dict[str, Any] = joined(recorded, self._configured())
        return found

    def _configured(self) -> dict[str, Any]:
        config, written = self.config, yamlfile.load(self.path / CONFIG_FILE).data

        def if_written(key: str, value: Any) -> Any:  # a missing key is detected again, not set to its default
            return value if given(written, key) else None

        data = {
            "cluster_type": config.cluster_type,
            "install": str(self.path),
            "gpu_type": config.gpu_type,
            "cluster_name": if_written("cluster_name", config.cluster_name),
            "node_architecture": if_written("install.node_architecture", config.install.node_architecture),
            "venv_type": if_written("install.venv_type", config.install.venv_type) or AUTO,
            "framework": config.install.framework,
            "bridge_release": config.install.bridge_release,
            "image_folder": typed.to_data(config.install.image_folder),
            "experiments_root": typed.to_data(config.experiments_root),
            "environment": dict(config.environment),
            "pass_environment": list(config.pass_environment) or None,
            "gpu_types": {name: without_nulls(typed.to_data(own)) for name, own in config.gpu_types.items()},
            **sections_of(config),
            "workloads": list(config.workloads.installed or ()) or None,
            "plugins": dict(config.plugins),
        }
        return dict(without_nulls(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """An install directory with an invalid configuration, or another tool's; the hint of ``error`` is the fix."""

    path: Path
    error: UsageError


def find_installed(option: Path | None, environ: Mapping[str, str], cwd: Path) -> Installed | Damaged | None:
    """The install directory that is named, else the nearest at or above ``cwd``; None without one."""
    if option is not None and not (cwd / option / CONFIG_FILE).is_file():
        return None
    try:
        folder = find_install(option, environ, cwd)
    except UsageError as error:
        return Damaged(path=Path(str(error.value)), error=error) if error.code == EXEMPLAR else None
    try:
        return Installed(path=folder, config=own_config(folder))
    except UsageError as error:
        return Damaged(path=folder, error=error)


def with_variables(document: yamlfile.Document, environ: Mapping[str, str]) -> tuple[yamlfile.Document, list[str]]:
    """Answers completed from the variables that the cluster type's questions name, and a note for each one used.

    Raises UsageError for a variable that is needed and invalid.
    """
    kind = type_in(document.data)
    if kind is None:
        return document, []
    used = []
    for key, variable, value in _answers_of(kind, document, environ):
        if not given(document.data, key):
            document = with_layer(document, nested(key, value), variable)
            used.append(f"{key} from {variable}")
    return document, used


def _answers_of(
    kind: ClusterType, document: yamlfile.Document, environ: Mapping[str, str]
) -> Iterator[tuple[str, str, Any]]:
    """The key, variable and value of each answer that the variables of the cluster type give."""
    own = kind.folder_variable
    if own and (named := environ.get("LLMB_INSTALL")):
        yield "install", "LLMB_INSTALL", named
    elif own and (folder := environ.get(own)):
        yield "install", own, str(Path(folder) / "llmb")
    for question in kind.questions:
        key, text = f"{kind.key}.{question.key}", environ.get(question.variable) if question.variable else None
        if not text or given(document.data, key):
            continue
        try:
            yield key, question.variable, question.parse(text)
        except ValueError as error:
            message, hint = f"{question.variable}: '{text}' cannot be used", str(error)
            code, name = "variable-invalid", question.variable
            raise UsageError(message, hint=hint, code=code, key=name, value=text) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """Everything that was detected; ``slurm`` is None without Slurm's commands, ``home`` is the user's folder.

    ``named`` is the folder in LLMB_INSTALL, whether or not it exists. ``damaged`` replaces ``installed`` where the
    configuration is invalid. ``environ``: the user's variables.
    """

    home: Path
    cwd: Path
    machine: MachineFound
    slurm: SlurmFound | None = None
    installed: Installed | None = None
    damaged: Damaged | None = None
    named: Path | None = None
    environ: Mapping[str, str] = field(default_factory=dict)

    def likely_type(self, types: Mapping[str, ClusterType]) -> str:
        """The likely cluster type: Slurm where it is configured, else one that detects itself, else local."""
        if self.slurm is not None and self.slurm.is_configured:
            return next(name for name, kind in types.items() if kind.has(SlurmConfig))
        found = [name for name, kind in types.items() if not kind.has(SlurmConfig) and detects(kind, self.environ)]
        here = [name for name, kind in types.items() if kind.traits_of(None).one_machine]
        return (found or here or [*types])[0]


def detects(kind: ClusterType, environ: Mapping[str, str]) -> str | None:
    """What a cluster type finds of its clusters here; None where there is none, or its plugin fails."""
    try:
        found = kind.detect(environ)
    except Exception:  # the user can choose it all the same, and its check reports what is wrong
        return None
    return found if isinstance(found, str) else None


def detect(environ: Mapping[str, str], cwd: Path, install: Path | None = None) -> Detected:
    """Detect everything for the user of ``environ``; ``install`` is the folder of ``--install``."""
    has_slurm = shutil.which("sbatch", path=environ.get("PATH")) is not None
    named = environ.get("LLMB_INSTALL")
    installed = find_installed(install, environ, cwd)
    return Detected(
        home=files.expand(environ.get("HOME") or "~"),
        cwd=cwd,
        machine=find_machine(environ),
        slurm=find_slurm(environ) if has_slurm else None,
        installed=installed if isinstance(installed, Installed) else None,
        damaged=installed if isinstance(installed, Damaged) else None,
        named=files.expand(named).absolute() if named else None,
        environ=environ,
    )
