# SPDX-License-Identifier: Apache-2.0
"""Turns click's usage errors into llmb's own: the message, and a hint with the fix."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

import click

from llmb.core.names import WORKLOAD_UNKNOWN, is_pair, nearest
from llmb.errors import InputFaults, LlmbError, UsageError
from llmb.plan.locate import is_archive

Skipped = Callable[[str], tuple[Sequence[str], Sequence[str]]]
Hints = Callable[[str, str, Sequence[str], Sequence[str]], str | None]
# likeness from which on a command is taken for another one, although a plugin that may have it is
# skipped
_SAME = 0.75


def as_error(
    error: click.ClickException,
    arguments: Sequence[str] = (),
    skipped: Skipped = lambda name: ((), ()),
    hints: Hints = lambda program, word, words, options: None,
    program: click.Command | None = None,
) -> LlmbError:
    """The LlmbError for ``error``, with the same exit code: 2 for wrong usage, else 1.

    For a command, an option or a format that a plugin knows, its hint has the ``arguments`` of the
    command line in our words. ``skipped`` says why nobody has the command of a name, and which
    plugins may offer it. ``hints`` are those of plugins. ``program`` has all commands: click does
    not say of which one a value is missing.
    """
    if not isinstance(error, click.UsageError):
        return LlmbError(_sentence(error.format_message()), code="command-failed")
    if isinstance(error, click.BadOptionUsage) and error.ctx is None and program is not None:
        error.ctx = _context_of(program, arguments)
    converted = _usage_error(error, arguments)
    hint = _by_plugin(error, arguments, hints) or _without_group(error, arguments)
    hint = hint or _of_another_command(error) or _of_another_format(error)
    if hint is not None:
        converted.hint = hint
        return converted
    if isinstance(error, click.NoSuchCommand) and (reasons := _skipped_command(error, skipped)):
        converted.hint = "; ".join(reasons)
        return converted
    help_command = f"{error.ctx.command_path} --help" if error.ctx is not None else None
    between = " " if (converted.hint or "").endswith(":") else "  "
    converted.hint = between.join(filter(None, (converted.hint, help_command))) or None
    return converted


def with_hints(error: LlmbError, arguments: Sequence[str], hints: Hints) -> LlmbError:
    """Return ``error`` with the hints of plugins for names that no workload has."""
    if isinstance(error, InputFaults):
        error.faults = [
            replace(fault, hint=hints("llmb-run", str(fault.value), arguments, ()) or fault.hint)
            if fault.code == WORKLOAD_UNKNOWN
            else fault
            for fault in error.faults
        ]
    elif error.code == WORKLOAD_UNKNOWN:
        error.hint = hints("llmb-run", str(error.value), arguments, ()) or error.hint
    return error


def _context_of(program: click.Command, arguments: Sequence[str]) -> click.Context:
    """Return a context of the command that ``arguments`` call."""
    context = click.Context(program, info_name=program.name)
    for word in arguments:
        if not isinstance(context.command, click.Group):
            break
        if (command := context.command.get_command(context, word)) is not None:
            context = click.Context(command, parent=context, info_name=word)
    return context


def _by_plugin(error: click.UsageError, arguments: Sequence[str], hints: Hints) -> str | None:
    """Return the hint of a plugin for an unknown command, option or format, or None."""
    match error:
        case click.NoSuchOption(option_name=name) | click.NoSuchCommand(command_name=name):
            word = name
        case _:
            word = _unknown_format(error) or ""
    if error.ctx is None or not word:
        return None
    parameters = error.ctx.command.params
    options = [option for parameter in parameters for option in parameter.opts]
    return hints(error.ctx.find_root().info_name or "", word, arguments, options)


def _unknown_format(error: click.UsageError) -> str | None:
    """Return the value of ``--format`` that the command does not have, or None."""
    match error:
        case click.BadParameter(param=click.Option() as option) if "--format" in option.opts:
            return error.message.partition(" is not ")[0].strip("'")
    return None


def _of_another_format(error: click.UsageError) -> str | None:
    """Return the hint for a format that another command of llmb-run writes, else None."""
    root = error.ctx.find_root().info_name if error.ctx is not None else None
    command = _HAVE_FORMAT.get(_unknown_format(error) or "")
    return f"write: {command}" if command is not None and root == "llmb-run" else None


_HAVE_FORMAT = {
    "html": "llmb-run report -o report.html",
    "junit": "llmb-run results --format junit",
}


def _without_group(error: click.UsageError, arguments: Sequence[str]) -> str | None:
    """Return the hint for a command that people try, as ``logs`` or ``squeue``, else None.

    It is in another group, or has another name.
    """
    if not isinstance(error, click.NoSuchCommand) or error.ctx is None:
        return None
    path, name = error.ctx.command_path, error.command_name
    group, known = path.removeprefix("llmb-run").split(), _WITH_GROUP.get(name)
    if known is None or path not in ("llmb-run", f"llmb-run {known.partition(' ')[0]}"):
        return None
    place = list(arguments).index(name)
    before = arguments[: place - len(group)]
    # The options and ids of another program are not those of llmb.
    after = [] if name in _OF_SLURM else [*arguments[place + 1 :]]
    if known == "jobs cancel":
        after = ["--all" if word == "all" else word for word in after]
    command = known.split()
    names_run = any(not word.startswith("-") for word in after)
    if name == "status" and names_run:
        command = ["jobs", "show"]
    elif name == "show" and not names_run:
        command = ["results"]
    elif name in _NEED_RUN and not after:
        command.append("RUN")
    if command[:1] == ["llmb-install"]:
        return f"write: {shlex.join([*command, *after])}"
    return f"write: {shlex.join(['llmb-run', *before, *command, *after])}"


def _of_another_command(error: click.UsageError) -> str | None:
    """Return the hint for an option that another command has, as ``results --baseline``."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return None
    command = _HAVE_OPTION.get((error.ctx.command_path, error.option_name))
    return None if command is None else f"write: {command}"


