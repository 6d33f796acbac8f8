# SPDX-License-Identifier: Apache-2.0
"""Turns click's usage errors into llmb's own: the message, and a hint with the fix."""

import shlex
from collections.abc import Callable, Sequence

import click

from llmb.config.locate import is_archive
from llmb.errors import LlmbError, UsageError
from llmb.text.names import is_pair, nearest

Skipped = Callable[[str], tuple[Sequence[str], Sequence[str]]]
_SAME = 0.75  # likeness from which on a command is taken for another one, although a plugin that may have it is skipped


def as_error(
    error: click.ClickException, arguments: Sequence[str] = (), skipped: Skipped = lambda name: ((), ())
) -> LlmbError:
    """The LlmbError for ``error``, with the same exit code: 2 for wrong usage, else 1.

    ``arguments``: of the command line. The hint for a command or an option of NVIDIA's programs has them in our words.
    ``skipped``: why nobody has the command of a name, which plugins offer; and the plugins that may offer it.
    """
    if not isinstance(error, click.UsageError):
        return LlmbError(_sentence(error.format_message()), code="command-failed")
    found = _usage_error(error, arguments)
    if (hint := _foreign(error, arguments)) is not None:
        found.hint = hint
        return found
    if isinstance(error, click.NoSuchCommand) and (reasons := _skipped_command(error, skipped)):
        found.hint = "; ".join(reasons)
        return found
    more = f"{error.ctx.command_path} --help" if error.ctx is not None else None
    found.hint = "  ".join(filter(None, (found.hint, more))) or None
    return found


def _foreign(error: click.UsageError, arguments: Sequence[str]) -> str | None:
    """The hint for a command or an option of NVIDIA's program of the same name; None for any other error."""
    match error:
        case click.NoSuchOption(option_name=name) | click.NoSuchCommand(command_name=name):
            from llmb.cli import foreign

            if error.ctx is None:
                return None
            own = [option for one in error.ctx.command.params for option in one.opts]
            return foreign.hint_for(error.ctx.find_root().info_name or "", name, arguments, own)
    return None


def _usage_error(error: click.UsageError, arguments: Sequence[str]) -> UsageError:
    """The error without the reference to ``--help``."""
    command = error.ctx.command_path if error.ctx is not None else "llmb"
    match error:
        case click.NoSuchOption(option_name=name):
            message = f"{command} has no option '{name}'"
            return UsageError(message, hint=_other_option(error), code="option-unknown", value=name)
        case click.NoSuchCommand(command_name=name):
            message = f"{command} has no command '{name}'"
            return UsageError(message, hint=_other_command(error), code="command-unknown", value=name)
        case click.BadOptionUsage(option_name=name):
            wrong, fix = ("takes no value", f"{name} alone")
            if _lacks_value(name, arguments):
                wrong, fix = ("needs a value", f"{name} VALUE")
            return UsageError(f"{name} {wrong}", hint=fix, code="option-usage", key=name)
        case click.MissingParameter(param=click.Parameter() as parameter):
            name = _name(parameter)
            return UsageError(f"{command}: {name} is missing", hint=_usage(error), code="argument-missing", key=name)
        case click.BadParameter(param=click.Parameter() as parameter):
            return _wrong_value(error.message, parameter)
    sentence = _sentence(error.format_message())
    message = sentence if error.ctx is None else f"{command}: {sentence}"
    return UsageError(message, hint=_repeated(error, arguments) or _usage(error), code="usage")


def _lacks_value(name: str, arguments: Sequence[str]) -> bool:
    """Whether ``name`` has no value, in an error that it has none or one too many.

    click has one class for both, without the option. A value is missing only at the end, and given only after ``=``.
    """
    return list(arguments[-1:]) == [name] or not any(word.startswith(f"{name}=") for word in arguments)


