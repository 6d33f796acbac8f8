# SPDX-License-Identifier: Apache-2.0
"""Tests that every command of the documentation exists with its options, and is run by a test or
says why not.
"""

import re
import shlex
from pathlib import Path

import click
import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.cli import app
from llmb.cli.context import CliContext
from llmb.plugins.loader import load_plugins
from llmb_installer.cli import cli as installer
from llmb_testing.documented import CommandBlock, blocks

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
    *sorted((ROOT / "plugins").glob("*/README.md")),
]
SCENES = {"local", "cluster", "slurm", "plugin", "exemplar"}
PLUGINS_OWN = {"usage"}  # commands of the plugins that docs/write-a-plugin.md writes
_COMMAND = re.compile(r"(?:^|[|;&]\s*|\w=\S*\s+)(llmb-(?:run|install)\b[^|;&]*)")


def commands(block: CommandBlock) -> list[list[str]]:
    """The command lines of llmb in a block, split into words."""
    lines = [
        found for line in block.commands for found in _COMMAND.findall(re.sub(r"\s#\s.*", "", line))
    ]
    return [shlex.split(line) for line in lines]


def parse(command: click.Command, name: str, words: list[str]) -> None:
    """Parse the words of a command line without calling the command. Errors: click.UsageError."""
    context = command.make_context(name, [], resilient_parsing=True)
    if isinstance(command, click.Group):
        at = next(
            (index for index, word in enumerate(words) if word in command.list_commands(context)),
            len(words),
        )
        if rest := words[at:]:
            below = command.get_command(context, rest[0])
            assert below is not None
            parse(below, rest[0], rest[1:])
        words = words[:at]
        if not words:
            return
    command.make_context(name, words, obj=CliContext(load_plugins(builtin_plugins(), entries=())))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_exists_and_says_where_it_is_run(page: Path) -> None:
    programs = {"llmb-run": app.build(app.load()), "llmb-install": installer}
    for block in blocks(page):
        assert block.scene in SCENES or block.why, block.place
        for program, *words in commands(block):
            if block.scene == "plugin" and words[0] in PLUGINS_OWN:
                continue
            try:
                parse(programs[program], program, words)
            except click.UsageError as error:
                pytest.fail(f"{block.place}: {program} {' '.join(words)}: {error.format_message()}")


def test_a_block_says_where_it_is_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- run: local, may end with 3: busy -->\n```console\n$ a \\\n  b\nout\n$ c\n```\n"
    )
    assert blocks(page) == [
        CommandBlock(place="page.md:2", commands=("a    b", "c"), scene="local", code=3, why="busy")
    ]
    page.write_text("text\n\n```console\n$ a\n```\n")
    with pytest.raises(ValueError, match=r"page\.md:3"):
        blocks(page)
