# SPDX-License-Identifier: Apache-2.0
"""What an import does with each thing that it finds: takes it, has it already, or leaves it, with the reason."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["setting", "variable", "secret", "image", "environment", "workload", "run"]
Action = Literal["take", "present", "leave"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing: its ``kind`` and ``name``; ``detail``: what becomes of it, or why it is left where it is.

    ``code``: the kind of reason, empty for what is taken.
    """

    kind: Kind
    name: str
    action: Action = "take"
    detail: str = ""
    code: str = ""


def left(kind: Kind, name: str, detail: str, code: str) -> Item:
    return Item(kind=kind, name=name, action="leave", detail=detail, code=code)
