# SPDX-License-Identifier: Apache-2.0
"""The keys and values that a table of facts and measures may have, and the faults of others. Pure.

A site writes a table in its checks.yaml, and each check keeps the table that it was given.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from llmb import api

GPUS = "GPUS"  # in a rule: the GPUs of a node
FAULT, NOTE = "fault", "note"
SEVERITIES = (FAULT, NOTE)
_QUESTIONS = ("nvml", "file", "node", "command")
_NO_NULL = "remove the key, and the value of llmb applies"

_LIKENESS = 0.7  # of a typo: 'more' is not 'source'

KeyPath = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFault:
    """A key or value of a table that means nothing."""

    path: KeyPath
    #: Follows the dotted path in a message.
    problem: str
    hint: str

    @property
    def key(self) -> str:
        """The dotted path, as ``facts.scratch.rule.at_least``."""
        return ".".join(map(str, self.path))


#: Yields the faults of a value at a path.
_Check = Callable[[Any, KeyPath], Iterator[RowFault]]


def faults_of(table: Any) -> Iterator[RowFault]:
    """Yield the faults of a table."""
    return _TABLE(table, ())


def usable(table: Any) -> tuple[dict[str, Any], list[RowFault]]:
    """Return what can be judged of a table that a check has kept, and the faults of the rest.

    The keys of a row that are missing have the values of a note without a rule.
    """
    faults = [*faults_of(table)]
    part: Any = copy.deepcopy(table)
    for fault in faults:
        part = _without(part, fault.path)
    part = {"facts": {}, "measures": {}, **part}
    note = {"rule": {}, "severity": NOTE, "fix": "", "source": ""}
    return {
        **part,
        "facts": {name: {**note, **_set_keys(row)} for name, row in part["facts"].items()},
        "measures": {name: _set_keys(row) for name, row in part["measures"].items()},
    }, faults


def _set_keys(row: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the keys of a row that are not null."""
    return {key: value for key, value in (row or {}).items() if value is not None}


def _without(data: Any, path: KeyPath) -> Any:
    """Remove the value at ``path`` from ``data``, and return what is left."""
    if not path:
        return {}
    parent = data
    for key in path[:-1]:
        parent = parent[key]
    parent.pop(path[-1], None)
    return data


def _fault(path: KeyPath, problem: str, hint: str) -> Iterator[RowFault]:
    yield RowFault(path=path, problem=problem, hint=hint)


def _nearest(word: Any, choices: Collection[str]) -> str:
    """Return the hint for a word that is not one of ``choices``."""
    return api.suggest(str(word), choices, likeness=_LIKENESS)


def _or_null(check: _Check) -> _Check:
    """Return the check that also accepts null, by which a site unsets a key."""
    return lambda value, path: iter(()) if value is None else check(value, path)


def _mapping(checks: Mapping[str, _Check]) -> _Check:
    """Return the check of a mapping with these keys."""

    def check(value: Any, path: KeyPath) -> Iterator[RowFault]:
        if not isinstance(value, dict):
            yield from _fault(path, "is no mapping", f"its keys are {', '.join(sorted(checks))}")
            return
        for key, item in value.items():
            if key in checks:
                yield from checks[key](item, (*path, key))
            else:
                hint = _nearest(key, sorted(checks))
                yield from _fault((*path, key), "is not a key here", hint)

    return check


def _names(check: _Check, form: str) -> _Check:
    """Return the check of a mapping with any names. ``form`` is written there."""

    def check_names(value: Any, path: KeyPath) -> Iterator[RowFault]:
        if not isinstance(value, dict):
            yield from _fault(path, "is no mapping", f"write {form}")
            return
        for name, item in value.items():
            yield from check(item, (*path, name))

    return check_names


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _text(value: Any, path: KeyPath) -> Iterator[RowFault]:
    if not isinstance(value, str):
        yield from _fault(path, f"must be a text, not {value!r}", "put the text in quotes")


