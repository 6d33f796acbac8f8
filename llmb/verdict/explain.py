# SPDX-License-Identifier: Apache-2.0
"""Explains one result: every term of its figures, what it compares with, and the rule behind its verdict. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmb.results.checkpoints import in_words
from llmb.results.columns import tflops as shown
from llmb.results.result import Result
from llmb.runs.job import Job
from llmb.verdict import conditions
from llmb.verdict.conditions import window_in_words
from llmb.verdict.rules import FAIL_BELOW, SUSPICIOUS_ABOVE, WARN_BELOW
from llmb.workload.gpus import gpus_in_words
from llmb.workload.model import flops_convention, flops_formulas, flops_terms
from llmb.workload.published import Figure
from llmb.workload.rows import Row

WIDTH = 11
RULES = (
    f"rules: FAIL below {FAIL_BELOW}, WARN below {WARN_BELOW}, SUSPICIOUS above {SUSPICIOUS_ABOVE}, PASS between; "
    f"INCONCLUSIVE where the interval of the repeats has {FAIL_BELOW} within"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is to be explained: the judged ``result`` of ``job``, and what it is explained with.

    ``peak_tflops``: of one GPU at the job's dtype; ``figure``: what it compares with; ``row``: that of its workload's
    table; ``digest``: of its image; ``repeats``: the results that are pooled with it, itself among them; ``cause`` and
    ``fix``: of a failure; ``tflops_note``: why the framework's own TFLOPS do not count; ``log_note``: what is
    particular about the log's file.
    """

    result: Result
    job: Job
    peak_tflops: float | None = None
    figure: Figure | None = None
    row: Row | None = None
    digest: str | None = None
    repeats: Sequence[Result] = ()
    cause: str = ""
    fix: str = ""
    tflops_note: str = ""
    log_note: str = ""


def explain(told: Told) -> str:
    """The explanation as lines of text."""
    result = told.result
    parts = [_entry("run", f"{result.run}  {result.experiment}"), _entry("status", _status(result))]
    parts += [_entry(name, text) for name, text in (("cause", told.cause), ("fix", told.fix)) if text]
    if result.time_mean_seconds is not None:
        parts += [_measured(result), _tokens(told, result.time_mean_seconds), *_flops(told, result.time_mean_seconds)]
    parts += [*_compared(told), *_entries("steps", [*conditions.steps(result)]), *_conditions(told)]
    parts += _entries("checkpoint", _checkpoints(result))
    parts.append(_entry("log", result.path + told.log_note))
    return "\n".join(part for part in parts if part) + "\n"


def _entry(name: str, text: str) -> str:
    return f"{name:{WIDTH}}{text}"


def _entries(name: str, lines: Sequence[str]) -> list[str]:
    return [_entry("" if number else name, line) for number, line in enumerate(lines)]


def _status(result: Result) -> str:
    return f"{result.status}: {result.reason}" if result.reason else result.status


def _measured(result: Result) -> str:
    window = window_in_words(result.window)
    deviation = f"standard deviation {result.time_std_dev_seconds:.4g} s"
    return _entry("step time", f"{result.time_mean_seconds:.6g} s: mean over {window} of {result.steps}, {deviation}")


def _tokens(told: Told, seconds: float) -> str:
    job, rate = told.job, told.result.tokens_per_second or 0.0
    sum_ = f"sequence {job.seq_length} · batch {job.gbs} / {seconds:.6g} s"
    return _entry("tokens/s", f"{sum_} = {rate:,.0f}; {rate / job.scale:,.1f} of each of {gpus_in_words(job.scale)}")


