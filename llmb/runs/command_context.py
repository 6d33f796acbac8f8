# SPDX-License-Identifier: Apache-2.0
"""What a plugin's command gets from ``click.pass_obj``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from llmb.config import ClusterConfig
    from llmb.runs.record import RunRecord
    from llmb.workload.spec import Workload


class CommandContext(Protocol):
    """The install directory and the workloads of one command, each read on first use. Raises LlmbError."""

    @property
    def workloads(self) -> Mapping[str, Workload]:
        """The workloads by key."""

    @property
    def config(self) -> ClusterConfig:
        """The configuration of the install directory, with all that overrides it."""

    def runs(self, names: tuple[str, ...] = ()) -> list[RunRecord]:
        """The runs of the install directory that ``names`` name (default: all)."""
