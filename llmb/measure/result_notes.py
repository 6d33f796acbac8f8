# SPDX-License-Identifier: Apache-2.0
"""Phrases about results: why a run has none, notes on figures, settings of a configuration."""

import re
import zlib
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from pathlib import Path

from llmb.contract import state as states
from llmb.contract.formats import NEMO2_NAME, TRAINER_NAME, ParseSpec
from llmb.contract.metrics import STEP_TIME, shown
from llmb.contract.samples import Environment, Samples, Step
from llmb.contract.settings import COMPARED, Settings
from llmb.contract.spec import NEMO
from llmb.contract.state import COMPLETED, TIMEOUT, JobState
from llmb.contract.window import Window, measure, steps_in, why_unmeasured
from llmb.core.scan import open_log, plain
from llmb.measure import mlperf
from llmb.measure.checkpoints import Checkpoints
from llmb.measure.failure_causes import CANCELLED_KIND, Cause, kind_of_end
from llmb.measure.result import FAILED, SUCCESS, UNKNOWN, Metrics
from llmb.measure.statistics import TFLOPS_OFF

_NAME_THEIR_CAUSE = {states.CANCELLED, TIMEOUT, "NODE_FAIL", "PREEMPTED"}
UNKNOWN_FORMAT = (
    "unknown format: llmb knows no step line in this log; a plugin's llmb_parse can describe it"
)
OWN_STEPS = (
    "unknown workload: lines `llmb step` have metrics that a workload declares; -w WORKLOAD_SIZE"
    " names it, such as -w microbench_gemm"
)
REFUSED_KIND = "submit refused"
LEAST_LINES = 3  # in a window: fewer say nothing of its deviation
_SAMPLE = 1 << 12  # bytes that show the encoding of a log
_MOSTLY = 0.9  # a fraction: the higher byte of Latin text is 0
_HEAD = 1 << 18  # bytes of a log that are searched for the words of a program
_KNOWN_PROGRAM = re.compile(
    rb"\[NeMo [IWE] |nemo_run|nemo\.collections|megatron|Training epoch"
    rb" \d|MaxText|torchtitan|\[titan\]|transformers",
    re.IGNORECASE,
)
_OWN_STEP = re.compile(rb"llmb step \d{1,12}/\d{1,12}\s+[A-Za-z]\w*\s?[=:]")


def of_run(
    status: str,
    state: JobState,
    samples: Samples,
    metrics: Metrics,
    spec: ParseSpec,
    checkpoints: Checkpoints | None,
    cause: Cause | None,
) -> str | None:
    """Return the reason for a recorded run's status. ``cause`` is from its logs if it failed."""
    if not state.is_end:
        return _waiting(state, samples, metrics)
    if status == UNKNOWN and state.state == COMPLETED:
        return _unknown(spec, samples)
    if state.is_refused or state.code == states.NO_FOLDER_CODE:
        return plain(state.reason)  # there is no log
    common = (_attempts(samples), *(checkpoints.problems if checkpoints else ()))
    if status != SUCCESS:
        return _joined(_end_of(state), _stopped(samples, metrics), _cause(cause, state), *common)
    ended = "the time limit ended the run after the measured steps, so the measurement is valid"
    return _joined(
        ended if state.state == TIMEOUT else "", *common, *_notes(samples, metrics, spec)
    )


def _unknown(spec: ParseSpec, samples: Samples) -> str:
    """Return why a log has no step: no known line, or none that the plugin's own format matches."""
    if spec.is_default:
        return UNKNOWN_FORMAT
    if spec.samples is not None:
        return "unknown format: llmb_parse of the plugin returned no step"
    if spec.reads_whole_log:
        patterns = " and ".join(map(repr, spec.patterns.values()))
        return f"unknown format: nothing in the log matches {patterns} of the plugin"
    if samples.unread:
        return f"unknown format: {samples.unread} (ParseSpec of the plugin)"
    return f"unknown format: no line has the needle {spec.needle!r} of the plugin"


def of_log(
    path: Path,
    status: str,
    samples: Samples,
    metrics: Metrics,
    spec: ParseSpec,
    checkpoints: Checkpoints | None,
    cause: Cause | None,
) -> str | None:
    """Return the reason for the status of the log at ``path``, which has no record."""
    if status == FAILED:
        return _joined(
            _stopped(samples, metrics),
            _cause(cause, None),
            _partial(samples, metrics),
            _attempts(samples),
        )
    if status == UNKNOWN:
        encoding = _utf16_of(_head_of(path))
        if encoding:
            return (
                f"unknown format: the log is in {encoding}, as PowerShell's > writes it; convert it"
                f" with iconv -f {encoding} -t UTF-8"
            )
        return (
            OWN_STEPS
            if spec.is_default and spec.samples is None and has_own_steps(path)
            else _unknown(spec, samples)
        )
    problems = checkpoints.problems if checkpoints else ()
    return _joined(_attempts(samples), *problems, *_notes(samples, metrics, spec))


