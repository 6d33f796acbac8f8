# SPDX-License-Identifier: Apache-2.0
"""llmb's own commands, as a plugin: they use the same hook as commands of other plugins."""

from importlib import import_module

import click

from llmb.hookspecs import hookimpl

# The module of each command, the command there, and its summary in --help.
_COMMANDS = {
    "list": ("list_", "command", "Show the workloads, and which of them run here."),
    "submit": ("submit.submit", "command", "Submit a job list, targets, or everything installed."),
    "single": ("submit.single", "command", "Submit one workload: submit -w W -s SIZE."),
    "submit-all": ("submit.submit_all", "command", "Submit a job list: submit JOBLIST."),
    "bulk": ("submit.submit_all", "bulk", "Submit a job list: submit JOBLIST."),
    "jobs": ("jobs.command", "group", "List, follow, cancel and retry runs (default: list)."),
    "results": (
        "results",
        "command",
        "Show results of RUNS (default: the newest session), with verdicts.",
    ),
    "parse": ("parse.command", "command", "Read logs and show what they measured."),
    "compare": (
        "compare",
        "command",
        "Compare A with B (default: the newest session with the one before it).",
    ),
    "explain": (
        "explain",
        "command",
        "Explain the figures of RUN, or why it failed and how to fix it.",
    ),
    "report": (
        "report",
        "command",
        "Write a report on RUNS (default: the newest session; with `--history`, all).",
    ),
    "archive": (
        "archive",
        "command",
        "Write RUNS (default: all runs) to one file, without secrets.",
    ),
    "baseline": ("baseline", "group", "Keep accepted results to compare later runs with."),
    "plugins": ("plugins", "group", "List, check and create plugins."),
    "completion": ("completion.command", "command", "Print the completion script for SHELL."),
    "config": ("config", "command", "Show the configuration in effect, as YAML."),
    "docs": ("pages", "command", "Show a page of the documentation, or list the pages."),
}

_ALIASES = ("single", "bulk")  # earlier words for submit, which work and are not listed

#: Commands with the option ``--install DIR`` that llmb names at the end of a submission: their
#: modules need not be imported to know that.
TAKE_INSTALL = frozenset({("results",), ("jobs", "wait"), ("jobs", "reconcile")})


class Deferred(click.Command):
    """A command of which only name and summary are known until it is called.

    It is ``attribute`` of ``module``, a module below llmb.cli.
    """

    def __init__(
        self, name: str, module: str, attribute: str, summary: str, *, hidden: bool = False
    ) -> None:
        super().__init__(name, short_help=summary, hidden=hidden)
        self.module, self.attribute = module, attribute

    def loaded(self) -> click.Command:
        """Import the command's module and return the command itself."""
        command: click.Command = getattr(import_module(f"llmb.cli.{self.module}"), self.attribute)
        return command


@hookimpl
def llmb_commands() -> list[click.Command]:
    """llmb's own commands."""
    return [Deferred(name, *origin, hidden=name in _ALIASES) for name, origin in _COMMANDS.items()]
