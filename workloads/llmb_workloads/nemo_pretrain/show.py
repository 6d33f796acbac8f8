# SPDX-License-Identifier: Apache-2.0
"""A NeMo configuration as plain data, for --print and for whoever compares two of them."""

import dataclasses
import inspect
from typing import Any


def plain(value: Any) -> Any:
    """JSON's kinds of value for `value`; a configured call is an object whose `_target_` is what it calls.

    Arguments that nobody set are shown with the defaults that the call would take.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "__fn_or_cls__"):
        return _configured(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"_target_": _name(type(value)), **named}
    return _name(value) if hasattr(value, "__qualname__") else str(value)


def _configured(config: Any) -> dict[str, Any]:
    owner = config.__fn_or_cls__
    parameters = inspect.signature(owner).parameters
    # What has no default is its own class here; what a factory makes is told by its sign alone.
    defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
    arguments = {**defaults, **config.__arguments__}
    return {"_target_": _name(owner), **{name: plain(value) for name, value in arguments.items()}}


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
