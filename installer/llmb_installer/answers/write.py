# SPDX-License-Identifier: Apache-2.0
"""Writes answers as a file, with only what differs from the defaults."""

import dataclasses
from pathlib import Path
from typing import Any

import yaml

from llmb.config import ClusterConfig
from llmb.text import typed
from llmb_installer.answers.schema import Answers

_DEFAULTS = Answers(cluster_type="local", install=Path())


def to_yaml(answers: Answers) -> str:
    """The text of an answers file: the answers that differ from the defaults."""
    data, defaults = typed.to_data(answers), typed.to_data(_DEFAULTS)
    kept = {"cluster_type", "install", "versions"}
    data["runai"] = lean(answers.runai)
    data |= foreign_section(answers)
    data["gpu_types"] = {name: without_nulls(own) for name, own in data["gpu_types"].items()}
    different = {key: without_nulls(value) for key, value in data.items() if key in kept or value != defaults.get(key)}
    text: str = yaml.safe_dump(different, sort_keys=False, allow_unicode=True)
    return "# SPDX-License-Identifier: Apache-2.0\n# Answers for llmb-install --config.\n" + text


def foreign_section(answers: Answers | ClusterConfig) -> dict[str, Any]:
    """The section of a plugin's cluster type by its key, with only what differs from its defaults."""
    key = answers.of_type.key
    return {key: lean(answers.own_section)} if key is not None and answers.own_section is not None else {}


def lean(value: Any) -> Any:
    """A section as data with only the values that differ from the defaults, at every level."""
    if not dataclasses.is_dataclass(value) or hasattr(value, "unparse"):
        return typed.to_data(value)
    found = {}
    for field in dataclasses.fields(value):
        own = getattr(value, field.name)
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        if own != default:
            found[field.name] = lean(own)
    return found


def without_nulls(value: Any) -> Any:
    """A mapping without its keys that are null or an empty mapping; another value as it is."""
    return value if not isinstance(value, dict) else {k: v for k, v in value.items() if v is not None and v != {}}
