# SPDX-License-Identifier: Apache-2.0
"""Says in llmb's own way what click finds wrong with a command line: what is wrong, and below it the fix."""

import click

from llmb.errors import LlmbError, UsageError


def as_error(error: click.ClickException) -> LlmbError:
    """The error of llmb's own tree for ``error``, with the same exit code: 2 for wrong usage, else 1."""
    if not isinstance(error, click.UsageError):
        return LlmbError(_sentence(error.format_message()))
    message, fix = _told(error)
    more = f"{error.ctx.command_path} --help" if error.ctx is not None else None
    return UsageError(message, hint="  ".join(filter(None, (fix, more))) or None)


def _told(error: click.UsageError) -> tuple[str, str | None]:
    """What is wrong, and the fix where it is plain."""
    whose = error.ctx.command_path if error.ctx is not None else "llmb"
    match error:
        case click.NoSuchOption():
            return f"{whose} has no option '{error.option_name}'", _other_option(error)
        case click.NoSuchCommand():
            return f"{whose} has no command '{error.command_name}'", _other_command(error)
        case click.BadOptionUsage():
            takes_one = "requires" in error.message  # else it was given one that it does not take
            wrong = "needs a value" if takes_one else "takes no value"
            return f"{error.option_name} {wrong}", f"{error.option_name}{' VALUE' if takes_one else ' alone'}"
        case click.MissingParameter(param=click.Parameter() as parameter):
            return f"{whose}: {_name(parameter)} is missing", _usage(error)
        case click.BadParameter(param=click.Parameter() as parameter):
            return _wrong_value(error.message, parameter)
    sentence = _sentence(error.format_message())
    return sentence if error.ctx is None else f"{whose}: {sentence}", _usage(error)


def _other_option(error: click.NoSuchOption) -> str | None:
    if error.option_name == "-f" and error.ctx is not None:
        options = {name for one in error.ctx.command.params for name in one.opts}
        return "--force lifts checks; it has no short form:" if "--force" in options else _meant(error.possibilities)
    if error.possibilities or error.ctx is None or not isinstance(error.ctx.command, click.Group):
        return _meant(error.possibilities)
    return "the options of a command stand behind its name:"


def _other_command(error: click.NoSuchCommand) -> str | None:
    """click's own guess; of a group that imports its commands one by one, the nearest."""
    from llmb.text.names import nearest

    if error.possibilities or error.ctx is None or not isinstance(error.ctx.command, click.Group):
        return _meant(error.possibilities)
    close = nearest(error.command_name, error.ctx.command.list_commands(error.ctx))
    return _meant([close] if close else None)


def _wrong_value(message: str, parameter: click.Parameter) -> tuple[str, str | None]:
    kind, (value, _, _) = parameter.type, message.partition(" is not ")
    if isinstance(kind, click.IntRange):
        most = f" to {kind.max}" if kind.max is not None else ""
        message = f"{value} is not a whole number from {kind.min or 0}{most}"
    if not isinstance(kind, click.Choice):
        return f"{_name(parameter)}: {_sentence(message)}", None
    from llmb.text.names import nearest

    close = nearest(value.strip("'"), kind.choices)
    return f"{_name(parameter)}: {value} is not one of {', '.join(kind.choices)}", _meant([close] if close else None)


def _meant(possibilities: list[str] | None) -> str | None:
    return f"did you mean {' or '.join(map(repr, possibilities))}?" if possibilities else None


def _name(parameter: click.Parameter) -> str:
    return max(parameter.opts, key=len) if isinstance(parameter, click.Option) else parameter.human_readable_name


def _usage(error: click.UsageError) -> str | None:
    """The command with its arguments and the options that it needs; None without any."""
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
    """As llmb's messages are written: a small letter to begin with, no full stop."""
    text = text.strip().removesuffix(".")
    is_word = text.partition(" ")[0][1:].islower()  # not a name, as NaN and MAX_STEPS are
    return text[:1].lower() + text[1:] if is_word else text
