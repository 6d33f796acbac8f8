# SPDX-License-Identifier: Apache-2.0
"""Checks the launch that a plugin returns."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

from llmb.contract.launch import Launch, Program
from llmb.contract.switches import parse_mount
from llmb.errors import KeyFaultError

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MODULE = re.compile(r"[^\s./]+(\.[^\s./]+)*")


def check_launch(launch: Launch, name: str) -> None:
    """Raise KeyFaultError at the first field with a meaningless value.

    ``name`` is the experiment's.
    """
    _check_texts(launch, ())
    if launch.name != name:
        raise KeyFaultError(
            f"'{launch.name}' is not the job's name '{name}'",
            "name",
            hint="name=job.experiment_name",
            code="name-differs",
            value=launch.name,
        )
    for key in ("environment", "secrets"):
        for variable in getattr(launch, key):
            if not _VARIABLE.fullmatch(variable):
                hint = "use letters, digits and _, and no digit first"
                raise _invalid(
                    f"'{variable}' is not a valid name of a variable", key, variable, hint
                )
    for key in ("image", "venv"):
        if (value := getattr(launch, key)) is not None and not value.strip():
            raise _invalid(f"{key} is empty", key, value, f"write {key}=None for none")
    for mount in launch.mounts:
        try:
            parse_mount(mount)
        except ValueError as error:
            raise KeyFaultError(str(error), "mounts", code="value-invalid", value=mount) from error
    for program in launch.programs:
        _check_program(program)
    for staged in launch.files:
        if not staged.name.isprintable():
            message = f"{staged.name!r} has a character that a file's name cannot show"
            raise _invalid(message, "files", staged.name, "choose another name")


def _check_program(program: Program) -> None:
    if program.module is not None and not _MODULE.fullmatch(program.module):
        message = f"'{program.module}' is not the name of a Python module"
        raise _invalid(message, "module", program.module, "as in Program(module='package.module')")
    if program.argv and not program.argv[0].strip():
        raise _invalid(
            "the command is empty", "argv", program.argv, "as in Program(argv=('ls', '-l'))"
        )


def _check_texts(value: object, path: tuple[str, ...]) -> None:
    """Raise KeyFaultError at a text that no file, variable or argument can have.

    ``path`` is the field's, from the top.

    A program's arguments and variables end at a NUL, and half of a surrogate pair is no byte and no
    character.
    """
    if isinstance(value, str):
        invalid_part = (
            "a NUL character"
            if "\0" in value
            else None
            if _can_be_written(value)
            else "half of a surrogate pair"
        )
        if invalid_part is not None:
            raise KeyFaultError(
                f"a text has {invalid_part}",
                *path,
                hint="remove it",
                code="text-invalid",
                value=value,
            )
        return
    for name, part in _parts(value):
        _check_texts(part, (*path, name) if name else path)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield the parts of a value: the fields of a dataclass by name, others without one."""
    if is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
    elif isinstance(value, Mapping):
        yield from (("", item) for pair in value.items() for item in pair)
    elif isinstance(value, tuple):
        yield from (("", item) for item in value)


def _can_be_written(text: str) -> bool:
    try:
        # bytes that are not in UTF-8 come from the user's command line
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _invalid(message: str, field: str, value: object, hint: str) -> KeyFaultError:
    return KeyFaultError(message, field, hint=hint, code="value-invalid", value=value)
