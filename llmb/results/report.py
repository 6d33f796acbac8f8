# SPDX-License-Identifier: Apache-2.0
"""All results in one document: what ``results --format json`` and ``parse --format json`` print."""

from collections.abc import Sequence
from typing import Any

from llmb.results.result import FAILED, SUCCESS, Result
from llmb.stats.measure import default_window
from llmb.text import typed


def report(results: Sequence[Result]) -> dict[str, Any]:
    """Plain data: the window common to all (null where they differ), each result, and how many succeeded.

    The success rate is of the runs that have ended, in whole percent rounded down, so that 100 means all of them.
    """
    windows = {result.window for result in results if result.window is not None}
    common = (windows or {default_window(50)}).pop() if len(windows) < 2 else None
    succeeded = sum(result.status == SUCCESS for result in results)
    failed = sum(result.status == FAILED for result in results)
    ended = succeeded + failed
    return {
        "analysis": {
            "min_iteration": common.first if common else None,
            "max_iteration": common.last if common else None,
        },
        "results": [typed.to_data(result) for result in results],
        "summary": {
            "success_experiments": succeeded,
            "failed_experiments": failed,
            "success_rate": 100 * succeeded // ended if ended else None,
        },
    }
