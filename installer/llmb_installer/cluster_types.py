# SPDX-License-Identifier: Apache-2.0
"""The cluster types that can be installed for: llmb's own, and those of plugins."""

from collections.abc import Mapping
from typing import Any

from llmb.builtin import builtin_plugins
from llmb.config.cluster_type import ClusterType
from llmb.config.own_types import own_types
from llmb.config.reading import kind_in
from llmb.plugins.loader import load_plugins


def all_types() -> Mapping[str, ClusterType]:
    """Every cluster type by its name, llmb's own first; loads the plugins."""
    return load_plugins(builtin_plugins()).cluster_types()


def type_named(name: str) -> ClusterType | None:
    """The cluster type of this name; None if neither llmb nor a plugin offers it."""
    return own_types().get(name) or all_types().get(name)


def type_in(data: Any) -> ClusterType | None:
    """The cluster type that answers or a configuration name; None without a known one."""
    return kind_in(data, all_types)
