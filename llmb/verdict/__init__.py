# SPDX-License-Identifier: Apache-2.0
"""Verdicts: whether a run compares with a published figure, by what ratio, and whether that is good enough. Pure."""
