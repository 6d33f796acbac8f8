# SPDX-License-Identifier: Apache-2.0
"""Keeps the content of a package's YAML files in `__pycache__`, where Python keeps its bytecode.

Reading it takes a tenth of the time of parsing YAML. It has the form of bytecode but is never run,
so a foreign file can do no more harm there than bytecode. Damaged bytes fail its checksum.
"""

import marshal
import os
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from llmb.core import files
from llmb.core.document import Document, KeyPath
from llmb.errors import LlmbError

_PARSER = Path(__file__).with_name("yaml_parser.py")
# known to every Python that llmb supports
_FORM = 4
_CHECKSUM = 4  # bytes


class _Lines(Mapping[KeyPath, int]):
    """The line of each key path of a YAML text, which is parsed when a line is first asked for.

    Only messages about faults need them.
    """

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._lines: Mapping[KeyPath, int] | None = None

    def _parsed(self) -> Mapping[KeyPath, int]:
        if self._lines is None:
            from llmb.core import yaml_parser

            self._lines = yaml_parser.parse(self._text, name=self._name).lines
        return self._lines

    def __getitem__(self, path: KeyPath) -> int:
        return self._parsed()[path]

    def __iter__(self) -> Iterator[KeyPath]:
        return iter(self._parsed())

    def __len__(self) -> int:
        return len(self._parsed())


def read(path: Path, text: str) -> Document | None:
    """Return what the file ``path`` contains, None if that was not kept for this ``text``."""
    try:
        head, kept = _head(text), _place(path).read_bytes()
        content = kept[len(head) + _CHECKSUM :]
        if kept != head + _checksum(content) + content:
            return None
        data, texts = marshal.loads(content)
    except (OSError, ValueError, EOFError):
        return None
    return Document(name=str(path), data=data, lines=_Lines(str(path), text), texts=texts)


def keep(path: Path, text: str, document: Document) -> None:
    """Keep the ``document`` of ``text``, if Python keeps bytecode beside the file ``path``.

    A document with values that bytecode does not have, such as dates, is not kept.
    """
    place = _place(path)
    if sys.dont_write_bytecode or not os.access(place.parent, os.W_OK):
        return
    with suppress(OSError, LlmbError, ValueError):
        content = marshal.dumps((document.data, dict(document.texts)), _FORM)
        with files.output(place) as stream:
            stream.write(_head(text) + _checksum(content) + content)


def _place(path: Path) -> Path:
    return path.parent / "__pycache__" / f"{path.name}.data"


def _head(text: str) -> bytes:
    """What precedes the content: the digest of the code, the ``text``, and a byte that YAML lacks.

    So the file is only of use for the same text, read by the same code.
    """
    return f"{_code():08x}\n{text}\0".encode()


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM)


@cache
def _code() -> int:
    """The digest of the parser and of this file: another release may read a text differently."""
    return zlib.crc32(_PARSER.read_bytes() + Path(__file__).read_bytes())
