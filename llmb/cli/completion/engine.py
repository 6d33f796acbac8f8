# SPDX-License-Identifier: Apache-2.0
"""Completes the words of a command line, and has the scripts of the shells.

click finds the command and the parameter that are being written. A table has the possible values by
the parameter's name. For a parameter that is not there, click answers (choices, files).
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any, Literal

import click
from click.shell_completion import (
    CompletionItem,
    _resolve_context,
    _resolve_incomplete,
    split_arg_string,
)

from llmb.core.values import dataclass

# the line up to the cursor; where bash splits words
_LINE, _BREAKS = "COMP_LINE", "COMP_WORDBREAKS"
_END = "\x01"  # marks the cursor: no line has this character
_MOST = 500  # candidates
_FOLDER_OR_FILE = {"dir": "folder", "file": "file"}

Kind = Literal["word", "open", "file", "folder"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible word, and a few words on it."""

    value: str
    help: str = ""
    #: ``open`` for a word that continues, as ``tp=``. ``file`` and ``folder`` for any path, which
    #: the shell completes.
    kind: Kind = "word"


Completer = Callable[[click.Context, str], Iterable[Candidate]]
ANY_FILE, ANY_FOLDER = Candidate("", kind="file"), Candidate("", kind="folder")


def variable_of(prog: str) -> str:
    """The variable in which a shell's script asks ``prog`` for candidates.

    Its value is the name of the shell.
    """
    return f"_{_name_of(prog)}_COMPLETE".upper()


def script(shell: str, prog: str) -> str:
    """The script for ``shell``, one of ``words.SHELLS``."""
    text = files(__package__).joinpath("scripts", shell).read_text(encoding="utf-8")
    for mark, value in {
        "PROG": prog,
        "NAME": _name_of(prog),
        "VARIABLE": variable_of(prog),
    }.items():
        text = text.replace(f"@{mark}@", value)
    return text


def _name_of(prog: str) -> str:
    return prog.replace("-", "_")


def answer(
    group: Callable[[], click.Group],
    prog: str,
    completers: Mapping[str, Completer],
    obj: Callable[[], Any],
) -> int:
    """Print the candidates for the line in the environment, and nothing else if that fails.

    ``completers`` by the names of parameters. ``obj`` makes the object of click's context.
    """
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nothing,
        contextlib.redirect_stderr(nothing),
    ):
        try:
            shell = os.environ.get(variable_of(prog), "")
            line = os.environ.get(_LINE, "")
            breaks = os.environ.get(_BREAKS, "") if shell == "bash" else ""
            words = list(candidates(group(), prog, line, completers, {"obj": obj()}))
        except Exception:
            return 1
    print("".join(_lines(words, words_of(line)[1], breaks)), end="")
    return 0


def candidates(
    group: click.Group,
    prog: str,
    line: str,
    completers: Mapping[str, Completer],
    context: MutableMapping[str, Any],
) -> Iterator[Candidate]:
    """Find the possible last words of ``line``, which ends at the cursor."""
    words, unfinished = words_of(line)
    at = next((place for place, word in enumerate(words) if PurePath(word).name == prog), 0)
    arguments = words[at + 1 :]
    click_context = _resolve_context(group, context, prog, list(arguments))
    if isinstance(click_context.command, click.Group) and (
        click_context._protected_args or click_context.args
    ):
        return  # an unknown command
    owner, incomplete = _resolve_incomplete(click_context, arguments, unfinished)
    before = unfinished[: len(unfinished) - len(incomplete)]  # --option= of --option=value
    count = 0
    for candidate in _of(owner, click_context, incomplete, completers):
        if candidate.kind in ("file", "folder") or candidate.value.startswith(incomplete):
            yield (
                Candidate(before + candidate.value, candidate.help, candidate.kind)
                if before
                else candidate
            )
            count += 1
        if count == _MOST:
            return


def words_of(line: str) -> tuple[list[str], str]:
    """The words of a line before its last one, and that, which is empty after a blank."""
    words = split_arg_string(line + _END)
    return words[:-1], words[-1].rstrip(_END)


def _of(
    owner: click.Command | click.Parameter,
    context: click.Context,
    incomplete: str,
    completers: Mapping[str, Completer],
) -> Iterable[Candidate]:
    if isinstance(owner, click.Parameter):
        completer = completers.get(str(owner.name))
        if completer is not None and not isinstance(owner.type, (click.Choice, click.Path)):
            return completer(context, incomplete)
        return map(_from_click, owner.shell_complete(context, incomplete))
    if isinstance(owner, click.Group) and not incomplete.startswith("-"):
        # Names and summaries are known without importing the commands.
        return [
            Candidate(name, command.get_short_help_str(1000))
            for name, command in sorted(owner.commands.items())
            if not command.hidden
        ]
    options = map(_from_click, owner.shell_complete(context, incomplete))
    return [command for command in options if command.value.startswith("-")]


def _from_click(item: CompletionItem) -> Candidate:
    kind = _FOLDER_OR_FILE.get(item.type)
    if kind is not None:
        return ANY_FOLDER if kind == "folder" else ANY_FILE
    return Candidate(str(item.value), item.help or "")


def _lines(offered: Iterable[Candidate], unfinished: str, breaks: str) -> Iterator[str]:
    """A line for each candidate: its kind, its value and its help, with tabs between.

    Bash replaces only what follows the last of its ``breaks`` in the word: the rest is omitted.
    """
    stem = max((unfinished.rfind(char) + 1 for char in breaks if char in "=:"), default=0)
    for candidate in offered:
        yield (
            "\t".join([candidate.kind, candidate.value[stem:], " ".join(candidate.help.split())])
            + "\n"
        )


def last_of(completer: Completer) -> Completer:
    """A completer of words with commas between: the last of them is completed."""

    def complete(context: click.Context, incomplete: str) -> Iterator[Candidate]:
        before, comma, last = incomplete.rpartition(",")
        written = before.split(",")
        for candidate in completer(context, last):
            if candidate.value not in written:
                yield Candidate(before + comma + candidate.value, candidate.help, candidate.kind)

    return complete


def fixed(words: Sequence[str]) -> Completer:
    """A completer of ``words`` that are always the same."""
    return lambda _context, _incomplete: map(Candidate, words)
