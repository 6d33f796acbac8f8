# SPDX-License-Identifier: Apache-2.0
"""What stays on the screen of the wizard: answered questions, folded to the width of the terminal."""

import shutil

from llmb.system import console
from llmb.text.fold import fold


def width() -> int:
    """The width of the terminal in characters."""
    return shutil.get_terminal_size().columns


def answered(text: str, answer: str) -> None:
    """Print a question with its answer, which stay on the screen."""
    console.echo(fold(f"? {text} {' '.join(answer.split())}", width(), "    "))
