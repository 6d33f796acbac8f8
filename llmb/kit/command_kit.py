# SPDX-License-Identifier: Apache-2.0
"""For plugins: sentences, lists of nodes as Slurm has them, tables, files and locks."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from llmb.core import console, files, locks, node_lists, tables
from llmb.core.tables import Column, Row


def say(text: str) -> None:
    """Print a message on standard error, since standard output is for data.

    On a terminal it is wrapped at words, but a command in it stays on one line.
    """
    console.echo(text, err=True, prose=True)


def expand_nodes(text: str) -> list[str]:
    """Return the names of a list: ``n[01-03,7],login`` is n01, n02, n03, n7 and login."""
    return [*node_lists.expand(text)]


def read_nodes(text: str, option: str) -> list[str]:
    """Return the names of a list that a user wrote in ``option``. Raises UsageError."""
    if not node_lists.is_list(text):
        raise node_lists.not_a_list(text, option)
    return [*dict.fromkeys(node_lists.expand(text))]


def fold_nodes(names: Iterable[str]) -> str:
    """Return the shortest list of these names: ``n[01-03,07],login``."""
    return node_lists.fold(names)


def render_table(columns: Sequence[Column], rows: Sequence[Row], fmt: str = "table") -> str:
    """Return rows as a ``table`` in the terminal's width, or as ``json``, ``csv`` or ``md``."""
    return tables.render(columns, rows, fmt)


_MOST = 1 << 20  # bytes


def read_yaml(path: Path) -> Any:
    """Return the data of a YAML file of another program, which has at most 1 MiB.

    Of keys that are repeated, one is used. Raises UsageError for a file that cannot be read.
    """
    from llmb.core import yamlfile  # PyYAML, which few plugins need

    return yamlfile.load(path, strict=False, most=_MOST).data


def parse_yaml(text: str, name: str) -> Any:
    """Return the data in a YAML text of a user. ``name``: its file, for messages.

    Raises UsageError with the line of each fault, also for a key that is repeated.
    """
    from llmb.core import yamlfile

    return yamlfile.parse(text, name=name).data


def write_file(path: Path, text: str) -> None:
    """Write a file of the install directory, whose folder may not exist yet.

    It is complete or unchanged, also if the machine crashes. Raises LlmbError.
    """
    files.make_folder(path.parent)
    files.write_text(path, text)


def hold_lock(folder: Path, name: str) -> AbstractContextManager[None]:
    """Hold the lock ``name`` in a folder of the install directory, which may not exist yet.

    It holds on shared folders and other hosts too. Raises LlmbError with the process that holds it.
    """
    files.make_folder(folder)
    return locks.hold(folder, name)
