# SPDX-License-Identifier: Apache-2.0
"""Why runs failed: what their logs say, else what the scheduler says of their end, else that nobody knows."""

from llmb.failures import Cause
from llmb.results import Result

NOT_KNOWN = "not known"
_LOOK = "llmb-run jobs logs RUN shows the training's log, --batch what the script printed"


def cause_of(result: Result) -> Cause:
    """The cause of a failed run; of a class NOT_KNOWN where neither logs nor scheduler say one."""
    return result.cause or Cause(kind=NOT_KNOWN, line=result.reason or "the logs say nothing", advice=_LOOK)
