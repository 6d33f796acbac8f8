# SPDX-License-Identifier: Apache-2.0
"""A job's switches, which change how it runs, and the parameters that `--set` and a job list's `params` change."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Annotated, Literal

from llmb.system import files

PARAMS = ("tp", "pp", "cp", "vp", "ep", "etp", "mbs", "gbs", "max_steps", "num_layers")
# Switches that `--set` takes, with their values; in a job list each is a key.
CHOICES = {"tokenizer": ("null", "hub"), "fp8": ("delayed", "current")}
PROFILE_RANKS = "0-7"
PROFILE_DETAILS = ("profile_start", "profile_stop", "profile_ranks", "gpu_metrics")


def is_dotted(name: str) -> bool:
    """Whether ``name`` is a path of the framework's own settings, as ``optimizer.lr``."""
    return "." in name.strip(".")


def at_least_one(value: int) -> None:
    """Raise ValueError for a number below 1."""
    if value < 1:
        raise ValueError(f"must be 1 or more, not {value}")


def _not_negative(value: int) -> None:
    if value < 0:
        raise ValueError(f"must be 0 or more, not {value}")


def rank_ranges(text: str) -> list[tuple[int, int | None]]:
    """``0-7``, ``0,8`` or ``all`` as first and last ranks, None for an open end. Raises ValueError."""
    if text.strip() == "all":
        return [(0, None)]
    ranges: list[tuple[int, int | None]] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:\s*-\s*(\d{1,6}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise ValueError(f"'{text}' is not a list of ranks: write 0-7, 0,8,16 or all")
        ranges.append((first, last))
    return ranges


def parse_clock(text: str) -> int:
    """``HH:MM:SS`` in seconds. Raises ValueError."""
    match = re.fullmatch(r"(\d{1,6}):([0-5]?\d):([0-5]?\d)", text.strip())
    seconds = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3]) if match else 0
    if not seconds:
        raise ValueError(f"'{text}' is not a time limit: write HH:MM:SS, as in 00:30:00")
    return seconds


def parse_image(text: str) -> str:
    """A container image: a reference with a registry, path or tag, or the path of a .sqsh. Raises ValueError."""
    plain = text.strip()
    is_path = plain.startswith(("/", ".", "~")) or plain.endswith(".sqsh")
    parts = r"(docker://)?[A-Za-z0-9][A-Za-z0-9._-]*(:\d+)?([/#][A-Za-z0-9][A-Za-z0-9._-]*)*(:[\w.-]+)?(@\w+:\w+)?"
    is_valid = plain.endswith(".sqsh") if is_path else re.search("[/:#@]", plain) and re.fullmatch(parts, plain)
    if not is_valid:
        raise ValueError(
            f"'{text}' is not an image: write a reference, nvcr.io/nvidia/nemo:25.09, or the path of a .sqsh"
        )
    return plain


def absolute_image(text: str) -> str:
    """As ``parse_image``, with a relative path made absolute: jobs start in other folders. Raises ValueError."""
    plain = parse_image(text)
    is_path = plain.startswith((".", "~")) or plain.endswith(".sqsh")
    return str(files.expand(plain).absolute()) if is_path else plain


def parse_mount(text: str) -> str:
    """``/a:/b[:ro]``, or ``/a`` for the same path in the container, as pyxis reads it. Raises ValueError."""
    parts = text.strip().split(":")
    whole = parts * 2 if len(parts) == 1 else parts
    if len(whole) > 3 or not all(part.startswith("/") for part in whole[:2]) or "," in text:
        raise ValueError(f"'{text}' is not a mount: write /on/the/cluster:/in/the/container, with :ro for read-only")
    return ":".join(whole)


def _listed_image(value: str) -> None:
    whole = absolute_image(value)
    if whole != value.strip() and not value.strip().startswith("~"):
        raise ValueError(f"'{value}' is a relative path, but jobs start in other folders: write {whole}")


def _mounts(value: tuple[str, ...]) -> None:
    for item in value:
        parse_mount(item)


def _absolute(value: str) -> None:
    if not value.startswith("/"):
        raise ValueError(f"must be an absolute path, not '{value}'")


Count = Annotated[int, at_least_one]


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """The switches of a job, as a YAML job list has them; None where a switch is not set.

    ``strong_scaling``: the global batch stays the same at every scale. ``tokenizer``: NeMo's null tokenizer, or the
    model's own from the hub. ``fp8``: how dtype fp8 scales its tensors. ``profile_start``, ``profile_stop``: the steps
    that are profiled, the run ends after the second; ``profile_ranks``: ``0-7``, ``0,8`` or ``all``. ``nccl_trace``:
    NCCL logs each collective. ``save_checkpoint``: after the last step. ``load_checkpoint``: the absolute folder that
    contains ``weights``; the run has one step. ``vboost``: raise the GPUs' vboost on each node first, on Slurm.
    ``image``, ``mounts`` (``source:target``): override or extend the workload's. ``container_writable``: whether ranks
    may write into the image's own folders, on Slurm with pyxis. ``time_limit``: HH:MM:SS.
    """

    strong_scaling: bool | None = None
    tokenizer: Literal["null", "hub"] | None = None
    fp8: Literal["delayed", "current"] | None = None
    profile_start: Annotated[int, _not_negative] | None = None
    profile_stop: Count | None = None
    profile_ranks: Annotated[str, rank_ranges] | None = None
    gpu_metrics: bool | None = None
    nccl_trace: bool | None = None
    save_checkpoint: bool | None = None
    load_checkpoint: Annotated[str, _absolute] | None = None
    vboost: bool | None = None
    image: Annotated[str, _listed_image] | None = None
    mounts: Annotated[tuple[str, ...], _mounts] | None = None
    container_writable: bool | None = None
    time_limit: Annotated[str, parse_clock] | None = None
    gpus_per_node: Count | None = None

    @property
    def sets_profile(self) -> bool:
        """Whether a switch is set that only a profiled job uses."""
        return any(getattr(self, name) is not None for name in PROFILE_DETAILS)


NO_SWITCHES = Switches()
NAMES = tuple(own.name for own in fields(Switches))


def merged(layers: Iterable[Switches]) -> Switches:
    """The switches of several layers; a later layer overrides those before it."""
    values: dict[str, object] = {}
    for layer in layers:
        if layer is not NO_SWITCHES:
            values |= given_switches(layer)
    return Switches(**values) if values else NO_SWITCHES  # type: ignore[arg-type]


def given_switches(switches: Switches) -> dict[str, object]:
    """The switches that are set, by name."""
    return {name: value for name in NAMES if (value := getattr(switches, name)) is not None}
