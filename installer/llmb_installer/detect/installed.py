# SPDX-License-Identifier: Apache-2.0
"""The install directory that is there, sound or damaged: the one that is named, or the nearest above this folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmb import typed, yamlfile
from llmb.config import CONFIG_FILE, ClusterConfig, find_install
from llmb.errors import UsageError
from llmb_installer.answers.layers import joined
from llmb_installer.answers.read import lean, without_nulls
from llmb_installer.folder import own_config
from llmb_installer.record import answers_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An install directory with its configuration."""

    path: Path
    config: ClusterConfig

    def answers(self) -> dict[str, Any]:
        """The answers that it was made from, under what its configuration says now; a person may have changed that."""
        path = answers_path(self.path)
        below: dict[str, Any] = yamlfile.load(path).data if path.is_file() else {}
        found: dict[str, Any] = joined(below, self._configured())
        return found

    def _configured(self) -> dict[str, Any]:
        config = self.config
        data = {
            "cluster_type": config.cluster_type, "install": str(self.path), "cluster_name": config.cluster_name,
            "gpu_type": config.gpu_type, "node_architecture": config.install.node_architecture,
            "venv_type": config.install.venv_type, "image_folder": typed.to_data(config.install.image_folder),
            "experiments_root": typed.to_data(config.experiments_root), "environment": dict(config.environment),
            "pass_environment": list(config.pass_environment) or None,
            "gpu_types": {name: without_nulls(typed.to_data(own)) for name, own in config.gpu_types.items()},
            "slurm": without_nulls(typed.to_data(config.slurm)), "runai": lean(config.runai),
            "workloads": list(config.workloads.installed or ()) or None,
        }  # fmt: skip
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
