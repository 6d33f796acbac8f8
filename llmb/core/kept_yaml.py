# SPDX-License-Identifier: Apache-2.0
"""Keeps the content of a package's YAML files in `__pycache__`, where Python keeps its bytecode.

Reading it takes a tenth of the time of parsing YAML. It is JSON, so that a damaged or foreign file
can do no more harm than a changed YAML file.
"""

import json
import os
import sys
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from llmb.core import files
from llmb.core.document import Document, KeyPath
from llmb.errors import LlmbError

_PARSER = Path(__file__).with_name("yaml_parser.py")
_DAMAGED = (ValueError, TypeError, LookupError, RecursionError)


def read(path: Path, text: str) -> Document | None:
    """Return what the file ``path`` contains, None if that was not kept for this ``text``."""
    try:
        head, data = _head(text), _place(path).read_bytes()
        return _decode(str(path), data[len(head) :]) if data.startswith(head) else None
    except (OSError, *_DAMAGED):
        return None


def keep(path: Path, text: str, document: Document) -> None:
    """Keep the ``document`` of ``text``, if Python keeps bytecode beside the file ``path``.

    A document with values that JSON does not have, such as dates, is not kept.
    """
    place = _place(path)
    if sys.dont_write_bytecode or not os.access(place.parent, os.W_OK):
        return
    with suppress(OSError, LlmbError, *_DAMAGED):
        data = json.dumps(_node(document, document.data, ()), separators=(",", ":"))
        if _decode(document.name, data.encode()) == document:
            files.write_text(place, _head(text).decode() + data, durable=False)


def _place(path: Path) -> Path:
    return path.parent / "__pycache__" / f"{path.name}.json"


def _head(text: str) -> bytes:
    """What precedes the JSON: the digest of the code, the ``text``, and a byte that YAML lacks."""
    return f"{_code():08x}\n{text}\0".encode()


@cache
def _code() -> int:
    """The digest of the parser and of this file: another release may read a text differently."""
    return zlib.crc32(_PARSER.read_bytes() + Path(__file__).read_bytes())


def _node(document: Document, value: Any, path: KeyPath) -> list[Any]:
    """Return ``[line, value]``, or ``[line, value, text]`` of a number.

    The value of a list is its nodes, that of a mapping ``{"keys": [...], "nodes": [...]}``.
    """
    line = document.lines[path]
    if isinstance(value, dict):
        nodes = [_node(document, item, (*path, key)) for key, item in value.items()]
        return [line, {"keys": list(value), "nodes": nodes}]
    if isinstance(value, list):
        return [line, [_node(document, item, (*path, at)) for at, item in enumerate(value)]]
    return [line, value, document.texts[path]] if path in document.texts else [line, value]


def _decode(name: str, data: bytes) -> Document:
    """Return the document of the JSON ``data``. Raises one of _DAMAGED."""
    lines: dict[KeyPath, int] = {}
    texts: dict[KeyPath, str] = {}

    def value_of(node: list[Any], path: KeyPath) -> Any:
        lines[path], value = node[0], node[1]
        if type(value) is dict:
            keys, nodes = value["keys"], value["nodes"]
            pairs = zip(keys, nodes, strict=True)
            return {key: value_of(below, (*path, key)) for key, below in pairs}
        if type(value) is list:
            return [value_of(below, (*path, at)) for at, below in enumerate(value)]
        if len(node) > 2:
            texts[path] = node[2]
        return value

    return Document(name=name, data=value_of(json.loads(data), ()), lines=lines, texts=texts)
