# SPDX-License-Identifier: Apache-2.0
"""A NeMo configuration as leaves, a value for each path of names, so that two configurations can be
compared.
"""

import enum
import re
from collections.abc import Iterator
from typing import Any

from llmb_workloads.library import plain

TARGET = "_target_"
TWICE = ("model_config", "data_config")  # FLOPsMeasurementCallback has model and data again


def leaves(partial: Any) -> dict[str, Any]:
    """The leaves of a recipe. Callbacks are named by class, because their order differs; a
    tokenizer is one leaf.
    """
    shown = plain(partial)
    trainer = shown["trainer"]
    callbacks = {callback[TARGET].rpartition(".")[2]: callback for callback in trainer["callbacks"]}
    assert len(callbacks) == len(trainer["callbacks"])
    flops = callbacks["FLOPsMeasurementCallback"]
    for name, original in zip(TWICE, (shown["model"]["config"], shown["data"]), strict=True):
        if flops[name] == original:
            flops[name] = "the run's own"
    shown["trainer"] = {**trainer, "callbacks": callbacks}
    return dict(_walk("", shown))


def _walk(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if path.rpartition(".")[2] == "tokenizer" and isinstance(value, dict):
        yield path, _call(value)
    elif isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _walk(f"{path}.{name}" if path else name, item)
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from _walk(f"{path}.{number}", item)
    else:
        yield path, _word(value)


def _call(value: dict[str, Any]) -> str:
    """A configured call as text, with the arguments that affect the vocabulary."""
    shown = ("library", "model_name", "vocab_size", "pretrained_model_name")
    arguments = ", ".join(
        f"{name}={value[name]!r}" for name in shown if value.get(name) is not None
    )
    return f"{value[TARGET].rpartition('.')[2]}({arguments})"


def _word(value: Any) -> Any:
    """``value``, or the name of an enumeration's member, because scripts may use either."""
    if isinstance(value, enum.Enum):
        return value.name
    member = re.fullmatch(r"AttnBackend\.(\w+)", value) if isinstance(value, str) else None
    return member[1] if member is not None else value
