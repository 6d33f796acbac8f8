# SPDX-License-Identifier: Apache-2.0
"""Acceptance of a cluster: a plan, one answer and its certificate, as hooks of llmb."""

from typing import TYPE_CHECKING, Any

from llmb.api import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import click

    from llmb import api

LLMB_CONTRACT = "1.1"


@hookimpl
def llmb_commands() -> "list[click.Command]":
    """``llmb-run accept``."""
    from llmb_accept.commands import accept

    return [accept]


@hookimpl
def llmb_report(
    results: "Sequence[Mapping[str, Any]]", runs: "Sequence[api.RunRecord]"
) -> "list[api.ReportSection]":
    """The certificate of each acceptance that the runs are of, before everything else."""
    from llmb_accept.certificate import as_section
    from llmb_accept.pages import certificates_of

    return [as_section(certificate) for certificate in certificates_of(results, runs)]
