# SPDX-License-Identifier: Apache-2.0
"""Answers commands of NVIDIA's exemplar-performance with llmb's, through the hook llmb_hint."""

from __future__ import annotations

from collections.abc import Sequence

from llmb.api import hookimpl

LLMB_CONTRACT = "1.1"


@hookimpl
def llmb_hint(program: str, word: str, words: Sequence[str], options: Sequence[str]) -> str | None:
    """Return the whole command in llmb's words if ``word`` is one of NVIDIA's program."""
    from llmb_exemplar.words import hint_for

    return hint_for(program, word, words, options)
