# SPDX-License-Identifier: Apache-2.0
"""Folds sentences at words to the width of a terminal, so that nothing is cut."""

import textwrap

_NARROWEST = 20  # characters


def fold(text: str, width: int, indent: str = "") -> str:
    """Break ``text`` between words into lines of at most ``width`` characters.

    Later lines begin with ``indent``. A word that is longer than a line is broken. Lines of
    ``text`` stay lines.
    """
    wrapper = textwrap.TextWrapper(
        max(_NARROWEST, width),
        subsequent_indent=indent,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
    return "\n".join(wrapper.fill(line) for line in text.split("\n"))
