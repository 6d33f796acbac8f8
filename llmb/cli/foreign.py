# SPDX-License-Identifier: Apache-2.0
"""Hints at what replaces a command or an option of NVIDIA's llmb-run and llmb-install, from foreign.yaml."""

import itertools
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table. ``write`` replaces the command or option; ``omit``: a value for which nothing does.

    Of a command, ``argument`` replaces each of its arguments and ``more`` follows; ``options`` are its own.
    """

    write: str = ""
    value: bool = False
    omit: str = ""
    note: str = ""
    argument: str = "{}"
    more: str = ""
    options: Mapping[str, "Row"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The commands and options of one program that ours does not have."""

    options: Mapping[str, Row]
    commands: Mapping[str, Row]


@lru_cache(maxsize=1)
def programs() -> Mapping[str, Program]:
    """The table, by the program's name."""
    from llmb.text import yamlfile

    data = yamlfile.load(Path(__file__).with_suffix(".yaml")).data
    return {name: Program(options=_rows(own["options"]), commands=_rows(own["commands"])) for name, own in data.items()}


def _rows(data: Mapping[str, Mapping[str, Any]]) -> dict[str, Row]:
    return {
        name: Row(**{**own, **({"options": _rows(own["options"])} if "options" in own else {})})
        for name, own in data.items()
    }


def hint_for(program: str, unknown: str, arguments: Sequence[str], own: Collection[str] = ()) -> str | None:
    """The command line ``arguments`` in our words, where ``unknown`` is a foreign command or option; None where not.

    ``own``: the options that the command has.
    """
    table = programs().get(program)
    if table is None:
        return None
    at, name = _command(table, arguments)
    row = table.commands.get(name)
    known = {**table.options, **(row.options if row is not None else {})}
    known = {option: found for option, found in known.items() if option not in own}
    if unknown not in known and (row is None or unknown not in name.split()):
        return None
    notes: dict[str, None] = dict.fromkeys([row.note] if row is not None else [])
    if row is None:
        words = list(_translated(arguments, known, "{}", notes))
    else:
        before, after = arguments[:at], arguments[at + len(name.split()) :]
        words = [
            *_translated(before, known, "{}", notes),
            *row.write.split(),
            *_translated(after, known, row.argument, notes),
            *row.more.split(),
        ]
    why = "; ".join(filter(None, notes))
    return f"write: {shlex.join([program, *words])}" + (f"  ({why})" if why else "")


def _command(table: Program, arguments: Sequence[str]) -> tuple[int, str]:
    """The place and the name of a foreign command among ``arguments``; an empty name where there is none."""
    for name in sorted(table.commands, key=len, reverse=True):
        words = name.split()
        for at in range(len(arguments) - len(words) + 1):
            if [*arguments[at : at + len(words)]] == words and (words[0].startswith("-") or _is_first(arguments, at)):
                return at, name
    return 0, ""


def _is_first(arguments: Sequence[str], at: int) -> bool:
    """Whether the word at ``at`` may be the command: only options, and their values, come before it."""
    before = ["", *arguments[:at]]
    return all(word.startswith("-") or last.startswith("-") for last, word in itertools.pairwise(before))


def _translated(words: Sequence[str], known: Mapping[str, Row], argument: str, notes: dict[str, None]) -> Iterator[str]:
    """The words with foreign options replaced, and other words that follow no option by ``argument``."""
    rest = list(words)
    after_option = False
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("--") and len(word) > 2 and word[:2] in known and known[word[:2]].value:
            name, equals, value = word[:2], "=", word[2:].removeprefix("=")
        row = known.get(name)
        if row is None:
            is_argument = not word.startswith("-") and not after_option
            after_option = word.startswith("-") and "=" not in word
            yield from ([part.format(word) for part in argument.split()] if is_argument else [word])
            continue
        after_option = False
        if row.value and not equals:
            value = rest.pop(0) if rest else "VALUE"
        notes[row.note] = None
        if not (row.omit and value == row.omit):
            yield from (part.format(value) for part in row.write.split())
