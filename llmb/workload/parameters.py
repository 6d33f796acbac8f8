# SPDX-License-Identifier: Apache-2.0
"""Parameters that a workload declares: what a job list, ``--set`` and the experiment's name call them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from llmb.errors import KeyFaultError
from llmb.text.names import suggest
from llmb.workload.switches import NAMES, PARAMS

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")  # it becomes part of the names of folders and jobs


def _check_value(value: str, *path: str | int) -> None:
    if not _VALUE.fullmatch(value):
        message = f"'{value}' must consist of letters, digits and . _ + -"
        hint = "it becomes part of the names of folders and jobs"
        raise KeyFaultError(message, *path, hint=hint, code="value-invalid", value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter: its ``default``, and the ``choices`` that a job may have (empty: any word). Values are text."""

    default: str
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_value(self.default, "default")
        for number, choice in enumerate(self.choices):
            _check_value(choice, "choices", number)
        if self.choices and self.default not in self.choices:
            hint = suggest(self.default, self.choices)
            message = f"'{self.default}' is not one of the choices"
            raise KeyFaultError(message, "default", hint=hint, code="value-not-allowed", value=self.default)

    def check(self, value: str) -> None:
        """Raise KeyFaultError for a value that a job may not have."""
        if self.choices and value not in self.choices:
            message, hint = f"'{value}' is not one of its choices", suggest(value, self.choices)
            raise KeyFaultError(message, hint=hint, code="value-not-allowed", value=value)
        _check_value(value)


def check_parameters(names: Iterable[str]) -> None:
    """Raise KeyFaultError for the first name that is not valid, or that llmb uses itself."""
    for name in names:
        if not _NAME.fullmatch(name):
            message = f"'{name}' must begin with a letter, then letters, digits and _"
            raise KeyFaultError(message, name, hint="as in message_size", code="name-invalid", value=name)
        if name in (*PARAMS, *NAMES):
            message = f"'{name}' is a setting of llmb"
            raise KeyFaultError(message, name, hint="choose another name", code="name-reserved", value=name)


def values_of(parameters: Mapping[str, Parameter], given: Mapping[str, str]) -> dict[str, str]:
    """Every parameter with its value: the given one, else its default."""
    return {name: given.get(name, own.default) for name, own in parameters.items()}
