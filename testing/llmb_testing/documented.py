# SPDX-License-Identifier: Apache-2.0
"""The commands of a page of documentation: console blocks, and where each of them is run by a test.

The line before a block has a comment: `<!-- run: SCENE -->`, `<!-- run: SCENE, may end with CODE:
WHY -->`, or `<!-- not run: WHY -->`.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llmb.core import shell

_BLOCK = re.compile(
    r"(?:^<!-- (?P<how>run|not run): (?P<what>[^\n]*?) -->\n)?^```console\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_SCENE = re.compile(r"(?P<scene>[\w-]+)(?:, may end with (?P<code>\d+): (?P<why>.+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandBlock:
    """A console block: its commands, each on one line, and the scene that runs it; ``why`` it is
    not, or may fail.
    """

    place: str
    commands: tuple[str, ...]
    scene: str | None = None
    why: str = ""
    #: An exit code other than 0 that the last command may have.
    code: int = 0


def blocks(page: Path) -> list[CommandBlock]:
    """Return the console blocks of a page that have commands. Errors: ValueError where a block has
    no valid comment.
    """
    text = page.read_text("utf-8")
    results = []
    for match in _BLOCK.finditer(text):
        lines = match["text"].replace("\\\n", " ").splitlines()
        commands = tuple(line[2:] for line in lines if line.startswith("$ "))
        place = f"{page.name}:{text.count(chr(10), 0, match.start('text'))}"
        if match["how"] is None:
            raise ValueError(
                f"{place}: the line before the block needs <!-- run: SCENE --> or <!-- not run:"
                " WHY -->"
            )
        if match["how"] == "not run":
            results.append(CommandBlock(place=place, commands=commands, why=match["what"]))
            continue
        scene = _SCENE.fullmatch(match["what"])
        if scene is None:
            raise ValueError(
                f"{place}: '{match['what']}' is not SCENE, or SCENE, may end with CODE: WHY"
            )
        code, why = int(scene["code"] or 0), scene["why"] or ""
        results.append(
            CommandBlock(place=place, commands=commands, scene=scene["scene"], why=why, code=code)
        )
    return [block for block in results if block.commands]


def run(
    block: CommandBlock, folder: Path, variables: Mapping[str, str], words: Mapping[str, str]
) -> str:
    """Run the commands of a block in ``folder``, one after another in one shell, and return what
    they print.

    ``words`` replaces examples of the page, such as the id of a run, by real ones. Errors:
    AssertionError where a command ends with another exit code than 0, or than that of the block.
    """
    commands = list(block.commands)
    for word, real in words.items():
        commands = [
            re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", real, command) for command in commands
        ]
    script = "\n".join(["set -eu", *commands])
    process = shell.run(
        ["bash", "-c", script], cwd=folder, env={**os.environ, **variables}, timeout=900
    )
    assert process.code in (0, block.code), f"{block.place}: {script}\n{process.out}{process.err}"
    return process.out
