# SPDX-License-Identifier: Apache-2.0
"""The settings of runs in words, as far as they tell those apart that have one title in common. Pure."""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import fields

from llmb.results.configuration import Configuration
from llmb.results.result import Result
from llmb.stats.measure import Window

TITLE = ("workload", "model_size", "dtype", "gpu_type", "scale")  # what every line says of itself
_SAID = {
    "gbs": "batch {}",
    "seq_length": "sequence {}",
    "num_layers": "{} layers",
    "profile": "profiled",
    "saves": "saves a checkpoint",
    "loads": "loads a checkpoint",
    "nccl_trace": "NCCL trace",
    "image": "{}",
    "vboost": "vboost",
    "gpus_per_node": "{} GPUs per node",
}


def settings_of(result: Result, without: Collection[str] = TITLE) -> dict[str, str]:
    """Each setting of a run by its name, in words, its steps and window too; empty where there is nothing to say."""
    own = settings_in_words(result.configuration, without, window=result.window)
    return {"steps": f"{result.steps} steps" if result.steps else "", **own}


def settings_in_words(
    own: Configuration | None, without: Collection[str] = TITLE, *, window: Window | None
) -> dict[str, str]:
    """Each setting by its name, in words, but for those ``without``; variables are ``NAME=value``."""
    said = {"window": "" if window is None else f"window {window}"}
    if own is None:
        return said
    for field in fields(Configuration):
        if field.name not in (*without, "env"):
            said[field.name] = _in_words(field.name, getattr(own, field.name))
    return said | {name: f"{name}={value}" for name, value in sorted(own.env.items())}


def notes(titled: Sequence[tuple[Hashable, Mapping[str, str]]]) -> list[str]:
    """For each title with its settings those that others of the same title do not have all in common."""
    alike = Counter(title for title, _ in titled)
    shared = Counter((title, setting) for title, own in titled for setting in own.items())
    return [
        ", ".join(text for name, text in own.items() if text and shared[title, (name, text)] < alike[title])
        for title, own in titled
    ]


def _in_words(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    return _SAID.get(name, f"{name} {{}}").format(value)
