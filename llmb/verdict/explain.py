# SPDX-License-Identifier: Apache-2.0
"""Explains one result: every term of its figures, what it is compared with, and the verdict. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmb.results.checkpoints import in_words
from llmb.results.result import Metrics, Result
from llmb.results.table import tflops as in_digits
from llmb.runs.job import Job, Training
from llmb.stats.metrics import LOWER, STEP_TIME, TFLOPS_PER_GPU, TOKENS_PER_SECOND, TRAINING_BY_NAME, shown
from llmb.verdict import differences
from llmb.verdict.judge import FAIL_BELOW, SUSPICIOUS_ABOVE, WARN_BELOW
from llmb.workload.flops import Flops, flops_of
from llmb.workload.gpus import gpus_in_words
from llmb.workload.published import Figure
from llmb.workload.rows import Row

NOT_PUBLISHED = "the published run does not document this; to compare two of your own runs: llmb-run compare {} OTHER"
RULES = (
    f"rules: FAIL below {FAIL_BELOW}, WARN below {WARN_BELOW}, SUSPICIOUS above {SUSPICIOUS_ABOVE}, otherwise PASS; "
    f"INCONCLUSIVE if the 95 % interval of the ratio contains {FAIL_BELOW}"
)
WIDTH = 11
_WORTH_SAYING = 0.01  # a fraction of the step time


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The judged ``result`` of ``job``, and what is needed to explain it.

    ``peak_tflops``: of one GPU at the job's dtype; ``figure``: the published one that it is compared with; ``row``:
    that of its workload's table; ``digest``: of its image; ``repeats``: the results that are pooled, this one included;
    ``cause`` and ``fix``: of a failure; ``tflops_note``: why the framework's own TFLOPS are wrong; ``log_note``: what
    is unusual about the log file; ``flops``: by the plugin's own formula, None for llmb's; ``origin``: of an imported
    run.
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
    flops: Flops | None = None
    origin: str = ""


def explain(subject: Subject) -> str:
    """The explanation as lines of text."""
    result = subject.result
    status = f"{result.status}: {result.reason}" if result.reason else result.status
    parts = [_entry("run", f"{result.identity.run}  {result.identity.experiment}"), _entry("status", status)]
    parts += _entries("likely", [cause.text for cause in result.verdict.causes])
    named = (("imported", subject.origin), ("cause", subject.cause), ("fix", subject.fix))
    parts += [_entry(name, text) for name, text in named if text]
    parts += [*_training(subject), *_declared(result)]
    parts += [*_comparison(subject), *_entries("steps", [*step_notes(result)]), *_conditions(subject)]
    parts += _entries("checkpoint", _checkpoints(result))
    parts.append(_entry("log", result.identity.path + subject.log_note))
    return "\n".join(part for part in parts if part) + "\n"


def _training(subject: Subject) -> list[str]:
    """Step time, throughput and FLOPs of a job that trains a model."""
    metrics, job = subject.result.metrics, subject.job
    seconds, training = metrics.step_time, job.training
    if seconds is None or training is None:
        return []
    deviation = f"standard deviation {metrics.measured[STEP_TIME].std:.4g} s"
    rate = metrics.mean(TOKENS_PER_SECOND) or 0.0
    term = f"sequence {training.seq_length} · batch {training.gbs} / {seconds:.6g} s = {rate:,.0f}"
    return [
        _entry("step time", f"{seconds:.6g} s: mean over {_window_of(metrics)}, {deviation}"),
        _entry("tokens/s", f"{term}; {rate / job.scale:,.1f} per GPU on {gpus_in_words(job.scale)}"),
        *_flops(subject, training, seconds),
    ]


def _declared(result: Result) -> list[str]:
    """What was measured of the workload's own metrics, the headline first."""
    metrics = result.metrics
    own = [name for name in metrics.measured if name not in TRAINING_BY_NAME]
    parts = []
    for name in sorted(own, key=lambda name: name != metrics.headline):
        one = metrics.measured[name]
        deviation = f"standard deviation {shown(one.std, one.unit)}"
        text = f"{shown(one.mean, one.unit)}: mean over {_window_of(metrics)} (n={one.n}), {deviation}"
        parts.append(_entry(name, f"{text}; {one.better} is better"))
    return parts


def _window_of(metrics: Metrics) -> str:
    return f"{differences.window_in_words(metrics.window)} of {metrics.steps}"


def _entry(name: str, text: str) -> str:
    return f"{name:{WIDTH - 1}} {text}"


def _entries(name: str, lines: Sequence[str]) -> list[str]:
    return [_entry("" if number else name, line) for number, line in enumerate(lines)]


