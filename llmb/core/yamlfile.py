# SPDX-License-Identifier: Apache-2.0
"""Reads YAML files into plain data with the line of each key."""

from pathlib import Path

from llmb.core import files, kept_yaml
from llmb.core.document import (
    Document as Document,
    DuplicateKey as DuplicateKey,
    KeyPath as KeyPath,
    dotted as dotted,
)


def load(
    path: Path, *, name: str | None = None, strict: bool = True, most: int | None = None
) -> Document:
    """Read the file ``path``, as ``files.read_text``. Raises UsageError or InputFaults."""
    return parse(files.read_text(path, name=name, most=most), name=name or str(path), strict=strict)


def load_packaged(path: Path) -> Document:
    """Read a file of a package as ``load`` does, and keep what it contains beside its bytecode."""
    text = files.read_text(path)
    if (kept := kept_yaml.read(path, text)) is not None:
        return kept
    document = parse(text, name=str(path))
    kept_yaml.keep(path, text, document)
    return document


def parse(text: str, *, name: str, strict: bool = True) -> Document:
    """Parse ``text``. An empty text is an empty mapping. Raises InputFaults with places.

    With ``strict=False`` duplicate keys are returned in ``faults`` and the last value is used. In
    the outermost mapping the first value is used, and the others are kept under a ``DuplicateKey``
    so that the caller can check them too.
    """
    # importing PyYAML takes a tenth of a short command
    from llmb.core import yaml_parser

    return yaml_parser.parse(text, name=name, strict=strict)
