# SPDX-License-Identifier: Apache-2.0
"""`llmb-install completion`: the script for a shell, and the values of parameters."""

import dataclasses
import os
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import click

from llmb.cli.completion import engine
from llmb.cli.completion.engine import Candidate, Completer, fixed
from llmb.core import console, typed
from llmb.errors import LlmbError

PROG = "llmb-install"
_TEXT = ["text"]  # the fields of a value that is a text in the file


def run(shell: str) -> None:
    console.echo(engine.script(shell, PROG), nl=False)


def answer(group: click.Group) -> int:
    """Print the possible continuations of a shell's line, and return the exit code."""
    return engine.answer(lambda: group, PROG, COMPLETERS, lambda: None)


def _answers(_context: click.Context, incomplete: str) -> Iterator[Candidate]:
    """``KEY=`` of ``--set``, then ``KEY=VALUE`` for keys with few values."""
    from llmb_installer.answers.schema import Answers
    from llmb_installer.cluster_types import all_types

    kinds = all_types()
    keys = dict(_keys(Answers, "")) | {"cluster_type": tuple(kinds)}
    for kind in kinds.values():  # a plugin's type has a section of its own
        keys |= dict(_keys(kind.schema, f"{kind.key}.")) if kind.schema is not None else {}
    key, equals, _ = incomplete.partition("=")
    if not equals:
        yield from (Candidate(f"{name}=", " ".join(words), "open") for name, words in keys.items())
    else:
        yield from (Candidate(f"{key}={word}") for word in keys.get(key, ()))


def _keys(cls: type, before: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The dotted keys of a dataclass, each with its values if these are few."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if not field.metadata.keys() & typed.INTERNAL.keys():
            yield from _keys_of(f"{before}{field.name}", hints[field.name])


def _keys_of(key: str, hint: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The key of a value with this type hint, or the keys below it."""
    from llmb.contract.sbatch import SLURM_OPTIONS, SlurmOptions

    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
    if hint is SlurmOptions:
        yield from ((f"{key}.{option}", ()) for option in SLURM_OPTIONS)
    elif (
        dataclasses.is_dataclass(hint)
        and [option.name for option in dataclasses.fields(hint)] != _TEXT
    ):
        assert isinstance(hint, type)
        yield from _keys(hint, f"{key}.")
    else:
        words = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
        yield key, ("true", "false") if hint is bool else tuple(map(str, words))


def _workloads(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """Yield the workloads to ``add`` or to ``remove``, all of them without an installation."""
    from llmb.builtin.plugins import builtin_plugins
    from llmb.plugins.loader import load_plugins

    workloads = load_plugins(builtin_plugins()).workloads()
    installed = _installed(context)
    typed_names = context.params.get("workloads") or ()
    names = installed if context.info_name == "remove" and installed is not None else (*workloads,)
    omitted = {*typed_names, *((installed or ()) if context.info_name == "add" else ())}
    yield from (
        Candidate(name, workloads[name].title if name in workloads else "")
        for name in names
        if name not in omitted
    )


def _installed(context: click.Context) -> tuple[str, ...] | None:
    """The workloads of the install directory. None if there is none."""
    from llmb.plan.locate import find_install, installed_in

    try:
        return installed_in(find_install(context.params.get("install"), os.environ))
    except LlmbError:
        return None


# By the names of click's parameters.
COMPLETERS: Mapping[str, Completer] = {
    "settings": _answers,
    "workloads": _workloads,
    "arch": fixed(("x86_64", "aarch64")),
}
