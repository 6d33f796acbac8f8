# SPDX-License-Identifier: Apache-2.0
"""The keys of a YAML job list that stand for switches, and how their text becomes values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from llmb.workload.switches import NOTHING, Switches, absolute_image, parse_clock, parse_mount, rank_ranges


def at_least_one(value: int) -> None:
    """Raise ValueError for less than 1."""
    if value < 1:
        raise ValueError(f"must be 1 or more, not {value}")


def _not_negative(value: int) -> None:
    if value < 0:
        raise ValueError(f"must be 0 or more, not {value}")


def _image(value: str) -> None:
    whole = absolute_image(value)
    if whole != value.strip() and not value.strip().startswith("~"):
        raise ValueError(f"'{value}' is a relative path, and jobs start in folders of their own: write {whole}")


def _mounts(value: tuple[str, ...]) -> None:
    for item in value:
        parse_mount(item)


def _clock(value: str) -> None:
    parse_clock(value)


def _ranks(value: str) -> None:
    rank_ranges(value)


def _absolute(value: str) -> None:
    if not value.startswith("/"):
        raise ValueError(f"must be an absolute path, not '{value}'")


Count = Annotated[int, at_least_one]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchKeys:
    """What a section, a task, ``defaults`` and ``overrides`` may say alike; None where nothing is said."""

    max_steps: Count | None = None
    gbs: Count | None = None
    tokenizer: Literal["null", "hub"] | None = None
    fp8: Literal["delayed", "current"] | None = None
    profile_start: Annotated[int, _not_negative] | None = None
    profile_stop: Count | None = None
    profile_ranks: Annotated[str, _ranks] | None = None
    gpu_metrics: bool | None = None
    nccl_trace: bool | None = None
    save_checkpoint: bool | None = None
    load_checkpoint: Annotated[str, _absolute] | None = None
    vboost: bool | None = None
    image: Annotated[str, _image] | None = None
    mounts: Annotated[tuple[str, ...], _mounts] | None = None
    container_writable: bool | None = None
    time_limit: Annotated[str, _clock] | None = None
    gpus_per_node: Count | None = None


_READERS: dict[str, Callable[[Any], Any]] = {
    "time_limit": parse_clock,
    "mounts": lambda value: tuple(map(parse_mount, value)),
}
_PARAMS = ("max_steps", "gbs")


def switches_of(layers: Sequence[SwitchKeys]) -> Switches:
    """What the layers say together, each over those before it, as values."""
    said = {name: value for name, value in _said(layers).items() if name not in _PARAMS}
    values = {name: _READERS[name](value) if name in _READERS else value for name, value in said.items()}
    return Switches(**values) if values else NOTHING


def params_of(layers: Sequence[SwitchKeys]) -> dict[str, tuple[int, ...]]:
    """The parameters that the layers give by a key of their own."""
    return {name: (value,) for name, value in _said(layers).items() if name in _PARAMS}


def _said(layers: Sequence[SwitchKeys]) -> dict[str, Any]:
    names = [own.name for own in fields(SwitchKeys)]
    return {name: value for layer in layers for name in names if (value := getattr(layer, name)) is not None}
