# SPDX-License-Identifier: Apache-2.0
"""Lists as the API gives them: filtered, sorted, and in pages."""

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
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
