# SPDX-License-Identifier: Apache-2.0
"""Says in words why a run has no result, or what is particular about the one that it has."""

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from llmb.failures import Cause, kind_of_end
from llmb.logs.formats import NEMO2_NAME, TRAINER_NAME, ParseSpec
from llmb.logs.samples import Environment, Samples
from llmb.logs.scan import open_log, plain
from llmb.results.result import FAILED, SUCCESS, UNKNOWN, Result
from llmb.runs.state import CANCELLED, COMPLETED, TIMEOUT, WAITING, JobState
from llmb.runs.state import RUNNING as AT_WORK
from llmb.runs.state import UNKNOWN as NOT_KNOWN

_SAY_ALL = {CANCELLED, TIMEOUT, "NODE_FAIL", "PREEMPTED"}  # states that name their cause
UNKNOWN_FORMAT = "unknown format: no line of a step that llmb knows; a plugin's llmb_parse can describe it"
_HEAD = 1 << 18  # bytes of a log that are searched for the words of a program
_KNOWN_PROGRAM = re.compile(
    rb"\[NeMo [IWE] |nemo_run|nemo\.collections|megatron|Training epoch \d|MaxText|torchtitan|\[titan\]|transformers",
    re.IGNORECASE,
)
TFLOPS_OFF = 0.02  # a fraction: the product of TFLOPS and step time is a constant of the configuration


def of_run(
    status: str, state: JobState, samples: Samples, result: Result, spec: ParseSpec, cause: Cause | None
) -> str | None:
    """The reason of a recorded run's status; ``cause``: what its logs say where it failed."""
    if not state.is_end:
        return _waiting(state, samples, result)
    if status == UNKNOWN and state.state == COMPLETED:
        return UNKNOWN_FORMAT
    if state.is_refused:
        return plain(state.reason)  # no log, and nothing else to tell
    if status != SUCCESS:
        return _joined(
            _end_of(state), _stopped(samples, result), _cause(cause, state), _attempts(samples), *_checkpoints(result)
        )
    ended = "the time limit ended it after the measured steps: the measurement stands"
    said = (ended if state.state == TIMEOUT else "", _attempts(samples), *_checkpoints(result))
    return _joined(*said, *_notes(samples, result, spec)) or None


def of_log(status: str, samples: Samples, result: Result, spec: ParseSpec, cause: Cause | None) -> str | None:
    """The reason of the status of a log without a record."""
    if status == FAILED:
        return _joined(_stopped(samples, result), _cause(cause, None), _attempts(samples))
    if status == UNKNOWN:
        return UNKNOWN_FORMAT
    return _joined(_attempts(samples), *_checkpoints(result), *_notes(samples, result, spec)) or None


def _checkpoints(result: Result) -> tuple[str, ...]:
    """What was to be saved or loaded, and was not."""
    return result.checkpoints.problems if result.checkpoints is not None else ()


def _notes(samples: Samples, result: Result, spec: ParseSpec) -> Iterator[str]:
    """What is particular about the figures: TFLOPS and MFU that cannot be, lines that say less than others."""
    if result.mfu is not None and result.mfu > 1:
        yield f"MFU is {100 * result.mfu:.0f} %: model, batch, GPUs or GPU type are not what the job says"
    if samples.framework == TRAINER_NAME:
        yield "the mean of the whole run, its start included: the log has no time of a single step"
    elif samples.steps and samples.last is None:
        yield "the log does not say how many steps were planned"
    if not any(step.tflops is not None for step in samples.steps):
        return
    if not spec.tflops_valid:
        yield spec.tflops_note
        return
    told = result.statistics.tflops_by_formula if result.statistics else None
    if told is not None and abs(told - 1) > TFLOPS_OFF:
        name = "TFLOPS_per_GPU is" if samples.framework in (NEMO2_NAME, None) else "the logged TFLOPS are"
        yield (f"{name} {told:.2f} of what follows from model, batch and GPUs: one of them is not what the job says")


def is_unknown_format(path: Path, samples: Samples) -> bool:
    """Whether a log without a step is of a program that llmb does not know: nothing in it is of one that it knows.

    An empty log is of no program.
    """
    if samples.steps or samples.ended or samples.checkpoints or samples.environment != Environment():
        return False
    try:
        with open_log(path) as stream:
            head = stream.read(_HEAD)
    except (OSError, EOFError, zlib.error):
        return False
    return bool(head.strip()) and _KNOWN_PROGRAM.search(head) is None


def _waiting(state: JobState, samples: Samples, result: Result) -> str:
    why = plain(state.reason)
    if state.state == NOT_KNOWN:
        return f"state not known: {why}" if why else "state not known"
    if state.state != AT_WORK:
        return f"{'waiting: ' if state.state in WAITING else ''}{why or state.state}"
    if samples.max_iteration is None:
        return "running, no step yet"
    return f"at step {samples.max_iteration + 1} of {result.steps}"


def _end_of(state: JobState) -> str:
    """The scheduler's word: ``FAILED, exit code 1 (NonZeroExitCode)``; nothing for a job that says it succeeded."""
    if state.state == COMPLETED:
        return ""
    code = f", exit code {state.exit_code}" if state.exit_code else ""
    why = plain(state.reason)
    return f"{state.state}{code}" + (f" ({why})" if why and why != state.state else "")


def _stopped(samples: Samples, result: Result) -> str:
    if samples.max_iteration is None:
        return "no step in the log"
    last = (result.steps or 0) - 1
    if samples.max_iteration < last:
        return f"stopped at iteration {samples.max_iteration + samples.first} of {last + samples.first}"
    return "" if result.time_mean_seconds is not None else f"iterations {result.window} are not all in the log"


def cause_of_end(state: JobState) -> Cause | None:
    """What the scheduler's word on the end of a run comes to; None where it says too little."""
    if state.is_refused:
        return Cause(kind="submit refused", line=plain(state.reason), advice=plain(state.fix))
    kind = kind_of_end(state)
    return None if kind is None else Cause(kind=kind, line=_end_of(state))


def _cause(cause: Cause | None, state: JobState | None) -> str:
    if cause is not None:
        return str(cause)
    if state is None or state.state in _SAY_ALL:
        return ""
    return kind_of_end(state) or ""


def _attempts(samples: Samples) -> str:
    return f"the last of {samples.attempts} attempts in the log" if samples.attempts > 1 else ""


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
