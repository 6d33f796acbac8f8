# SPDX-License-Identifier: Apache-2.0
"""Why runs fail: finds the root cause in their logs with the table in failures.yaml, and knows what to do next."""

from llmb.failures.causes import CANCELLED_KIND, Cause, Group, group_failures, kind_of_end
from llmb.failures.find import root_cause

__all__ = ["CANCELLED_KIND", "Cause", "Group", "group_failures", "kind_of_end", "root_cause"]
