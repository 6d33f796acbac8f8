# SPDX-License-Identifier: Apache-2.0
"""Results for other programs: Prometheus, Grafana, GitHub, CTRF, webhooks, as hooks of llmb."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llmb.api import hookimpl

if TYPE_CHECKING:
    import click

LLMB_CONTRACT = "1.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """The section ``llmb-export`` of the plugins' settings in cluster_config.yaml."""

    #: The address that ``llmb-run export webhook`` posts to.
    webhook_url: str | None = None
    #: The file with the token of its header ``Authorization``.
    webhook_token_file: Path | None = None


@hookimpl
def llmb_settings() -> type[ExportSettings]:
    """The keys of the section."""
    return ExportSettings


@hookimpl
def llmb_commands() -> "list[click.Command]":
    """``llmb-run export``."""
    from llmb_export.commands import export

    return [export]


@hookimpl
def llmb_hint(program: str, word: str, words: Sequence[str]) -> str | None:
    """Return the command of ``llmb-run export`` if ``word`` is a format that it writes."""
    from llmb_export.hints import hint_for

    return hint_for(program, word, words)
