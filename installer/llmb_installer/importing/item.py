# SPDX-License-Identifier: Apache-2.0
"""The things that an import found, and what becomes of each."""

from typing import Literal

from llmb.core.values import dataclass

ItemKind = Literal["setting", "variable", "secret", "image", "environment", "workload", "run"]
ItemAction = Literal["take", "present", "leave"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportItem:
    """One thing that an import found.

    ``detail`` says what becomes of it, or why it is left. ``code`` is the kind of reason, empty for
    what is taken.
    """

    kind: ItemKind
    name: str
    action: ItemAction = "take"
    detail: str = ""
    code: str = ""


def leave(kind: ItemKind, name: str, detail: str, code: str) -> ImportItem:
    return ImportItem(kind=kind, name=name, action="leave", detail=detail, code=code)
