# SPDX-License-Identifier: Apache-2.0
"""The exit codes that commands pick themselves; errors carry their own."""

RUN_FAILED = 3  # a run has failed, or a verdict is FAIL or INVALID
INTERRUPTED = 130
