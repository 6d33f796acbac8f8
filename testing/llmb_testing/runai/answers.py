# SPDX-License-Identifier: Apache-2.0
"""Answers of the API as values: refusals, and lists that are filtered, sorted and cut into pages."""

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

DEFAULT_LIMIT, MOST = 50, 500
_FILTER = re.compile(r"(\w+)(==|!=|<=|>=|=@|!@|=\^|=\$)(.*)")
_TESTS: Mapping[str, Callable[[str, str], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "=@": lambda own, text: text in own,
    "!@": lambda own, text: text not in own,
    "=^": str.startswith,
    "=$": str.endswith,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of the API."""

    status: int
    data: Any
    headers: Mapping[str, str] = field(default_factory=dict)


def error(status: int, message: str, **more: Any) -> Answer:
    """An answer that says no."""
    return Answer(status=status, data={"code": status, "message": message, **more})


class BadQueryError(ValueError):
    """A query that the API refuses."""


def page(
    items: Sequence[Mapping[str, Any]], query: Mapping[str, str], key: str, fields: Collection[str] = ()
) -> dict[str, Any]:
    """One page of ``items``, which may be filtered by ``fields``, as the list ``key``. Raises BadQueryError."""
    filters = [_read(text, fields) for text in query.get("filterBy", "").split(",") if text]
    kept = [item for item in items if all(test(str(item[name]), value) for name, test, value in filters)]
    if field := query.get("sortBy"):
        kept.sort(key=lambda item: str(item[field]), reverse=query.get("sortOrder") == "desc")
    offset, limit = _number(query, "offset", 0), _number(query, "limit", DEFAULT_LIMIT)
    if not 1 <= limit <= MOST:
        raise BadQueryError(f"limit must be from 1 to {MOST}")
    answer: dict[str, Any] = {key: kept[offset : offset + limit]}
    if offset + limit < len(kept):
        answer["next"] = offset + limit
    return answer


def _read(text: str, fields: Collection[str]) -> tuple[str, Callable[[str, str], bool], str]:
    match = _FILTER.fullmatch(text)
    if match is None or match[1] not in fields:
        raise BadQueryError(f"filterBy: '{text}' cannot be understood")
    return match[1], _TESTS[match[2]], match[3]


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not text.isdecimal():
        raise BadQueryError(f"{name} must be a number")
    return int(text)