_HAVE_OPTION = {
    ("llmb-run results", "--baseline"): "llmb-run compare --baseline NAME",
    ("llmb-run report", "--html"): "llmb-run report -o FILE.html",
    ("llmb-run", "--help-all"): "llmb-run COMMAND --help-all, as llmb-run submit --help-all",
}
_OF_SLURM = {
    "sacct": "jobs",
    "sbatch": "submit",
    "scancel": "jobs cancel",
    "sinfo": "nodes check",
    "squeue": "jobs",
}
# Commands that people try, and the command that does it.
_WITH_GROUP = {
    **_OF_SLURM,
    "kill": "jobs cancel",
    "follow": "jobs wait",
    "install": "llmb-install",
    "setup": "llmb-install",
    "doctor": "llmb-install doctor",
    "verify": "llmb-install verify",
    "uninstall": "llmb-install uninstall",
    "logs": "jobs logs",
    "status": "jobs",
    "history": "report --history",
    "cancel": "jobs cancel",
    "stop": "jobs cancel",
    "retry": "jobs retry",
    "wait": "jobs wait",
    "watch": "jobs wait",
    "run": "submit",
    "start": "submit",
    "show": "explain",
    "check": "nodes check",
}
_NEED_RUN = ("logs", "cancel", "stop", "retry", "scancel", "kill")


def _usage_error(error: click.UsageError, arguments: Sequence[str]) -> UsageError:
    """The error without the reference to ``--help``."""
    command = error.ctx.command_path if error.ctx is not None else "llmb"
    match error:
        case click.NoSuchOption(option_name=name):
            message = f"{command} has no option '{name}'"
            return UsageError(message, hint=_other_option(error), code="option-unknown", value=name)
        case click.NoSuchCommand(command_name=name):
            message = f"{command} has no command '{name}'"
            return UsageError(
                message, hint=_other_command(error), code="command-unknown", value=name
            )
        case click.BadOptionUsage(option_name=name):
            problem, fix = (f"{name} takes no value", f"{name} alone")
            if _lacks_value(name, arguments):
                problem, fix = _missing_value(error, name, arguments)
            return UsageError(problem, hint=fix, code="option-usage", key=name)
        case click.MissingParameter(param=click.Parameter() as parameter):
            name = _name(parameter)
            return UsageError(
                f"{command}: {name} is missing",
                hint=_usage(error),
                code="argument-missing",
                key=name,
            )
        case click.BadParameter(param=click.Parameter() as parameter):
            return _wrong_value(error.message, parameter)
    sentence = _sentence(error.format_message())
    message = sentence if error.ctx is None else f"{command}: {sentence}"
    return UsageError(message, hint=_repeated(error, arguments) or _usage(error), code="usage")


def _lacks_value(name: str, arguments: Sequence[str]) -> bool:
    """Return True if ``name`` has no value, False if it has one too many.

    click has one error class for both, without the option. A value is missing only at the end, and
    given only after ``=``.
    """
    return list(arguments[-1:]) == [name] or not any(
        word.startswith(f"{name}=") for word in arguments
    )


def _missing_value(
    error: click.BadOptionUsage, name: str, arguments: Sequence[str]
) -> tuple[str, str]:
    """Return the message for an option without its value, and ``arguments`` with it.

    A hidden option that does the same as an argument gives way to it.
    """
    context = error.ctx
    parameters = context.command.params if context is not None else []
    option = next((option for option in parameters if name in option.opts), None)
    if context is None or not isinstance(option, click.Option):
        return f"{name} needs a value", f"{name} VALUE"
    long_name, value = _name(option), option.make_metavar(context)
    typed = shlex.join([context.find_root().info_name or "", *arguments[:-1]])
    names_of_arguments = [
        parameter.human_readable_name
        for parameter in parameters
        if isinstance(parameter, click.Argument)
    ]
    is_argument = option.hidden and value in names_of_arguments
    words = [typed, value] if is_argument else [typed, long_name, value]
    title = name if name == long_name else f"{name} ({long_name})"
    return f"{title} needs a value", f"{' '.join(words)}; more:"