def cause_of_end(state: JobState) -> Cause | None:
    """Return the cause that the scheduler names for the end of a run, or None."""
    if state.is_refused:
        return Cause(kind=REFUSED_KIND, line=plain(state.reason), advice=plain(state.fix))
    kind = kind_of_end(state)
    return None if kind is None else Cause(kind=kind, line=_end_of(state))


def is_unknown_format(path: Path, samples: Samples) -> bool:
    """Return True if a log without a step is of a program that llmb does not know.

    An empty log is of no program.
    """
    if (
        samples.steps
        or samples.failed
        or samples.ended
        or samples.mlperf is not None
        or samples.nccl_table is not None
        or samples.figures is not None
        or samples.checkpoints
        or samples.environment != Environment()
    ):
        return False
    head = _head_of(path)
    return bool(head.strip()) and _KNOWN_PROGRAM.search(head) is None


def has_own_steps(path: Path) -> bool:
    """Return True if a log has lines ``llmb step``, whose metrics only their workload explains."""
    return _OWN_STEP.search(_head_of(path)) is not None


def _utf16_of(head: bytes) -> str:
    """Return the encoding of text in UTF-16 by its mark, or by every second byte, else ``""``."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "UTF-16"
    sample = head[:_SAMPLE]
    zeros, half = [sample[place::2].count(0) for place in (0, 1)], len(sample) / 2
    if max(zeros) <= _MOSTLY * half or min(zeros) > (1 - _MOSTLY) * half:
        return ""
    return "UTF-16BE" if zeros[0] > zeros[1] else "UTF-16LE"


def _head_of(path: Path) -> bytes:
    """Return the first bytes of a log, none if it cannot be read."""
    try:
        with open_log(path) as stream:
            return stream.read(_HEAD)
    except (OSError, EOFError, zlib.error):
        return b""


def _notes(samples: Samples, metrics: Metrics, spec: ParseSpec) -> Iterator[str]:
    """Yield anything unusual about the figures: an MFU above 1, wrong TFLOPS, incomplete lines."""
    if metrics.mfu is not None and metrics.mfu > 1:
        yield (
            f"MFU is {100 * metrics.mfu:.0f} %: check the model, batch, GPUs and GPU type of"
            " the job"
        )
    if samples.framework == TRAINER_NAME:
        yield "the mean of the whole run, including its start: the log has no times of single steps"
    elif samples.steps and samples.last is None:
        yield "the log does not say how many steps were planned"
    if samples.mlperf is not None and samples.mlperf.status and samples.mlperf.seconds is None:
        yield "no time to train: MLPerf's run_stop is not after its run_start"
    yield from _sparse(samples, metrics)
    for name in spec.metrics:
        if metrics.window is not None and name not in metrics.measured:
            yield why_unmeasured(samples, metrics.window, name)
    if not any(step.tflops is not None for step in samples.steps):
        return
    if not spec.tflops_valid:
        yield spec.tflops_note
        return
    ratio = metrics.statistics.tflops_by_framework if metrics.statistics else None
    if ratio is not None and abs(ratio - 1) > TFLOPS_OFF:
        name = (
            "TFLOPS_per_GPU is"
            if samples.framework in (NEMO2_NAME, None)
            else "the logged TFLOPS are"
        )
        yield (
            f"{name} {ratio:.2f} of the value computed from model, batch and GPUs: check which of"
            " them is wrong"
        )


def _sparse(samples: Samples, metrics: Metrics) -> Iterator[str]:
    """Yield a note if few lines are within the window, each for several iterations."""
    lines = [] if metrics.window is None else steps_in(samples, metrics.window)
    span = max((step.span for step in lines), default=1)
    if span > 1 and len(lines) < LEAST_LINES and samples.framework != TRAINER_NAME:
        count = f"{len(lines)} line{'s' if len(lines) > 1 else ''}"
        yield (
            f"the window has {count}, each the mean of {span} iterations: log every iteration, or"
            " run more steps"
        )


def _waiting(state: JobState, samples: Samples, metrics: Metrics) -> str:
    detail = plain(state.reason)
    if state.state == states.UNKNOWN:
        return f"state unknown: {detail}" if detail else "state unknown"
    if state.state != states.RUNNING:
        return f"{'waiting: ' if state.state in states.WAITING else ''}{detail or state.state}"
    if samples.max_iteration is None:
        return "running, no step yet"
    return f"at step {samples.max_iteration + 1} of {metrics.steps}"


def _end_of(state: JobState) -> str:
    """Return the scheduler's end, as ``FAILED, exit code 1 (NonZeroExitCode)``, or ``""``."""
    if state.state == COMPLETED:
        return ""
    code = f", exit code {state.exit_code}" if state.exit_code else ""
    detail = plain(state.reason)
    return f"{state.state}{code}" + (f" ({detail})" if detail and detail != state.state else "")


