# SPDX-License-Identifier: Apache-2.0
"""The whole examination: every finding, and which of them stand in the way of the configured cluster type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llmb import yamlfile
from llmb.config import load_config
from llmb.loader import load_plugins
from llmb.workload import Workload
from llmb_installer.answers import read_answers
from llmb_installer.detect.installed import Installed
from llmb_installer.detect.look import Detected
from llmb_installer.doctor import folders, machine, registries, runai, slurm
from llmb_installer.doctor.finding import Finding
from llmb_installer.record import answers_path
from llmb_installer.registry import RegistrySettings
from llmb_installer.steps.image import registry_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was found; ``cluster_type`` is the configured one, or the one asked about, None where neither is."""

    cluster_type: str | None
    install: Path | None
    findings: tuple[Finding, ...]

    @property
    def lacking(self) -> tuple[Finding, ...]:
        """What the cluster type cannot do without and is not there."""
        return tuple(one for one in self.findings if one.state == "missing" and self.cluster_type in one.needed_by)


def examine(
    detected: Detected, environ: Mapping[str, str], *, cluster_type: str | None = None, ask_registries: bool = False
) -> Examination:
    """Look at everything that ``cluster_type`` may need: that of the installation there is, if not said, else all."""
    config = load_config(detected.installed.path, environ)[0] if detected.installed is not None else None
    runs = config.experiments_root if config is not None else None
    kind = cluster_type or (config.cluster_type if config is not None else None)
    config = config if config is not None and config.cluster_type == kind else None
    folder = detected.installed.path if detected.installed is not None else detected.cwd
    own = config.slurm if config is not None else None
    containers = own.container == "pyxis" if own is not None else detected.slurm is not None and detected.slurm.pyxis
    found = [
        *machine.findings(detected.machine, environ, containers=containers),
        *folders.findings(folder, environ, is_installed=detected.installed is not None, runs=runs),
        *(slurm.findings(detected.slurm, own) if kind in (None, "slurm") else ()),
        *(runai.findings(detected.runai, config, environ) if kind in (None, "runai") else ()),
    ]
    if ask_registries:
        there = config.install.node_architecture if config is not None else detected.machine.architecture
        workloads = load_plugins().workloads()
        settings = _registry_settings(detected.installed, workloads)
        found += registries.findings(workloads, there, environ, detected.home, settings)
    return Examination(
        cluster_type=kind, install=detected.installed.path if detected.installed else None, findings=tuple(found)
    )


def _registry_settings(installed: Installed | None, workloads: Mapping[str, Workload]) -> RegistrySettings | None:
    """What the answers that the installation was made by say of registries. Raises InputFaults."""
    path = answers_path(installed.path) if installed is not None else None
    if installed is None or path is None or not path.is_file():
        return None
    return registry_settings(read_answers(yamlfile.load(path), install=installed.path, known=workloads).images)
