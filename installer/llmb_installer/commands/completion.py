# SPDX-License-Identifier: Apache-2.0
"""`llmb-install completion`: the script of a shell, and what the parameters of llmb-install may be."""

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

PROG = "llmb-install"
_TEXT = ["text"]  # the fields of a value that is a text in the file


def run(shell: str) -> None:
    """Print the script that completes words in ``shell``."""
    console.echo(engine.script(shell, PROG), nl=False)


def answer(group: click.Group) -> int:
    """Print what the line of a shell may continue with; the exit code."""
    return engine.answer(lambda: group, PROG, COMPLETERS, lambda: None)


def _answers(_context: click.Context, incomplete: str) -> Iterator[Candidate]:
    """``KEY=`` of ``--set``, then ``KEY=VALUE`` for keys with few values."""
    from llmb_installer.answers.schema import Answers

    keys = dict(_keys(Answers, ""))
    key, equals, _ = incomplete.partition("=")
    if not equals:
        yield from (Candidate(f"{name}=", " ".join(words), "open") for name, words in keys.items())
    else:
        yield from (Candidate(f"{key}={word}") for word in keys.get(key, ()))


def _keys(cls: type, before: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The dotted keys of a dataclass, each with its values if these are few."""
    from llmb.config.slurm import SLURM_OPTIONS, SlurmOptions

    for name, hint in typing.get_type_hints(cls).items():
        kinds = [hint]
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        kind: Any = kinds[0]
        if kind is SlurmOptions:
            yield from ((f"{before}{name}.{own}", ()) for own in SLURM_OPTIONS)
        elif dataclasses.is_dataclass(kind) and [own.name for own in dataclasses.fields(kind)] != _TEXT:
            assert isinstance(kind, type)
            yield from _keys(kind, f"{before}{name}.")
        elif kind is bool:
            yield f"{before}{name}", ("true", "false")
        else:
            words = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
            yield f"{before}{name}", tuple(map(str, words))


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
        return installed_in(find_install(context.params.get("install"), os.environ, console.current_folder()))
    except LlmbError:
        return None


# By the names of click's parameters.
COMPLETERS: Mapping[str, Completer] = {
    "settings": _answers,
    "workloads": _workloads,
    "arch": fixed(("x86_64", "aarch64")),
}
