# SPDX-License-Identifier: Apache-2.0
"""Reads of cluster_config.yaml what is installed, and nothing else: quick, and no matter what else is wrong there."""

from pathlib import Path

from llmb.config.locate import CONFIG_FILE
from llmb.text import yamlfile


def installed_in(install: Path) -> tuple[str, ...]:
    """The workloads that ``install`` has by its configuration. Raises UsageError where that is no YAML."""
    data = yamlfile.load(install / CONFIG_FILE).data
    workloads = data.get("workloads") if isinstance(data, dict) else None
    names = workloads.get("installed") if isinstance(workloads, dict) else None
    return tuple(map(str, names)) if isinstance(names, list) else ()
