# SPDX-License-Identifier: Apache-2.0
"""Completes the words of a command of llmb: what a line may continue with, and the scripts of the shells.

click finds the command and the parameter that are being written. What a parameter may be is in a table by the
parameter's name; for one that is not there, click answers (choices, files).
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any, Literal

import click
from click.shell_completion import CompletionItem, _resolve_context, _resolve_incomplete, split_arg_string

_LINE, _BREAKS = "COMP_LINE", "COMP_WORDBREAKS"  # the line up to the cursor; where bash splits words
_END = "\x01"  # marks the cursor: no line has this character
_MOST = 500  # candidates
_FOLDER_OR_FILE = {"dir": "folder", "file": "file"}

Kind = Literal["word", "open", "file", "folder"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a word may be, and a few words on it.

    ``kind``: ``open`` for a word that continues, as ``tp=``; ``file`` and ``folder`` for any path, which the shell
    completes.
    """

    value: str
    help: str = ""
    kind: Kind = "word"


Completer = Callable[[click.Context, str], Iterable[Candidate]]
ANY_FILE, ANY_FOLDER = Candidate("", kind="file"), Candidate("", kind="folder")


def variable_of(prog: str) -> str:
    """The variable in which a shell's script asks ``prog`` for candidates; its value is the shell's name."""
    return f"_{_name_of(prog)}_COMPLETE".upper()


def script(shell: str, prog: str) -> str:
    """The script for ``shell``, one of ``words.SHELLS``."""
    text = files(__package__).joinpath("scripts", shell).read_text(encoding="utf-8")
    for mark, value in {"PROG": prog, "NAME": _name_of(prog), "VARIABLE": variable_of(prog)}.items():
        text = text.replace(f"@{mark}@", value)
    return text


def _name_of(prog: str) -> str:
    return prog.replace("-", "_")


def answer(
    group: Callable[[], click.Group], prog: str, completers: Mapping[str, Completer], obj: Callable[[], Any]
) -> int:
    """Print the candidates for the line in the environment, and nothing else, whatever fails; the exit code.

    ``completers`` by the names of parameters; ``obj``: the object of click's context.
    """
    with Path(os.devnull).open("w", encoding="utf-8") as nothing, contextlib.redirect_stderr(nothing):
        try:
            shell = os.environ.get(variable_of(prog), "")
            line = os.environ.get(_LINE, "")
            breaks = os.environ.get(_BREAKS, "") if shell == "bash" else ""
            found = list(candidates(group(), prog, line, completers, {"obj": obj()}))
        except Exception:
            return 1
    print("".join(_lines(found, words_of(line)[1], breaks)), end="")
    return 0


def candidates(
    group: click.Group, prog: str, line: str, completers: Mapping[str, Completer], context: MutableMapping[str, Any]
) -> Iterator[Candidate]:
    """What the last word of ``line`` may be; ``line`` ends at the cursor."""
    words, unfinished = words_of(line)
    at = next((place for place, word in enumerate(words) if PurePath(word).name == prog), 0)
    arguments = words[at + 1 :]
    click_context = _resolve_context(group, context, prog, list(arguments))
    if isinstance(click_context.command, click.Group) and (click_context._protected_args or click_context.args):
        return  # an unknown command
    owner, incomplete = _resolve_incomplete(click_context, arguments, unfinished)
    before = unfinished[: len(unfinished) - len(incomplete)]  # --option= of --option=value
    count = 0
    for one in _of(owner, click_context, incomplete, completers):
        if one.kind in ("file", "folder") or one.value.startswith(incomplete):
            yield Candidate(before + one.value, one.help, one.kind) if before else one
            count += 1
        if count == _MOST:
            return


def words_of(line: str) -> tuple[list[str], str]:
    """The words of a line before its last one, and that, which is empty after a blank."""
    words = split_arg_string(line + _END)
    return words[:-1], words[-1].rstrip(_END)


def _of(
    owner: click.Command | click.Parameter, context: click.Context, incomplete: str, completers: Mapping[str, Completer]
) -> Iterable[Candidate]:
    if isinstance(owner, click.Parameter):
        own = completers.get(str(owner.name))
        if own is not None and not isinstance(owner.type, (click.Choice, click.Path)):
            return own(context, incomplete)
        return map(_from_click, owner.shell_complete(context, incomplete))
    if isinstance(owner, click.Group) and not incomplete.startswith("-"):
        # Names and summaries are known without importing the commands.
        return [
            Candidate(name, one.get_short_help_str(1000))
            for name, one in sorted(owner.commands.items())
            if not one.hidden
        ]
    options = map(_from_click, owner.shell_complete(context, incomplete))
    return [one for one in options if one.value.startswith("-")]


def _from_click(item: CompletionItem) -> Candidate:
    kind = _FOLDER_OR_FILE.get(item.type)
    if kind is not None:
        return ANY_FOLDER if kind == "folder" else ANY_FILE
    return Candidate(str(item.value), item.help or "")


def _lines(found: Iterable[Candidate], unfinished: str, breaks: str) -> Iterator[str]:
    """A line for each candidate: its kind, its value and its help, with tabs between.

    Bash replaces only what follows the last of its ``breaks`` in the word: the rest is omitted.
    """
    stem = max((unfinished.rfind(char) + 1 for char in breaks if char in "=:"), default=0)
    for one in found:
        yield "\t".join([one.kind, one.value[stem:], " ".join(one.help.split())]) + "\n"


def last_of(completer: Completer) -> Completer:
    """A completer of words with commas between: the last of them is completed."""

    def complete(context: click.Context, incomplete: str) -> Iterator[Candidate]:
        before, comma, last = incomplete.rpartition(",")
        given = before.split(",")
        for one in completer(context, last):
            if one.value not in given:
                yield Candidate(before + comma + one.value, one.help, one.kind)

    return complete


def fixed(words: Sequence[str]) -> Completer:
    """A completer of ``words`` that are always the same."""
    return lambda _context, _incomplete: map(Candidate, words)
