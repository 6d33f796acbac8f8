# SPDX-License-Identifier: Apache-2.0
"""What the options of a submitting command set for every job: the text of `--set`, `--env` and switches as values."""

import json
import re
import shlex
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from llmb.cli.context import say
from llmb.cli.submit.options import SubmitOptions
from llmb.errors import Fault, InputFaults, KeyFaultError, collected
from llmb.system import files
from llmb.text.names import is_pair, suggest
from llmb.workload import switches as sw

if TYPE_CHECKING:
    from llmb.planning.job_spec import JobOverrides
    from llmb.workload.launch_variables import Used

_WHOLE = re.compile(r"\+?0*([1-9]\d*)\.?0*", re.ASCII)  # a whole number from 1, written in another way


def overrides_of(
    given: SubmitOptions, parameters: Collection[str], usable: Collection[str] | None = None
) -> "JobOverrides":
    """What the options set for every job; ``parameters``: names that workloads declare.

    ``usable``: the names that the command's one workload has, which hints name; None where it may have several.

    Raises InputFaults with every fault.
    """
    from llmb.planning.framework import check_framework
    from llmb.planning.job_spec import JobOverrides

    faults: list[Fault] = []
    dotted = _dotted(given.params, faults)
    pairs = [item for item in given.params if not _names_path(item)]
    params, words, own = parse_set(pairs, parameters, faults, usable)
    env, used = _parse_env(given.env, faults)
    for name in ("max_steps", "gbs"):
        option = getattr(given, name)
        if option is not None and params.setdefault(name, option) != option:
            message = f"--{name.replace('_', '-')} {option} and --set {name}={params[name]} differ"
            fault = Fault(message=message, hint="give one of them", code="option-conflict", key=name, value=option)
            faults.append(fault)
    if given.framework is not None:
        with collected(faults):
            check_framework(given.framework)
    switches = words | _switches_of(given, faults)
    for one in used:
        known: dict[str, Any] = params if one.sets in sw.PARAMS else switches
        if known.setdefault(one.sets, one.value) != one.value:
            message = f"--env {one.name} and {one.sets} have different values: {one.value} and {known[one.sets]}"
            faults.append(Fault(message=message, hint="give one of them", code="option-conflict", key=one.sets))
        say(f"note: --env {one.name} is used as {one.instead}")
    if given.retries and not given.wait:
        hint = "add --wait, or later: llmb-run jobs retry --failed"
        faults.append(Fault(message="--retries requires --wait", hint=hint, code="retries-without-wait"))
    if faults:
        raise InputFaults(faults)
    return JobOverrides(
        env=env,
        params=params,
        parameters=own,
        framework=given.framework,
        release=given.release,
        dotted=dotted,
        switches=sw.Switches(**switches),
        force=given.force,
    )


