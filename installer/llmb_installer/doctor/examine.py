# SPDX-License-Identifier: Apache-2.0
"""The whole examination: installation, machine, cluster, and on demand the registries."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from llmb.builtin.plugins import builtin_plugins
from llmb.builtin.slurm.commands import Client
from llmb.builtin.slurm.slurm_checks import mpi_fault
from llmb.contract import gpus, spec
from llmb.contract.finding import Finding, wrong
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.schema import ClusterConfig
from llmb.core import yamlfile
from llmb.core.units import bytes_in_words
from llmb.core.values import dataclass
from llmb.errors import LlmbError, PreflightError, UsageError
from llmb.plan.config_layers import load_config
from llmb.plan.locate import CONFIG_FILE, find_install
from llmb.plugins.loader import load_plugins
from llmb_installer import record
from llmb_installer.answers.read import read_answers
from llmb_installer.cluster_types import all_types, type_named
from llmb_installer.detect.detected import Detected
from llmb_installer.doctor import machine, schedulers
from llmb_installer.doctor.cluster_types import ALL, RUNAI, SLURM
from llmb_installer.images.adapter import check_images
from sqshpull.settings import RegistrySettings

IMAGES = "images"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """All findings. ``cluster_type`` is the configured or requested one, None without either."""

    cluster_type: str | None
    install: Path | None
    findings: tuple[Finding, ...]

    @property
    def lacking(self) -> tuple[Finding, ...]:
        """The findings that prevent the cluster type from working.

        Without a cluster type: what every type needs, in an installation also what is missing. And
        missing images, which are only examined on demand.
        """
        states = (
            ("wrong",)
            if self.cluster_type is None and self.install is None
            else ("missing", "wrong")
        )
        faults = (
            finding
            for finding in self.findings
            if finding.state in states or (finding.check == IMAGES and finding.state != "ok")
        )
        if self.cluster_type is None:
            return tuple(
                finding
                for finding in faults
                if {*finding.needed_by} == {*ALL} or finding.check == IMAGES
            )
        everywhere = {*ALL}  # a plugin's type needs what all of llmb's own need
        return tuple(
            finding
            for finding in faults
            if self.cluster_type in finding.needed_by or everywhere <= {*finding.needed_by}
        )


def examine(
    detected: Detected,
    environ: Mapping[str, str],
    *,
    install: Path | None = None,
    cluster_type: str | None = None,
    ask_registries: bool = False,
) -> Examination:
    """Examine everything that ``cluster_type`` needs.

    By default that of the installation, else every type. ``install`` is the folder of
    ``--install``, whether or not it exists.
    """
    installation = _installation(detected, environ, install)
    kind = cluster_type or installation.cluster_type
    own_type = type_named(kind) if kind is not None else None
    one_machine = own_type is not None and own_type.traits_of(None).one_machine
    kinds = all_types().values() if own_type is None else [own_type]
    config = (
        installation.config
        if installation.config is not None and installation.config.cluster_type == kind
        else None
    )
    runs = installation.config.experiments_root if installation.config is not None else None
    slurm = config.slurm if config is not None else None
    containers = (
        slurm.container == "pyxis"
        if slurm is not None
        else detected.slurm is not None and detected.slurm.pyxis
    )
    cpu_only = config is not None and one_machine and config.gpu_type == gpus.CPU
    findings = [
        *installation.findings,
        *machine.examine_tools(detected.machine, environ, containers=containers, cpu_only=cpu_only),
        *machine.examine_folders(
            installation.folder,
            environ,
            is_installed=installation.path is not None,
            runs=runs,
            is_local=one_machine,
        ),
        *(
            schedulers.examine_slurm(
                detected.slurm,
                slurm,
                lambda kind: mpi_fault(
                    Client(environ=environ, cluster=slurm.clusters if slurm is not None else None),
                    kind,
                ),
            )
            if own_type is None or own_type.has(SlurmConfig)
            else ()
        ),
        *(one for each in kinds for one in schedulers.findings_of_type(each, config, environ)),
        *(_registries(detected, installation, config, environ) if ask_registries else ()),
    ]
    return Examination(cluster_type=kind, install=installation.path, findings=tuple(findings))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Installation:
    """An installation as the doctor sees it. ``findings`` name what is invalid.

    ``path`` is None without one. ``folder`` is then the folder to install into. ``cluster_type`` is
    known without a configuration too, if the installer has recorded it.
    """

    folder: Path
    path: Path | None = None
    config: ClusterConfig | None = None
    cluster_type: str | None = None
    findings: tuple[Finding, ...] = ()


def _installation(
    detected: Detected, environ: Mapping[str, str], install: Path | None
) -> _Installation:
    if detected.installed is not None:
        return _valid(detected.installed.path, detected.installed.config, environ)
    if detected.damaged is not None:
        return _damaged(detected.damaged.path, wrong(CONFIG_FILE, detected.damaged.error, ALL))
    named = install or detected.named
    folder = detected.cwd / named if named is not None else detected.cwd
    is_recorded = record.answers_path(folder).is_file() or record.record_path(folder).is_file()
    if is_recorded and not (folder / CONFIG_FILE).is_file():
        missing = (
            f"{folder / CONFIG_FILE} is missing: the installation is not finished, or the file was"
            " removed"
        )
        fix = record.unfinished_hint(folder)
        return _damaged(
            folder,
            Finding(check=CONFIG_FILE, state="missing", found=missing, needed_by=ALL, fix=fix),
        )
    return _Installation(folder=folder, findings=_stage_path(detected, environ))


def _valid(path: Path, config: ClusterConfig, environ: Mapping[str, str]) -> _Installation:
    """An installation with the configuration layers above the file, as far as they can be read."""
    kind, faults = config.cluster_type, []
    try:
        config, _ = load_config(path, environ, cluster_types=all_types)
    except LlmbError as error:
        faults.append(wrong("your own configuration", error, ALL))
    try:
        record.load(path)
    except LlmbError as error:
        faults.append(wrong("record of the installation", error, ALL))
    return _Installation(
        folder=path, path=path, config=config, cluster_type=kind, findings=tuple(faults)
    )


def _damaged(path: Path, fault: Finding) -> _Installation:
    try:
        kind = record.load(path).config.get("cluster_type")
    except LlmbError:  # llmb-install verify reports it
        kind = None
    cluster_type = kind if isinstance(kind, str) and type_named(kind) is not None else None
    return _Installation(folder=path, path=path, cluster_type=cluster_type, findings=(fault,))


def _stage_path(detected: Detected, environ: Mapping[str, str]) -> tuple[Finding, ...]:
    """A finding if STAGE_PATH is set, with which no other command looks for an installation."""
    if "STAGE_PATH" not in environ:
        return ()
    try:
        find_install(None, environ, detected.cwd)
    except UsageError as error:
        return (wrong("STAGE_PATH", error, ALL),)
    return ()


def _registries(
    detected: Detected,
    installation: _Installation,
    config: ClusterConfig | None,
    environ: Mapping[str, str],
) -> Iterator[Finding]:
    """Check for images by the registry settings of the installation."""
    architecture = (
        config.install.node_architecture if config is not None else detected.machine.architecture
    )
    workloads = load_plugins(builtin_plugins()).workloads()
    try:
        settings = _registry_settings(installation.path, workloads)
        yield from examine_images(workloads, architecture, environ, detected.home, settings)
    except LlmbError as error:
        yield wrong(IMAGES, error, (SLURM, RUNAI))


def _registry_settings(
    install: Path | None, workloads: Mapping[str, spec.Workload]
) -> RegistrySettings | None:
    """The registry settings in the answers of the installation. Raises InputFaults."""
    path = record.answers_path(install) if install is not None else None
    if path is None or not path.is_file():
        return None
    answers = read_answers(yamlfile.load(path), install=install, workloads=workloads, recorded=True)
    return answers.images


def examine_images(
    workloads: Mapping[str, spec.Workload],
    architecture: str,
    environ: Mapping[str, str],
    home: Path,
    settings: RegistrySettings | None = None,
) -> Iterator[Finding]:
    """Ask the registries for the images of all workloads.

    Yield a finding for each image or fault.
    """
    images = list(
        dict.fromkeys(workload.image for workload in workloads.values() if workload.image)
    )
    requests = [(image, architecture) for image in images]
    try:
        checked = check_images(requests, environ=environ, home=home, settings=settings)
    except PreflightError as error:
        for fault in error.faults:
            yield Finding(
                check=IMAGES,
                state="missing",
                found=fault.message,
                needed_by=(SLURM, RUNAI),
                fix=fault.hint,
            )
        return
    for image, available in zip(images, checked, strict=True):
        text = (
            f"available for {architecture}, {bytes_in_words(available.compressed_bytes)} to fetch"
        )
        yield Finding(check=f"image {image}", state="ok", found=text, needed_by=(SLURM, RUNAI))
