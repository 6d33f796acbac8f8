# SPDX-License-Identifier: Apache-2.0
"""Verdicts: whether a run compares with a published figure, by what ratio, and whether that is good enough. Pure."""

from llmb.verdict.judge import find_reference, judge, pool_key, same_window, why_invalid
from llmb.verdict.rules import (
    BAD,
    FAIL,
    INCONCLUSIVE,
    INVALID,
    NO_REFERENCE,
    PASS,
    SUSPICIOUS,
    WARN,
    Judgement,
    judge_times,
)

__all__ = [
    "BAD",
    "FAIL",
    "INCONCLUSIVE",
    "INVALID",
    "NO_REFERENCE",
    "PASS",
    "SUSPICIOUS",
    "WARN",
    "Judgement",
    "find_reference",
    "judge",
    "judge_times",
    "pool_key",
    "same_window",
    "why_invalid",
]
