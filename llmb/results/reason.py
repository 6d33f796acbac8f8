# SPDX-License-Identifier: Apache-2.0
"""Says in words why a run has no result, or what is particular about the one that it has."""

from __future__ import annotations

from collections.abc import Iterator

from llmb.failures import Cause, kind_of_end
from llmb.logs.formats import NEMO2_NAME
from llmb.logs.samples import Samples
from llmb.logs.spec import ParseSpec
from llmb.logs.text import plain
from llmb.results.result import FAILED, SUCCESS, Result
from llmb.runs.state import CANCELLED, COMPLETED, TIMEOUT, UNKNOWN, WAITING, JobState
from llmb.runs.state import RUNNING as AT_WORK

_SAY_ALL = {CANCELLED, TIMEOUT, "NODE_FAIL", "PREEMPTED"}  # states that name their cause
TFLOPS_OFF = 0.02  # a fraction: the product of TFLOPS and step time is a constant of the configuration


def of_run(
    status: str, state: JobState, samples: Samples, result: Result, spec: ParseSpec, cause: Cause | None
) -> str | None:
    """The reason of a recorded run's status; ``cause``: what its logs say where it failed."""
    if not state.is_end:
        return _waiting(state, samples, result)
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
    return _joined(_attempts(samples), *_checkpoints(result), *_notes(samples, result, spec)) or None


def _checkpoints(result: Result) -> tuple[str, ...]:
    """What was to be saved or loaded, and was not."""
    return result.checkpoints.problems if result.checkpoints is not None else ()


def _notes(samples: Samples, result: Result, spec: ParseSpec) -> Iterator[str]:
    """What is particular about the framework's own TFLOPS."""
    if not any(step.tflops is not None for step in samples.steps):
        return
    if not spec.tflops_valid:
        yield spec.tflops_note
        return
    told = result.statistics.tflops_by_formula if result.statistics else None
    if told is not None and samples.framework == NEMO2_NAME and abs(told - 1) > TFLOPS_OFF:
        yield (
            f"TFLOPS_per_GPU is {told:.2f} of what follows from model, batch and GPUs: "
            "one of them is not what the job says"
        )


def _waiting(state: JobState, samples: Samples, result: Result) -> str:
    why = plain(state.reason)
    if state.state == UNKNOWN:
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
        return f"stopped at iteration {samples.max_iteration} of {last}"
    return "" if result.time_mean_seconds is not None else f"iterations {result.window} are not all in the log"


def cause_of_end(state: JobState) -> Cause | None:
    """What the scheduler's word on the end of a run comes to; None where it says too little."""
    if state.is_refused:
        return Cause(kind="submit refused", line=plain(state.reason), advice=plain(state.cure))
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
