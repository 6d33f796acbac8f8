# SPDX-License-Identifier: Apache-2.0
"""Why recorded runs failed: what their logs say, else what the scheduler says of their end."""

from __future__ import annotations

from llmb.failures import Cause, kind_of_end, root_cause
from llmb.results import Result
from llmb.results.find import logs_of
from llmb.runs import store
from llmb.runs.record import RunRecord

NOT_KNOWN = "not known"


def cause_of(run: RunRecord, result: Result) -> Cause:
    """The cause of a failed run; of a class NOT_KNOWN where neither logs nor scheduler say one."""
    state = store.seen_state(run)
    found = root_cause(logs_of(run), state)
    if found is not None:
        return found
    kind = None if state is None else kind_of_end(state)
    return Cause(kind=kind or NOT_KNOWN, line=result.reason or "the logs say nothing")
