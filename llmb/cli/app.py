# SPDX-License-Identifier: Apache-2.0
"""Builds the command group, runs one command, and prints errors and sets the exit code."""

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import NoReturn

import click
from click.exceptions import NoArgsIsHelpError

from llmb import __version__
from llmb.builtin.plugins import builtin_plugins
from llmb.cli import commands, options
from llmb.cli.context import CliContext, with_install
from llmb.core import console
from llmb.errors import INTERRUPTED, LlmbError, PluginError, UsageError, describe
from llmb.plugins import guard
from llmb.plugins.loaded import Plugins
from llmb.plugins.loader import load_plugins

_COMPLETING = "_LLMB_RUN_COMPLETE"  # completion.engine.variable_of("llmb-run"), without its import


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run one command line (default: ``sys.argv``) and end the process with its exit code."""
    try:
        console.prepare()
        sys.exit(_complete() if _COMPLETING in os.environ else run(args))
    except KeyboardInterrupt:  # before the command has begun
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)


def _complete() -> int:
    """Print what the line of a shell may continue with and return the exit code."""
    from llmb.cli.completion import engine, values

    plugins = cache(load)
    return engine.answer(
        lambda: build(plugins()), "llmb-run", values.COMPLETERS, lambda: CliContext(plugins())
    )


def load() -> Plugins:
    """Load every plugin: llmb's own, and those of other distributions."""
    return load_plugins([("commands", commands), *builtin_plugins()])


def build(plugins: Plugins) -> click.Group:
    """The group ``llmb-run`` with every command of llmb and of its plugins."""
    by_name = {
        command.name: _with_install(command)
        for command in plugins.commands()
        if command.name is not None
    }
    group = options.CommandGroup(
        "llmb-run",
        commands=by_name,
        params=[options.debug_option],
        help=(
            "Run LLM training benchmarks on a cluster and compare the results with published"
            " figures."
        ),
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    return options.verbose_option(click.version_option(__version__, prog_name="llmb-run")(group))


def _with_install(command: click.Command) -> click.Command:
    """``command`` with the option ``--install``, which a plugin's command need not declare.

    A group of a plugin gets the option in each of its commands.
    """
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            _with_install(subcommand)
    elif not isinstance(command, commands.Deferred) and not any(
        "--install" in option.opts for option in command.params
    ):
        options.install_option(command)
    return command


def run(args: Sequence[str] | None = None, plugins: Plugins | None = None) -> int:
    """Run one command line (default: ``sys.argv``) with ``plugins`` (None: all).

    Returns the exit code.
    """
    console.forget_warnings()
    words = console.with_help(sys.argv[1:] if args is None else args)
    guard.take_debug(words)
    out = sys.stdout
    try:
        plugins = load() if plugins is None else plugins
    except UsageError as error:
        console.echo(describe(error), err=True)
        return error.exit_code
    group, context = build(plugins), CliContext(plugins)
    context.words = tuple(words)
    try:
        code = group.main(
            _without_debug(words, group), prog_name="llmb-run", standalone_mode=False, obj=context
        )
        console.flush()
        return code if isinstance(code, int) else 0
    except LlmbError as error:
        from llmb.cli.usage import with_hints

        explained = with_hints(error, words, plugins.hint_for)
        console.echo(with_install(describe(explained), group, context.install_option), err=True)
        console.give_up_output()
        return error.exit_code
    except NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        from llmb.cli.usage import as_error

        console.echo(
            describe(as_error(error, words, plugins.skipped_commands, plugins.hint_for, group)),
            err=True,
        )
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        console.echo("interrupted", err=True)
        return INTERRUPTED
    except SystemExit:
        if sys.stdout is not out:  # click replaced it because the reader closed the pipe (`| head`)
            return 0
        raise
    except BrokenPipeError:  # the same at the last flush
        console.give_up_output()
        return 0
    except OSError as error:
        if not console.is_of_output(error):
            raise
        console.echo(f"error: the output cannot be written: {error.strerror}", err=True)
        console.give_up_output()
        return LlmbError.exit_code
    except Exception as error:
        failure = _of_plugin(error, plugins, _name_in(words))
        if failure is None:
            raise
        console.echo(describe(failure), err=True)
        console.give_up_output()
        return failure.exit_code


def _without_debug(words: list[str], group: click.Command) -> list[str]:
    """Remove ``--debug`` after a command of llmb, which need not have that option itself."""
    name = _name_in(words)
    if not (
        isinstance(group, click.Group) and isinstance(group.commands.get(name), commands.Deferred)
    ):
        return words
    end = words.index("--") if "--" in words else len(words)
    return [word for word in words[:end] if word != guard.DEBUG_OPTION] + words[end:]


def _name_in(words: list[str]) -> str:
    """The name of the command in a command line, or empty without one."""
    return next((word for word in words if not word.startswith("-")), "")


def _of_plugin(error: Exception, plugins: Plugins, name: str) -> PluginError | None:
    """The error of the plugin in whose code ``error`` was raised, or None for a bug of llmb."""
    source = plugins.source_of(error)
    if source is None:
        return None
    return guard.as_plugin_error(error, source, f"llmb-run {name}", plugins.calls.owner(source))
