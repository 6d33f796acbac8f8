# SPDX-License-Identifier: Apache-2.0
"""Checks the values of a launch that a hook returned: what the run's record and its job cannot have.

The constructors check types and names in the run's folder. These checks are apart from them, because records of runs
that an earlier release accepted stay readable.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePosixPath

from llmb.errors import KeyFaultError
from llmb.runs.launch import Launch, Program
from llmb.workload.switches import parse_mount

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_FILES = frozenset({"reader.json"})  # that earlier releases did not use, so that their records may have them
_MODULE = re.compile(r"[^\s./]+(\.[^\s./]+)*")


def check_launch(launch: Launch, name: str) -> None:
    """Raise KeyFaultError at the first field that has a value without a meaning; ``name``: the experiment's."""
    _check_texts(launch, ())
    if launch.name != name:
        message, hint = f"'{launch.name}' is not the job's name '{name}'", "name=job.experiment_name"
        raise KeyFaultError(message, "name", hint=hint, code="name-differs", value=launch.name)
    for field in ("environment", "secrets"):
        for variable in getattr(launch, field):
            if not _VARIABLE.fullmatch(variable):
                hint = "use letters, digits and _, and no digit first"
                raise _invalid(f"'{variable}' is not a valid name of a variable", field, variable, hint)
    for field in ("image", "venv"):
        if (given := getattr(launch, field)) is not None and not given.strip():
            raise _invalid(f"{field} is empty", field, given, f"write {field}=None for none")
    for mount in launch.mounts:
        try:
            parse_mount(mount)
        except ValueError as error:
            raise KeyFaultError(str(error), "mounts", code="value-invalid", value=mount) from error
    for program in launch.programs:
        _check_program(program)
    for staged in launch.files:
        if str(PurePosixPath(staged.name)) in _OWN_FILES:
            message, hint = f"'{staged.name}' is a name that llmb uses in the run's folder", "choose another name"
            raise KeyFaultError(message, "files", hint=hint, code="file-reserved", value=staged.name)
        if not staged.name.isprintable():
            message = f"{staged.name!r} has a character that a file's name cannot show"
            raise _invalid(message, "files", staged.name, "choose another name")


def _check_program(program: Program) -> None:
    if program.module is not None and not _MODULE.fullmatch(program.module):
        message = f"'{program.module}' is not the name of a Python module"
        raise _invalid(message, "module", program.module, "as in Program(module='package.module')")
    if program.argv and not program.argv[0].strip():
        raise _invalid("the command is empty", "argv", program.argv, "as in Program(argv=('ls', '-l'))")


def _check_texts(value: object, path: tuple[str, ...]) -> None:
    """Raise KeyFaultError at a text that no file, variable or argument can have; ``path``: the field's, from the top.

    A program's arguments and variables end at a NUL, and half of a surrogate pair is no byte and no character.
    """
    if isinstance(value, str):
        wrong = "a NUL character" if "\0" in value else None if _can_be_written(value) else "half of a surrogate pair"
        if wrong is not None:
            raise KeyFaultError(f"a text has {wrong}", *path, hint="remove it", code="text-invalid", value=value)
        return
    for name, one in _parts(value):
        _check_texts(one, (*path, name) if name else path)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """The fields of a dataclass by name; the items of a tuple, and names and values of a mapping, without one."""
    if is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
    elif isinstance(value, Mapping):
        yield from (("", one) for pair in value.items() for one in pair)
    elif isinstance(value, tuple):
        yield from (("", one) for one in value)


def _can_be_written(text: str) -> bool:
    try:
        text.encode("utf-8", "surrogateescape")  # bytes that are not in UTF-8 come from the user's command line
    except UnicodeEncodeError:
        return False
    return True


def _invalid(message: str, field: str, value: object, hint: str) -> KeyFaultError:
    return KeyFaultError(message, field, hint=hint, code="value-invalid", value=value)
