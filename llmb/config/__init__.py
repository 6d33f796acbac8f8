# SPDX-License-Identifier: Apache-2.0
"""The configuration of a cluster: the schema of cluster_config.yaml, and the layers above it.

Each name is imported on first use, because `llmb-run list` only has to find the install directory.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmb.config.layers import load_config, with_slurm_args
    from llmb.config.locate import CONFIG_FILE, find_install
    from llmb.config.schema import ClusterConfig

__all__ = ["CONFIG_FILE", "ClusterConfig", "find_install", "load_config", "with_slurm_args"]

_HOME = {
    "CONFIG_FILE": "locate",
    "find_install": "locate",
    "load_config": "layers",
    "with_slurm_args": "layers",
    "ClusterConfig": "schema",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'llmb.config' has no attribute '{name}'")
    value = getattr(import_module(f"llmb.config.{_HOME[name]}"), name)
    globals()[name] = value
    return value
