# SPDX-License-Identifier: Apache-2.0
"""Asks whether to continue an installation that was interrupted."""

from pathlib import Path
from typing import Literal

from llmb_installer.wizard import prompts
from llmb_installer.wizard.question import Option

Resumed = Literal["continue", "change", "other"]


def ask_resume(install: Path, count: str, *, refused: str, has_config: bool) -> Resumed:
    """What to do with the unfinished installation in ``install``, of which the plan was shown.

    ``count``: how many steps are done. ``refused``: why it cannot continue as it is; empty where it can.
    ``has_config``: whether there was a finished installation before.
    """
    other = "do something else: add, remove or repair" if has_config else "leave it, and answer the questions anew"
    options = [
        Option("continue", "continue it", refused),
        Option("change", "change its answers first"),
        Option("other", other),
    ]
    text = f"{install} has an unfinished installation: {count}. What do you want to do?"
    chosen: Resumed = prompts.one(text, options, "change" if refused else "continue")
    return chosen