def _switches_of(given: SubmitOptions, faults: list[Fault]) -> dict[str, Any]:
    """The switches that the options set, by name; the first fault goes to ``faults``."""
    own = {field.name for field in fields(given)}
    found: dict[str, Any] = {name: getattr(given, name) for name in sw.NAMES if name in own}
    positive = ("strong_scaling", "gpu_metrics", "nccl_trace", "save_checkpoint")
    found = {
        name: value for name, value in found.items() if value not in (None, "", ()) and (value or name not in positive)
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
            if name in found:
                found[name] = read(found[name])
        except ValueError as error:
            flag = "--mount" if name == "mounts" else f"--{name.replace('_', '-')}"
            hint = f"correct {flag}, or omit it"
            faults.append(Fault(message=f"{flag}: {error}", hint=hint, code="option-invalid", key=name))
            break
    return found


def _pairs(text: Sequence[str], flag: str, faults: list[Fault]) -> dict[str, str]:
    """The pairs ``KEY=VALUE`` by their keys; anything else goes to ``faults``."""
    pairs = {}
    for item in text:
        name, equals, value = item.partition("=")
        if equals and name.strip():
            pairs[name.strip()] = value
        else:
            message = f"{flag} '{item}' does not have the form KEY=VALUE"
            faults.append(Fault(message=message, hint=f"{flag} NAME=value", code="pair-invalid", key=flag, value=item))
    return pairs


def _repeated(name: str, value: str) -> str | None:
    """The hint for ``4 etp=1`` as a value: several pairs in one ``--set``; None for another value."""
    first, *others = value.split() or [""]
    if not others or not all(map(is_pair, others)):
        return None
    return f"repeat --set: {' '.join(f'--set {shlex.quote(pair)}' for pair in (f'{name}={first}', *others))}"


def _names_path(item: str) -> bool:
    return sw.is_dotted(item.partition("=")[0].strip())


def _dotted(text: Sequence[str], faults: list[Fault]) -> dict[str, str | float | bool | None]:
    """The settings ``--set optimizer.lr=1e-4`` of the framework: numbers, true, false, null, or text."""
    found: dict[str, str | float | bool | None] = {}
    for name, value in _pairs([item for item in text if _names_path(item)], "--set", faults).items():
        found[name] = value
        with suppress(ValueError):
            read = json.loads(value)
            found[name] = value if isinstance(read, (list, dict)) else read
    return found


def _parse_env(text: Sequence[str], faults: list[Fault]) -> tuple[dict[str, str], list["Used"]]:
    """The variables of ``--env K=V``, and those of NVIDIA's launch scripts that are used as settings.

    Variables that a job may not set go to ``faults``.
    """
    from llmb.workload import launch_variables
    from llmb.workload.variables import OF_A_JOB, check_name, check_values

    env = _pairs(text, "--env", faults)
    used: list[Used] = []

    def without_settings() -> None:
        rest, found = launch_variables.split(env, OF_A_JOB, of_list=False)
        used.extend(found)
        for name in env.keys() - rest.keys():
            del env[name]

    # A variable of NVIDIA's scripts has one fault: what replaces it.
    own = [name for name in env if name not in launch_variables.table()]
    checks: list[Callable[[], None]] = [partial(check_name, name) for name in own]
    checks += [partial(check_values, env), without_settings]
    for check in checks:
        try:
            check()
        except KeyFaultError as error:
            faults.append(Fault(place="--env", message=str(error), hint=error.hint, code="variable-refused", key="env"))
    return env, used


def parse_set(
    text: Sequence[str], parameters: Collection[str], faults: list[Fault], usable: Collection[str] | None = None
) -> tuple[dict[str, int], dict[str, str], dict[str, str]]:
    """The numbers and the words of ``--set KEY=VALUE``, and the values of the workload's own ``parameters``.

    Unknown keys and invalid values go to ``faults``; hints name the ``usable`` keys, None: all. Which parameters and
    values a workload has is checked later.
    """
    params, words, own = dict[str, int](), dict[str, str](), dict[str, str]()
    for name, value in _pairs(text, "--set", faults).items():
        if name in sw.CHOICES and value in sw.CHOICES[name]:
            words[name] = value
        elif name in sw.PARAMS and value.isdecimal() and int(value) >= 1:
            params[name] = int(value)
        elif name in parameters:
            own[name] = value
        elif name in sw.CHOICES:
            message = f"--set {name}={value}: must be {' or '.join(sw.CHOICES[name])}"
            hint = f"--set {name}={sw.CHOICES[name][-1]}"
            faults.append(Fault(message=message, hint=hint, code="param-invalid", key=name, value=value))
        elif name in sw.PARAMS:
            message, whole = f"--set {name}={value}: must be a whole number from 1", _WHOLE.fullmatch(value.strip())
            hint = f"--set {name}={whole[1]}" if whole else _repeated(name, value) or "omit it for the workload's value"
            faults.append(Fault(message=message, hint=hint, code="param-invalid", key=name, value=value))
        else:
            names = (*sw.PARAMS, *sw.CHOICES, *parameters) if usable is None else usable
            message, hint = f"--set has no parameter '{name}'", suggest(name, names)
            faults.append(Fault(message=message, hint=hint, code="param-unknown", key=name, value=value))
    return params, words, own
