# SPDX-License-Identifier: Apache-2.0
"""The effect of switches on a job's steps, time limit and name, and the switches it may have."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llmb.contract import switches as sw
from llmb.contract.rows import ProfileWindow
from llmb.contract.settings import Settings
from llmb.contract.spec import Checkpoint, Size, Workload
from llmb.contract.switches import Switches
from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.plan import published

PROFILE_STEPS = 5  # where no release names others
# in a profiled run's name: as in release 25.04, and without Nsight Systems
NSYS, PROFILED = "nsys", "profile"
TRACE_STEPS = 5
TRACE_LIMIT = 15 * 60  # seconds
TRACE_VARIABLES: Mapping[str, str] = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "COLL,P2P,NET"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """The consequences of the switches of a job."""

    max_steps: int
    #: In seconds, None if not set.
    time_limit: int | None
    words: tuple[str, ...]
    switches: Switches


def profile_window(
    workload: Workload, size: Size, release: str | None, steps: int
) -> ProfileWindow | None:
    """Return the steps that ``release`` or else the newest profiles, None if out of ``steps``."""
    if size.nemo is None or not workload.profiles:
        return None
    newest = max(workload.profiles, key=published.release_order)
    window = workload.profiles.get(release or newest, workload.profiles[newest])
    return window if window.stop <= steps else None


def mode_of(
    settings: Settings,
    *,
    default_steps: int,
    window: ProfileWindow | None = None,
    profiler: str = PROFILED,
) -> Mode:
    """Return the mode of a job. Raises UsageError for a contradiction.

    ``window``: the steps that its release
    profiles. ``profiler``: the word for a profiled run's name. A job that is not profiled ignores
    the switches of profiles: a list may profile only some of its jobs.
    """
    profile, given_steps = settings.profile, settings.max_steps
    traced, loads = bool(settings.nccl_trace), settings.load_checkpoint is not None
    _check_combination(settings)
    steps = 1 if loads else given_steps or (TRACE_STEPS if traced else default_steps)
    if profile:
        settings = _with_profile(settings, default_steps, window)
        steps = settings.profile_stop or steps
    limit = sw.parse_clock(settings.time_limit) if settings.time_limit else None
    usual = window.stop if window is not None else default_steps
    named = given_steps is not None or (profile and steps != usual)
    words = {  # in the experiment's name; saving a checkpoint has none, as in the releases
        f"steps{steps}": named and not loads,
        f"fp8{settings.fp8}": settings.fp8 == "current",
        "hub": settings.tokenizer == "hub",
        "nccltrace": traced,
        "stragglers": bool(settings.stragglers),
        "load": loads,
        profiler: profile,
    }
    given: dict[str, Any] = sw.given_switches(settings)
    if given:
        given |= dict.fromkeys(("image", "time_limit", "gpus_per_node"))  # fields of the job itself
        given |= {} if profile else dict.fromkeys(sw.PROFILE_DETAILS)
        given["strong_scaling"] = settings.strong_scaling or None
        if settings.mounts is not None:
            given["mounts"] = tuple(map(sw.parse_mount, settings.mounts))
    return Mode(
        max_steps=steps,
        time_limit=limit or (TRACE_LIMIT if traced else None),
        words=tuple(word for word in words if words[word]),
        switches=sw.Switches(**given) if given else sw.NO_SWITCHES,
    )


def _check_combination(settings: Settings) -> None:
    """Raise UsageError for settings that contradict each other."""
    loads, given_steps = settings.load_checkpoint is not None, settings.max_steps
    if settings.nccl_trace and settings.profile:
        message = "a profile and an NCCL trace slow each other down"
        raise _refused(
            "profile-and-trace", "profile nccl_trace", message, "submit one run for each"
        )
    if settings.stragglers and settings.profile:
        raise _refused(
            "profile-and-stragglers",
            "profile stragglers",
            "a profiler and a straggler detector both need the GPUs' CUPTI",
            "submit one run for each",
        )
    if loads and settings.profile:
        message = "a run that loads a checkpoint has one step, too few for a profile"
        raise _refused(
            "profile-and-load", "profile load_checkpoint", message, "submit one run for each"
        )
    if loads and given_steps not in (None, 1):
        message = f"a run that loads a checkpoint has one step, not {given_steps}"
        raise _refused("load-steps", "load_checkpoint max_steps", message, "omit max_steps")


def _refused(
    code: str, key: str, message: str, hint: str | None, value: object = None
) -> UsageError:
    """Return the error ``code``. ``key`` names its parameters and switches with blanks."""
    return UsageError(message, hint=hint, code=code, key=key, value=value)


def _with_profile(settings: Settings, default_steps: int, window: ProfileWindow | None) -> Settings:
    """Return the settings with the profiled steps: the release's, else the last ones."""
    given_steps = settings.max_steps
    usual = window or ProfileWindow(start=max(0, default_steps - PROFILE_STEPS), stop=default_steps)
    stop = settings.profile_stop or given_steps or usual.stop
    if given_steps is not None and stop != given_steps:
        message = f"a profiled run ends at its last profiled step {stop}, not at step {given_steps}"
        hint = f"omit max_steps, or profile to step {given_steps}"
        raise _refused("profile-end", "profile_stop max_steps", message, hint, stop)
    keeps_start = settings.profile_stop is not None and stop > usual.start
    from_end = usual.start if keeps_start else max(0, stop - (usual.stop - usual.start))
    start = from_end if settings.profile_start is None else settings.profile_start
    if start >= stop:
        message = f"a profile from step {start} to step {stop} has no steps"
        raise _refused(
            "profile-empty", "profile_start profile_stop", message, "start before the stop", start
        )
    ranks = settings.profile_ranks or sw.PROFILE_RANKS
    try:
        sw.rank_ranges(ranks)
    except ValueError as error:
        raise _refused(
            "ranks-invalid", "profile_ranks", f"profile_ranks: {error}", None, ranks
        ) from error
    return replace(settings, profile_start=start, profile_stop=stop, profile_ranks=ranks)


