# SPDX-License-Identifier: Apache-2.0
"""The settings for every job that the options of a submitting command make."""

import json
import re
import shlex
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, get_type_hints

from llmb.cli.context import CliContext, say
from llmb.cli.submit.options import SubmitOptions
from llmb.contract import switches as sw
from llmb.contract.launch_variable import OF_A_JOB, Variables
from llmb.core import files
from llmb.core.names import is_pair, suggest
from llmb.core.scalars import check_own
from llmb.errors import Fault, InputFaults, KeyFaultError, collected

if TYPE_CHECKING:
    from llmb.contract.settings import Settings
    from llmb.plan.launch_variables import Used

# a whole number from 1, written in another way
_WHOLE = re.compile(r"\+?0*([1-9]\d*)\.?0*", re.ASCII)


def overrides_of(
    options: SubmitOptions, context: CliContext, usable: Collection[str] | None = None
) -> "Settings":
    """Read the settings of the options, also variables of other launchers in ``--env``.

    Hints name the ``usable`` settings of the command's one workload (None: it may have several).
    Raises InputFaults with every fault.
    """
    from llmb.contract.settings import Settings
    from llmb.plan.framework import check_framework

    faults: list[Fault] = []
    dotted = _dotted(options.params, faults)
    pairs = [item for item in options.params if not _names_path(item)]
    params, words, parameter_values = parse_set(pairs, context.parameters, faults, usable)
    env, used = _parse_env(options.env, context.variables, faults)
    for name in ("max_steps", "gbs"):
        option = getattr(options, name)
        if option is not None and params.setdefault(name, option) != option:
            message = f"--{name.replace('_', '-')} {option} and --set {name}={params[name]} differ"
            fault = Fault(
                message=message,
                hint="give one of them",
                code="option-conflict",
                key=name,
                value=option,
            )
            faults.append(fault)
    if options.framework is not None:
        with collected(faults):
            check_framework(options.framework, context.frameworks)
    switches = words | _switches_of(options, faults)
    for variable in used:
        settings: dict[str, Any] = params if variable.sets in sw.PARAMS else switches
        if settings.setdefault(variable.sets, variable.value) != variable.value:
            values = f"{variable.value} and {settings[variable.sets]}"
            faults.append(
                Fault(
                    message=(
                        f"--env {variable.name} and {variable.sets} have different values: {values}"
                    ),
                    hint="give one of them",
                    code="option-conflict",
                    key=variable.sets,
                )
            )
        say(f"note: --env {variable.name} is used as {variable.instead}")
    if options.retries and not options.wait:
        faults.append(
            Fault(
                message="--retries requires --wait",
                hint="add --wait, or later: llmb-run jobs retry --failed",
                code="retries-without-wait",
            )
        )
    if faults:
        raise InputFaults(faults)
    return Settings(
        **switches | params,
        env=env,
        parameters=parameter_values,
        framework=options.framework or "",
        release=options.release,
        dotted=dotted,
    )


def _switches_of(options: SubmitOptions, faults: list[Fault]) -> dict[str, Any]:
    """The switches that the options set, by name. The first fault goes to ``faults``."""
    types = get_type_hints(type(options))
    switches: dict[str, Any] = {name: getattr(options, name) for name in sw.NAMES if name in types}
    # a flag without a negative form is given only if it is True
    switches = {
        name: value
        for name, value in switches.items()
        if value not in (None, "", ()) and (value or types[name] is not bool)
    }
    readers: dict[str, Callable[[Any], Any]] = {
        "image": sw.absolute_image,
        "time_limit": lambda text: text if sw.parse_clock(text) else None,
        "profile_ranks": lambda text: text if sw.rank_ranges(text) else None,
        "mounts": lambda items: tuple(map(sw.parse_mount, items)),
        "load_checkpoint": lambda text: str(files.expand(text).absolute()),
    }
    for name, read in readers.items():
        try:
            if name in switches:
                switches[name] = read(switches[name])
        except ValueError as error:
            flag = "--mount" if name == "mounts" else f"--{name.replace('_', '-')}"
            faults.append(
                Fault(
                    message=f"{flag}: {error}",
                    hint=f"correct {flag}, or omit it",
                    code="option-invalid",
                    key=name,
                )
            )
            break
    return switches


def _pairs(text: Sequence[str], flag: str, faults: list[Fault]) -> dict[str, str]:
    """The pairs ``KEY=VALUE`` by their keys. Anything else goes to ``faults``."""
    pairs = {}
    for item in text:
        name, equals, value = item.partition("=")
        if equals and name.strip():
            pairs[name.strip()] = value
        else:
            faults.append(
                Fault(
                    message=f"{flag} '{item}' does not have the form KEY=VALUE",
                    hint=f"{flag} NAME=value",
                    code="pair-invalid",
                    key=flag,
                    value=item,
                )
            )
    return pairs


