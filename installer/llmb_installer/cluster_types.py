# SPDX-License-Identifier: Apache-2.0
"""The cluster types of installations: llmb's own and plugins'."""

from collections.abc import Mapping
from typing import Any

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.cluster_type import ClusterType
from llmb.plan.read_config import kind_in
from llmb.plugins.loader import load_plugins


def all_types() -> Mapping[str, ClusterType]:
    """Every cluster type by its name, llmb's own first. Loads the plugins."""
    return load_plugins(builtin_plugins()).cluster_types()


def type_named(name: str) -> ClusterType | None:
    """The cluster type of this name. None if neither llmb nor a plugin offers it."""
    return all_types().get(name)


def type_in(data: Any) -> ClusterType | None:
    """The cluster type that answers or a configuration name. None without a known one."""
    return kind_in(data, all_types)
