# SPDX-License-Identifier: Apache-2.0
"""The value that a plugin's command gets from ``click.pass_obj``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from llmb.contract.record import RunRecord
    from llmb.contract.schema import ClusterConfig
    from llmb.contract.spec import Workload


class CommandContext(Protocol):
    """The install directory and the workloads of one command. Reading one may raise LlmbError."""

    @property
    def workloads(self) -> Mapping[str, Workload]:
        """The workloads by key."""

    @property
    def config(self) -> ClusterConfig:
        """The configuration of the install directory, with all that overrides it."""

    def runs(self, names: tuple[str, ...] = ()) -> list[RunRecord]:
        """The runs of the install directory that ``names`` name (default: all)."""

    def sealed_archive(self, path: Path) -> CommandContext:
        """The runs and the configuration of an archive of ``llmb-run archive``.

        ``config.llmb_install`` is the folder that it is unpacked into, which commands take as
        ``--install``. Raises LlmbError if a byte of the archive was changed.
        """

    def call(self, words: Sequence[str], *, shown: bool = False) -> tuple[int, str]:
        """Run ``llmb-run`` with ``words`` here, and return its exit code and its standard output.

        If ``shown``, the output is printed in its place among the messages, and not returned.

        So a plugin's command submits with all checks and records: ``call(["submit", ...])``. The
        install directory is that of this command. Messages go to standard error. Raises LlmbError
        and click's exceptions, as the command does, and KeyboardInterrupt if it was interrupted.
        """
