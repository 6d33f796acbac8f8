# SPDX-License-Identifier: Apache-2.0
"""The settings of a configuration as phrases, and which of them distinguish rows of the same title."""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import fields

from llmb.results.configuration import USUAL_FRAMEWORK, Configuration
from llmb.stats.window import Window

TITLE = ("workload", "model_size", "dtype", "gpu_type", "scale")  # what every row shows of itself
_SETTINGS = {
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
    "framework": "{}",
    "rows_of": "rows of {}",
}


def parameters_in_words(parameters: Mapping[str, str]) -> str:
    """``message_size=16M algorithm=ring``."""
    return " ".join(f"{name}={value}" for name, value in sorted(parameters.items()))


def settings_of(
    own: Configuration | None,
    *,
    window: Window | None,
    steps: int | None = None,
    without: Collection[str] = TITLE,
) -> dict[str, str]:
    """Each setting by its name, as a phrase that is empty where it is usual; variables are ``NAME=value``."""
    found = {"steps": f"{steps} steps" if steps else "", "window": "" if window is None else f"window {window}"}
    if own is None:
        return found
    for setting in fields(Configuration):
        if setting.name not in (*without, "env", "parameters", "dotted"):
            value = getattr(own, setting.name)
            text = _SETTINGS.get(setting.name, f"{setting.name} {{}}")
            found[setting.name] = "" if value in (None, False, USUAL_FRAMEWORK) else text.format(value)
    named = {**({} if "parameters" in without else own.parameters), **own.dotted, **own.env}
    return found | {name: f"{name}={value}" for name, value in sorted(named.items())}


def distinguishing(titled: Sequence[tuple[Hashable, Mapping[str, str]]]) -> list[str]:
    """For each title with its settings: those that not all rows of the same title have in common."""
    alike = Counter(title for title, _ in titled)
    shared = Counter((title, setting) for title, own in titled for setting in own.items())
    return [
        ", ".join(text for name, text in own.items() if text and shared[title, (name, text)] < alike[title])
        for title, own in titled
    ]
