# SPDX-License-Identifier: Apache-2.0
"""Checks the contract and the hooks of a plugin before any hook is called."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmb import __version__, hookspecs
from llmb.core.names import suggest
from llmb.plugins.adapters import Contract, major_of
from llmb.plugins.guard import place_of
from llmb.plugins.sources import FILE

HOOKS = tuple(name for name in vars(hookspecs) if name.startswith("llmb_"))
STATEMENT = "LLMB_CONTRACT"  # the attribute of a plugin that states its contract
FIRST_CONTRACT = "1.0"  # of a plugin that states none
_ARGUMENTS = {name: tuple(inspect.signature(getattr(hookspecs, name)).parameters) for name in HOOKS}
# asked for the plugin's own workload
_OF_WORKLOAD = ("llmb_setup", "llmb_launch", "llmb_parse", "llmb_flops")
_SITE_WIDE = "llmb_launch"  # which a plugin without a workload may wrap
# "1.1", the lowest contract; or a range, ">=1.1,<3.0", as pip writes them
_STATED = re.compile(r"(\d+\.\d+)|>=\s*(\d+\.\d+)\s*,\s*<\s*(\d+\.\d+)")

Reason = tuple[str, str]  # code and reason


def contract_problem(
    stated: object, distribution: str, contract: Contract | None = None
) -> Reason | None:
    """The code and the reason if ``contract`` (None: llmb's) is not what a plugin states."""
    contract = contract or Contract()
    match = _STATED.fullmatch(stated.strip()) if isinstance(stated, str) else None
    if match is None:
        version = contract.version
        example = f'"{version}", or a range, such as ">={version},<{contract.major + 2}.0"'
        return "contract-invalid", f"{STATEMENT} is {stated!r}; write it as text, such as {example}"
    if match[3] and _numbers(match[2]) >= _numbers(match[3]):
        return "contract-invalid", f"{STATEMENT} is {stated!r}, a range that no version is in"
    lowest, current = _numbers(match[1] or match[2]), _numbers(contract.version)
    versions = f"it is made for contract {stated}, and llmb {__version__} has {contract.version}"
    if lowest > current:
        return "contract-newer", f"{versions}: upgrade llmb (pip install . in its newer checkout)"
    is_over = current >= _numbers(match[3]) if match[3] else lowest[0] < contract.oldest_major
    if is_over:
        fix = (
            f"{distribution} (pip install --upgrade {distribution})"
            if distribution != FILE
            else "the file"
        )
        return "contract-older", f"{versions}: upgrade {fix}"
    return None


def major_for(stated: str, contract: Contract) -> int:
    """Return the MAJOR of an accepted plugin's hooks: of a range, llmb's own."""
    match = _STATED.fullmatch(stated.strip())
    return contract.major if match is None or match[3] else major_of(match[1])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def statement_in(file: Path) -> tuple[str, str] | None:
    """Return the contract that a module's source states, and ``file:line`` of the statement.

    The module may be too new to be imported.
    """
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(rf"""^{STATEMENT}\b[^=\n]*=\s*["']([^"'\n]+)["']""", text, re.MULTILINE)
    if match is None:
        return None
    return match[1], f"{file}:{text.count(chr(10), 0, match.start()) + 1}"


def is_wrapper(plugin: object, hook: str) -> bool:
    """Return True if the plugin's ``hook`` wraps the answer of others."""
    options = _options(getattr(plugin, hook, None))
    return bool(options.get("wrapper") or options.get("hookwrapper"))


def is_site_wide(plugin: object) -> bool:
    """Return True if the plugin wraps the launches of all workloads, once it is configured."""
    return is_wrapper(plugin, _SITE_WIDE) and not hasattr(plugin, "llmb_workload")


def _options(member: object) -> dict[str, Any]:
    """Return the options of ``@hookimpl``, none without it."""
    return getattr(member, f"{hookspecs.PROJECT}_impl", None) or {}


def hook_problem(plugin: object) -> Reason | None:
    """Return the code and the reason if llmb cannot call the hooks of ``plugin``, else None."""
    marked = []
    for name, member in _members(plugin):
        options = _options(member)
        if not inspect.isroutine(member) or not (options or name.startswith("llmb_")):
            continue
        if name not in HOOKS and options.get("optionalhook"):
            continue  # of a newer contract
        if name not in HOOKS:
            return "hook-unknown", f"{name} is not a hook{place_of(member)}; {suggest(name, HOOKS)}"
        if not options:
            return "hook-unmarked", f"{name} has no @hookimpl{place_of(member)}"
        parameters = inspect.signature(member).parameters.values()
        for word in (
            parameter.name
            for parameter in parameters
            if parameter.default is parameter.empty
            and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ):
            if word not in _ARGUMENTS[name]:
                fix = suggest(word, _ARGUMENTS[name])
                return (
                    "argument-unknown",
                    f"{name} has no argument '{word}'{place_of(member)}; {fix}",
                )
        marked.append(name)
    if not marked:
        return "hook-missing", f"it implements no hook; the hooks are {', '.join(HOOKS)}"
    return _misplaced(plugin, marked)


def _misplaced(plugin: object, marked: list[str]) -> Reason | None:
    """Return the problem of a wrapper or of a workload's hook that can never be called."""
    for name in marked:
        if is_wrapper(plugin, name):
            place = place_of(getattr(plugin, name))
            if _options(getattr(plugin, name)).get("hookwrapper"):
                fix = "write wrapper=True, and: launch = yield; return launch"
                return "wrapper-invalid", f"{name} has hookwrapper=True{place}; {fix}"
            if name not in _OF_WORKLOAD:
                return (
                    "wrapper-misplaced",
                    f"{name} is a wrapper{place}, which only {', '.join(_OF_WORKLOAD)} may be",
                )
            if not inspect.isgeneratorfunction(getattr(plugin, name)):
                return (
                    "wrapper-invalid",
                    f"{name} is a wrapper without a yield{place}: launch = yield; return launch",
                )
        if name in _OF_WORKLOAD and "llmb_workload" not in marked and not is_site_wide(plugin):
            hint = (
                f"add llmb_workload, or make it a wrapper: only a wrapper of {_SITE_WIDE} is for"
                " other workloads"
            )
            place = place_of(getattr(plugin, name))
            return (
                "workload-missing",
                f"{name} is only called for the plugin's own workload{place}; {hint}",
            )
    return None


def _members(plugin: object) -> Iterator[tuple[str, object]]:
    yield from vars(plugin).items() if inspect.ismodule(plugin) else inspect.getmembers(plugin)
