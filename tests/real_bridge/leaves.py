# SPDX-License-Identifier: Apache-2.0
"""A configuration of Megatron-Bridge as leaves: a text for each dotted path, so that two of them
can be compared.
"""

import dataclasses
import enum
from collections.abc import Iterator
from typing import Any


def leaves(config: Any) -> dict[str, str]:
    """Every attribute of the configuration and of the objects in it, also those that are no fields
    of their class.
    """
    return {
        path: word
        for path, word in _walk("", config)
        if path != "env_vars" and not path.startswith("env_vars.")
    }


def _walk(path: str, value: Any) -> Iterator[tuple[str, str]]:
    prefix = f"{path}." if path else ""
    if isinstance(value, dict):
        yield path, f"{len(value)} keys"
        for name, item in value.items():
            yield from _walk(f"{prefix}{name}", item)
    elif isinstance(value, (list, tuple)):
        yield path, f"{len(value)} items"
        for number, item in enumerate(value):
            yield from _walk(f"{prefix}{number}", item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield f"{prefix}@", _name(type(value))
        # Some fields are set only when the configuration is checked, and None where they are not
        # used.
        for name in sorted({*vars(value), *(field.name for field in dataclasses.fields(value))}):
            yield from _walk(f"{prefix}{name}", getattr(value, name, None))
    else:
        yield path, _word(value)


def _word(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if hasattr(value, "func") and hasattr(value, "keywords"):  # functools.partial
        return (
            f"partial {_word(value.func)} {[_word(item) for item in value.args]}"
            f" {sorted(value.keywords)}"
        )
    if hasattr(value, "__qualname__"):
        return _name(value)
    shown = str(value)
    return type(value).__qualname__ if " at 0x" in shown else shown


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
