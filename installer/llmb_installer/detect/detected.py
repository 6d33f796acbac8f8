# SPDX-License-Identifier: Apache-2.0
"""Everything that is detected before the first question: machine, Slurm, an installation."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from llmb.contract.cluster_type import ClusterType
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.schema import ClusterConfig
from llmb.core import files, typed, yamlfile
from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.plan.locate import CONFIG_FILE, find_install
from llmb_installer.answers.layers import has_key, join, nest, override
from llmb_installer.answers.schema import AUTO, collect_sections, drop_nulls
from llmb_installer.cluster_types import type_in
from llmb_installer.detect.machine import MachineFound, find_machine
from llmb_installer.detect.scheduler import SlurmFound, find_slurm
from llmb_installer.record import answers_path, read_own_config


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallDirectory:
    """An install directory with its configuration."""

    path: Path
    config: ClusterConfig

    def answers(self) -> dict[str, Any]:
        """Return the recorded answers, overridden by the configuration, which people may edit."""
        path = answers_path(self.path)
        method = {"method": "srun"} if self.config.install.method == "slurm" else {}
        recorded: dict[str, Any] = yamlfile.load(path).data if path.is_file() else method
        answers: dict[str, Any] = join(recorded, self._configured())
        return answers

    def _configured(self) -> dict[str, Any]:
        config, written = self.config, yamlfile.load(self.path / CONFIG_FILE).data

        # a missing key is detected again, not set to its default
        def if_written(key: str, value: Any) -> Any:
            return value if has_key(written, key) else None

        data = {
            "cluster_type": config.cluster_type,
            "install": str(self.path),
            "gpu_type": config.gpu_type,
            "cluster_name": if_written("cluster_name", config.cluster_name),
            "node_architecture": if_written(
                "install.node_architecture", config.install.node_architecture
            ),
            "venv_type": if_written("install.venv_type", config.install.venv_type) or AUTO,
            "framework": config.install.framework,
            "bridge_release": config.install.bridge_release,
            "image_folder": typed.to_data(config.install.image_folder),
            "experiments_root": typed.to_data(config.experiments_root),
            "environment": dict(config.environment),
            "pass_environment": list(config.pass_environment) or None,
            "gpu_types": {
                name: drop_nulls(typed.to_data(settings))
                for name, settings in config.gpu_types.items()
            },
            **collect_sections(config),
            "workloads": list(config.workloads.installed or ()) or None,
            "plugins": dict(config.plugins),
        }
        return dict(drop_nulls(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """An install directory with an invalid configuration, or another tool's.

    The hint of ``error`` is the fix.
    """

    path: Path
    error: UsageError


def find_installed(
    option: Path | None, environ: Mapping[str, str], cwd: Path
) -> InstallDirectory | Damaged | None:
    """Return the named install directory, or the nearest at or above ``cwd``. None without one."""
    if option is not None and not (cwd / option / CONFIG_FILE).is_file():
        return None
    try:
        folder = find_install(option, environ, cwd)
    except UsageError:
        return None
    try:
        return InstallDirectory(path=folder, config=read_own_config(folder))
    except UsageError as error:
        return Damaged(path=folder, error=error)


def add_variables(
    document: yamlfile.Document, environ: Mapping[str, str]
) -> tuple[yamlfile.Document, list[str]]:
    """Complete answers from the variables of the cluster type's questions.

    Also return their names. Raises UsageError for a variable that is needed and invalid.
    """
    kind = type_in(document.data)
    if kind is None:
        return document, []
    used = []
    for key, variable, value in _answers_of(kind, document, environ):
        if not has_key(document.data, key):
            document = override(document, nest(key, value), variable)
            used.append(f"{key} from {variable}")
    return document, used


def _answers_of(
    kind: ClusterType, document: yamlfile.Document, environ: Mapping[str, str]
) -> Iterator[tuple[str, str, Any]]:
    """The key, variable and value of each answer that the variables of the cluster type give."""
    folder_variable = kind.folder_variable
    if folder_variable and (named := environ.get("LLMB_INSTALL")):
        yield "install", "LLMB_INSTALL", named
    elif folder_variable and (folder := environ.get(folder_variable)):
        yield "install", folder_variable, str(Path(folder) / "llmb")
    for question in kind.questions:
        key, text = (
            f"{kind.key}.{question.key}",
            environ.get(question.variable) if question.variable else None,
        )
        if not text or has_key(document.data, key):
            continue
        try:
            yield key, question.variable, question.parse(text)
        except ValueError as error:
            message, hint = f"{question.variable}: '{text}' cannot be used", str(error)
            code, name = "variable-invalid", question.variable
            raise UsageError(message, hint=hint, code=code, key=name, value=text) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """Everything that was detected.

    ``slurm`` is None without Slurm's commands, ``home`` is the user's folder. ``named`` is the
    folder in LLMB_INSTALL, which need not exist. ``damaged`` replaces ``installed`` if the
    configuration is invalid. ``environ`` has the user's variables.
    """

    home: Path
    cwd: Path
    machine: MachineFound
    slurm: SlurmFound | None = None
    installed: InstallDirectory | None = None
    damaged: Damaged | None = None
    named: Path | None = None
    environ: Mapping[str, str] = field(default_factory=dict)

    def likely_type(self, types: Mapping[str, ClusterType]) -> str:
        """Return the likely cluster type: a configured Slurm, one that detects itself, or local."""
        if self.slurm is not None and self.slurm.is_configured:
            return next(name for name, kind in types.items() if kind.has(SlurmConfig))
        candidates = [
            name
            for name, kind in types.items()
            if not kind.has(SlurmConfig) and detect_clusters(kind, self.environ)
        ]
        single = [name for name, kind in types.items() if kind.traits_of(None).one_machine]
        return (candidates or single or [*types])[0]


def detect_clusters(kind: ClusterType, environ: Mapping[str, str]) -> str | None:
    """Return the cluster type's own words on its clusters here. None without any, or on failure."""
    try:
        clusters = kind.detect(environ)
    except Exception:  # the user can choose it all the same, and its check reports what is wrong
        return None
    return clusters if isinstance(clusters, str) else None


def detect(
    environ: Mapping[str, str],
    cwd: Path,
    install: Path | None = None,
    cluster: str | None = None,
) -> Detected:
    """Detect everything for the user of ``environ``. ``install`` is the folder of ``--install``.

    ``cluster`` names the Slurm cluster, by default that of an installation here.
    """
    has_slurm = shutil.which("sbatch", path=environ.get("PATH")) is not None
    named = environ.get("LLMB_INSTALL")
    installed = find_installed(install, environ, cwd)
    if (
        cluster is None
        and isinstance(installed, InstallDirectory)
        and installed.config.slurm is not None
    ):
        cluster = installed.config.slurm.clusters
    return Detected(
        home=files.expand(environ.get("HOME") or "~"),
        cwd=cwd,
        machine=find_machine(environ),
        slurm=find_slurm(environ, cluster=cluster) if has_slurm else None,
        installed=installed if isinstance(installed, InstallDirectory) else None,
        damaged=installed if isinstance(installed, Damaged) else None,
        named=files.expand(named).absolute() if named else None,
        environ=environ,
    )