def _flops(subject: Subject, training: Training, seconds: float) -> list[str]:
    job, metrics, verdict = subject.job, subject.result.metrics, subject.result.verdict
    flops = subject.flops or flops_of(training.model)
    total, formulas = flops.total, flops.formulas
    lines = [f"{total:.4g} for one sample, by the formula {flops.convention}:"]
    lines += [
        f"  {part} {formulas[part]} = {value:.4g}" if part in formulas else f"  {part} {value:.4g}"
        for part, value in flops.terms.items()
    ]
    tflops = metrics.model_tflops_per_gpu or 0.0
    parts = _entries("FLOPs", lines)
    term = f"batch {training.gbs} · {total:.4g} / {seconds:.6g} s / {gpus_in_words(job.scale)}"
    parts.append(_entry("TFLOPS", f"{term} = {in_digits(tflops)} per GPU"))
    if metrics.mfu is None:
        return [*parts, _entry("MFU", f"unknown: llmb has no peak TFLOPS of {job.gpu_type} for {job.dtype}")]
    peak = f"{subject.peak_tflops:g} TFLOPS peak of {job.gpu_type} {job.dtype}"
    parts.append(_entry("MFU", f"{tflops:.2f} / {peak} = {100 * metrics.mfu:.2f} %"))
    own, figure = verdict.mfu_reference_convention, subject.figure
    if own is not None and figure is not None:
        peak = f", a peak of {figure.peak_tflops:g} TFLOPS" if figure.peak_tflops is not None else ""
        formula = f"formula {figure.flops_convention}, {figure.model_flops:.4g} for one sample{peak}"
        parts.append(_entry("", f"as release {figure.release} computes it: {100 * own:.2f} % ({formula})"))
    if subject.tflops_note:
        parts.append(_entry("", f"the framework's own TFLOPS are ignored: {subject.tflops_note}"))
    elif (logged := metrics.mean(TFLOPS_PER_GPU)) is not None:
        parts.append(_entry("", f"the framework logs {logged:.2f} TFLOPS per GPU"))
    return parts


def _comparison(subject: Subject) -> list[str]:
    verdict, figure = subject.result.verdict, subject.figure
    parts = []
    if figure is not None:
        window = f"{differences.window_in_words(figure.window)} of {figure.steps}"
        name = "" if figure.metric.name == subject.result.metrics.headline else f"{figure.metric.name} "
        lines = [f"{name}{_exact(figure.value, figure.metric.unit)} over {window}, published in {figure.source}"]
        if figure.mfu is not None and figure.model_flops is not None:
            formula = f"formula {figure.flops_convention}, {figure.model_flops:.4g} for one sample"
            lines.append(f"its printed MFU is {100 * figure.mfu:.2f} % ({formula})")
        parts += _entries("reference", lines)
    elif (other := verdict.reference) is not None:
        window = f" over {other.window}" if other.window else ""
        parts.append(_entry("reference", f"{_exact(other.value, other.unit)}{window}, {other.release}: {other.source}"))
    if verdict.ratio is not None and verdict.reference is not None:
        own, reference = subject.result.metrics.measured[verdict.reference.metric], verdict.reference
        terms = [_exact(reference.value, reference.unit), f"{own.mean:.6g} {own.unit}".strip()]
        term = " / ".join(terms if own.better == LOWER else reversed(terms))
        meaning = "measured relative to published" + (" throughput" if reference.metric == STEP_TIME else "")
        meaning = meaning if figure is not None else f"relative to {reference.release}"
        parts.append(_entry("ratio", f"{term} = {verdict.ratio:.4f}: {meaning}"))
        ratios = [(one.identity.run, one.verdict.ratio) for one in subject.repeats if one.verdict.ratio is not None]
        if len(subject.repeats) > 1:
            pooled = ", ".join(f"{run} {ratio:.4f}" for run, ratio in ratios)
            parts.append(_entry("", f"pooled with its repeats: {pooled}"))
    if verdict.word is not None:
        parts.append(_entry("verdict", f"{verdict.word}: {verdict.bare_reason}"))
    if verdict.ratio is not None:
        parts.append(_entry("", RULES))
    return parts


def _exact(value: float, unit: str) -> str:
    return f"{value:g} {unit}".strip()


def _conditions(subject: Subject) -> list[str]:
    """What differs from the published run, and where this run ran."""
    result, job, figure = subject.result, subject.job, subject.figure
    ran_on = [*differences.where_it_ran(result.log, job.image, subject.digest)]
    if figure is None:
        return [*_entries("differs", result.verdict.differences), *_entries("ran on", ran_on)]
    peak, row = subject.peak_tflops, subject.row
    ran_on += [NOT_PUBLISHED.format(result.identity.run), *differences.missing_in_log(result.log, job.scale)]
    differs = differences.differences_from_published(result, job, figure, peak_tflops=peak, row=row)
    return [
        _entry("the same", differences.settings_in_common(result)),
        *_entries("differs", [*differs]),
        *_entries("ran on", ran_on),
    ]


def _checkpoints(result: Result) -> list[str]:
    """What was saved and loaded, its folder, and what is missing."""
    found = result.checkpoints
    if found is None:
        return []
    folders = [part.folder for part in (found.loaded, found.saved) if part is not None and part.folder is not None]
    return [*in_words(found), *folders, *found.problems]


def step_notes(result: Result) -> Iterator[str]:
    """What is unusual about the steps of the window."""
    own, verdict, headline = result.metrics.statistics, result.verdict, result.metrics.value
    if own is None or headline is None:
        return
    if own.outliers:
        verb = "is" if len(own.outliers) == 1 else "are"
        which = f"iteration{'s' if len(own.outliers) > 1 else ''} {', '.join(map(str, own.outliers))}"
        median = f"{own.median:.4g} {headline.unit}".strip()
        yield f"{len(own.outliers)} of {own.count} {verb} far from the median of {median}: {which}"
    if abs(own.drift) > _WORTH_SAYING:
        words = ("slower", "faster") if result.metrics.headline == STEP_TIME else ("worse", "better")
        word = words[(own.drift < 0) == (headline.better == LOWER)]
        yield f"steps get {100 * abs(own.drift):.1f} % {word} from the first to the last"
    reference = verdict.reference
    if reference is None or verdict.ratio is None or own.median <= 0 or reference.metric != result.metrics.headline:
        return
    by_median = reference.value / own.median if headline.better == LOWER else own.median / reference.value
    if abs(by_median - verdict.ratio) > _WORTH_SAYING:
        yield f"by their median, the ratio would be {by_median:.4f}"
