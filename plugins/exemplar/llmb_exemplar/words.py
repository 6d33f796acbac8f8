# SPDX-License-Identifier: Apache-2.0
"""Hints with our words for commands, options and workloads of NVIDIA's, from words.yaml."""

import itertools
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from llmb_exemplar.playfile import options_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A row of the table: the replacement of a command or an option."""

    # The keys are described at the top of words.yaml.
    write: str = ""
    value: bool = False
    omit: str = ""
    note: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    argument: str = "{}"
    more: str = ""
    reads: bool = False

    def value_here(self, value: str) -> str:
        """Return an option's value in our words: ``--micro_batch_size=2`` is ``mbs=2``."""
        if not self.names:
            return value
        words = value.strip().lstrip("-").replace("=", " ", 1).split(maxsplit=1)
        return "=".join([self.names.get(words[0], words[0]), *words[1:]]) if words else value

    options: Mapping[str, "Replacement"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignProgram:
    """The commands and options of one program that ours does not have."""

    options: Mapping[str, Replacement]
    commands: Mapping[str, Replacement]
    #: The hint for each name of a recipe that is no workload of ours.
    workloads: Mapping[str, str]


@lru_cache(maxsize=1)
def programs() -> Mapping[str, ForeignProgram]:
    """The table, by the program's name."""
    data = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return {
        name: ForeignProgram(
            options=_rows(table["options"]),
            commands=_rows(table["commands"]),
            workloads=table.get("workloads", {}),
        )
        for name, table in data.items()
    }


def _rows(data: Mapping[str, Mapping[str, Any]]) -> dict[str, Replacement]:
    return {
        name: Replacement(
            **{**row, **({"options": _rows(row["options"])} if "options" in row else {})}
        )
        for name, row in data.items()
    }


def hint_for(
    program: str, word: str, arguments: Sequence[str], existing: Collection[str] = ()
) -> str | None:
    """Translate ``arguments`` if ``word`` is a foreign command or option, else return None.

    A foreign name of a workload has a hint of its own.

    ``existing``: the options that the command has.
    """
    table = programs().get(program)
    if table is None:
        return None
    if word in table.workloads:
        return table.workloads[word]
    at, name = _command(table, arguments)
    row = table.commands.get(name)
    options = {**table.options, **(row.options if row is not None else {})}
    options = _without(options, existing)
    if word not in options and (row is None or word not in name.split()):
        return None
    notes: dict[str, None] = dict.fromkeys([row.note] if row is not None else [])
    if row is None:
        words = list(_translated(arguments, options, "{}", notes))
    else:
        before, after = arguments[:at], arguments[at + len(name.split()) :]
        words = [
            *_translated(before, _without(options, _OF_GROUP.get(program, ())), "{}", notes),
            *row.write.split(),
            *_translated(after, options, row.argument, notes),
            *row.more.split(),
        ]
    remarks = "; ".join(filter(None, notes))
    return f"write: {shlex.join([program, *words])}" + (f"  ({remarks})" if remarks else "")


# Options of a program itself, before its commands.
_OF_GROUP = {"llmb-run": ("-v", "--verbose")}


def _without(options: Mapping[str, Replacement], names: Collection[str]) -> dict[str, Replacement]:
    return {name: row for name, row in options.items() if name not in names}


def _command(table: ForeignProgram, arguments: Sequence[str]) -> tuple[int, str]:
    """The place and the name of a foreign command among ``arguments``, or an empty name."""
    for name in sorted(table.commands, key=len, reverse=True):
        words = name.split()
        for at in range(len(arguments) - len(words) + 1):
            if [*arguments[at : at + len(words)]] == words and (
                words[0].startswith("-") or _is_first(arguments, at)
            ):
                return at, name
    return 0, ""


def _is_first(arguments: Sequence[str], at: int) -> bool:
    """Return True if only options, and their values, come before the word at ``at``."""
    before = ["", *arguments[:at]]
    return all(
        word.startswith("-") or last.startswith("-") for last, word in itertools.pairwise(before)
    )


def _translated(
    words: Sequence[str], options: Mapping[str, Replacement], argument: str, notes: dict[str, None]
) -> Iterator[str]:
    """Replace foreign options, and other words that follow no option by ``argument``."""
    remaining = list(words)
    after_option = False
    while remaining:
        word = remaining.pop(0)
        name, equals, value = word.partition("=")
        if (
            not word.startswith("--")
            and len(word) > 2
            and word[:2] in options
            and options[word[:2]].value
        ):
            name, equals, value = word[:2], "=", word[2:].removeprefix("=")
        row = options.get(name)
        if row is None:
            is_argument = not word.startswith("-") and not after_option
            after_option = word.startswith("-") and "=" not in word
            yield from ([part.format(word) for part in argument.split()] if is_argument else [word])
            continue
        after_option = False
        if row.value and not equals:
            value = remaining.pop(0) if remaining else "VALUE"
        notes[row.note] = None
        answers = options_of(Path(value).expanduser()) if row.reads else []
        if answers:
            yield from (*answers, "--yes")
        elif not (row.omit and value == row.omit):
            yield from (part.format(row.value_here(value)) for part in row.write.split())
