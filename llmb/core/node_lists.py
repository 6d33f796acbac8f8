# SPDX-License-Identifier: Apache-2.0
"""Lists of nodes as Slurm writes them, ``n[01-03,7],login``: to names, and back. Pure."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator

from llmb.errors import UsageError

_MOST = 100_000  # names of a list
_LONGEST = 512  # characters of a name; a host has at most 253
_NUMBER = re.compile(r"\d{1,255}", re.ASCII)
_PART = r"(?:[^\[\],\s*?]|\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\])+"
_BRACKETS = re.compile(r"[^\[\]]*(?:\[[^\[\]]+\][^\[\]]*)*")
HINT = "write node names, or ranges in closed brackets: n[1-4],n7"
_LIST = re.compile(rf"\s*{_PART}(?:[,\s]+{_PART})*\s*")


def is_list(text: str) -> bool:
    """Return True if ``text`` names at least one node.

    Numbers in brackets are ascending.
    """
    ranges = (
        pair
        for inner in re.findall(r"\[(.*?)\]", text)
        for pair in re.findall(r"(\d+)-(\d+)", inner)
    )
    return _LIST.fullmatch(text) is not None and all(
        len(last) <= _LONGEST and int(first) <= int(last) for first, last in ranges
    )


def has_brackets_closed(text: str) -> bool:
    """Return True unless a bracket of ``text`` is not closed, not open, nested or empty.

    It is less strict than ``is_list``, as Slurm's options also take other texts, such as a file.
    """
    return _BRACKETS.fullmatch(text) is not None


def not_a_list(text: str, option: str) -> UsageError:
    """The error for the ``text`` of an ``option`` that is no list of nodes."""
    return UsageError(
        f"{option}: '{text}' is not a list of nodes",
        hint=HINT,
        code="value-not-allowed",
        key=option,
        value=text,
    )


def short_name(node: str) -> str:
    """The name of a node without its domain, in lower case."""
    return node.partition(".")[0].lower()


def expand(nodes: str) -> Iterator[str]:
    """The names of a list: ``n[01-03,7],login`` is n01, n02, n03, n7 and login.

    At most 100,000 of them. A part that means more, or longer names than hosts have, is no list,
    and is returned unchanged.
    """
    parts = re.findall(r"(?:[^,\[\s]|\[[^\[\]]*\])+", nodes)
    return itertools.islice(itertools.chain.from_iterable(map(_names_of, parts)), _MOST)


def _names_of(part: str) -> Iterable[str]:
    """The names of one part of a list. Nothing is made before its number is known."""
    pieces = re.findall(r"\[.*?\]|[^\[]+", part)
    choices = [
        list(map(_range, piece[1:-1].split(","))) if piece.startswith("[") else [(piece, 0, 0)]
        for piece in pieces
    ]
    counts = [sum(1 + last - first for _, first, last in ranges) for ranges in choices]
    longest = sum(max(len(text) for text, _, _ in ranges) for ranges in choices)
    if math.prod(counts) > _MOST or longest > _LONGEST:
        return [part]
    numbers = [[name for bounds in ranges for name in _numbers(*bounds)] for ranges in choices]
    return map("".join, itertools.product(*numbers))


def _range(text: str) -> tuple[str, int, int]:
    """The first and last number of ``01-03``, after ``01``; another text is a name of its own."""
    first, dash, last = text.partition("-")
    if dash and _NUMBER.fullmatch(first) and _NUMBER.fullmatch(last) and int(first) <= int(last):
        return first, int(first), int(last)
    return text, 0, 0


def _numbers(text: str, first: int, last: int) -> Iterable[str]:
    if first == last == 0:
        return [text]
    return (str(number).zfill(len(text)) for number in range(first, last + 1))


def fold(names: Iterable[str]) -> str:
    """The shortest list of these names, in the order of their first: ``n[01-03,07],login``."""
    families: dict[tuple[str, int], list[int]] = {}
    words: dict[tuple[str, int], str] = {}
    for name in dict.fromkeys(names):
        match = re.fullmatch(r"(.*?)(\d+)", name)
        # Numbers of one width belong together; without a leading 0 the width does not matter.
        key = (
            (name, -1)
            if match is None
            else (match[1], len(match[2]) if match[2].startswith("0") else 0)
        )
        if match is not None and not key[1] and (match[1], len(match[2])) in families:
            key = match[1], len(match[2])
        families.setdefault(key, []).append(0 if match is None else int(match[2]))
        words.setdefault(key, name)
    return ",".join(_folded(key, sorted(numbers), words[key]) for key, numbers in families.items())


def _folded(key: tuple[str, int], numbers: list[int], word: str) -> str:
    if len(numbers) == 1:
        return word
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    stem, width = key
    texts = ["-".join(str(end).zfill(width) for end in dict.fromkeys(ends)) for ends in ranges]
    return f"{stem}[{','.join(texts)}]"
