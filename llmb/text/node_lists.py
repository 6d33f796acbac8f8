# SPDX-License-Identifier: Apache-2.0
"""Lists of nodes as Slurm writes them, ``n[01-03,7],login``: to names, and back. Pure."""

import itertools
import re
from collections.abc import Iterable, Iterator

_MOST = 100_000  # names of a list
_PART = r"(?:[^\[\],\s*?]|\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\])+"
_LIST = re.compile(rf"\s*{_PART}(?:[,\s]+{_PART})*\s*")


def is_list(text: str) -> bool:
    """Whether ``text`` names at least one node, with ascending numbers in each of its brackets."""
    ranges = (pair for inner in re.findall(r"\[(.*?)\]", text) for pair in re.findall(r"(\d+)-(\d+)", inner))
    return _LIST.fullmatch(text) is not None and all(int(first) <= int(last) for first, last in ranges)


def short_name(node: str) -> str:
    """The name of a node without its domain, in lower case."""
    return node.partition(".")[0].lower()


def expand(nodes: str) -> Iterator[str]:
    """The names of a list: ``n[01-03,7],login`` is n01, n02, n03, n7 and login."""
    for part in re.findall(r"(?:[^,\[\s]|\[[^\]]*\])+", nodes):
        pieces = re.findall(r"\[.*?\]|[^\[]+", part)
        choices = [_numbers(piece[1:-1]) if piece.startswith("[") else [piece] for piece in pieces]
        yield from itertools.islice(("".join(each) for each in itertools.product(*choices)), _MOST)


def _numbers(text: str) -> list[str]:
    found = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if dash and first.isdecimal() and last.isdecimal() and int(last) - int(first) < _MOST:
            found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        else:
            found.append(part)
    return found


def fold(names: Iterable[str]) -> str:
    """The shortest list of these names, in the order of their first: ``n[01-03,07],login``."""
    families: dict[tuple[str, int], list[int]] = {}
    words: dict[tuple[str, int], str] = {}
    for name in dict.fromkeys(names):
        match = re.fullmatch(r"(.*?)(\d+)", name)
        # Numbers of one width belong together; without a leading 0 the width does not matter.
        key = (name, -1) if match is None else (match[1], len(match[2]) if match[2].startswith("0") else 0)
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
