# SPDX-License-Identifier: Apache-2.0
"""Variables of other launchers in an environment: which are settings here, and which do nothing."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from llmb.contract.launch_variable import LaunchVariable, Variables
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError


def names_that_set(variables: Variables, *settings: str) -> list[str]:
    """Return the names of the variables that set one of ``settings``."""
    return [name for name, variable in variables.items() if variable.sets in settings]


def unread(
    environ: Mapping[str, str], variables: Variables, read: Iterable[str] = ()
) -> Iterator[str]:
    """The variables in ``environ`` that are not ``read``, each with what to write instead."""
    names = frozenset(read)
    for name, variable in variables.items():
        if name not in names and not variable.of_config and (text := environ.get(name, "").strip()):
            yield f"{name} ({variable.hint(text, of_list=False)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """A variable that is used as the setting ``sets``."""

    name: str
    sets: str
    value: object
    #: What to write instead of the variable.
    instead: str


def split(
    env: Mapping[str, str | bool],
    variables: Variables,
    settings: Collection[str],
    *,
    of_list: bool,
) -> tuple[dict[str, str | bool], list[Used]]:
    """Return ``env`` without the variables that set one of ``settings``, and these variables.

    ``of_list``: it is a job list's. Raises KeyFaultError for a value that cannot be read, for two
    variables of one setting with different values, and for variables without such a setting: no
    program of llmb reads them.
    """
    remaining, used, unused = dict[str, str | bool](), list[Used](), dict[str, str]()
    for name, value in env.items():
        variable = variables.get(name)
        text = str(value).lower() if isinstance(value, bool) else value
        if variable is None:
            remaining[name] = value
        elif variable.sets not in settings:
            unused[name] = variable.hint(text, of_list=of_list)
        else:
            used.append(_used(variable, text, of_list=of_list))
    if unused:
        raise _without_effect(unused, variables)
    for first in used:
        if second := next(
            (two for two in used if two.sets == first.sets and two.value != first.value), None
        ):
            message = f"{first.name} and {second.name} have different values"
            raise KeyFaultError(
                message, first.name, hint=f"write {first.instead}", code="variable-conflict"
            )
    return remaining, used


def _used(variable: LaunchVariable, text: str, *, of_list: bool) -> Used:
    name = variable.name
    try:
        value = variable.value(text)
    except ValueError as error:
        hint = variable.hint("VALUE", of_list=of_list)
        raise KeyFaultError(
            f"{name}: {error}", name, hint=hint, code="variable-invalid", value=text
        ) from error
    return Used(
        name=name, sets=variable.sets, value=value, instead=variable.instead(text, of_list=of_list)
    )


def _without_effect(hints: Mapping[str, str], variables: Variables) -> KeyFaultError:
    names = " and ".join(filter(None, [", ".join([*hints][:-1]), [*hints][-1]]))
    verb = "configures" if len(hints) == 1 else "configure"
    programs = " and ".join(dict.fromkeys(variables[name].program for name in hints))
    message = f"{names} {verb} {programs} and would have no effect on a job here"
    words = [f"{name}: {hint}" if len(hints) > 1 else hint for name, hint in hints.items()]
    return KeyFaultError(message, next(iter(hints)), hint="; ".join(words))
