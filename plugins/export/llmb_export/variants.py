# SPDX-License-Identifier: Apache-2.0
"""Tells the configurations apart that one name of an experiment covers, as with ``--ab``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llmb_export.results import Row

_Path = tuple[str, ...]


def variants_of(rows: Sequence[Row]) -> list[str]:
    """Return the settings of each run in which these runs differ, as ``FOO=110, gbs=512``.

    Empty for all of them if they have one configuration.
    """
    settings = [dict(_leaves(row["configuration"], ())) for row in rows]
    paths = dict.fromkeys(path for values in settings for path in values)
    differing = [path for path in paths if len({values.get(path) for values in settings}) > 1]
    # A setting that `changes` has too is named once.
    return [
        ", ".join(dict.fromkeys(_phrase(path, values.get(path)) for path in differing))
        for values in settings
    ]


def _leaves(value: Any, path: _Path) -> Iterator[tuple[_Path, str | None]]:
    """Yield each setting of a configuration with its path, as text, None if it is unset."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(part, (*path, str(name)))
    else:
        yield path, None if value is None else str(value)


def _phrase(path: _Path, value: str | None) -> str:
    return f"{path[-1]} unset" if value is None else f"{path[-1]}={value}"
