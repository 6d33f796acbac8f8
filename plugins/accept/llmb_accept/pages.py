# SPDX-License-Identifier: Apache-2.0
"""Finds the certificates of the runs of a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from llmb_accept import acceptance

if TYPE_CHECKING:
    from llmb import api


def certificates_of(
    results: Iterable[Mapping[str, Any]], runs: Iterable[api.RunRecord]
) -> Iterator[dict[str, Any]]:
    """Return each certificate once. ``results``: objects of ``llmb-run results``."""
    ids = {row["run"] for row in results}
    # A session is NAME.PHASE..., and acceptances are in the folder of all runs.
    places = {
        (run.directory.parents[3] / acceptance.FOLDER, name): None
        for run in runs
        if run.id in ids
        and run.session is not None
        and (name := (run.session.name or "").partition(".")[0])
    }
    for root, name in places:
        certificate = acceptance.load_certificate(root, name)
        if certificate is not None:
            yield certificate
