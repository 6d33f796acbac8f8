# SPDX-License-Identifier: Apache-2.0
"""Effects on runs: submit, follow, retry, resume, reconcile, cancel."""
