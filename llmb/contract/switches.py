# SPDX-License-Identifier: Apache-2.0
"""A job's switches, which change how it runs, and the parameters of `--set` and `params`."""

import re
from collections.abc import Mapping
from dataclasses import field, fields
from typing import Annotated, Literal, TypeAlias

from llmb.core import files
from llmb.core.values import dataclass

PARAMS = ("tp", "pp", "cp", "vp", "ep", "etp", "mbs", "gbs", "max_steps", "num_layers")
# Switches that `--set` takes, with their values; in a job list each is a key.
CHOICES = {"tokenizer": ("null", "hub"), "fp8": ("delayed", "current")}
#: The value of a setting of the framework, which ``is_dotted`` names.
SettingValue: TypeAlias = bool | int | float | str | None
PROFILE_RANKS = "0-7"
#: Seconds between two reports of a straggler detector, so that a run of 50 steps has some.
REPORT_INTERVAL = 20.0
PROFILE_DETAILS = ("profile_start", "profile_stop", "profile_ranks", "gpu_metrics")


def is_dotted(name: str) -> bool:
    """Return True for a path of the framework's own settings, such as ``optimizer.lr``."""
    return "." in name.strip(".")


def at_least_one(value: int) -> None:
    """Raise ValueError for a number below 1."""
    if value < 1:
        raise ValueError(f"must be 1 or more, not {value}")


def _not_negative(value: int) -> None:
    if value < 0:
        raise ValueError(f"must be 0 or more, not {value}")


def rank_ranges(text: str) -> list[tuple[int, int | None]]:
    """Return first and last ranks of ``0-7``, ``0,8`` or ``all`` (None). Raises ValueError."""
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
    """Return a container image: a reference, or the path of a .sqsh. Raises ValueError.

    A reference has a registry, a path or a tag.
    """
    plain = text.strip()
    is_path = plain.startswith(("/", ".", "~")) or plain.endswith(".sqsh")
    word = "[A-Za-z0-9][A-Za-z0-9._-]*"
    parts = rf"(docker://)?{word}(:\d+)?([/#]{word})*(:[\w.-]+)?(@\w+:\w+)?"
    is_valid = (
        plain.endswith(".sqsh")
        if is_path
        else re.search("[/:#@]", plain) and re.fullmatch(parts, plain)
    )
    if not is_valid:
        raise ValueError(
            f"'{text}' is not an image: write a reference, nvcr.io/nvidia/nemo:25.09, or the path"
            " of a .sqsh"
        )
    if not is_path and (name := _repository(plain)) != name.lower():
        raise ValueError(
            f"'{text}' is not an image: registries have names in lower case, such as {name.lower()}"
        )
    return plain


def _repository(reference: str) -> str:
    """The name of an image's repository, without its registry, tag and digest."""
    named = reference.removeprefix("docker://").partition("@")[0]
    registry, separator, path = named.partition("#" if "#" in named else "/")
    # as docker does: a registry if it looks like a host
    has_registry = separator and (re.search("[.:]", registry) or registry == "localhost")
    return (path if separator == "#" or has_registry else named).partition(":")[0]


def absolute_image(text: str) -> str:
    """As ``parse_image``, with an absolute path: jobs start in other folders. Raises ValueError."""
    plain = parse_image(text)
    is_path = plain.startswith((".", "~")) or plain.endswith(".sqsh")
    return str(files.expand(plain).absolute()) if is_path else plain


def parse_mount(text: str) -> str:
    """Return a mount ``/a:/b[:ro]`` as pyxis reads it. ``/a`` is ``/a:/a``. Raises ValueError."""
    parts = text.strip().split(":")
    whole = parts * 2 if len(parts) == 1 else parts
    if len(whole) > 3 or not all(part.startswith("/") for part in whole[:2]) or "," in text:
        raise ValueError(
            f"'{text}' is not a mount: write /on/the/cluster:/in/the/container, with :ro for"
            " read-only"
        )
    return ":".join(whole)


def _listed_image(value: str) -> None:
    whole = absolute_image(value)
    if whole != value.strip() and not value.strip().startswith("~"):
        raise ValueError(
            f"'{value}' is a relative path, but jobs start in other folders: write {whole}"
        )


def _mounts(value: tuple[str, ...]) -> None:
    for item in value:
        parse_mount(item)


def _absolute(value: str) -> None:
    if not value.startswith("/"):
        raise ValueError(f"must be an absolute path, not '{value}'")


Count = Annotated[int, at_least_one]
#: Of a switch that repeats have in common. The others change how a run is observed.
OF_REPEATS: Mapping[str, bool] = {"compared": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """The switches of a job, as a YAML job list has them. A switch that is not set is None."""

    #: The global batch stays the same at every scale.
    strong_scaling: bool | None = None
    #: NeMo's null tokenizer, or the model's own from the hub.
    tokenizer: Literal["null", "hub"] | None = field(default=None, metadata=OF_REPEATS)
    #: How dtype fp8 scales its tensors.
    fp8: Literal["delayed", "current"] | None = field(default=None, metadata=OF_REPEATS)
    #: The first step that is profiled.
    profile_start: Annotated[int, _not_negative] | None = None
    #: The last one, after which the run ends.
    profile_stop: Count | None = None
    #: ``0-7``, ``0,8`` or ``all``.
    profile_ranks: Annotated[str, rank_ranges] | None = None
    gpu_metrics: bool | None = None
    #: NCCL logs each collective.
    nccl_trace: bool | None = field(default=None, metadata=OF_REPEATS)
    #: The training program measures each rank and prints the slow ones.
    stragglers: bool | None = field(default=None, metadata=OF_REPEATS)
    #: After the last step.
    save_checkpoint: bool | None = None
    #: The absolute folder that contains ``weights``. The run has one step.
    load_checkpoint: Annotated[str, _absolute] | None = None
    #: Raise the GPUs' vboost on each node first, on Slurm.
    vboost: bool | None = field(default=None, metadata=OF_REPEATS)
    #: Sample the GPUs of each node during the run.
    telemetry: bool | None = None
    #: Overrides the workload's.
    image: Annotated[str, _listed_image] | None = field(default=None, metadata=OF_REPEATS)
    #: ``source:target``, in addition to the workload's.
    mounts: Annotated[tuple[str, ...], _mounts] | None = None
    #: Ranks may write into the image's own folders, on Slurm with pyxis.
    container_writable: bool | None = None
    #: HH:MM:SS.
    time_limit: Annotated[str, parse_clock] | None = None
    gpus_per_node: Count | None = field(default=None, metadata=OF_REPEATS)

    @property
    def sets_profile(self) -> bool:
        """Return True if a switch is set that only a profiled job uses."""
        return any(getattr(self, name) is not None for name in PROFILE_DETAILS)


NO_SWITCHES = Switches()
NAMES = tuple(own.name for own in fields(Switches))


def given_switches(switches: Switches) -> dict[str, object]:
    """The switches that are set, by name."""
    return {name: value for name in NAMES if (value := getattr(switches, name)) is not None}
