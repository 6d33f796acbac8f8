# SPDX-License-Identifier: Apache-2.0
"""Phrases about results: why a run has none, what is unusual about one, and the settings of a configuration."""

import re
import zlib
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from llmb.failures import Cause, kind_of_end
from llmb.logs.formats import NEMO2_NAME, TRAINER_NAME, ParseSpec
from llmb.logs.samples import Environment, Samples
from llmb.logs.scan import open_log, plain
from llmb.results.checkpoints import Checkpoints
from llmb.results.description import USUAL_FRAMEWORK, Configuration
from llmb.results.result import FAILED, SUCCESS, UNKNOWN, Metrics
from llmb.runs import state as states
from llmb.runs.state import COMPLETED, TIMEOUT, JobState
from llmb.stats.measure import Window, steps_in, why_unmeasured
from llmb.stats.metrics import STEP_TIME

_NAME_THEIR_CAUSE = {states.CANCELLED, TIMEOUT, "NODE_FAIL", "PREEMPTED"}
UNKNOWN_FORMAT = "unknown format: llmb knows no step line in this log; a plugin's llmb_parse can describe it"
OWN_STEPS = (
    "unknown workload: lines `llmb step` have metrics that a workload declares; -w WORKLOAD_SIZE names it, "
    "such as -w microbench_gemm"
)
REFUSED_KIND = "submit refused"
TFLOPS_OFF = 0.02  # a fraction: the product of TFLOPS and step time is a constant of the configuration
LEAST_LINES = 3  # in a window: fewer say nothing of its deviation
_HEAD = 1 << 18  # bytes of a log that are searched for the words of a program
_KNOWN_PROGRAM = re.compile(
    rb"\[NeMo [IWE] |nemo_run|nemo\.collections|megatron|Training epoch \d|MaxText|torchtitan|\[titan\]|transformers",
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
    """The reason for a recorded run's status; ``cause``: what its logs say where it failed."""
    if not state.is_end:
        return _waiting(state, samples, metrics)
    if status == UNKNOWN and state.state == COMPLETED:
        return _unknown(spec)
    if state.is_refused:
        return plain(state.reason)  # there is no log
    common = (_attempts(samples), *(checkpoints.problems if checkpoints else ()))
    if status != SUCCESS:
        return _joined(_end_of(state), _stopped(samples, metrics), _cause(cause, state), *common)
    ended = "the time limit ended the run after the measured steps, so the measurement is valid"
    return _joined(ended if state.state == TIMEOUT else "", *common, *_notes(samples, metrics, spec))


def _unknown(spec: ParseSpec) -> str:
    """Why a log has no step: llmb knows none in it, or the plugin's own format matches none of its lines."""
    if spec.is_default or spec.samples is not None:
        return UNKNOWN_FORMAT
    return (
        f"unknown format: no line has the needle {spec.needle!r} and matches iteration {spec.iteration!r} of the plugin"
    )


def of_log(
    path: Path,
    status: str,
    samples: Samples,
    metrics: Metrics,
    spec: ParseSpec,
    checkpoints: Checkpoints | None,
    cause: Cause | None,
) -> str | None:
    """The reason for the status of the log at ``path``, which has no record."""
    if status == FAILED:
        return _joined(_stopped(samples, metrics), _cause(cause, None), _attempts(samples))
    if status == UNKNOWN:
        return OWN_STEPS if spec.is_default and spec.samples is None and has_own_steps(path) else _unknown(spec)
    problems = checkpoints.problems if checkpoints else ()
    return _joined(_attempts(samples), *problems, *_notes(samples, metrics, spec))


def cause_of_end(state: JobState) -> Cause | None:
    """The cause that the scheduler names for the end of a run; None where it names none."""
    if state.is_refused:
        return Cause(kind=REFUSED_KIND, line=plain(state.reason), advice=plain(state.fix))
    kind = kind_of_end(state)
    return None if kind is None else Cause(kind=kind, line=_end_of(state))


def is_unknown_format(path: Path, samples: Samples) -> bool:
    """Whether a log without a step is of a program that llmb does not know. An empty log is of no program."""
    if samples.steps or samples.ended or samples.checkpoints or samples.environment != Environment():
        return False
    head = _head_of(path)
    return bool(head.strip()) and _KNOWN_PROGRAM.search(head) is None


def has_own_steps(path: Path) -> bool:
    """Whether a log has lines ``llmb step``, which only the workload that declares their metrics can explain."""
    return _OWN_STEP.search(_head_of(path)) is not None


def _head_of(path: Path) -> bytes:
    """The first bytes of a log; none where it cannot be read."""
    try:
        with open_log(path) as stream:
            return stream.read(_HEAD)
    except (OSError, EOFError, zlib.error):
        return b""


def _notes(samples: Samples, metrics: Metrics, spec: ParseSpec) -> Iterator[str]:
    """What is unusual about the figures: an MFU above 1, wrong TFLOPS, lines that say less than others."""
    if metrics.mfu is not None and metrics.mfu > 1:
        yield f"MFU is {100 * metrics.mfu:.0f} %: check the model, batch, GPUs and GPU type of the job"
    if samples.framework == TRAINER_NAME:
        yield "the mean of the whole run, including its start: the log has no times of single steps"
    elif samples.steps and samples.last is None:
        yield "the log does not say how many steps were planned"
    yield from _sparse(samples, metrics)
    for name in spec.metrics:
        if metrics.window is not None and name not in metrics.measured:
            yield why_unmeasured(samples, metrics.window, name)
    if not any(step.tflops is not None for step in samples.steps):
        return
    if not spec.tflops_valid:
        yield spec.tflops_note
        return
    ratio = metrics.statistics.tflops_by_formula if metrics.statistics else None
    if ratio is not None and abs(ratio - 1) > TFLOPS_OFF:
        name = "TFLOPS_per_GPU is" if samples.framework in (NEMO2_NAME, None) else "the logged TFLOPS are"
        yield f"{name} {ratio:.2f} of the value computed from model, batch and GPUs: check which of them is wrong"


def _sparse(samples: Samples, metrics: Metrics) -> Iterator[str]:
    """That few lines are within the window, where the log prints one line for several iterations."""
    lines = [] if metrics.window is None else steps_in(samples, metrics.window)
    span = max((step.span for step in lines), default=1)
    if span > 1 and len(lines) < LEAST_LINES and samples.framework != TRAINER_NAME:
        count = f"{len(lines)} line{'s' if len(lines) > 1 else ''}"
        yield f"the window has {count}, each the mean of {span} iterations: log every iteration, or run more steps"


def _waiting(state: JobState, samples: Samples, metrics: Metrics) -> str:
    why = plain(state.reason)
    if state.state == states.UNKNOWN:
        return f"state unknown: {why}" if why else "state unknown"
    if state.state != states.RUNNING:
        return f"{'waiting: ' if state.state in states.WAITING else ''}{why or state.state}"
    if samples.max_iteration is None:
        return "running, no step yet"
    return f"at step {samples.max_iteration + 1} of {metrics.steps}"


def _end_of(state: JobState) -> str:
    """How the scheduler says it ended: ``FAILED, exit code 1 (NonZeroExitCode)``; nothing for a job that completed."""
    if state.state == COMPLETED:
        return ""
    code = f", exit code {state.exit_code}" if state.exit_code else ""
    why = plain(state.reason)
    return f"{state.state}{code}" + (f" ({why})" if why and why != state.state else "")


def _stopped(samples: Samples, metrics: Metrics) -> str:
    if samples.max_iteration is None:
        return "no step in the log"
    last = (metrics.steps or 0) - 1
    if samples.max_iteration < last and not samples.is_complete:
        return f"stopped at iteration {samples.max_iteration + samples.first} of {last + samples.first}"
    if metrics.has_figures:
        return ""
    why = ""
    if metrics.window is not None and metrics.headline != STEP_TIME:
        why = why_unmeasured(samples, metrics.window, metrics.headline)
    return why or f"the log lacks iterations of the window {metrics.window}"


def _cause(cause: Cause | None, state: JobState | None) -> str:
    if cause is not None:
        return str(cause)
    if state is None or state.state in _NAME_THEIR_CAUSE:
        return ""
    return kind_of_end(state) or ""


def _attempts(samples: Samples) -> str:
    return f"the last of {samples.attempts} attempts in the log" if samples.attempts > 1 else ""


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
    own: Configuration | None, *, window: Window | None, steps: int | None = None, without: Collection[str] = TITLE
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
