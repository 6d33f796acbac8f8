# SPDX-License-Identifier: Apache-2.0
"""The whole examination: every finding, and which of them stand in the way of the configured cluster type."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from llmb.builtin import builtin_plugins
from llmb.config import ClusterConfig
from llmb.errors import LlmbError
from llmb.plugins.loader import load_plugins
from llmb.text import yamlfile
from llmb.workload.gpus import CPU
from llmb.workload.spec import Workload
from llmb_installer.answers import read_answers
from llmb_installer.detect.look import Detected
from llmb_installer.doctor import folders, machine, registries, runai_findings, slurm_findings
from llmb_installer.doctor.finding import ALL, LOCAL, RUNAI, SLURM, Finding, wrong
from llmb_installer.doctor.installation import Installation, look_at
from llmb_installer.doctor.registries import CHECK as IMAGES
from llmb_installer.images.image_step import registry_settings
from llmb_installer.record import answers_path
from llmb_installer.registry import RegistrySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was found; ``cluster_type`` is the configured one, or the one asked about, None where neither is."""

    cluster_type: str | None
    install: Path | None
    findings: tuple[Finding, ...]

    @property
    def lacking(self) -> tuple[Finding, ...]:
        """What the cluster type cannot do without and is not there or wrong; where the type is not known, what no type
        can do without: of an installation all of it, else what is wrong already; and the images, which are only looked
        for on demand."""
        states = ("wrong",) if self.cluster_type is None and self.install is None else ("missing", "wrong")
        faults = (one for one in self.findings if one.state in states or (one.check == IMAGES and one.state != "ok"))
        if self.cluster_type is None:
            return tuple(one for one in faults if {*one.needed_by} == {*ALL} or one.check == IMAGES)
        return tuple(one for one in faults if self.cluster_type in one.needed_by)


def examine(
    detected: Detected,
    environ: Mapping[str, str],
    *,
    install: Path | None = None,
    cluster_type: str | None = None,
    ask_registries: bool = False,
) -> Examination:
    """Look at everything that ``cluster_type`` may need: that of the installation there is, if not said, else all.

    ``install`` is the folder that was named, be it there or not.
    """
    there = look_at(detected, environ, install)
    kind = cluster_type or there.cluster_type
    config = there.config if there.config is not None and there.config.cluster_type == kind else None
    runs = there.config.experiments_root if there.config is not None else None
    own = config.slurm if config is not None else None
    containers = own.container == "pyxis" if own is not None else detected.slurm is not None and detected.slurm.pyxis
    cpu_alone = config is not None and kind == LOCAL and config.gpu_type == CPU
    found = [
        *there.findings,
        *machine.findings(detected.machine, environ, containers=containers, cpu_alone=cpu_alone),
        *folders.findings(there.folder, environ, is_installed=there.path is not None, runs=runs, alone=kind == LOCAL),
        *(slurm_findings.findings(detected.slurm, own) if kind in (None, SLURM) else ()),
        *(runai_findings.findings(detected.runai, config, environ) if kind in (None, RUNAI) else ()),
        *(_registries(detected, there, config, environ) if ask_registries else ()),
    ]
    return Examination(cluster_type=kind, install=there.path, findings=tuple(found))


def _registries(
    detected: Detected, there: Installation, config: ClusterConfig | None, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Whether the images can be had, asked as the installation asks."""
    architecture = config.install.node_architecture if config is not None else detected.machine.architecture
    workloads = load_plugins(builtin_plugins()).workloads()
    try:
        settings = _registry_settings(there.path, workloads)
        yield from registries.findings(workloads, architecture, environ, detected.home, settings)
    except LlmbError as error:
        yield wrong(IMAGES, error, (SLURM, RUNAI))


def _registry_settings(install: Path | None, workloads: Mapping[str, Workload]) -> RegistrySettings | None:
    """What the answers that the installation was made by say of registries. Raises InputFaults."""
    path = answers_path(install) if install is not None else None
    if path is None or not path.is_file():
        return None
    asked = read_answers(yamlfile.load(path), install=install, known=workloads, recorded=True)
    return registry_settings(asked.images)
