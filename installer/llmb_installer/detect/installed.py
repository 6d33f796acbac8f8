# SPDX-License-Identifier: Apache-2.0
"""The install directory that is there, sound or damaged: the one that is named, or the nearest above this folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmb.config import CONFIG_FILE, ClusterConfig, find_install
from llmb.errors import UsageError
from llmb.text import typed, yamlfile
from llmb_installer.answers.layers import given, joined
from llmb_installer.answers.read import lean, without_nulls
from llmb_installer.answers.schema import AUTO
from llmb_installer.record import answers_path, own_config


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An install directory with its configuration."""

    path: Path
    config: ClusterConfig

    def answers(self) -> dict[str, Any]:
        """The answers that it was made from, under what its configuration says now; a person may have changed that."""
        path = answers_path(self.path)
        told = {"method": "srun"} if self.config.install.method == "slurm" else {}
        below: dict[str, Any] = yamlfile.load(path).data if path.is_file() else told
        found: dict[str, Any] = joined(below, self._configured())
        return found

    def _configured(self) -> dict[str, Any]:
        config, written = self.config, yamlfile.load(self.path / CONFIG_FILE).data

        def said(key: str, value: Any) -> Any:  # what the file leaves out is found out, not taken from a default
            return value if given(written, key) else None

        data = {
            "cluster_type": config.cluster_type,
            "install": str(self.path),
            "gpu_type": config.gpu_type,
            "cluster_name": said("cluster_name", config.cluster_name),
            "node_architecture": said("install.node_architecture", config.install.node_architecture),
            "venv_type": said("install.venv_type", config.install.venv_type) or AUTO,
            "image_folder": typed.to_data(config.install.image_folder),
            "experiments_root": typed.to_data(config.experiments_root),
            "environment": dict(config.environment),
            "pass_environment": list(config.pass_environment) or None,
            "gpu_types": {name: without_nulls(typed.to_data(own)) for name, own in config.gpu_types.items()},
            "slurm": without_nulls(typed.to_data(config.slurm)),
            "runai": lean(config.runai),
            "workloads": list(config.workloads.installed or ()) or None,
        }
        return dict(without_nulls(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """An install directory whose configuration cannot be used; the hint of ``error`` is its repair."""

    path: Path
    error: UsageError


def find_installed(option: Path | None, environ: Mapping[str, str], cwd: Path) -> Installed | Damaged | None:
    """The install directory, None where there is none."""
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