def check_model(settings: Settings, size: Size) -> None:
    """Raise UsageError for a switch that this size or dtype does not support."""
    label = settings.label
    if settings.fp8 is not None and settings.dtype != "fp8":
        message = f"{label} {settings.dtype}: 'fp8' sets how dtype fp8 of NeMo scales"
        named = settings.dtype.startswith("fp8_")  # as fp8 is named with Megatron-Bridge
        hint = "omit it: the dtype has it" if named else "--dtype fp8, or omit it"
        raise _refused("fp8-dtype", "fp8 dtype", message, hint, settings.fp8)
    if settings.fp8 is not None and size.nemo is None:
        message = f"{label} does not train with NeMo, which scales fp8"
        raise _refused("fp8-without-nemo", "fp8", message, "omit 'fp8'", settings.fp8)
    if settings.tokenizer == "hub" and (size.nemo is None or size.nemo.hub_tokenizer is None):
        raise _refused(
            "no-tokenizer",
            "tokenizer",
            f"{label} has no tokenizer on the model hub",
            "omit 'tokenizer'",
        )


def check_ranks(settings: Settings) -> None:
    """Raise UsageError for a profile of ranks that the job does not have."""
    scale = settings.scale
    if settings.profile_ranks is None:
        return
    last = max(last or 0 for _, last in sw.rank_ranges(settings.profile_ranks))
    if last >= scale:
        message = (
            f"{settings.label}: profile_ranks '{settings.profile_ranks}': a job of {scale} GPUs"
            f" has no rank {last}"
        )
        hint = f"its last rank is {scale - 1}; all selects every rank"
        raise _refused("rank-unknown", "profile_ranks scale", message, hint, last)


def check_container(settings: Settings, *, container: bool) -> None:
    """Raise UsageError for a switch of containers if ranks start without one."""
    for name in ("image", "mounts", "container_writable"):
        if getattr(settings, name) is not None and not container:
            message = (
                f"{settings.label}: '{name}' is for containers, but ranks start without one on this"
                " cluster"
            )
            hint = "omit it; slurm.container: pyxis in cluster_config.yaml starts ranks in images"
            raise _refused("no-container", name, message, hint, getattr(settings, name))


def checkpoint_scales(settings: Settings, size: Size, gpu: str) -> list[int]:
    """Return the scales that a checkpoint was tested at, which may be below the rows'."""
    checkpoint = size.checkpoint
    if checkpoint is None or not (settings.save_checkpoint or settings.load_checkpoint):
        return []
    saved = (
        checkpoint.save[gpu].counts if settings.save_checkpoint and gpu in checkpoint.save else ()
    )
    least = _least(checkpoint, "load", gpu) if settings.load_checkpoint is not None else None
    return [*saved, *([least] if least is not None else [])]


def check_checkpoint(settings: Settings, size: Size, gpu: str, *, force: bool) -> list[str]:
    """Return warnings of a checkpoint at an untested scale. Without ``force``, raise UsageError."""
    scale = settings.scale
    warnings = []
    for verb, is_requested in (
        ("save", bool(settings.save_checkpoint)),
        ("load", settings.load_checkpoint is not None),
    ):
        if not is_requested or (size.nemo is None and size.checkpoint is None):
            continue
        least = _least(size.checkpoint, verb, gpu)
        if least is not None and scale >= least:
            continue
        tested = f"tested only from {least} GPUs" if least is not None else f"not tested on {gpu}"
        message = f"{settings.label}: a checkpoint {verb} is {tested}, and this job has {scale}"
        if not force:
            reason = (
                " With fewer GPUs, the load may run out of memory."
                if verb == "load" and least is not None
                else ""
            )
            hint = f"--force lifts this limit.{reason}"
            raise _refused("checkpoint-untested", f"{verb}_checkpoint scale", message, hint, scale)
        warnings.append(message)
    return warnings


def _least(checkpoint: Checkpoint | None, verb: str, gpu: str) -> int | None:
    if checkpoint is None:
        return None
    if verb == "load":
        return checkpoint.load.get(gpu)
    return checkpoint.save[gpu].counts[0] if gpu in checkpoint.save else None