def _number(value: Any, path: KeyPath) -> Iterator[RowFault]:
    if not _is_number(value):
        hint = f"write a number without quotes, such as {path[-1]}: 4"
        yield from _fault(path, f"must be a number, not {value!r}", hint)


def _seconds(value: Any, path: KeyPath) -> Iterator[RowFault]:
    if not _is_number(value) or value <= 0:
        hint = _NO_NULL if value is None else f"write seconds, such as {path[-1]}: 60"
        yield from _fault(path, f"must be a number above 0, not {value!r}", hint)


def _share(value: Any, path: KeyPath) -> Iterator[RowFault]:
    if not _is_number(value) or not 0 <= value < 1:
        hint = f"{path[-1]}: 0.5 flags nodes that are more than 50 % below the median"
        yield from _fault(path, f"must be a share from 0 to 1, not {value!r}", hint)


def _bound(value: Any, path: KeyPath) -> Iterator[RowFault]:
    if value != GPUS and not _is_number(value):
        hint = f"write a number without quotes, or {GPUS}; equals compares texts"
        yield from _fault(path, f"must be a number, not {value!r}", hint)


def _constant(value: Any, path: KeyPath) -> Iterator[RowFault]:
    if not isinstance(value, str) and not _is_number(value):
        hint = "put a word such as on, yes or true in quotes"
        yield from _fault(path, f"must be a text or a number, not {value!r}", hint)


def _switch(value: Any, path: KeyPath) -> Iterator[RowFault]:
    if not isinstance(value, bool):
        yield from _fault(path, f"must be true or false, not {value!r}", f"write {path[-1]}: true")


def _severity(value: Any, path: KeyPath) -> Iterator[RowFault]:
    if value not in SEVERITIES:
        problem = f"must be {' or '.join(SEVERITIES)}, not {value!r}"
        yield from _fault(path, problem, _nearest(value, SEVERITIES))


def _question(value: Any, path: KeyPath) -> Iterator[RowFault]:
    kind, _, name = value.partition(" ") if isinstance(value, str) else ("", "", "")
    if kind not in _QUESTIONS or not name.strip():
        hint = "write nvml NAME, file GLOB, node NAME or command TEXT"
        yield from _fault(path, f"is no question: {value!r}", hint)
        return
    from llmb_nodes.program import facts

    names = {"nvml": facts.NVML_NAMES, "node": facts.NODE_NAMES}.get(kind)
    if names is not None and name not in names:
        yield from _fault(path, f"names no fact of {kind}: '{name}'", _nearest(name, names))


RULES: Mapping[str, _Check] = {
    "equals": _constant,
    "at_least": _bound,
    "at_most": _bound,
    "same": _switch,
}
_RULE = _or_null(_mapping(RULES))
_FACT: Mapping[str, _Check] = {
    "ask": _or_null(_question),
    "source": _or_null(_text),
    "rule": _RULE,
    "severity": _or_null(_severity),
    "fix": _or_null(_text),
    "types": _or_null(_names(_RULE, "GPU_TYPE: {at_least: NUMBER}")),
}
_OF_TYPE: Mapping[str, _Check] = {
    "unit": _or_null(_text),
    "minimum": _or_null(_number),
    "spread": _or_null(_share),
    "command": _or_null(_text),
}
_MEASURE: Mapping[str, _Check] = {
    **_OF_TYPE,
    "types": _or_null(_names(_or_null(_mapping(_OF_TYPE)), "GPU_TYPE: {minimum: NUMBER}")),
}
_ROWS = "NAME: {...} for each row"
_TABLE = _mapping(
    {
        "facts": _names(_or_null(_mapping(_FACT)), _ROWS),  # null removes a row
        "measures": _names(_or_null(_mapping(_MEASURE)), _ROWS),
        "collective": _mapping(
            {"seconds": _seconds, "limit": _seconds, "command": _or_null(_text)}
        ),
        "hang_seconds": _seconds,
        "patience": _seconds,
    }
)
