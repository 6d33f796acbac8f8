# SPDX-License-Identifier: Apache-2.0
"""Explains one result: every term of its figures, what it is compared with, and the verdict. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmb.results.facts import LogFacts, in_words
from llmb.results.result import Metrics, Result
from llmb.results.table import tflops as in_digits
from llmb.runs.job import Job, Training
from llmb.stats.measure import LAST, Window
from llmb.stats.metrics import LOWER, STEP_TIME, TRAINING_BY_NAME, shown
from llmb.verdict.judge import FAIL_BELOW, SUSPICIOUS_ABOVE, WARN_BELOW
from llmb.workload.flops import Flops, flops_convention, flops_of
from llmb.workload.gpus import gpus_in_words
from llmb.workload.published import Figure, raises_vboost
from llmb.workload.rows import Row

NOT_PUBLISHED = "the published run does not document this; to compare two of your own runs: llmb-run compare {} OTHER"
NCCL_FIX = "--env NCCL_DEBUG=INFO --env NCCL_DEBUG_SUBSYS=INIT,NET"
RULES = (
    f"rules: FAIL below {FAIL_BELOW}, WARN below {WARN_BELOW}, SUSPICIOUS above {SUSPICIOUS_ABOVE}, otherwise PASS; "
    f"INCONCLUSIVE if the interval of the repeats contains {FAIL_BELOW}"
)
WIDTH = 11
_SPLIT = ("tp", "pp", "cp", "vp", "ep", "mbs")  # not etp: a row without it has that of tp
_MOST_HOSTS = 8
_WORTH_SAYING = 0.01  # a fraction of the step time


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The judged ``result`` of ``job``, and what is needed to explain it.

    ``peak_tflops``: of one GPU at the job's dtype; ``figure``: what it is compared with; ``row``: that of its
    workload's table; ``digest``: of its image; ``repeats``: the results that are pooled, this one included; ``cause``
    and ``fix``: of a failure; ``tflops_note``: why the framework's own TFLOPS are wrong; ``log_note``: what is unusual
    about the log file; ``flops``: by the plugin's own formula, None for llmb's; ``origin``: of an imported run.
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
    deviation = f"standard deviation {metrics.step_time_deviation:.4g} s"
    rate = metrics.tokens_per_second or 0.0
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
    return f"{window_in_words(metrics.window)} of {metrics.steps}"


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
    elif metrics.framework_tflops is not None:
        parts.append(_entry("", f"the framework logs {metrics.framework_tflops:.2f} TFLOPS per GPU"))
    return parts


def _comparison(subject: Subject) -> list[str]:
    verdict, figure = subject.result.verdict, subject.figure
    parts = []
    if figure is not None:
        window = f"{window_in_words(figure.window)} of {figure.steps}"
        name = "" if figure.metric.name == subject.result.metrics.headline else f"{figure.metric.name} "
        lines = [f"{name}{_exact(figure.value, figure.metric.unit)} over {window}, published in {figure.source}"]
        if figure.mfu is not None and figure.model_flops is not None:
            formula = f"formula {figure.flops_convention}, {figure.model_flops:.4g} for one sample"
            lines.append(f"its printed MFU is {100 * figure.mfu:.2f} % ({formula})")
        parts += _entries("reference", lines)
    if verdict.ratio is not None and verdict.reference is not None:
        own, reference = subject.result.metrics.measured[verdict.reference.metric], verdict.reference
        terms = [_exact(reference.value, reference.unit), f"{own.mean:.6g} {own.unit}".strip()]
        term = " / ".join(terms if own.better == LOWER else reversed(terms))
        meaning = "measured relative to published" + (" throughput" if reference.metric == STEP_TIME else "")
        parts.append(_entry("ratio", f"{term} = {verdict.ratio:.4f}: {meaning}"))
        ratios = [(one.identity.run, one.verdict.ratio) for one in subject.repeats if one.verdict.ratio is not None]
        if len(subject.repeats) > 1:
            pooled = ", ".join(f"{run} {ratio:.4f}" for run, ratio in ratios)
            parts.append(_entry("", f"pooled with its repeats: {pooled}"))
    if verdict.word is not None:
        parts.append(_entry("verdict", f"{verdict.word}: {verdict.reason}"))
    if verdict.ratio is not None:
        parts.append(_entry("", RULES))
    return parts


def _exact(value: float, unit: str) -> str:
    return f"{value:g} {unit}".strip()


def _conditions(subject: Subject) -> list[str]:
    """What differs from the published run, and where this run ran."""
    result, job, figure = subject.result, subject.job, subject.figure
    ran_on = [*where_it_ran(result.log, job.image, subject.digest)]
    if figure is None:
        return _entries("ran on", ran_on)
    peak, row = subject.peak_tflops, subject.row
    ran_on += [NOT_PUBLISHED.format(result.identity.run), *missing_in_log(result.log, job.scale)]
    return [
        _entry("the same", settings_in_common(result)),
        *_entries("differs", [*differences_from_published(result, job, figure, peak_tflops=peak, row=row)]),
        *_entries("ran on", ran_on),
    ]


def _checkpoints(result: Result) -> list[str]:
    """What was saved and loaded, its folder, and what is missing."""
    found = result.checkpoints
    if found is None:
        return []
    folders = [part.folder for part in (found.loaded, found.saved) if part is not None and part.folder is not None]
    return [*in_words(found), *folders, *found.problems]


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
    """What differs between a run and the published figure that it is compared with.

    ``peak_tflops``: of one GPU at the job's dtype; ``row``: of the workload's table, which the published runs used.
    """
    if result.verdict.same_window is False:
        here, there = window_in_words(result.metrics.window), window_in_words(figure.window)
        yield f"window: {here} here, {there} of {figure.steps} in the published run"
    training = job.training
    own = result.metrics.flops_convention or (None if training is None else flops_convention(training.model))
    if figure.flops_convention is not None and figure.flops_convention != own:
        ours, mfu = result.verdict.mfu_reference_convention, "so the two MFU cannot be compared"
        if ours is not None and figure.mfu is not None:
            mfu = f"which gives an MFU of {100 * ours:.2f} % here and {100 * figure.mfu:.2f} % there"
        yield f"FLOPs formula: {own} here, {figure.flops_convention} in the published run, {mfu}"
    if figure.peak_tflops is not None and figure.peak_tflops != peak_tflops:
        yield f"peak for the MFU: {figure.peak_tflops:g} TFLOPS in the published run"
    for name in _SPLIT if row is not None and training is not None else ():
        here, there = (getattr(one, name) or "none" for one in (training, row))
        if here != there:
            yield f"{name}: {here} here, {there} in the workload's table"
    if job.switches.fp8 == "current":
        yield "fp8 scaling: current here, delayed in the published runs"
    if job.switches.tokenizer == "hub":
        yield "tokenizer: the model's own here, NeMo's null tokenizer in the published runs"
    if (vboost := _vboost(result, job, figure)) is not None:
        yield vboost
    if job.env:
        yield "variables set here: " + ", ".join(sorted(job.env))


def _vboost(result: Result, job: Job, figure: Figure) -> str | None:
    """How vboost differs from the published runs, where it does."""
    there = raises_vboost(figure.release)
    log = result.log.vboost if result.log is not None else None
    if job.vboost and there and log is not None and ":" in log:  # some nodes refused it
        return f"vboost: {log} here, on in the published runs"
    if job.vboost in (None, there):
        return None
    return f"vboost: {'on' if job.vboost else 'off'} here, {'on' if there else 'off'} in the published runs"


def settings_in_common(result: Result) -> str:
    """The settings that a result has in common with its reference."""
    own, window = result.identity.configuration, ", window" if result.verdict.same_window else ""
    parameters = ", parameters" if own is not None and own.parameters else ""
    training = ", global batch, sequence length, layers" if own is None or own.gbs is not None else ""
    return f"size, dtype, GPU type, number of GPUs{parameters}{training}{window}"


def where_it_ran(log: LogFacts | None, image: str | None = None, digest: str | None = None) -> Iterator[str]:
    """Image, network, GPUs and nodes of a run, as far as its record, its log and the installer know them."""
    if image is not None:
        yield f"image {image} ({digest or 'unknown digest'})"
    if log is None:
        return
    hosts = ", ".join(log.hosts[:_MOST_HOSTS]) + (", ..." if len(log.hosts) > _MOST_HOSTS else "")
    facts = (
        f"step lines of {log.framework}" if log.framework else "",
        f"network {', '.join(log.networks)}" if log.networks else "",
        f"NCCL {log.nccl_version}" if log.nccl_version else "",
        f"{', '.join(log.gpu_models)}" if log.gpu_models else "",
        f"driver {', '.join(log.drivers)}" if log.drivers else "",
        f"SM clock up to {log.max_sm_clock_mhz:g} MHz" if log.max_sm_clock_mhz else "",
        f"power limit {log.power_limit_w:g} W" if log.power_limit_w else "",
        f"vboost {log.vboost}" if log.vboost else "",
        f"{log.nodes} node{'s' if log.nodes > 1 else ''}{f' ({hosts})' if hosts else ''}" if log.nodes else "",
    )
    if any(facts):
        yield ", ".join(text for text in facts if text)


def missing_in_log(log: LogFacts | None, scale: int) -> Iterator[str]:
    """What the speed of several GPUs depends on and the log omits, with the options that log it."""
    found = log or LogFacts()
    missing = [name for name, known in (("NCCL version", found.nccl_version), ("network", found.networks)) if not known]
    if scale > 1 and missing:
        yield f"missing in the log: {' and '.join(missing)}; to log them, submit with {NCCL_FIX}"


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