def _repeated(error: click.UsageError, arguments: Sequence[str]) -> str | None:
    """The hint for a second ``KEY=VALUE`` after an option that takes one and may be repeated; None for other errors."""
    options = error.ctx.command.params if error.ctx is not None else []
    names = {name for one in options if isinstance(one, click.Option) and one.multiple for name in one.opts}
    for option, value, word in zip(arguments, arguments[1:], arguments[2:], strict=False):
        if option in names and "=" in value and is_pair(word):
            return f"repeat {option}: {option} {shlex.quote(value)} {option} {shlex.quote(word)}; more:"
    return None


def _other_option(error: click.NoSuchOption) -> str | None:
    if error.option_name == "-f" and error.ctx is not None:
        options = {name for one in error.ctx.command.params for name in one.opts}
        return "--force lifts checks; it has no short form:" if "--force" in options else _meant(error.possibilities)
    if error.possibilities or error.ctx is None or not isinstance(error.ctx.command, click.Group):
        return _meant(error.possibilities)
    return "write the options of a command after its name:"


def _other_command(error: click.NoSuchCommand) -> str | None:
    """The commands that click suggests; for a group that imports its commands when called, the nearest name.

    An archive is no command: it takes the place of the install directory.
    """
    options = error.ctx.command.params if error.ctx is not None else []
    if error.ctx is not None and is_archive(error.command_name) and any("--install" in own.opts for own in options):
        return f"{error.ctx.command_path} --install {shlex.quote(error.command_name)}"
    if error.possibilities or error.ctx is None or not isinstance(error.ctx.command, click.Group):
        return _meant(error.possibilities)
    close = nearest(error.command_name, error.ctx.command.list_commands(error.ctx))
    return _meant([close] if close else None)


def _skipped_command(error: click.NoSuchCommand, skipped: Skipped) -> Sequence[str]:
    """Why the command may be missing: its plugin is skipped; a command with nearly the same name comes first."""
    context = error.ctx
    if context is None or context.parent is not None or not isinstance(context.command, click.Group):
        return []
    own, others = skipped(error.command_name)
    if own or not others:
        return own
    close = nearest(error.command_name, context.command.list_commands(context), likeness=_SAME)
    return [*filter(None, [_meant([close] if close else None)]), *others]


def _wrong_value(message: str, parameter: click.Parameter) -> UsageError:
    """The error for a value that ``parameter`` does not take; only click's ``message`` has the value."""
    kind, (value, _, _), hint = parameter.type, message.partition(" is not "), None
    if isinstance(kind, click.IntRange):
        most = f" to {kind.max}" if kind.max is not None else ""
        message = f"{value} is not a whole number from {kind.min or 0}{most}"
    elif isinstance(kind, click.Choice):
        message = f"{value} is not one of {', '.join(kind.choices)}"
        close = nearest(value.strip("'"), kind.choices)
        hint = _meant([close] if close else None)
    name = _name(parameter)
    return UsageError(
        f"{name}: {_sentence(message)}", hint=hint, code="value-not-allowed", key=name, value=value.strip("'")
    )


def _meant(possibilities: list[str] | None) -> str | None:
    return f"did you mean {' or '.join(map(repr, possibilities))}?" if possibilities else None


def _name(parameter: click.Parameter) -> str:
    return max(parameter.opts, key=len) if isinstance(parameter, click.Option) else parameter.human_readable_name


def _usage(error: click.UsageError) -> str | None:
    """The command with its arguments and required options; None if it has none."""
    context = error.ctx
    if context is None:
        return None
    pieces = []
    for one in context.command.params:
        if isinstance(one, click.Argument):
            pieces.append(one.make_metavar(context))
        elif isinstance(one, click.Option) and one.required:
            pieces.append(f"{_name(one)} {one.make_metavar(context)}")
    return f"{' '.join([context.command_path, *pieces])}; more:" if pieces else None


def _sentence(text: str) -> str:
    """``text`` in the style of llmb's messages: lower-case first letter, no full stop."""
    text = text.strip().removesuffix(".")
    is_word = text.partition(" ")[0][1:].islower()  # not a name such as NaN or MAX_STEPS
    return text[:1].lower() + text[1:] if is_word else text
