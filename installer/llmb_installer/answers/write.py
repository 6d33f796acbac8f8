# SPDX-License-Identifier: Apache-2.0
"""Writes answers as a file, with only what differs from the defaults."""

import dataclasses
from pathlib import Path
from typing import Any

import yaml

from llmb.config import ClusterConfig
from llmb.config.own_types import own_types
from llmb.text import typed
from llmb_installer.answers.schema import Answers

_DEFAULTS = Answers(cluster_type="local", install=Path())


def to_yaml(answers: Answers) -> str:
    """The text of an answers file: the answers that differ from the defaults."""
    data, defaults = typed.to_data(answers), typed.to_data(_DEFAULTS)
    kept = {"cluster_type", "install", "versions"}
    data |= sections_of(answers)
    data["gpu_types"] = {name: without_nulls(own) for name, own in data["gpu_types"].items()}
    different = {key: without_nulls(value) for key, value in data.items() if key in kept or value != defaults.get(key)}
    text: str = yaml.safe_dump(different, sort_keys=False, allow_unicode=True)
    return "# SPDX-License-Identifier: Apache-2.0\n# Answers for llmb-install --config.\n" + text


def sections_of(given: Answers | ClusterConfig) -> dict[str, Any]:
    """The sections of cluster types by their keys, as the types want them written; without those that are unset."""
    kinds = {kind.key: kind for kind in own_types().values() if kind.key is not None}
    found = {key: (kind, getattr(given, key)) for key, kind in kinds.items()}
    if (key := given.of_type.key) is not None and key not in found:
        found[key] = given.of_type, given.own_section
    data = {
        key: without_nulls(typed.to_data(own)) if kind.writes_defaults else _lean(own)
        for key, (kind, own) in found.items()
        if own is not None
    }
    return {key: own for key, own in data.items() if own != {} or key not in kinds}


def _lean(value: Any) -> Any:
    """A section as data with only the values that differ from the defaults, at every level."""
    if not dataclasses.is_dataclass(value) or hasattr(value, "unparse"):
        return typed.to_data(value)
    found = {}
    for field in dataclasses.fields(value):
        own = getattr(value, field.name)
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        if own != default:
            found[field.name] = _lean(own)
    return found


def without_nulls(value: Any) -> Any:
    """A mapping without its keys that are null or an empty mapping; another value as it is."""
    return value if not isinstance(value, dict) else {k: v for k, v in value.items() if v is not None and v != {}}
