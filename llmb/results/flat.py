# SPDX-License-Identifier: Apache-2.0
"""A result in one level for CSV: what lies deeper gets its owner's name before its own. Pure."""

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from llmb.results.configuration import Configuration
from llmb.results.facts import CheckpointTime
from llmb.results.result import Result
from llmb.stats.measure import Window

_BARE = (Configuration,)  # its fields keep their names, but for those that a result has too
_ENDS = ("ratio_interval", "interval")  # a lower and an upper end, which become two columns
_LEFT_OUT = (CheckpointTime,)  # each event: the last ones are in `checkpoints`


class _Leaf(NamedTuple):
    """One column: its key, the way to its value, and which end of an interval it is."""

    key: str
    way: tuple[str, ...]
    end: int | None = None


def csv_keys() -> list[str]:
    """The columns of a result, in the order of its fields."""
    return [leaf.key for leaf in _leaves()]


def flat(result: Result) -> dict[str, Any]:
    """The values of the columns: lists as words with blanks between, mappings as K=V, a window as ``--window`` does."""
    return {leaf.key: _text(_value(result, leaf)) for leaf in _leaves()}


@cache
def _leaves() -> tuple[_Leaf, ...]:
    leaves: dict[str, _Leaf] = {}
    for leaf in sorted(_walk(Result, (), ""), key=lambda leaf: len(leaf.way) > 1):
        leaves.setdefault(leaf.key, leaf)
    return tuple(leaves.values())


def _walk(cls: type, way: tuple[str, ...], before: str) -> Iterator[_Leaf]:
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        own, key = (*way, field.name), before + field.name
        kinds = (hints[field.name], *typing.get_args(hints[field.name]))
        inner = next((kind for kind in kinds if dataclasses.is_dataclass(kind)), None)
        if inner in _LEFT_OUT:
            continue
        if inner is not None:
            assert isinstance(inner, type)
            yield from _walk(inner, own, before if inner in _BARE else f"{key}_")
        elif field.name in _ENDS:
            stem = key.removesuffix("_interval")
            yield from (_Leaf(f"{stem}_{word}", own, end) for end, word in enumerate(("low", "high")))
        else:
            yield _Leaf(key, own)


def _value(result: Result, leaf: _Leaf) -> Any:
    value: Any = result
    for name in leaf.way:
        value = None if value is None else getattr(value, name)
    return value if leaf.end is None or value is None else value[leaf.end]


def _text(value: Any) -> Any:
    if isinstance(value, Window):
        return str(value)
    if isinstance(value, Mapping):
        return " ".join(f"{key}={item}" for key, item in sorted(value.items())) or None
    if isinstance(value, (tuple, list)):
        between = "; " if any(" " in str(item) for item in value) else " "
        return between.join(map(str, value)) or None
    return value
