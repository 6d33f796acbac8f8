# SPDX-License-Identifier: Apache-2.0
"""Decide which of a framework's settings change what is trained, and by how much. Pure.

The settings of each framework are in model_settings.yaml.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from llmb.contract.model import ModelShape
from llmb.contract.switches import SettingValue
from llmb.core import typed, yamlfile
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError

_FILE = Path(__file__).with_name("model_settings.yaml")
_GBS, _SEQUENCE, _LAYERS, _MODEL = "gbs", "seq_length", "layers", "model"
_GATED = "gated"
# Compared by their values, however they were set, and the name of each in a configuration.
_COMPARED = {_GBS: "gbs", _SEQUENCE: "seq_length", _LAYERS: "num_layers"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Framework:
    """The settings of one framework. Lists have patterns of paths, as of files."""

    #: A path below these changes the model unless it is ``unchanged``.
    sections: tuple[str, ...]
    #: The field of the model's shape, ``gbs`` or ``seq_length``, by path.
    computed: dict[str, str]
    #: ``gbs``, ``seq_length`` or ``model``, which llmb cannot compute with them, by pattern.
    uncomputed: dict[str, str]
    #: They change only the dtype.
    dtype: tuple[str, ...]
    unchanged: tuple[str, ...]


@lru_cache(maxsize=1)
def _frameworks() -> dict[str, _Framework]:
    document = yamlfile.load_packaged(_FILE)
    return {name: typed.read(_Framework, document, (name,)) for name in document.data}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The training of a run with its settings. A field is None if llmb cannot compute it."""

    model: ModelShape | None
    num_layers: int | None
    #: Global batch in samples.
    gbs: int | None
    #: In tokens.
    seq_length: int | None
    #: The settings that change the model or its dtype, without those of batch, sequence and layers
    #: that are computed.
    changes: Mapping[str, SettingValue] = field(default_factory=dict)
    #: The dtype is not the job's any more, so that its peak is unknown.
    other_dtype: bool = False


def trained_with(
    dotted: Mapping[str, SettingValue],
    framework: str | None,
    model: ModelShape | None,
    gbs: int | None,
    seq_length: int | None,
) -> Trained:
    """Return what is trained by ``model``, ``gbs`` and ``seq_length`` with the settings ``dotted``.

    A setting with the value that it has anyway changes nothing.
    """
    layers = None if model is None else model.layers
    trained = Trained(model=model, num_layers=layers, gbs=gbs, seq_length=seq_length)
    known_settings = _frameworks().get(framework or "")
    if not dotted or known_settings is None or (model is None and gbs is None):
        return trained
    values: dict[str, Any] = {}
    changes, other_dtype = dict[str, SettingValue](), False
    for name, value in dotted.items():
        target = known_settings.computed.get(name)
        if target is not None:
            number = _number(value, target)
            if number is None or number != _current(trained, target):
                values[target] = number
            if number is None or (target in values and target not in _COMPARED):
                changes[name] = value if number is None else number
        elif _matches(name, known_settings.dtype):
            changes[name], other_dtype = value, True
        elif (part := _uncomputed(name, known_settings)) is not None:
            changes[name], values[part] = value, None
    return Trained(
        model=None if model is None else _shape(model, values),
        num_layers=values.get(_LAYERS, layers),
        gbs=values.get(_GBS, gbs),
        seq_length=values.get(_SEQUENCE, seq_length),
        changes=changes,
        other_dtype=other_dtype,
    )


def setting_of(
    dotted: Mapping[str, SettingValue], framework: str | None, name: str
) -> tuple[str, SettingValue] | None:
    """Return the last of ``dotted`` that sets the field ``name`` of a configuration, or None."""
    known_settings = _frameworks().get(framework or "")
    if not dotted or known_settings is None:
        return None
    pairs = [
        (path, value)
        for path, value in dotted.items()
        if _COMPARED.get(known_settings.computed.get(path, "")) == name
    ]
    return pairs[-1] if pairs else None


def _uncomputed(name: str, known_settings: _Framework) -> str | None:
    """Return what llmb cannot compute with the setting ``name``, None if it changes none of it."""
    for pattern, part in known_settings.uncomputed.items():
        if fnmatchcase(name, pattern):
            return part
    is_below = any(
        name == section or name.startswith(f"{section}.") for section in known_settings.sections
    )
    setting = name.replace("model.config.", "model.", 1)
    return _MODEL if is_below and not _matches(setting, known_settings.unchanged) else None


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _number(value: SettingValue, target: str) -> int | bool | None:
    """Return the value as the field has it, None if it is no count. Arguments are texts."""
    text = str(value).strip().lower()
    if target == _GATED:
        return {"true": True, "false": False}.get(text)
    return int(text) if text.isascii() and text.isdecimal() and 0 < int(text) < 1 << 31 else None


def _current(trained: Trained, target: str) -> Any:
    if target in (_GBS, _SEQUENCE):
        return getattr(trained, target)
    model = trained.model
    if model is None:
        return None
    if target == "head_dim":
        return model.head_dim or model.hidden // model.heads
    if target == "moe.ffn" and model.moe is not None:
        return model.moe.ffn or model.ffn
    part: object = model
    for name in target.split("."):
        part = getattr(part, name, None)
    return part


def _shape(model: ModelShape, values: Mapping[str, Any]) -> ModelShape | None:
    """Return the shape with the new values, or None if llmb cannot compute with it."""
    changes: dict[str, Any] = {name: value for name, value in values.items() if name != _GBS}
    # With other layers, the letters of a pattern are not known.
    if None in changes.values() or (model.pattern is not None and _LAYERS in changes):
        return None
    try:
        for part in ("moe", "mla"):
            below = {
                name.partition(".")[2]: changes.pop(name)
                for name in tuple(changes)
                if name.startswith(f"{part}.")
            }
            if below and getattr(model, part) is None:
                return None
            if below:
                changes[part] = replace(getattr(model, part), **below)
        return replace(model, **changes)
    except KeyFaultError:
        return None