def _repeated(name: str, value: str) -> str | None:
    """The hint for several pairs in one ``--set``, as ``4 etp=1``, or None for another value."""
    first, *pairs = value.split() or [""]
    if not pairs or not all(map(is_pair, pairs)):
        return None
    return (
        "repeat --set:"
        f" {' '.join(f'--set {shlex.quote(pair)}' for pair in (f'{name}={first}', *pairs))}"
    )


def _names_path(item: str) -> bool:
    return sw.is_dotted(item.partition("=")[0].strip())


def _dotted(text: Sequence[str], faults: list[Fault]) -> dict[str, sw.SettingValue]:
    """Return the settings ``--set optimizer.lr=1e-4``: numbers, true, false, null, or text.

    A number that the run's record cannot hold goes to ``faults``.
    """
    settings: dict[str, sw.SettingValue] = {}
    for name, value in _pairs(
        [item for item in text if _names_path(item)], "--set", faults
    ).items():
        settings[name] = value
        with suppress(ValueError):
            data = json.loads(value)
            settings[name] = value if isinstance(data, (list, dict)) else data
        try:
            check_own(settings[name])
        except KeyFaultError as error:
            faults.append(
                Fault(
                    message=f"--set {name}={value}: {error}",
                    hint="write a finite number up to 2^63",
                    code="param-invalid",
                    key=name,
                    value=value,
                )
            )
            del settings[name]
    return settings


def _parse_env(
    text: Sequence[str], known: Variables, faults: list[Fault]
) -> tuple[dict[str, str], list["Used"]]:
    """The variables of ``--env K=V``, and settings by ``known`` variables of other launchers.

    Variables that a job may not set go to ``faults``.
    """
    from llmb.contract.variables import check_name, check_values
    from llmb.plan.launch_variables import split

    env = _pairs(text, "--env", faults)
    used: list[Used] = []

    def without_settings() -> None:
        variables, settings = split(env, known, OF_A_JOB, of_list=False)
        used.extend(settings)
        for name in env.keys() - variables.keys():
            del env[name]

    # A known variable has one fault: what replaces it.
    free_names = [name for name in env if name not in known]
    checks: list[Callable[[], None]] = [partial(check_name, name) for name in free_names]
    checks += [partial(check_values, env), without_settings]
    for check in checks:
        try:
            check()
        except KeyFaultError as error:
            faults.append(
                Fault(
                    place="--env",
                    message=str(error),
                    hint=error.hint,
                    code="variable-refused",
                    key="env",
                )
            )
    return env, used


def parse_set(
    text: Sequence[str],
    parameters: Collection[str],
    faults: list[Fault],
    usable: Collection[str] | None = None,
    numbers: Collection[str] = sw.PARAMS,
) -> tuple[dict[str, int], dict[str, str], dict[str, str]]:
    """The ``numbers`` and words of ``--set KEY=VALUE``, and values of workload ``parameters``.

    Unknown keys and invalid values go to ``faults``. Hints name the ``usable`` keys (None: all).
    The plan checks later which parameters and values a workload has.
    """
    params, words, parameter_values = dict[str, int](), dict[str, str](), dict[str, str]()
    for name, value in _pairs(text, "--set", faults).items():
        if name in sw.CHOICES and value in sw.CHOICES[name]:
            words[name] = value
        elif name in numbers and value.isdecimal() and int(value) >= 1:
            params[name] = int(value)
        elif name in parameters:
            parameter_values[name] = value
        elif name in sw.CHOICES:
            faults.append(
                Fault(
                    message=f"--set {name}={value}: must be {' or '.join(sw.CHOICES[name])}",
                    hint=f"--set {name}={sw.CHOICES[name][-1]}",
                    code="param-invalid",
                    key=name,
                    value=value,
                )
            )
        elif name in numbers:
            message, whole = (
                f"--set {name}={value}: must be a whole number from 1",
                _WHOLE.fullmatch(value.strip()),
            )
            faults.append(
                Fault(
                    message=message,
                    hint=f"--set {name}={whole[1]}"
                    if whole
                    else _repeated(name, value) or "omit it for the workload's value",
                    code="param-invalid",
                    key=name,
                    value=value,
                )
            )
        else:
            names = (*sw.PARAMS, *sw.CHOICES, *parameters) if usable is None else usable
            faults.append(
                Fault(
                    message=f"--set has no parameter '{name}'",
                    hint=suggest(name, names),
                    code="param-unknown",
                    key=name,
                    value=value,
                )
            )
    return params, words, parameter_values
