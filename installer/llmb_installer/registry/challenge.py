# SPDX-License-Identifier: Apache-2.0
"""Reads what a registry asks for when it answers 401: the WWW-Authenticate header. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_SCHEME = re.compile(r"(?:^|,)\s*([A-Za-z]+)(?:\s+(?=[\w-]+\s*=)|\s*$)")
_PARAMETER = re.compile(r'(?<![\w-])([\w-]{1,64})\s{0,9}=\s{0,9}(?:"((?:\\.|[^"\\])*)"|([^\s,"]*))')

_LONGEST = 8192  # characters: ten times as long as any; a registry may send what it likes


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """One way to identify oneself: ``basic`` or ``bearer``, and for the latter where tokens come from."""

    scheme: str
    realm: str = ""
    service: str = ""
    scope: str = ""


def read_challenges(headers: Sequence[str]) -> list[Challenge]:
    """The challenges of all WWW-Authenticate headers of an answer, in order."""
    found = []
    for header in (header[:_LONGEST] for header in headers):
        starts = [*_SCHEME.finditer(_without_quoted(header))]
        ends = [*(start.start() for start in starts[1:]), len(header)][: len(starts)]
        for start, end in zip(starts, ends, strict=True):
            words = {
                m[1].lower(): m[2] if m[2] is not None else m[3] for m in _PARAMETER.finditer(header[start.end() : end])
            }
            known = {key: words[key] for key in ("realm", "service", "scope") if key in words}
            found.append(Challenge(scheme=start[1].lower(), **known))
    return found


def _without_quoted(header: str) -> str:
    """The header, equally long, with blanks for what is quoted."""
    return re.sub(r'"(?:\\.|[^"\\])*"', lambda quoted: '"' + "_" * (len(quoted[0]) - 2) + '"', header)
