# SPDX-License-Identifier: Apache-2.0
"""`llmb-run parse`: its options, and what reads logs for it."""
