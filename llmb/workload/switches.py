# SPDX-License-Identifier: Apache-2.0
"""A job's switches, which change how it runs, and the names of its parameters."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal

from llmb.system import files

PROFILE_RANKS = "0-7"
_DETAILS = ("profile_start", "profile_stop", "profile_ranks", "gpu_metrics")


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """What is said of a job beside its numbers; None where nothing is said.

    ``strong_scaling``: the global batch stays while the scale grows. ``tokenizer``: NeMo's null tokenizer, or the
    model's own from the hub. ``fp8``: how dtype fp8 scales its tensors. ``profile_start``, ``profile_stop``: the steps
    that Nsight Systems sees, the run ends at the second; ``profile_ranks``: whose, ``0-7`` or ``0,8`` or ``all``.
    ``nccl_trace``: NCCL logs each collective. ``save_checkpoint``: after the last step. ``load_checkpoint``: the folder
    that holds ``weights``, absolute; one step follows. ``vboost``: raise the GPUs' vboost on each node
    first, on Slurm. ``image``, ``mounts`` (``source:target``): beside the workload's. ``container_writable``: whether
    ranks may write into the image's own folders, on Slurm with pyxis. ``time_limit`` in seconds.
    """

    strong_scaling: bool | None = None
    tokenizer: Literal["null", "hub"] | None = None
    fp8: Literal["delayed", "current"] | None = None
    profile_start: int | None = None
    profile_stop: int | None = None
    profile_ranks: str | None = None
    gpu_metrics: bool | None = None
    nccl_trace: bool | None = None
    save_checkpoint: bool | None = None
    load_checkpoint: str | None = None
    vboost: bool | None = None
    image: str | None = None
    mounts: tuple[str, ...] | None = None
    container_writable: bool | None = None
    time_limit: int | None = None
    gpus_per_node: int | None = None

    @property
    def sets_profile(self) -> bool:
        """Whether anything is said that only a profiled job obeys."""
        return any(getattr(self, name) is not None for name in _DETAILS)


NO_SWITCHES = Switches()
NAMES = tuple(own.name for own in fields(Switches))
PROFILE_DETAILS = _DETAILS


def merged(layers: Iterable[Switches]) -> Switches:
    """What the layers say together, each over those before it."""
    said: dict[str, object] = {}
    for layer in layers:
        if layer is not NO_SWITCHES:
            said |= given_switches(layer)
    return Switches(**said) if said else NO_SWITCHES  # type: ignore[arg-type]


def given_switches(switches: Switches) -> dict[str, object]:
    """What is said, by its name."""
    return {name: value for name in NAMES if (value := getattr(switches, name)) is not None}


def rank_ranges(text: str) -> list[tuple[int, int | None]]:
    """The ranks of ``0-7``, ``0,8`` or ``all`` as first and last, None without an end. Raises ValueError."""
    if text.strip() == "all":
        return [(0, None)]
    ranges: list[tuple[int, int | None]] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:\s*-\s*(\d{1,6}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise ValueError(f"'{text}' are not ranks: write 0-7, 0,8,16 or all")
        ranges.append((first, last))
    return ranges


def parse_clock(text: str) -> int:
    """``HH:MM:SS`` in seconds. Raises ValueError."""
    match = re.fullmatch(r"(\d{1,4}):([0-5]?\d):([0-5]?\d)", text.strip())
    seconds = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3]) if match else 0
    if not seconds:
        raise ValueError(f"'{text}' is not a time limit: write HH:MM:SS, as in 00:30:00")
    return seconds


def parse_image(text: str) -> str:
    """A container image: a reference with a registry, a path or a tag, or the path of a .sqsh. Raises ValueError."""
    plain = text.strip()
    is_path = plain.startswith(("/", ".", "~")) or plain.endswith(".sqsh")
    parts = r"(docker://)?[A-Za-z0-9][A-Za-z0-9._-]*(:\d+)?([/#][A-Za-z0-9][A-Za-z0-9._-]*)*(:[\w.-]+)?(@\w+:\w+)?"
    sound = plain.endswith(".sqsh") if is_path else re.search("[/:#@]", plain) and re.fullmatch(parts, plain)
    if not sound:
        raise ValueError(
            f"'{text}' is not an image: write a reference, nvcr.io/nvidia/nemo:25.09, or the path of a .sqsh"
        )
    return plain


def absolute_image(text: str) -> str:
    """As `parse_image`, a path from the current folder: the job starts in another one. Raises ValueError."""
    plain = parse_image(text)
    is_path = plain.startswith((".", "~")) or plain.endswith(".sqsh")
    return str(files.expand(plain).absolute()) if is_path else plain


def parse_mount(text: str) -> str:
    """``/a:/b[:ro]``, or ``/a`` for the same place inside, as pyxis reads it. Raises ValueError."""
    parts = text.strip().split(":")
    whole = parts * 2 if len(parts) == 1 else parts
    if len(whole) > 3 or not all(part.startswith("/") for part in whole[:2]) or "," in text:
        raise ValueError(
            f"'{text}' is not a mount: write /on/the/cluster:/in/the/container, :ro behind it to protect it"
        )
    return ":".join(whole)


PARAMS = ("tp", "pp", "cp", "vp", "mbs", "gbs", "max_steps", "num_layers")

# What `--set` takes beside them, with its words; a switch of the same name, in a job list a key of its own.
CHOICES = {"tokenizer": ("null", "hub"), "fp8": ("delayed", "current")}
