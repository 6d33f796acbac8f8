# SPDX-License-Identifier: Apache-2.0
"""Why runs fail: the root cause in their logs by the table in failures.yaml, and what to do about it."""

from llmb.failures.find import CANCELLED_KIND, Cause, Group, find_cause, group_failures, root_cause
from llmb.failures.table import PYTHON, Signature, Table, kind_of_end, table

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
