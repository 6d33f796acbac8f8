# SPDX-License-Identifier: Apache-2.0
"""An answer of the API as a value, and how it says no."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of the API."""

    status: int
    data: Any
    headers: Mapping[str, str] = field(default_factory=dict)


def error(status: int, message: str, **more: Any) -> Answer:
    """An answer that says no."""
    return Answer(status=status, data={"code": status, "message": message, **more})
