# SPDX-License-Identifier: Apache-2.0
"""The words of a job in a command of workload.yaml: ``{message_size}``, ``{gpus}``, ``{steps}``."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from llmb.contract.command import Command, Program
from llmb.core.names import suggest
from llmb.core.yamlfile import KeyPath
from llmb.errors import KeyFaultError

if TYPE_CHECKING:
    from llmb.contract.job import Job

#: What every job has. The parameters of the workload have their own names.
OF_JOB = ("size", "dtype", "gpu_type", "gpus", "nodes", "gpus_per_node", "steps")
_WORD = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}")


def check_placeholders(command: Command, parameters: Sequence[str]) -> None:
    """Raise KeyFaultError at the first word in braces that no job has."""
    names = [*parameters, *OF_JOB]
    for path, text in _texts(command):
        for name in _WORD.findall(text):
            if name not in names:
                raise KeyFaultError(
                    f"'{{{name}}}' is nothing that a job has",
                    *path,
                    hint=suggest(name, names),
                    code="placeholder-unknown",
                    value=name,
                )


def _texts(command: Command) -> Iterator[tuple[KeyPath, str]]:
    """Yield the texts that may have placeholders, each with its key path."""
    yield from ((("args", number), text) for number, text in enumerate(command.args))
    yield from ((("environment", name), text) for name, text in command.environment.items())
    yield from _of_program(command.program, "program")
    if command.after is not None:
        yield from _of_program(command.after, "after")
    if command.server is not None:
        yield from _of_program(command.server.program, "server", "program")
        args = command.server.args
        yield from ((("server", "args", number), text) for number, text in enumerate(args))


def _of_program(program: Program, *path: str) -> Iterator[tuple[KeyPath, str]]:
    for name in ("module", "script"):
        if (text := getattr(program, name)) is not None:
            yield (*path, name), text
    yield from (((*path, "argv", number), text) for number, text in enumerate(program.argv))


def filled(command: Command, job: "Job") -> Command:
    """Return the command with the values of ``job`` in the place of the words in braces.

    Lines of bash stay as they are. They get values by their arguments.
    """
    values: Mapping[str, str] = {
        "size": job.model_size,
        "dtype": job.dtype,
        "gpu_type": job.gpu_type,
        "gpus": str(job.scale),
        "nodes": str(job.nodes),
        "gpus_per_node": str(job.gpus_per_node),
        "steps": str(job.max_steps),
        **job.parameters,
    }

    def fill(text: str) -> str:
        return _WORD.sub(lambda match: values.get(match[1], match[0]), text)

    server = command.server
    return replace(
        command,
        program=_filled_program(command.program, fill),
        args=tuple(map(fill, command.args)),
        environment={name: fill(text) for name, text in command.environment.items()},
        after=None if command.after is None else _filled_program(command.after, fill),
        server=None
        if server is None
        else replace(
            server,
            program=_filled_program(server.program, fill),
            args=tuple(map(fill, server.args)),
        ),
    )


def _filled_program(program: Program, fill: Callable[[str], str]) -> Program:
    return replace(
        program,
        module=None if program.module is None else fill(program.module),
        script=None if program.script is None else fill(program.script),
        argv=tuple(map(fill, program.argv)),
    )
