# SPDX-License-Identifier: Apache-2.0
"""Lists llmb's own plugins for the loader. The command line adds its commands to them."""

from typing import Any

from llmb.builtin import cluster_types, frameworks


def builtin_plugins() -> list[tuple[str, Any]]:
    """Return the built-in plugins by name. The last answers hooks that a workload lacks."""
    return [("clusters", cluster_types), ("frameworks", frameworks)]
