# SPDX-License-Identifier: Apache-2.0
"""Writes commands.md and the man pages from the commands themselves; --check: exit code 1 if one is
stale.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

import llmb_accept
import llmb_export
import llmb_nodes
from llmb import errors
from llmb.builtin.plugins import builtin_plugins
from llmb.cli import app, commands
from llmb.plugins.loader import load_plugins
from llmb_installer.cli import cli as installer
from llmb_testing.generated import write

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/commands.md"
MANUALS = {
    "llmb-run": ROOT / "man/llmb-run.1",
    "llmb-install": ROOT / "installer/man/llmb-install.1",
}

HEAD = """\
# Commands

<!-- Written by `python docs/commands.py` from the commands: edit those. -->

Every command has `--help`. The same text is in the man pages `llmb-run(1)` and `llmb-install(1)`,
which pip installs below the environment's `share/man`.

In a terminal, verdicts, states and messages have colours, and written files are links. NO_COLOR
turns colours off, FORCE_COLOR turns them on in a pipe too. Files, JSON, CSV and Markdown never have
any.
"""
VARIABLES = (
    ("LLMB_INSTALL", "The install directory, for commands without --install."),
    ("NO_COLOR, FORCE_COLOR", "Any value: no colours; colours without a terminal too."),
    ("HF_TOKEN, NGC_API_KEY, APP_SECRET", "Secrets; else from ~/.config/llmb/secrets."),
)
EXIT_CODES = (
    (0, "done; also for the verdicts PASS, WARN, SUSPICIOUS, INCONCLUSIVE and NO_REFERENCE"),
    (
        errors.LlmbError.exit_code,
        "something failed: a submission, a step of an installation, a check, reading a log",
    ),
    (errors.UsageError.exit_code, "wrong usage or input; nothing was submitted"),
    (
        errors.RUN_FAILED,
        "with --wait, results, report and compare: a run failed, its record is damaged, or a verdict"
        " is FAIL or INVALID",
    ),
    (errors.INTERRUPTED, "interrupted; finished work is kept"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A command as its help describes it: options and sub-commands with one line each."""

    name: str
    usage: str
    text: str
    options: tuple[tuple[str, str], ...]
    below: tuple["Described", ...]
    depth: int


def described(command: click.Command, name: str, parent: click.Context | None = None) -> Described:
    """The description of a command and of all commands below it."""
    context = command.context_class(
        command, info_name=name, parent=parent, **command.context_settings
    )
    records = (option.get_help_record(context) for option in command.get_params(context))
    names = command.list_commands(context) if isinstance(command, click.Group) else []
    found = [
        (each, command.get_command(context, each))
        for each in names
        if isinstance(command, click.Group)
    ]
    pieces = " ".join(command.collect_usage_pieces(context))
    return Described(
        name=context.command_path,
        usage=f"{context.command_path} {pieces}".strip(),
        text=re.sub(
            r"\s*\f.*", "", command.help or command.short_help or "", flags=re.DOTALL
        ).strip(),
        options=tuple(
            (names, text) for names, text in filter(None, records) if text and names != "-h, --help"
        ),
        below=tuple(
            described(one, each, context)
            for each, one in found
            if one is not None and not one.hidden
        ),
        depth=context.command_path.count(" "),
    )


def programs() -> tuple[Described, ...]:
    """Both programs, with llmb's own commands alone: no plugin of this machine adds any."""
    own = load_plugins(
        [
            ("commands", commands),
            *builtin_plugins(),
            ("nodes", llmb_nodes),
            ("accept", llmb_accept),
            ("export", llmb_export),
        ],
        entries=(),
    )
    return described(app.build(own), "llmb-run"), described(installer, "llmb-install")


def walk(one: Described) -> Iterator[Described]:
    """A command and every command below it, each before those below it."""
    yield one
    for each in one.below:
        yield from walk(each)


def paragraphs(text: str) -> list[tuple[str, bool]]:
    """The paragraphs of a help text, each with whether its lines are kept as they are."""
    blocks = [block.strip("\n") for block in re.split(r"\n\s*\n", text)]
    return [
        (block.removeprefix("\b\n"), block.startswith("\b")) for block in blocks if block.strip()
    ]


def markdown(one: Described) -> Iterator[str]:
    """The section of a command."""
    yield f"{'#' * (one.depth + 2)} {one.name}\n"
    yield f"```text\n{one.usage}\n```\n"
    for block, is_kept in paragraphs(one.text):
        yield f"```text\n{block}\n```\n" if is_kept else " ".join(block.split()) + "\n"
    if one.options:
        rows = (f"| `{_in_table(names)}` | {_cell(text)} |" for names, text in one.options)
        yield "\n".join(["| option | what it does |", "|---|---|", *rows]) + "\n"
    if one.below:
        links = (f"[{each.name}](#{each.name.replace(' ', '-')})" for each in one.below)
        yield f"Commands: {', '.join(links)}.\n"


def _cell(text: str) -> str:
    """Help as a cell of a table: what looks like a placeholder or markup is code."""
    placeholders = re.sub(r"(?<![\w`])(\w+=\w+(?:[.,]\w+)*)", r"`\1`", _in_table(text))
    return placeholders.replace("*", "\\*")


def _in_table(text: str) -> str:
    """Text in which a bar ends no cell. It is escaped within code too."""
    return text.replace("|", "\\|")


def page() -> str:
    """The page of all commands."""
    codes = [f"| {code} | {text} |" for code, text in EXIT_CODES]
    table = "\n".join(["## Exit codes\n", "| code | meaning |", "|---|---|", *codes])
    sections = (part for one in programs() for each in walk(one) for part in markdown(each))
    return "\n".join([HEAD, *sections, table]) + "\n"


def _roff(text: str) -> str:
    """Text in which roff sees no request and no escape."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.MULTILINE)


def manual(one: Described) -> str:
    """The man page of a program, in the macros of man(7)."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    summary = paragraphs(one.text)[0][0].rstrip(".")
    lines = [
        '.\\" Written by `python docs/commands.py`.',
        f'.TH {one.name.upper()} 1 "" "llmb {version}" "llmb"',
        f".SH NAME\n{_roff(one.name)} \\- {_roff(' '.join(summary.split()))}",
        ".SH SYNOPSIS",
        f".B {_roff(one.usage)}",
    ]
    for each in walk(one):
        lines += [".SH DESCRIPTION" if each is one else f".SH {_roff(each.name).upper()}"]
        lines += [] if each is one else [f".B {_roff(each.usage)}"]
        for block, is_kept in paragraphs(each.text):
            lines += [
                (
                    f".PP\n.nf\n{_roff(block)}\n.fi"
                    if is_kept
                    else f".PP\n{_roff(' '.join(block.split()))}"
                )
            ]
        lines += [f".TP\n.B {_roff(names)}\n{_roff(text)}" for names, text in each.options]
    lines += [".SH ENVIRONMENT", *(f".TP\n.B {name}\n{_roff(text)}" for name, text in VARIABLES)]
    lines += [".SH EXIT STATUS", *(f".TP\n.B {code}\n{_roff(text)}" for code, text in EXIT_CODES)]
    other = next(name for name in MANUALS if name != one.name)
    lines += [f".SH SEE ALSO\n.BR {_roff(other)} (1)"]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the page and the man pages, or check them."""
    manuals = {MANUALS[one.name]: manual(one) for one in programs()}
    return write({PAGE: page()} | manuals, "commands", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
