# SPDX-License-Identifier: Apache-2.0
"""The error of a cluster type that could not cancel some of the runs of one request."""

from collections.abc import Mapping

from llmb.errors import LlmbError


class NotCancelledError(LlmbError):
    """Some runs were not cancelled; all others were. ``reasons`` by the run's id."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(reasons.values()), code="not-cancelled")
        self.reasons = dict(reasons)
