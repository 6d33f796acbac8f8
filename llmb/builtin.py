# SPDX-License-Identifier: Apache-2.0
"""Lists llmb's own plugins for the loader; the command line adds its commands to them."""

from typing import Any

from llmb import clusters, frameworks


def builtin_plugins() -> list[tuple[str, Any]]:
    """The built-in plugins by name; the last one answers the hooks that a workload's plugin does not define."""
    return [("clusters", clusters), ("frameworks", frameworks)]
