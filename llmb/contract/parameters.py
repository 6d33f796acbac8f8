# SPDX-License-Identifier: Apache-2.0
"""Parameters that a workload declares, in job lists, ``--set`` and names of experiments."""

import re
from collections.abc import Mapping

from llmb.contract.switches import NAMES, PARAMS
from llmb.core.names import suggest
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# it becomes part of the names of folders and jobs
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
_CHOICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_RESERVED = {
    *PARAMS,
    *NAMES,
    "workload",
    "model_size",
    "dtype",
    "gpu_type",
    "scale",
    "gpus",
    "layers",
}
_RESERVED |= {
    "steps",
    "framework",
    "release",
    "bridge",
    "profile",
    "nsys",
    "nccltrace",
    "stragglers",
    "repeats",
    "env",
    "params",
}
# A word of an experiment's name that is a setting of llmb.
_SETTING = re.compile(
    r"(?:gpus|tp|pp|cp|vp|ep|etp|mbs|gbs|layers|steps)\d+|[tpcv]pnone|bridge\d[\d.]*"
    r"|nsys|profiled?|nccltrace|stragglers|load|hub|fp8current",
    re.IGNORECASE,
)

# The words of an experiment's name before those of parameters.
_BEFORE = re.compile(
    r"(?:_gpus\d+)?(?:_(?:tp|pp|cp|vp|ep|etp|mbs|gbs)(?:\d+|none)(?=_|$))*", re.IGNORECASE
)


def _check_value(value: str, *path: str | int, is_choice: bool = False) -> None:
    if not (_CHOICE if is_choice else _VALUE).fullmatch(value):
        kinds = "letters, digits and . _ + -" if is_choice else "letters, digits and . + -"
        message = f"'{value}' must begin with a letter or digit, and consist of {kinds}"
        hint = "it becomes part of the names of folders and jobs"
        hint += (
            ""
            if is_choice or "_" not in value
            else ", where _ separates words; only 'choices' may have it"
        )
        raise KeyFaultError(message, *path, hint=hint, code="value-invalid", value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter, whose values are text."""

    default: str
    #: The values that a job may have; empty: any word.
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_value(self.default, "default", is_choice=bool(self.choices))
        for number, choice in enumerate(self.choices):
            _check_value(choice, "choices", number, is_choice=True)
        if self.choices and self.default not in self.choices:
            hint = suggest(self.default, self.choices)
            message = f"'{self.default}' is not one of the choices"
            raise KeyFaultError(
                message, "default", hint=hint, code="value-not-allowed", value=self.default
            )

    def check(self, value: str, name: str = "") -> None:
        """Raise KeyFaultError for a value that a job may not give the parameter ``name``."""
        if self.choices and value not in self.choices:
            # 128 and 512 are alike as words only; 8g and 8G are the same.
            hint = suggest(value, self.choices, likeness=1.0 if value[:1].isdigit() else 0.5)
            message = f"'{value}' is not one of its choices"
            raise KeyFaultError(message, hint=hint, code="value-not-allowed", value=value)
        _check_value(value, is_choice=bool(self.choices))
        if name:
            _check_word(name, value)


def _check_word(name: str, value: str, *path: str | int) -> None:
    """Raise KeyFaultError if a parameter and its value are a setting of llmb in a name."""
    if _SETTING.fullmatch(f"{name}{value}"):
        message = f"'{name}{value}' in the name of an experiment is a setting of llmb"
        hint = "choose another name or value"
        raise KeyFaultError(message, *path, hint=hint, code="value-reserved", value=value)


def check_parameters(parameters: Mapping[str, Parameter]) -> None:
    """Raise KeyFaultError for the first name that is invalid, there twice, or llmb's own."""
    spellings: dict[str, str] = {}
    for name, parameter in parameters.items():
        if not _NAME.fullmatch(name):
            message = f"'{name}' must begin with a letter, then letters, digits and _"
            raise KeyFaultError(
                message, name, hint="as in message_size", code="name-invalid", value=name
            )
        if name.lower() in _RESERVED:
            message = f"'{name}' is a setting of llmb"
            raise KeyFaultError(
                message, name, hint="choose another name", code="name-reserved", value=name
            )
        if (first := spellings.setdefault(name.lower(), name)) != name:
            message = f"'{name}' differs from '{first}' only in upper and lower case"
            raise KeyFaultError(message, name, hint="rename one", code="name-duplicate", value=name)
        for path, value in (
            ("default", parameter.default),
            *(("choices", choice) for choice in parameter.choices),
        ):
            _check_word(name, value, name, path)


def in_name(text: str, parameters: Mapping[str, Parameter]) -> tuple[dict[str, str], str]:
    """Return the values of ``parameters`` in an experiment's name, and the rest of it.

    As in ``_message_size16M_algorithmring``. ``text``: the name behind the dtype. All in their
    order, as llmb writes them, else those that are found.
    """
    before = _BEFORE.match(text)
    at = before.end() if before is not None else 0
    begin, text = text[:at], text[at:]
    whole = _match("".join(_word(name, parameter) for name, parameter in parameters.items()), text)
    if whole is not None:
        return _values(whole, parameters), begin + text[: whole.start()] + text[whole.end() :]
    values: dict[str, str] = {}
    for name in sorted(parameters, key=lambda name: (-len(name), name)):
        if (match := _match(_word(name, parameters[name]), text)) is not None:
            values |= _values(match, {name: parameters[name]})
            text = text[: match.start()] + text[match.end() :]
    return {name: values[name] for name in parameters if name in values}, begin + text


def _word(name: str, parameter: Parameter) -> str:
    longest = sorted(parameter.choices, key=lambda choice: (-len(choice), choice))
    value = "|".join(map(re.escape, longest)) or _VALUE.pattern
    return rf"_{re.escape(name)}(?P<{name}>{value})(?=_|$)"


def _match(pattern: str, text: str) -> re.Match[str] | None:
    return re.search(pattern, text, re.IGNORECASE) if pattern else None


def _values(match: re.Match[str], parameters: Mapping[str, Parameter]) -> dict[str, str]:
    """The values, a choice as it is declared, whatever the case of the name."""
    values: dict[str, str] = {}
    for name, parameter in parameters.items():
        by_case = {choice.lower(): choice for choice in parameter.choices} | {
            choice: choice for choice in parameter.choices
        }
        values[name] = by_case.get(match[name], by_case.get(match[name].lower(), match[name]))
    return values


def unsaid(parameters: Mapping[str, Parameter], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the parameters without a value that may have several."""
    return tuple(
        name
        for name, parameter in parameters.items()
        if name not in values and len(parameter.choices) != 1
    )


def values_of(parameters: Mapping[str, Parameter], values: Mapping[str, str]) -> dict[str, str]:
    """Return the value of every parameter: the given one, else its default."""
    return {name: values.get(name, parameter.default) for name, parameter in parameters.items()}