def _flops(told: Told, seconds: float) -> list[str]:
    job, result = told.job, told.result
    terms, formulas = flops_terms(job.model), flops_formulas(job.model)
    total = sum(terms.values())
    lines = [f"{total:.4g} for one sample, by the formula {flops_convention(job.model)}:"]
    lines += [f"  {part} {formulas[part]} = {value:.4g}" for part, value in terms.items()]
    tflops = result.model_tflops_per_gpu or 0.0
    parts = _entries("FLOPs", lines)
    sum_ = f"batch {job.gbs} · {total:.4g} / {seconds:.6g} s / {gpus_in_words(job.scale)}"
    parts.append(_entry("TFLOPS", f"{sum_} = {shown(tflops)} of each GPU"))
    if result.mfu is None:
        return [*parts, _entry("MFU", f"not known: there is no peak for {job.gpu_type} {job.dtype}")]
    peak = f"{told.peak_tflops:g} TFLOPS peak of {job.gpu_type} {job.dtype}"
    parts.append(_entry("MFU", f"{tflops:.2f} / {peak} = {100 * result.mfu:.2f} %"))
    if result.mfu_reference_convention is not None and told.figure is not None:
        parts.append(_entry("", _mfu_as_published(result.mfu_reference_convention, told.figure)))
    if told.tflops_note:
        parts.append(_entry("", f"the framework's own TFLOPS do not count: {told.tflops_note}"))
    elif result.tflops_per_gpu_mean is not None:
        parts.append(_entry("", f"the framework logs {result.tflops_per_gpu_mean:.2f} TFLOPS of each GPU"))
    return parts


def _mfu_as_published(value: float, figure: Figure) -> str:
    peak = f", a peak of {figure.peak_tflops:g} TFLOPS" if figure.peak_tflops is not None else ""
    flops = f"formula {figure.flops_convention}, {figure.model_flops:.4g} for one sample{peak}"
    return f"as release {figure.release} computes it: {100 * value:.2f} % ({flops})"


def _compared(told: Told) -> list[str]:
    result, figure = told.result, told.figure
    parts = []
    if figure is not None:
        lines = [
            f"{figure.step_time_s:g} s in {figure.source}, over {window_in_words(figure.window)} of {figure.steps}"
        ]
        if figure.mfu is not None and figure.model_flops is not None:
            formula = f"formula {figure.flops_convention}, {figure.model_flops:.4g} for one sample"
            lines.append(f"its printed MFU is {100 * figure.mfu:.2f} %, by {formula}")
        parts += _entries("reference", lines)
    if result.ratio is not None and result.reference is not None:
        sum_ = f"{result.reference.step_time_s:g} s / {result.time_mean_seconds:.6g} s = {result.ratio:.4f}"
        parts.append(_entry("ratio", f"{sum_}: measured by published throughput"))
        parts += _entries("", _repeats(told))
    if result.verdict is not None:
        parts.append(_entry("verdict", f"{result.verdict}: {result.verdict_reason}"))
    if result.ratio is not None:
        parts.append(_entry("", RULES))
    return parts


def _repeats(told: Told) -> list[str]:
    if len(told.repeats) < 2:
        return []
    shown = ", ".join(f"{other.run} {other.ratio:.4f}" for other in told.repeats if other.ratio is not None)
    return [f"pooled with its repeats: {shown}"]


def _conditions(told: Told) -> list[str]:
    """What is not as published, and what is known of this run alone."""
    result, job, figure = told.result, told.job, told.figure
    place = [*conditions.place(result.log, job.image, told.digest)]
    if figure is None:
        return _entries("ran on", place)
    differs = [*conditions.differences(result, job, figure, peak_tflops=told.peak_tflops, row=told.row)]
    place += [conditions.NOT_PUBLISHED.format(result.run), *conditions.not_told(result.log, job.scale)]
    return [_entry("the same", conditions.alike(result)), *_entries("differs", differs), *_entries("ran on", place)]


def _checkpoints(result: Result) -> list[str]:
    """What was saved and loaded, where it is, and what is missing of it."""
    found = result.checkpoints
    if found is None:
        return []
    folders = [part.folder for part in (found.loaded, found.saved) if part is not None and part.folder is not None]
    return [*in_words(found), *folders, *found.problems]
