# SPDX-License-Identifier: Apache-2.0
"""The effect of switches on a job's steps, time limit and name, and the switches it may have."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmb.contract import switches as sw
from llmb.contract.rows import ProfileWindow
from llmb.contract.spec import Checkpoint, Size, Workload
from llmb.contract.switches import Switches
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
    switches: Switches,
    *,
    profile: bool,
    given_steps: int | None,
    default_steps: int,
    window: ProfileWindow | None = None,
    profiler: str = PROFILED,
) -> Mode:
    """Return the mode of a job. Raises UsageError for a contradiction.

    ``given_steps`` is None if the steps are not set. ``window``: the steps that its release
    profiles. ``profiler``: the word for a profiled run's name. A job that is not profiled ignores
    the switches of profiles: a list may profile only some of its jobs.
    """
    traced, loads = bool(switches.nccl_trace), switches.load_checkpoint is not None
    _check_combination(switches, given_steps, profile=profile)
    steps = 1 if loads else given_steps or (TRACE_STEPS if traced else default_steps)
    if profile:
        switches = _with_profile(switches, given_steps, default_steps, window)
        steps = switches.profile_stop or steps
    elif switches.sets_profile:
        switches = replace(switches, **dict.fromkeys(sw.PROFILE_DETAILS))
    limit = sw.parse_clock(switches.time_limit) if switches.time_limit else None
    usual = window.stop if window is not None else default_steps
    named = given_steps is not None or (profile and steps != usual)
    words = {  # in the experiment's name; saving a checkpoint has none, as in the releases
        f"steps{steps}": named and not loads,
        f"fp8{switches.fp8}": switches.fp8 == "current",
        "hub": switches.tokenizer == "hub",
        "nccltrace": traced,
        "load": loads,
        profiler: profile,
    }
    if switches is not sw.NO_SWITCHES:
        switches = replace(
            switches,
            strong_scaling=switches.strong_scaling or None,
            mounts=None if switches.mounts is None else tuple(map(sw.parse_mount, switches.mounts)),
            **dict.fromkeys(("image", "time_limit", "gpus_per_node")),  # fields of the job itself
        )
    return Mode(
        max_steps=steps,
        time_limit=limit or (TRACE_LIMIT if traced else None),
        words=tuple(word for word in words if words[word]),
        switches=switches,
    )


def _check_combination(switches: Switches, given_steps: int | None, *, profile: bool) -> None:
    """Raise UsageError for switches that contradict each other."""
    loads = switches.load_checkpoint is not None
    if switches.nccl_trace and profile:
        message = "a profile and an NCCL trace slow each other down"
        raise _refused(
            "profile-and-trace", "profile nccl_trace", message, "submit one run for each"
        )
    if loads and profile:
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


def _with_profile(
    switches: Switches, given_steps: int | None, default_steps: int, window: ProfileWindow | None
) -> Switches:
    """Return the switches with the profiled steps: the release's, else the last ones."""
    usual = window or ProfileWindow(start=max(0, default_steps - PROFILE_STEPS), stop=default_steps)
    stop = switches.profile_stop or given_steps or usual.stop
    if given_steps is not None and stop != given_steps:
        message = f"a profiled run ends at its last profiled step {stop}, not at step {given_steps}"
        hint = f"omit max_steps, or profile to step {given_steps}"
        raise _refused("profile-end", "profile_stop max_steps", message, hint, stop)
    keeps_start = switches.profile_stop is not None and stop > usual.start
    from_end = usual.start if keeps_start else max(0, stop - (usual.stop - usual.start))
    start = from_end if switches.profile_start is None else switches.profile_start
    if start >= stop:
        message = f"a profile from step {start} to step {stop} has no steps"
        raise _refused(
            "profile-empty", "profile_start profile_stop", message, "start before the stop", start
        )
    ranks = switches.profile_ranks or sw.PROFILE_RANKS
    try:
        sw.rank_ranges(ranks)
    except ValueError as error:
        raise _refused(
            "ranks-invalid", "profile_ranks", f"profile_ranks: {error}", None, ranks
        ) from error
    return replace(switches, profile_start=start, profile_stop=stop, profile_ranks=ranks)


def check_model(switches: Switches, size: Size, dtype: str, label: str) -> None:
    """Raise UsageError for a switch that this size or dtype does not support."""
    if switches.fp8 is not None and dtype != "fp8":
        message = f"{label} {dtype}: 'fp8' sets how dtype fp8 scales"
        raise _refused("fp8-dtype", "fp8 dtype", message, "--dtype fp8, or omit it", switches.fp8)
    if switches.fp8 is not None and size.nemo is None:
        message = f"{label} does not train with NeMo, which scales fp8"
        raise _refused("fp8-without-nemo", "fp8", message, "omit 'fp8'", switches.fp8)
    if switches.tokenizer == "hub" and (size.nemo is None or size.nemo.hub_tokenizer is None):
        raise _refused(
            "no-tokenizer",
            "tokenizer",
            f"{label} has no tokenizer on the model hub",
            "omit 'tokenizer'",
        )


def check_ranks(switches: Switches, scale: int, label: str) -> None:
    """Raise UsageError for a profile of ranks that a job of ``scale`` GPUs does not have."""
    if switches.profile_ranks is None:
        return
    last = max(last or 0 for _, last in sw.rank_ranges(switches.profile_ranks))
    if last >= scale:
        message = (
            f"{label}: profile_ranks '{switches.profile_ranks}': a job of {scale} GPUs has no rank"
            f" {last}"
        )
        hint = f"its last rank is {scale - 1}; all selects every rank"
        raise _refused("rank-unknown", "profile_ranks scale", message, hint, last)


def check_container(switches: Switches, label: str, *, container: bool) -> None:
    """Raise UsageError for a switch of containers if ranks start without one."""
    for name in ("image", "mounts", "container_writable"):
        if getattr(switches, name) is not None and not container:
            message = (
                f"{label}: '{name}' is for containers, but ranks start without one on this cluster"
            )
            hint = "omit it; slurm.container: pyxis in cluster_config.yaml starts ranks in images"
            raise _refused("no-container", name, message, hint, getattr(switches, name))


def checkpoint_scales(switches: Switches, size: Size, gpu: str) -> list[int]:
    """Return the scales that a checkpoint was tested at, which may be below the rows'."""
    checkpoint = size.checkpoint
    if checkpoint is None or not (switches.save_checkpoint or switches.load_checkpoint):
        return []
    saved = (
        checkpoint.save[gpu].counts if switches.save_checkpoint and gpu in checkpoint.save else ()
    )
    least = _least(checkpoint, "load", gpu) if switches.load_checkpoint is not None else None
    return [*saved, *([least] if least is not None else [])]


def check_checkpoint(
    switches: Switches, size: Size, gpu: str, scale: int, label: str, *, force: bool
) -> list[str]:
    """Return warnings of a checkpoint at an untested scale. Without ``force``, raise UsageError."""
    warnings = []
    for verb, is_requested in (
        ("save", bool(switches.save_checkpoint)),
        ("load", switches.load_checkpoint is not None),
    ):
        if not is_requested or (size.nemo is None and size.checkpoint is None):
            continue
        least = _least(size.checkpoint, verb, gpu)
        if least is not None and scale >= least:
            continue
        tested = f"tested only from {least} GPUs" if least is not None else f"not tested on {gpu}"
        message = f"{label}: a checkpoint {verb} is {tested}, and this job has {scale}"
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
