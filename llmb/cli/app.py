# SPDX-License-Identifier: Apache-2.0
"""Builds the command group, runs one command, and turns every error into its message and exit code."""

import sys
from collections.abc import Sequence

import click
from click.exceptions import NoArgsIsHelpError

from llmb import __version__
from llmb.builtin import builtin_plugins
from llmb.cli import commands, options
from llmb.cli.context import Context, with_install
from llmb.cli.exit_codes import INTERRUPTED
from llmb.errors import LlmbError, describe
from llmb.plugins.loader import Plugins, load_plugins
from llmb.system import edge


def load() -> Plugins:
    """Every plugin: llmb's own commands and its other plugins, and what others have installed."""
    return load_plugins([("commands", commands), *builtin_plugins()])


def build(plugins: Plugins) -> click.Group:
    """The group ``llmb-run`` with every command of llmb and of its plugins."""
    by_name = {command.name: command for command in plugins.commands() if command.name is not None}
    group = options.Group(
        "llmb-run",
        commands=by_name,
        help="Run LLM training benchmarks on a cluster and see what they measured.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    return click.version_option(__version__, prog_name="llmb-run")(group)


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line (``sys.argv`` where None) and give its exit code."""
    edge.forget_warnings()
    plugins = load()
    out = sys.stdout
    group, context = build(plugins), Context(plugins)
    try:
        code = group.main(args, prog_name="llmb-run", standalone_mode=False, obj=context)
        edge.flush()
        return code if isinstance(code, int) else 0
    except LlmbError as error:
        edge.echo(with_install(describe(error), group, context.install_option), err=True)
        edge.give_up_output()
        return error.exit_code
    except NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        from llmb.cli.usage import as_error

        edge.echo(describe(as_error(error)), err=True)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        edge.echo("interrupted", err=True)
        return INTERRUPTED
    except SystemExit:
        if sys.stdout is not out:  # click has replaced it: the reader of our output has gone (`| head`)
            return 0
        raise
    except BrokenPipeError:  # the same at the last flush
        edge.give_up_output()
        return 0
    except OSError as error:
        if not edge.is_of_output(error):
            raise
        edge.echo(f"error: the output cannot be written: {error.strerror}", err=True)
        edge.give_up_output()
        return LlmbError.exit_code
