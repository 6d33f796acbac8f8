# SPDX-License-Identifier: Apache-2.0
"""`llmb-install completion`: the script for a shell, and the values that complete parameters of llmb-install."""

import dataclasses
import os
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import click

from llmb.cli.completion import engine
from llmb.cli.completion.engine import Candidate, Completer, fixed
from llmb.errors import LlmbError
from llmb.system import console
from llmb.text import typed

PROG = "llmb-install"
_TEXT = ["text"]  # the fields of a value that is a text in the file


def run(shell: str) -> None:
    console.echo(engine.script(shell, PROG), nl=False)


def answer(group: click.Group) -> int:
    """Print what the line of a shell may continue with; the exit code."""
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
    for own in dataclasses.fields(cls):
        if not own.metadata.keys() & typed.INTERNAL.keys():
            yield from _keys_of(f"{before}{own.name}", hints[own.name])


def _keys_of(key: str, hint: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The key of a value with this type hint, or the keys below it."""
    from llmb.config.slurm import SLURM_OPTIONS, SlurmOptions

    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
    if hint is SlurmOptions:
        yield from ((f"{key}.{own}", ()) for own in SLURM_OPTIONS)
    elif dataclasses.is_dataclass(hint) and [own.name for own in dataclasses.fields(hint)] != _TEXT:
        assert isinstance(hint, type)
        yield from _keys(hint, f"{key}.")
    else:
        words = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
        yield key, ("true", "false") if hint is bool else tuple(map(str, words))


def _workloads(context: click.Context, _incomplete: str) -> Iterator[Candidate]:
    """The workloads that are not installed for ``add``, those that are for ``remove``; without an install all."""
    from llmb.builtin import builtin_plugins
    from llmb.plugins.loader import load_plugins

    known = load_plugins(builtin_plugins()).workloads()
    installed = _installed(context)
    given = context.params.get("workloads") or ()
    names = installed if context.info_name == "remove" and installed is not None else (*known,)
    omitted = {*given, *((installed or ()) if context.info_name == "add" else ())}
    yield from (Candidate(name, known[name].title if name in known else "") for name in names if name not in omitted)


def _installed(context: click.Context) -> tuple[str, ...] | None:
    """The workloads of the install directory; None where there is none."""
    from llmb.config.locate import find_install, installed_in

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
