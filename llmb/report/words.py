# SPDX-License-Identifier: Apache-2.0
"""The words that a report sorts and marks runs by: their order, the worst first, and what each means."""

from llmb.failures import CANCELLED_KIND, Group
from llmb.results.result import CANCELLED, FAILED, PENDING, RUNNING, UNKNOWN, Result
from llmb.verdict.rules import (
    FAIL,
    FAIL_BELOW,
    INCONCLUSIVE,
    INVALID,
    NO_REFERENCE,
    PASS,
    SUSPICIOUS,
    SUSPICIOUS_ABOVE,
    WARN,
    WARN_BELOW,
)

MEANINGS = {
    FAIL: f"slower than published: the ratio is below {FAIL_BELOW}",
    FAILED: "the run ended before it had measured",
    UNKNOWN: "nobody knows what it came to: lost, or its log or record cannot be read",
    INVALID: "measured, but it does not count: profiled, over TCP, a loss that is no number, or steps missing",
    INCONCLUSIVE: f"the repeats lie on both sides of {FAIL_BELOW}: more of them would settle it",
    WARN: f"a little slower than published: below {WARN_BELOW}",
    SUSPICIOUS: f"faster than can be expected, above {SUSPICIOUS_ABOVE}: something is not the same",
    RUNNING: "has not ended",
    PENDING: "waits to start",
    CANCELLED: "somebody ended it",
    PASS: f"as published or faster: {WARN_BELOW} to {SUSPICIOUS_ABOVE}",
    NO_REFERENCE: "measured; nothing published is comparable with it",
}
ORDER = tuple(MEANINGS)  # the worst first
ASKING = frozenset({FAIL, INVALID, INCONCLUSIVE, WARN, SUSPICIOUS})  # verdicts that ask for a look at the run


def word_of_group(group: Group) -> str:
    """The one word for runs that ended for one reason."""
    return CANCELLED if group.cause.kind == CANCELLED_KIND else FAILED


def word_of(result: Result) -> str:
    """The one word for a run: its verdict, else its status."""
    return result.verdict or result.status