def _repeated(error: click.UsageError, arguments: Sequence[str]) -> str | None:
    """Return the hint for a second ``KEY=VALUE`` after one option, else None."""
    options = error.ctx.command.params if error.ctx is not None else []
    names = {
        name
        for parameter in options
        if isinstance(parameter, click.Option) and parameter.multiple
        for name in parameter.opts
    }
    for option, value, word in zip(arguments, arguments[1:], arguments[2:], strict=False):
        if option in names and "=" in value and is_pair(word):
            return (
                f"repeat {option}: {option} {shlex.quote(value)} {option} {shlex.quote(word)};"
                " more:"
            )
    return None


def _other_option(error: click.NoSuchOption) -> str | None:
    parameters = error.ctx.command.params if error.ctx is not None else []
    name = error.option_name.removeprefix("--")
    formats = next(
        (parameter.type for parameter in parameters if "--format" in parameter.opts), None
    )
    if isinstance(formats, click.Choice) and name in formats.choices:
        return f"write: --format {name};"
    if name == "-f" and any("--force" in parameter.opts for parameter in parameters):
        return "--force lifts checks; it has no short form:"
    if error.possibilities or error.ctx is None or not isinstance(error.ctx.command, click.Group):
        return _suggestion(error.possibilities)
    return "write the options of a command after its name:"


def _other_command(error: click.NoSuchCommand) -> str | None:
    """The commands of nearly this name.

    An archive is no command: it takes the place of the install directory.
    """
    options = error.ctx.command.params if error.ctx is not None else []
    if (
        error.ctx is not None
        and is_archive(error.command_name)
        and any("--install" in parameter.opts for parameter in options)
    ):
        return f"{error.ctx.command_path} --install {shlex.quote(error.command_name)}"
    if error.possibilities or error.ctx is None or not isinstance(error.ctx.command, click.Group):
        return _suggestion(error.possibilities)
    close = nearest(error.command_name, error.ctx.command.list_commands(error.ctx))
    return _suggestion([close] if close else None)


def _skipped_command(error: click.NoSuchCommand, skipped: Skipped) -> Sequence[str]:
    """The reasons of skipped plugins that may have the command.

    A command of nearly that name comes first.
    """
    context = error.ctx
    if (
        context is None
        or context.parent is not None
        or not isinstance(context.command, click.Group)
    ):
        return []
    reasons, possible = skipped(error.command_name)
    if reasons or not possible:
        return reasons
    close = nearest(error.command_name, context.command.list_commands(context), likeness=_SAME)
    return [*filter(None, [_suggestion([close] if close else None)]), *possible]


def _wrong_value(message: str, parameter: click.Parameter) -> UsageError:
    """The error for a value that ``parameter`` does not take.

    Only click's ``message`` has the value.
    """
    kind, (value, _, _), hint = parameter.type, message.partition(" is not "), None
    if isinstance(kind, click.IntRange):
        maximum = f" to {kind.max}" if kind.max is not None else ""
        message = f"{value} is not a whole number from {kind.min or 0}{maximum}"
    elif isinstance(kind, click.Choice):
        message = f"{value} is not one of {', '.join(kind.choices)}"
        close = nearest(value.strip("'"), kind.choices)
        hint = _suggestion([close] if close else None)
    name = _name(parameter)
    return UsageError(
        f"{name}: {_sentence(message)}",
        hint=hint,
        code="value-not-allowed",
        key=name,
        value=value.strip("'"),
    )


def _suggestion(possibilities: list[str] | None) -> str | None:
    return f"did you mean {' or '.join(map(repr, possibilities))}?" if possibilities else None


def _name(parameter: click.Parameter) -> str:
    return (
        max(parameter.opts, key=len)
        if isinstance(parameter, click.Option)
        else parameter.human_readable_name
    )


def _usage(error: click.UsageError) -> str | None:
    """The command with its arguments and required options, or None without any."""
    context = error.ctx
    if context is None:
        return None
    pieces = []
    for parameter in context.command.params:
        if isinstance(parameter, click.Argument):
            pieces.append(parameter.make_metavar(context))
        elif isinstance(parameter, click.Option) and parameter.required:
            pieces.append(f"{_name(parameter)} {parameter.make_metavar(context)}")
    return f"{' '.join([context.command_path, *pieces])}; more:" if pieces else None


def _sentence(text: str) -> str:
    """``text`` in the style of llmb's messages: lower-case first letter, no full stop."""
    text = text.strip().removesuffix(".")
    is_word = text.partition(" ")[0][1:].islower()  # not a name such as NaN or MAX_STEPS
    return text[:1].lower() + text[1:] if is_word else text
