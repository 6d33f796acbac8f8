# SPDX-License-Identifier: Apache-2.0
"""The single values of an answers file that are more than text: versions, a Python, an index."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Version:
    """A released version of a package, as pip compares it: ``2.13.0``."""

    text: str

    @classmethod
    def parse(cls, value: Any) -> Version:
        """Read a plain version. Raises ValueError, also for a YAML number, which has lost the 0 of 2.10."""
        if value is None:
            raise ValueError("there is nothing; write a version like 2.13.0, or leave the key out")
        if isinstance(value, float):
            raise ValueError(f"{value} is a number to YAML and may have lost a 0; write the version in quotes")
        if not re.fullmatch(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[A-Za-z0-9.]+)?", str(value)):
            raise ValueError(f"'{value}' is not a version; write one like 2.13.0")
        return cls(str(value))

    def unparse(self) -> str:
        """The text that ``parse`` reads."""
        return self.text


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that environments are made with: ``3.12`` for the program python3.12, or a program's name or path."""

    text: str

    @classmethod
    def parse(cls, value: Any) -> Interpreter:
        """Read a version in quotes or a program. Raises ValueError."""
        if not isinstance(value, str) or not value:
            raise ValueError(f'write a version in quotes ("3.12") or the path of a Python, not {value!r}')
        return cls(value)

    def unparse(self) -> str:
        """The text that ``parse`` reads."""
        return self.text


@dataclass(frozen=True, slots=True)
class IndexUrl:
    """A package index for pip, without a password: that belongs into pip's own configuration or ``~/.netrc``."""

    text: str

    @classmethod
    def parse(cls, value: Any) -> IndexUrl:
        """Read a URL. Raises ValueError."""
        if not isinstance(value, str) or not re.match(r"(https?|file)://", value):
            raise ValueError(f"must be the URL of a package index (https://...), not {value!r}")
        if re.match(r"\w+://[^/]*@", value):
            raise ValueError("must not hold a user or password; keep them in ~/.netrc or pip's configuration")
        return cls(value)

    def unparse(self) -> str:
        """The text that ``parse`` reads."""
        return self.text


# Where the PyTorch project keeps the builds of torch without CUDA.
CPU_WHEELS = IndexUrl("https://download.pytorch.org/whl/cpu")


# Of each compression of mksquashfs its highest level, None where it has none.
_HIGHEST: dict[str, int | None] = {"zstd": 22, "gzip": 9, "lz4": None, "lzo": 9, "xz": None}


def level_fault(compression: str, level: int) -> str | None:
    """Why mksquashfs has no such level for ``compression``; None where it has."""
    highest = _HIGHEST[compression]
    if highest is None:
        return f"{compression} has no levels"
    return None if 1 <= level <= highest else f"{level} is not one of 1 to {highest}, which {compression} has"
