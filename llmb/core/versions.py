# SPDX-License-Identifier: Apache-2.0
"""Compares versions of packages by their major and minor number."""

import re


def minor_of(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, which patch levels have in common."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
