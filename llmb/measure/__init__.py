# SPDX-License-Identifier: Apache-2.0
"""From a log to numbers: reads logs, measures windows, collects conditions, finds causes."""
