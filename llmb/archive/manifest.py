# SPDX-License-Identifier: Apache-2.0
"""What an archive contains, as the file MANIFEST in it says: every file with its checksum, and what is not in it."""

from dataclasses import dataclass

MANIFEST = "llmb-archive.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """A file of an archive: its size in bytes and its SHA-256 in hexadecimal."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OmittedFile:
    """A file or folder that is not in the archive: its size in bytes, and why."""

    bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """``created``: ISO 8601; ``files`` and ``omitted`` by path in the install directory.

    ``secrets``: how many were replaced; ``is_anonymous``: whether users, hosts and paths were too.
    """

    schema_version: int = SCHEMA_VERSION
    llmb_version: str
    created: str
    runs: int
    secrets: int = 0
    is_anonymous: bool = False
    files: dict[str, ArchivedFile]
    omitted: dict[str, OmittedFile]
