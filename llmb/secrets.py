# SPDX-License-Identifier: Apache-2.0
"""Which names are secrets: their values never go into scripts, records, arguments or logs."""

from __future__ import annotations

import re

SECRETS_FILE = "~/.config/llmb/secrets"
_SECRET = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$|(^|_)KEY$", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret: ``*TOKEN``, ``*SECRET``, ``*_KEY`` and their like."""
    return _SECRET.search(name) is not None
