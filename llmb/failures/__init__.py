# SPDX-License-Identifier: Apache-2.0
"""Why runs fail: finds the root cause in their logs with the table in failures.yaml, and knows what to do next."""

from llmb.failures.find import (
    CANCELLED_KIND,
    PYTHON,
    Cause,
    Group,
    Signature,
    Table,
    find_cause,
    group_failures,
    kind_of_end,
    root_cause,
    table,
)

__all__ = [
    "CANCELLED_KIND",
    "PYTHON",
    "Cause",
    "Group",
    "Signature",
    "Table",
    "find_cause",
    "group_failures",
    "kind_of_end",
    "root_cause",
    "table",
]
