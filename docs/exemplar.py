# SPDX-License-Identifier: Apache-2.0
"""Writes exemplar-commands.md, what commands of NVIDIA's programs do here; --check: exit code 1 if
it is stale.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llmb.core import yamlfile
from llmb_exemplar import llmb_variables, words
from llmb_testing.generated import write

PAGE = Path(__file__).with_name("exemplar-commands.md")
EXAMPLES = Path(__file__).with_name("exemplar.yaml")

HEAD = """\
# Commands of NVIDIA's tools

<!-- Written by `python docs/exemplar.py` from exemplar.yaml, words.yaml and variables.yaml in
plugins/exemplar/llmb_exemplar: edit those. -->

If you know NVIDIA's published benchmark tools (`llmb-run`, `llmb-install`, and the `launch.sh` of
each recipe): most of their commands and all of their job lists work here unchanged. Where llmb uses
another word, it refuses theirs and prints the whole command in its own words:

```text
$ llmb-run submit-all --max-scale 256 --dryrun
error: llmb-run submit-all has no option '--dryrun'
hint: write: llmb-run submit-all --max-scale 256 --dry-run
```

A test runs every example of this page as a dry run, on the GPU type of its document, and compares
the jobs with the tables of NVIDIA's pages.
"""
COMMANDS = """\
## Commands

Where the second column is empty, write the same.
"""
FLAGS = """\
## Commands and options with another name

llmb refuses these and prints what to write. A `...` is the value of an option.
"""
LAUNCH = """\
## Launch scripts

`launch.sh` becomes `llmb-run single -w WORKLOAD` (or `llmb-run submit -w WORKLOAD`), with the same
variables before it. No environment has to be activated, and the current folder does not matter.
"""
LAUNCH_END = """
405b at 32, 64 or 128 H100 is the proxy with fewer layers, as in release 25.04; llmb prints that,
and `--force` trains the whole model. A job list means what it says: write `proxy: true`, or
`405b-proxy`.
"""
VARIABLES = """\
## Variables

`single`, and `submit` with one workload, read these from the shell; options override them, and llmb
prints which it uses. In `--env` and in a list's `env`, those that set something of a job are used
as that setting, which llmb prints too. The others are errors there, as no program reads them.
"""
LISTS = """\
## Job lists

Both formats are read as they are. `true` and `false` in `env` become `True` and `False`.
"""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of Markdown."""
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |"
    yield ""


def code(text: str) -> str:
    """Text as code; nothing for an empty text."""
    return f"`{text}`" if text else ""


def result(example: Mapping[str, Any]) -> str:
    """What an example gives here, in words."""
    note = f"; {example['note']}" if "note" in example else ""
    jobs = example.get("jobs")
    if jobs is None:
        return f"refused, with what to write{note}"
    if isinstance(jobs, int):
        return f"{jobs} job{'s' if jobs > 1 else ''}{note}"
    return ", ".join(code(name) for name in jobs) + note


def where(example: Mapping[str, Any]) -> str:
    """The release of an example's document, and its cluster where it is not a Slurm cluster of
    H100s.
    """
    own = [example[name] for name in ("gpu", "cluster") if name in example]
    return ", ".join([example["release"], *own])


def commands(examples: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The section of commands."""
    rows = [
        (code(one["theirs"]), code(one.get("ours", "")), where(one), result(one))
        for one in examples
    ]
    yield from table(("theirs", "here", "release", "gives"), rows)


def flags(
    program: str, rows: Mapping[str, words.Replacement], before: str = ""
) -> Iterator[tuple[str, str, str, str]]:
    """The rows of the table of foreign commands or options of a program, after the words
    ``before``.
    """
    for name, row in rows.items():
        here = " ".join(filter(None, [row.write, row.more])).replace("{}", "...")
        theirs = f"{before}{name} ..." if row.value else f"{before}{name}"
        yield program, code(theirs), code(here) or "omit it", row.note
        yield from flags(program, row.options, f"{name} ")


def launches(examples: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The section of launch scripts."""
    rows = [(code(one["theirs"]), where(one), result(one)) for one in examples]
    yield from table(("theirs", "release", "gives"), rows)


def variables() -> Iterator[str]:
    """The section of variables."""
    rows = []
    for own in llmb_variables():
        option, key = own.instead("...", of_list=False), own.key.format("...")
        how = "the configuration" if own.of_config else "read" if own.sets else "named, not used"
        rows.append((code(own.name), how, code(option.removesuffix(" ...")), code(key), own.note))
    yield from table(("variable", "in the shell", "option", "key of a list", "note"), rows)


def lists(examples: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The section of job lists."""
    for one in examples:
        yield from (
            f"```{'yaml' if one['name'].endswith('.yaml') else 'text'}",
            one["text"].rstrip(),
            "```",
            "",
        )
        yield from (f"Release {where(one)}: {result(one)}.", "")


def text() -> str:
    """The page."""
    examples = yamlfile.load(EXAMPLES).data
    rows = [
        row
        for program, own in words.programs().items()
        for row in (*flags(program, own.commands), *flags(program, own.options))
    ]
    parts = [
        HEAD,
        COMMANDS,
        *commands(examples["commands"]),
        FLAGS,
        *table(("program", "theirs", "here", "note"), rows),
        LAUNCH,
        *launches(examples["launch"]),
        LAUNCH_END.strip() + "\n",
        VARIABLES,
        *variables(),
        LISTS,
        *lists(examples["lists"]),
    ]
    return "\n".join(parts).rstrip() + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the page; with --check, only compare, and return 1 if it is stale."""
    return write({PAGE: text()}, "exemplar", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
