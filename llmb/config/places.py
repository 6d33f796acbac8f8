# SPDX-License-Identifier: Apache-2.0
"""Where cluster_config.yaml says what a later check finds fault with."""

from pathlib import Path

from llmb.config.locate import CONFIG_FILE
from llmb.errors import UsageError
from llmb.text import yamlfile


def place_in_config(install: Path, *keys: str) -> str:
    """``file:line`` of the key at this path in the configuration of ``install``; empty where it does not say it."""
    try:
        document = yamlfile.load(install / CONFIG_FILE)
    except UsageError:
        return ""
    return document.place(keys) if keys in document.lines else ""