def _stopped(samples: Samples, metrics: Metrics) -> str:
    if samples.failed:
        return plain(samples.failed)
    if samples.mlperf is not None and (samples.mlperf.status or samples.max_iteration is None):
        return mlperf.end_of(samples)
    if samples.nccl_table is not None and not samples.nccl_table.ended:
        return "the table of nccl-tests has no end"
    if samples.max_iteration is None:
        return "no step in the log"
    last = (metrics.steps or 0) - 1
    if samples.max_iteration < last and not samples.is_complete:
        return (
            f"stopped at iteration {samples.max_iteration + samples.first} of"
            f" {last + samples.first}"
        )
    if metrics.has_figures:
        return ""
    unmeasured = ""
    if metrics.window is not None and metrics.headline != STEP_TIME:
        unmeasured = why_unmeasured(samples, metrics.window, metrics.headline)
    planned = None if samples.last is None else samples.last + 1
    lacks = f"the log lacks iterations of the window {metrics.window}"
    if planned is not None and metrics.steps and planned != metrics.steps:
        lacks += f": its program planned {planned} steps, and its job {metrics.steps}"
    if samples.steps and metrics.window is not None:
        begin = samples.steps[0].iteration - samples.steps[0].span + 1 + samples.first
        end = samples.steps[-1].iteration + samples.first
        if begin > metrics.window.first or end < metrics.window.last:
            lacks += f"; it has {begin} to {end} (--window {begin}-{end})"
    return unmeasured or lacks


def _partial(samples: Samples, metrics: Metrics) -> str:
    """Return what the last unbroken lines of an incomplete log measured, empty if nothing.

    The first line contains the start of the program. Lines of the window are preferred.
    """
    if metrics.has_figures or metrics.headline != STEP_TIME or samples.is_complete:
        return ""
    lines: list[Step] = []
    for step in reversed(samples.steps[1:]):
        if lines and lines[-1].iteration - lines[-1].span != step.iteration:
            break
        lines.append(step)
    window = () if metrics.window is None else steps_in(samples, metrics.window)
    iterations = {step.iteration for step in window}
    lines = [step for step in lines if step.iteration in iterations] or lines
    if not lines:
        return ""
    first, last = lines[-1].iteration - lines[-1].span + 1, lines[0].iteration
    part = Window(first + samples.first, last + samples.first)
    figures = [
        f"{name} {shown(measured.mean, measured.unit)}"
        for name, measured in measure(samples, part).items()
    ]
    return (
        f"partial, without a verdict: {', '.join(figures)} in the iterations {part}"
        f" (--window {part})"
        if figures
        else ""
    )


def _cause(cause: Cause | None, state: JobState | None) -> str:
    says_it = state is not None and state.state == states.CANCELLED  # and perhaps by whom
    if cause is not None:
        return "" if says_it and cause.kind == CANCELLED_KIND else str(cause)
    if state is None or state.state in _NAME_THEIR_CAUSE:
        return ""
    return kind_of_end(state) or ""


def _attempts(samples: Samples) -> str:
    if samples.attempts < 2:
        return ""
    # ranks of known programs have a prefix, or only one of them prints
    other = "" if samples.framework else ", or ranks that all print their steps"
    return f"the last of {samples.attempts} attempts in the log{other}"


def _joined(*parts: str) -> str | None:
    return "; ".join(part for part in parts if part) or None


TITLE = ("workload", "model_size", "dtype", "gpu_type", "scale")  # what every row shows of itself
_SETTINGS = {
    "gbs": "batch {}",
    "seq_length": "sequence {}",
    "num_layers": "{} layers",
    "profile": "profiled",
    "saves": "saves a checkpoint",
    "loads": "loads a checkpoint",
    "nccl_trace": "NCCL trace",
    "stragglers": "straggler detector",
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
    configuration: Settings | None,
    *,
    window: Window | None,
    steps: int | None = None,
    without: Collection[str] = TITLE,
) -> dict[str, str]:
    """Return each setting by name, as a phrase that is empty if it is usual.

    Variables are ``NAME=value``.
    """
    phrases = {
        "steps": f"{steps} steps" if steps else "",
        "window": "" if window is None else f"window {window}",
    }
    if configuration is None:
        return phrases
    for name in COMPARED:
        if name not in (*without, "env", "parameters", "dotted", "changes", "software"):
            value = getattr(configuration, name)
            text = _SETTINGS.get(name, f"{name} {{}}")
            phrases[name] = "" if value in (None, False, "", NEMO) else text.format(value)
    software = configuration.software
    named = {
        **({} if software is None else software.words),
        **({} if "parameters" in without else configuration.parameters),
        **configuration.dotted,
        **configuration.env,
    }
    return phrases | {name: f"{name}={value}" for name, value in sorted(named.items())}


def distinguishing(titled: Sequence[tuple[Hashable, Mapping[str, str]]]) -> list[str]:
    """Return the settings of each row that not all rows of the same title share."""
    alike = Counter(title for title, _ in titled)
    shared = Counter((title, setting) for title, settings in titled for setting in settings.items())
    return [
        ", ".join(
            text
            for name, text in settings.items()
            if text and shared[title, (name, text)] < alike[title]
        )
        for title, settings in titled
    ]
