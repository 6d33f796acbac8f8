# SPDX-License-Identifier: Apache-2.0
"""Names the plugins that llmb itself brings, for the loader; the command line adds its own commands to them."""

from typing import Any

from llmb import clusters
from llmb.frameworks import nemo


def builtin_plugins() -> list[tuple[str, Any]]:
    """Each built-in plugin with its name; the last one answers every hook that a workload's plugin leaves out."""
    return [("clusters", clusters), ("nemo", nemo)]
