# SPDX-License-Identifier: Apache-2.0
"""Everything that is detected before the first question: machine, Slurm, Run:ai's variables, an installation."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmb.config import CONFIG_FILE, ClusterConfig, find_install
from llmb.errors import UsageError
from llmb.text import typed, yamlfile
from llmb_installer.answers import AUTO, given, joined, lean, nested, value_at, with_layer, without_nulls
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
            "image_folder": typed.to_data(config.install.image_folder),
            "experiments_root": typed.to_data(config.experiments_root),
            "environment": dict(config.environment),
            "pass_environment": list(config.pass_environment) or None,
            "gpu_types": {name: without_nulls(typed.to_data(own)) for name, own in config.gpu_types.items()},
            "slurm": without_nulls(typed.to_data(config.slurm)),
            "runai": lean(config.runai),
            "workloads": list(config.workloads.installed or ()) or None,
            "plugins": dict(config.plugins),
        }
        return dict(without_nulls(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """An install directory with an invalid configuration; the hint of ``error`` repairs it."""

    path: Path
    error: UsageError


def find_installed(option: Path | None, environ: Mapping[str, str], cwd: Path) -> Installed | Damaged | None:
    """The install directory that is named, else the nearest at or above ``cwd``; None without one."""
    if option is not None and not (cwd / option / CONFIG_FILE).is_file():
        return None
    try:
        folder = find_install(option, environ, cwd)
    except UsageError:
        return None
    try:
        return Installed(path=folder, config=own_config(folder))
    except UsageError as error:
        return Damaged(path=folder, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunaiFound:
    """Run:ai as the user's variables describe it; ``pvc`` is name, path and claim. The secret is not kept."""

    base_url: str | None = None
    project: str | None = None
    pvc: tuple[str, str, str] | None = None
    pvc_folder: Path | None = None
    app_id: str | None = None
    has_secret: bool = False


def find_runai(environ: Mapping[str, str]) -> RunaiFound:
    """Read the variables that users of Run:ai already set; CUSTOM_MOUNT is ``name:path:claim``."""
    folder = environ.get("PVC_DIR")
    return RunaiFound(
        base_url=environ.get("BASE_URL") or None,
        project=environ.get("PROJECT_NAME") or None,
        pvc=read_mount(environ.get("CUSTOM_MOUNT", "")),
        pvc_folder=Path(folder) if folder else None,
        app_id=environ.get("APP_ID") or None,
        has_secret=bool(environ.get("APP_SECRET")),
    )


def read_mount(text: str) -> tuple[str, str, str] | None:
    """Name, path and claim of ``name:path:claim``; None for another form."""
    parts = tuple(part.strip() for part in text.split(":"))
    if len(parts) != 3 or not all(parts) or not parts[1].startswith("/"):
        return None
    return parts[0], parts[1], parts[2]


def with_variables(document: yamlfile.Document, environ: Mapping[str, str]) -> tuple[yamlfile.Document, list[str]]:
    """Answers for a Run:ai cluster, completed from its variables, and a note for each variable used.

    Raises UsageError for a CUSTOM_MOUNT that is needed and invalid.
    """
    if value_at(document.data, "cluster_type") != "runai":
        return document, []
    used = []
    for key, variable, value in _answers_of(environ, needs_mount=not given(document.data, "runai.pvc")):
        if not given(document.data, key):
            document = with_layer(document, nested(key, value), variable)
            used.append(f"{key} from {variable}")
    return document, used


def _answers_of(environ: Mapping[str, str], *, needs_mount: bool) -> Iterator[tuple[str, str, Any]]:
    """The key, variable and value of each answer that the variables of Run:ai give."""
    found = find_runai(environ)
    if named := environ.get("LLMB_INSTALL"):
        yield "install", "LLMB_INSTALL", named
    elif found.pvc_folder is not None:
        yield "install", "PVC_DIR", str(found.pvc_folder / "llmb")
    texts = (("base_url", "BASE_URL", found.base_url), ("project", "PROJECT_NAME", found.project))
    for key, variable, value in (*texts, ("app_id", "APP_ID", found.app_id)):
        if value is not None:
            yield f"runai.{key}", variable, value
    if found.pvc is not None:
        yield "runai.pvc", "CUSTOM_MOUNT", dict(zip(("name", "path", "claim"), found.pvc, strict=True))
    elif needs_mount and (mount := environ.get("CUSTOM_MOUNT")):
        raise UsageError(
            f"CUSTOM_MOUNT: '{mount}' does not have the form name:path:claim",
            hint="export CUSTOM_MOUNT=work:/work:work-claim, with an absolute path",
            code="mount-invalid",
            key="CUSTOM_MOUNT",
            value=mount,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """Everything that was detected; ``slurm`` is None without Slurm's commands, ``home`` is the user's folder.

    ``named`` is the folder in LLMB_INSTALL, whether or not it exists. ``damaged`` replaces ``installed`` where the
    configuration is invalid.
    """

    home: Path
    cwd: Path
    machine: MachineFound
    slurm: SlurmFound | None = None
    runai: RunaiFound = field(default_factory=RunaiFound)
    installed: Installed | None = None
    damaged: Damaged | None = None
    named: Path | None = None

    @property
    def cluster_type(self) -> str:
        """The likely cluster type: Slurm where its commands are configured, else Run:ai where BASE_URL is set."""
        if self.slurm is not None and self.slurm.is_configured:
            return "slurm"
        return "runai" if self.runai.base_url is not None else "local"


def detect(environ: Mapping[str, str], cwd: Path, install: Path | None = None) -> Detected:
    """Detect everything for the user of ``environ``; ``install`` is the folder of ``--install``."""
    has_slurm = shutil.which("sbatch", path=environ.get("PATH")) is not None
    named = environ.get("LLMB_INSTALL")
    installed = find_installed(install, environ, cwd)
    return Detected(
        home=Path(environ.get("HOME") or "~").expanduser(),
        cwd=cwd,
        machine=find_machine(environ),
        slurm=find_slurm(environ) if has_slurm else None,
        runai=find_runai(environ),
        installed=installed if isinstance(installed, Installed) else None,
        damaged=installed if isinstance(installed, Damaged) else None,
        named=Path(named).expanduser().absolute() if named else None,
    )
