# SPDX-License-Identifier: Apache-2.0
"""What a job's switches do to its steps, its time and its name, and which of them go together. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmb.errors import UsageError
from llmb.workload.published import release_order
from llmb.workload.rows import ProfileWindow
from llmb.workload.spec import Checkpoint, Size, Workload
from llmb.workload.switches import PROFILE_DETAILS, PROFILE_RANKS, Switches, rank_ranges

PROFILE_STEPS = 5  # where no release says otherwise
NSYS, PROFILED = "nsys", "profile"  # a profiled run's name: as release 25.04 has it, and without Nsight Systems
TRACE_STEPS = 5
TRACE_LIMIT = 15 * 60  # seconds
TRACE_VARIABLES: Mapping[str, str] = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "COLL,P2P,NET"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """What follows from the switches: steps, limit in seconds (None: the workload's), words for the name, the rest."""

    max_steps: int
    time_limit: int | None
    words: tuple[str, ...]
    switches: Switches


def profile_window(workload: Workload, size: Size, release: str | None, steps: int) -> ProfileWindow | None:
    """The steps that ``release`` profiles, else those of the newest; None where a run of ``steps`` has not as many."""
    if size.nemo is None or not workload.profiles:
        return None
    newest = max(workload.profiles, key=release_order)
    own = workload.profiles.get(release or newest, workload.profiles[newest])
    return own if own.stop <= steps else None


def mode_of(
    switches: Switches,
    *,
    profile: bool,
    given_steps: int | None,
    default_steps: int,
    window: ProfileWindow | None = None,
    profiler: str = PROFILED,
) -> Mode:
    """The mode of a job; ``given_steps`` None where nobody named them. Raises UsageError for what does not go together.

    ``window``: the steps that its release profiles; ``profiler``: the word for a profiled run's name. A job that is not
    profiled drops what is said of profiles: a list may profile some of its jobs alone.
    """
    traced, loads = bool(switches.nccl_trace), switches.load_checkpoint is not None
    if traced and profile:
        raise UsageError("a profile and an NCCL trace at once would each slow the other", hint="one run for each")
    if loads and profile:
        raise UsageError("a run that loads a checkpoint has one step, too few for a profile", hint="one run for each")
    if loads and given_steps not in (None, 1):
        hint = "leave max_steps out"
        raise UsageError(f"a run that loads a checkpoint has one step, not {given_steps}", hint=hint)
    steps = 1 if loads else given_steps or (TRACE_STEPS if traced else default_steps)
    if profile:
        switches = _with_profile(switches, given_steps, default_steps, window)
        steps = switches.profile_stop or steps
    elif switches.names_profile:
        switches = replace(switches, **dict.fromkeys(PROFILE_DETAILS))
    limit = switches.time_limit or (TRACE_LIMIT if traced else None)
    usual = window.stop if window is not None else default_steps
    named = given_steps is not None or (profile and steps != usual)
    words = (*_words(switches, steps=steps if named else 0), *((profiler,) if profile else ()))
    if (switches.image, switches.time_limit, switches.gpus_per_node) != (None, None, None):
        switches = replace(switches, image=None, time_limit=None, gpus_per_node=None)  # fields of the job itself
    return Mode(max_steps=steps, time_limit=limit, words=words, switches=switches)


def _with_profile(
    switches: Switches, given_steps: int | None, default_steps: int, window: ProfileWindow | None
) -> Switches:
    """The switches with the window filled in: the release's, else up to the last step; the run ends there."""
    usual = window or ProfileWindow(start=max(0, default_steps - PROFILE_STEPS), stop=default_steps)
    stop = switches.profile_stop or given_steps or usual.stop
    if given_steps is not None and stop != given_steps:
        message = f"a profiled run ends at its last profiled step {stop}, not at step {given_steps}"
        raise UsageError(message, hint=f"leave max_steps out, or profile to step {given_steps}")
    keeps_start = switches.profile_stop is not None and stop > usual.start
    from_end = usual.start if keeps_start else max(0, stop - (usual.stop - usual.start))
    start = from_end if switches.profile_start is None else switches.profile_start
    if start >= stop:
        raise UsageError(f"a profile from step {start} to step {stop} sees nothing", hint="start before the stop")
    try:
        rank_ranges(switches.profile_ranks or PROFILE_RANKS)
    except ValueError as error:
        raise UsageError(f"profile_ranks: {error}") from error
    ranks = switches.profile_ranks or PROFILE_RANKS
    return replace(switches, profile_start=start, profile_stop=stop, profile_ranks=ranks)


def _words(switches: Switches, *, steps: int) -> tuple[str, ...]:
    """What goes into the experiment's name: that the steps are not the published ones, and the like.

    Saving is not among them, as in the releases: the run's record tells.
    """
    flags = (
        (f"steps{steps}", bool(steps) and switches.load_checkpoint is None),
        (f"fp8{switches.fp8}", switches.fp8 == "current"),
        ("hub", switches.tokenizer == "hub"),
        ("nccltrace", bool(switches.nccl_trace)),
        ("load", switches.load_checkpoint is not None),
    )
    return tuple(word for word, is_set in flags if is_set)


def check_model(switches: Switches, size: Size, dtype: str, label: str) -> None:
    """Raise UsageError for what this size or dtype does not have."""
    if switches.fp8 is not None and dtype != "fp8":
        raise UsageError(f"{label} {dtype}: 'fp8' says how dtype fp8 scales", hint="--dtype fp8, or leave it out")
    if switches.fp8 is not None and size.nemo is None:
        raise UsageError(f"{label} does not train with NeMo, which scales fp8", hint="leave 'fp8' out")
    if switches.tokenizer == "hub" and (size.nemo is None or size.nemo.hub_tokenizer is None):
        raise UsageError(f"{label} has no tokenizer on the model hub", hint="leave 'tokenizer' out")


def check_ranks(switches: Switches, scale: int, label: str) -> None:
    """Raise UsageError for a profile of ranks that a job of ``scale`` GPUs does not have."""
    if switches.profile_ranks is None:
        return
    last = max(last or 0 for _, last in rank_ranges(switches.profile_ranks))
    if last >= scale:
        message = f"{label}: profile_ranks '{switches.profile_ranks}': a job of {scale} GPUs has no rank {last}"
        raise UsageError(message, hint=f"its last rank is {scale - 1}; all means every one")


def check_container(switches: Switches, label: str, *, container: bool) -> None:
    """Raise UsageError for what is said of a container where ranks start outside of any."""
    said = {name: getattr(switches, name) for name in ("image", "mounts", "container_writable")}
    for name, value in said.items():
        if value is not None and not container:
            hint = "leave it out; slurm.container: pyxis in cluster_config.yaml starts ranks in images"
            raise UsageError(f"{label}: '{name}' is for containers, and here ranks start without one", hint=hint)


def checkpoint_scales(switches: Switches, size: Size, gpu: str) -> list[int]:
    """The scales that a checkpoint was tested at, also below those of the rows; none unless one is asked for."""
    checkpoint = size.checkpoint
    if checkpoint is None or not (switches.save_checkpoint or switches.load_checkpoint):
        return []
    saved = checkpoint.save[gpu].counts if switches.save_checkpoint and gpu in checkpoint.save else ()
    least = _least(checkpoint, "load", gpu) if switches.load_checkpoint is not None else None
    return [*saved, *([least] if least is not None else [])]


def check_checkpoint(switches: Switches, size: Size, gpu: str, scale: int, label: str, *, force: bool) -> list[str]:
    """Warnings about a checkpoint at this scale. Raises UsageError below the tested ones, but with ``force``."""
    said = []
    for verb, wanted in (("save", bool(switches.save_checkpoint)), ("load", switches.load_checkpoint is not None)):
        if not wanted or (size.nemo is None and size.checkpoint is None):
            continue
        least = _least(size.checkpoint, verb, gpu)
        if least is not None and scale >= least:
            continue
        tested = f"tested from {least} GPUs on" if least is not None else f"not tested on {gpu}"
        message = f"{label}: to {verb} a checkpoint is {tested}, this is {scale} GPUs"
        if not force:
            why = " A load at fewer may run out of GPU memory." if verb == "load" and least is not None else ""
            raise UsageError(message, hint=f"--force does it all the same.{why}")
        said.append(message)
    return said


def _least(checkpoint: Checkpoint | None, verb: str, gpu: str) -> int | None:
    if checkpoint is None:
        return None
    if verb == "load":
        return checkpoint.load.get(gpu)
    return checkpoint.save[gpu].counts[0] if gpu in checkpoint.save else None
