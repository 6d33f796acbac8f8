# SPDX-License-Identifier: Apache-2.0
"""The command llmb-install. Its sub-commands are imported when they are called."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import click

from llmb.core import console
from llmb.errors import LlmbError, UsageError, describe
from llmb.plugins.guard import DEBUG_OPTION, take_debug
from llmb_installer.commands.options import COMMANDS, INSTALL_OPTIONS

# llmb.cli.completion.engine.variable_of("llmb-install"), without its import
_COMPLETING = "_LLMB_INSTALL_COMPLETE"


class _Commands(click.Group):
    """A group that lists its commands in their own order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands]


@click.group(
    "llmb-install",
    cls=_Commands,
    commands=COMMANDS,
    params=[*INSTALL_OPTIONS],
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.option(
    DEBUG_OPTION, is_flag=True, expose_value=False, help="Show the traceback of a failing plugin."
)
@click.version_option(package_name="llmb-installer", message="%(prog)s %(version)s")
@click.pass_context
def cli(
    context: click.Context,
    answers_file: Path | None,
    install: Path | None,
    settings: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    fmt: str,
    record_file: Path | None,
) -> None:
    """Build the install directory of a cluster: environments, programs, images and its
    configuration.

    \b
    llmb-install                                    ask, show the plan, install
    llmb-install --config answers.yaml --dry-run    show the plan
    llmb-install --config answers.yaml --yes        install; again: continue
    llmb-install --yes                              in an install directory: use its answers
    """
    console.require_home()
    if context.invoked_subcommand is not None:
        return
    from llmb.core import files
    from llmb_installer import gather
    from llmb_installer.answers.schema import to_yaml
    from llmb_installer.applying.install import carry_out

    terminal = _is_interactive() and not yes
    try:
        gathered = gather.gather(
            answers_file, install, settings, terminal=terminal, dry_run=dry_run
        )
    except UsageError as error:
        from llmb.plugins.foreign import CODE as FOREIGN

        if error.code != FOREIGN or not terminal:
            raise
        from llmb_installer.commands import import_

        import_.offer(error, dry_run=dry_run)
        return
    if isinstance(gathered, gather.InstallationChange):
        from llmb_installer.commands import remove, verify

        if gathered.action == "remove":
            remove.run(
                gathered.workloads, unused=False, install=gathered.install, yes=False, dry_run=False
            )
        else:
            verify.run(gathered.install, deep=False, repair=True, yes=False, fmt="table")
        return
    for note in () if gathered.agreed else gathered.notes:
        console.echo(f"note: {note}", err=True)
    if record_file is not None:
        files.write_text(record_file, to_yaml(gathered.intent.asked))
    carry_out(gathered.intent, yes=yes, dry_run=dry_run, fmt=fmt, agreed=gathered.agreed)


def _is_interactive() -> bool:
    """Return True if a terminal can show the questions, which move its cursor."""
    is_dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    return sys.stdin.isatty() and sys.stdout.isatty() and not is_dumb


def _hint_of_plugin(
    program: str, word: str, words: Sequence[str], options: Sequence[str]
) -> str | None:
    """Return a plugin's hint for a word that ``program`` does not know, or None."""
    from llmb.builtin.plugins import builtin_plugins
    from llmb.plugins.loader import load_plugins

    try:
        return load_plugins(builtin_plugins()).hint_for(program, word, words, options)
    except UsageError as error:  # of LLMB_PLUGIN_TIMEOUT
        console.echo(describe(error), err=True)
        return None


def end_in_order() -> None:
    """Let SIGTERM and SIGHUP end the running steps and record the finished ones, as Ctrl-C does.

    A batch system or a lost connection sends them. An ignored signal, as under nohup, stays
    ignored.
    """

    def interrupt(_number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)


def main() -> None:
    """Run the command, print its error, and end the process with its exit code."""
    console.prepare()
    if _COMPLETING in os.environ:
        from llmb_installer.commands import completion

        sys.exit(completion.answer(cli))
    end_in_order()
    console.outlive_reader()
    words, out = console.with_help(sys.argv[1:]), sys.stdout
    try:
        take_debug(words)
        code = cli.main(
            [word for word in words if word != DEBUG_OPTION],
            prog_name="llmb-install",
            standalone_mode=False,
        )
        console.flush()
    except LlmbError as error:
        console.echo(describe(error), err=True)
        code = error.exit_code
    except click.ClickException as error:
        from llmb.cli.usage import as_error

        shown = as_error(error, words, hints=_hint_of_plugin, program=cli)
        console.echo(describe(shown), err=True)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        text = str(error.__cause__ or error)  # click turns Ctrl-C into Abort
        console.echo(
            text or "interrupted; finished steps are kept: run the same command again to continue",
            err=True,
        )
        code = 130
    except SystemExit as error:
        # click replaced it because the reader of its help closed the pipe (`| head`)
        code = error.code if sys.stdout is out else 0
    except OSError as error:
        if not console.is_of_output(error):
            raise
        console.echo(f"error: the output cannot be written: {error.strerror}", err=True)
        code = LlmbError.exit_code
    console.give_up_output()
    sys.exit(code)
