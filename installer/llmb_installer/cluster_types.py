# SPDX-License-Identifier: Apache-2.0
"""What plugins know of installations: cluster types, frameworks, and other tools."""

import os
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.cluster_type import ClusterType
from llmb.plan.read_config import kind_in
from llmb.plugins.loaded import Plugins
from llmb.plugins.loader import load_plugins
from llmb.plugins.sources import FOLDERS_VARIABLE


def all_types() -> Mapping[str, ClusterType]:
    """Every cluster type by its name, llmb's own first. Loads the plugins at the first call."""
    return all_plugins().cluster_types()


def all_frameworks() -> Sequence[str]:
    """Return the names of the frameworks of llmb and of plugins."""
    return tuple(all_plugins().frameworks)


def all_plugins() -> Plugins:
    """Every plugin. They are loaded at the first call."""
    return _plugins_in(os.environ.get(FOLDERS_VARIABLE, ""), tuple(sys.path))


@lru_cache(maxsize=1)
def _plugins_in(_folders: str, _path: tuple[str, ...]) -> Plugins:
    """Return the plugins in these places.

    Kept, because one command asks a dozen times, and loading every plugin takes milliseconds.
    """
    return load_plugins(builtin_plugins())


def type_named(name: str) -> ClusterType | None:
    """The cluster type of this name. None if neither llmb nor a plugin offers it."""
    return all_types().get(name)


def type_in(data: Any) -> ClusterType | None:
    """The cluster type that answers or a configuration name. None without a known one."""
    return kind_in(data, all_types)
