# SPDX-License-Identifier: Apache-2.0
"""Explains one result: every term of its figures, what it is compared with, and the verdict. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmb.results.columns import tflops as shown
from llmb.results.facts import LogFacts, in_words
from llmb.results.result import Result
from llmb.runs.job import Job
from llmb.stats.measure import LAST, Window
from llmb.verdict.rules import FAIL_BELOW, SUSPICIOUS_ABOVE, WARN_BELOW
from llmb.workload.gpus import gpus_in_words
from llmb.workload.model import flops_convention, flops_formulas, flops_terms
from llmb.workload.published import Figure, raises_vboost
from llmb.workload.spec import Row

NOT_PUBLISHED = "of the published run none of this is known; of two own runs: llmb-run compare {} OTHER"
NCCL_FIX = "--env NCCL_DEBUG=INFO --env NCCL_DEBUG_SUBSYS=INIT,NET"
_SPLIT = ("tp", "pp", "cp", "vp", "ep", "mbs")
_MOST_HOSTS = 8
_WORTH_SAYING = 0.01  # a fraction of the step time


def window_in_words(window: Window | None) -> str:
    """``iterations 11-44``."""
    if window is None:
        return "no iteration"
    if window == LAST:
        return "the last iteration"
    return f"iteration {window.first}" if window.first == window.last else f"iterations {window.first}-{window.last}"


def differences_from_published(
    result: Result, job: Job, figure: Figure, *, peak_tflops: float | None = None, row: Row | None = None
) -> Iterator[str]:
    """What is not the same, though the two are compared.

    ``peak_tflops``: of one GPU at the job's dtype; ``row``: of the workload's table, which the published runs went by.
    """
    if result.same_window is False:
        here, there = window_in_words(result.window), window_in_words(figure.window)
        yield f"the window: {here} here, {there} of {figure.steps} there"
    own = flops_convention(job.model)
    if figure.flops_convention is not None and figure.flops_convention != own:
        yield f"the FLOPs formula: {own} here, {figure.flops_convention} there, {_by_theirs(result, figure)}"
    if figure.peak_tflops is not None and figure.peak_tflops != peak_tflops:
        yield f"the peak under the MFU: {figure.peak_tflops:g} TFLOPS there"
    for name in _SPLIT if row is not None else ():
        here, there = (getattr(one, name) or "none" for one in (job, row))
        if here != there:
            yield f"{name}: {here} here, {there} in the workload's table"
    if job.switches.fp8 == "current":
        yield "the scaling of fp8: current here, delayed in the published runs"
    if job.switches.tokenizer == "hub":
        yield "the tokenizer: the model's own here, NeMo's null tokenizer there"
    if (found := _vboost(result, job, figure)) is not None:
        yield found
    if job.env:
        yield "variables set here: " + ", ".join(sorted(job.env))


def _by_theirs(result: Result, figure: Figure) -> str:
    """Both MFU by the formula and the peak of the published one."""
    if result.mfu_reference_convention is None or figure.mfu is None:
        return "so the two MFU do not compare"
    return f"by which the MFU is {100 * result.mfu_reference_convention:.2f} % here, {100 * figure.mfu:.2f} % there"


def _vboost(result: Result, job: Job, figure: Figure) -> str | None:
    """How vboost differs from the published runs, where it does."""
    there = raises_vboost(figure.release)
    log = result.log.vboost if result.log is not None else None
    if job.vboost and there and log is not None and ":" in log:  # on some nodes it was not to be had
        return f"vboost: {log} here, on in the published runs"
    if job.vboost in (None, there):
        return None
    return f"vboost: {'on' if job.vboost else 'off'} here, {'on' if there else 'off'} in the published runs"


def settings_in_common(result: Result) -> str:
    """What is the same, since the two are compared."""
    window = ", the window" if result.same_window else ""
    return f"size, dtype, GPU type, number of GPUs, global batch, sequence length, layers{window}"


def where_it_ran(log: LogFacts | None, image: str | None = None, digest: str | None = None) -> Iterator[str]:
    """Where it ran, as far as its record, its log and the installer (``digest`` of the image) say."""
    if image is not None:
        yield f"image {image} ({digest or 'digest not known'})"
    if log is None:
        return
    hosts = ", ".join(log.hosts[:_MOST_HOSTS]) + (", ..." if len(log.hosts) > _MOST_HOSTS else "")
    said = (
        f"step lines as {log.framework} writes them" if log.framework else "",
        f"network {', '.join(log.networks)}" if log.networks else "",
        f"NCCL {log.nccl_version}" if log.nccl_version else "",
        f"{', '.join(log.gpu_models)}" if log.gpu_models else "",
        f"driver {', '.join(log.drivers)}" if log.drivers else "",
        f"SM clock up to {log.max_sm_clock_mhz:g} MHz" if log.max_sm_clock_mhz else "",
        f"power limit {log.power_limit_w:g} W" if log.power_limit_w else "",
        f"vboost {log.vboost}" if log.vboost else "",
        f"{log.nodes} node{'s' if log.nodes > 1 else ''}{f' ({hosts})' if hosts else ''}" if log.nodes else "",
    )
    if any(said):
        yield ", ".join(text for text in said if text)


def missing_in_log(log: LogFacts | None, scale: int) -> Iterator[str]:
    """What decides the speed of several GPUs and is not in the log, with the way to have it there."""
    told = log or LogFacts()
    missing = [
        name for name, known in (("NCCL's version", told.nccl_version), ("the network", told.networks)) if not known
    ]
    if scale > 1 and missing:
        yield f"not in the log: {' and '.join(missing)}; NCCL says it with {NCCL_FIX}"


def step_notes(result: Result) -> Iterator[str]:
    """What is particular about the steps of the window."""
    own = result.statistics
    if own is None:
        return
    if own.outliers:
        verb = "is" if len(own.outliers) == 1 else "are"
        which = ", ".join(map(str, own.outliers))
        yield f"{len(own.outliers)} of {own.count} {verb} far from the median {own.median:.4g} s: iteration {which}"
    if abs(own.drift) > _WORTH_SAYING:
        word = "slower" if own.drift > 0 else "faster"
        yield f"they get {100 * abs(own.drift):.1f} % {word} from the first to the last"
    if result.reference is None or result.ratio is None or own.median <= 0:
        return
    by_median = result.reference.step_time_s / own.median
    if abs(by_median - result.ratio) > _WORTH_SAYING:
        yield f"by their median the ratio would be {by_median:.4f}"


WIDTH = 11
RULES = (
    f"rules: FAIL below {FAIL_BELOW}, WARN below {WARN_BELOW}, SUSPICIOUS above {SUSPICIOUS_ABOVE}, PASS between; "
    f"INCONCLUSIVE where the interval of the repeats has {FAIL_BELOW} within"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
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


def explain(told: Explained) -> str:
    """The explanation as lines of text."""
    result = told.result
    parts = [_entry("run", f"{result.run}  {result.experiment}"), _entry("status", _status(result))]
    parts += [_entry(name, text) for name, text in (("cause", told.cause), ("fix", told.fix)) if text]
    if result.time_mean_seconds is not None:
        parts += [_measured(result), _tokens(told, result.time_mean_seconds), *_flops(told, result.time_mean_seconds)]
    parts += [*_compared(told), *_entries("steps", [*step_notes(result)]), *_circumstances(told)]
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


def _tokens(told: Explained, seconds: float) -> str:
    job, rate = told.job, told.result.tokens_per_second or 0.0
    sum_ = f"sequence {job.seq_length} · batch {job.gbs} / {seconds:.6g} s"
    return _entry("tokens/s", f"{sum_} = {rate:,.0f}; {rate / job.scale:,.1f} of each of {gpus_in_words(job.scale)}")


def _flops(told: Explained, seconds: float) -> list[str]:
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


def _compared(told: Explained) -> list[str]:
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


def _repeats(told: Explained) -> list[str]:
    if len(told.repeats) < 2:
        return []
    shown = ", ".join(f"{other.run} {other.ratio:.4f}" for other in told.repeats if other.ratio is not None)
    return [f"pooled with its repeats: {shown}"]


def _circumstances(told: Explained) -> list[str]:
    """What is not as published, and what is known of this run alone."""
    result, job, figure = told.result, told.job, told.figure
    place = [*where_it_ran(result.log, job.image, told.digest)]
    if figure is None:
        return _entries("ran on", place)
    differs = [*differences_from_published(result, job, figure, peak_tflops=told.peak_tflops, row=told.row)]
    place += [NOT_PUBLISHED.format(result.run), *missing_in_log(result.log, job.scale)]
    return [_entry("the same", settings_in_common(result)), *_entries("differs", differs), *_entries("ran on", place)]


def _checkpoints(result: Result) -> list[str]:
    """What was saved and loaded, where it is, and what is missing of it."""
    found = result.checkpoints
    if found is None:
        return []
    folders = [part.folder for part in (found.loaded, found.saved) if part is not None and part.folder is not None]
    return [*in_words(found), *folders, *found.problems]
