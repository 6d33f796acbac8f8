# SPDX-License-Identifier: Apache-2.0
"""Plain data of a file with the line of each key."""

from collections.abc import Hashable, Mapping
from dataclasses import field
from typing import Any

from llmb.core.values import dataclass
from llmb.errors import Fault

KeyPath = tuple[Hashable, ...]


def dotted(path: KeyPath) -> str:
    """``sizes.1b.rows`` for a key path."""
    return ".".join(str(key) for key in path)


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateKey:
    """Replaces a repeated ``key`` of the outermost mapping, so that its value is checked too."""

    key: Hashable
    line: int

    def __str__(self) -> str:
        return str(self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Plain data (dict, list, scalars) with the file's name and the line of each key path."""

    name: str
    data: Any
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    #: Numbers that Python writes differently, as they were written, for fields that are text:
    #: release 25.10 is not 25.1.
    texts: Mapping[KeyPath, str] = field(default_factory=dict)
    #: Duplicate keys, which only a document read with ``strict=False`` can have.
    faults: tuple[Fault, ...] = ()

    def place(self, path: KeyPath) -> str:
        """``file:line`` of a key path, or of its nearest ancestor that has a line."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines[path]}" if path in self.lines else self.name
