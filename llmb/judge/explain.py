# SPDX-License-Identifier: Apache-2.0
"""Explain one result: every term of its figures, its reference, and the verdict. Pure."""

from collections.abc import Sequence

from llmb.contract.flops import Flops, flops_of
from llmb.contract.gpus import gpus_in_words
from llmb.contract.job import Job
from llmb.contract.metrics import (
    ENERGY_BY_NAME,
    LOWER,
    STEP_TIME,
    TFLOPS_PER_GPU,
    TOKENS_PER_SECOND,
    TRAINING_BY_NAME,
    USUAL_BOUNDS,
    Bounds,
    shown,
    tflops_in_digits,
)
from llmb.contract.model_settings import Trained
from llmb.contract.rows import Row
from llmb.contract.samples import Straggler
from llmb.core.digits import exact
from llmb.core.values import dataclass
from llmb.judge import correctness, differences, sustained
from llmb.judge.steps import step_notes
from llmb.judge.value import PASS, bounds_of, ratio_in_digits
from llmb.measure.checkpoints import in_words
from llmb.measure.facts import LogFacts
from llmb.measure.result import Metrics, Result
from llmb.measure.stragglers import in_words as straggler_in_words
from llmb.plan.published import Figure

NOT_PUBLISHED = (
    "image, network and GPUs of the published run are not documented; to compare two of your own"
    " runs: llmb-run compare {} OTHER"
)
ENERGY_NOTE = (
    "energy and power are those of the GPUs, not at the wall; the cost is that of the GPUs' time in"
    " steps"
)
WIDTH = 11


Line = tuple[str, str]  # a name, empty if it continues the line before, and a text


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The judged ``result`` of ``job``, with everything that explains it."""

    result: Result
    job: Job
    peak_tflops: float | None = None  #: of one GPU at the job's dtype
    figure: Figure | None = None  #: the published figure that the result is compared with
    row: Row | None = None  #: the job's row in its workload's table
    digest: str | None = None  #: of the image
    repeats: Sequence[Result] = ()  #: the pooled results, this one included
    cause: str = ""  #: of a failure
    fix: str = ""
    tflops_note: str = ""  #: why the framework's own TFLOPS are wrong
    log_note: str = ""  #: anything unusual about the log file
    flops: Flops | None = None  #: by the plugin's own formula, None for llmb's
    origin: str = ""  #: of an imported run
    #: The name of the program if it prints the step lines of a framework that did not run.
    program: str = ""


def explain(subject: Subject) -> str:
    """Return the explanation as lines of text."""
    result = subject.result
    status = f"{result.status}: {result.reason}" if result.reason else result.status
    parts = [
        ("run", f"{result.identity.run}  {result.identity.experiment}"),
        ("status", status),
    ]
    parts += _entries("likely", [cause.text for cause in result.verdict.causes])
    named = (("imported", subject.origin), ("cause", subject.cause), ("fix", subject.fix))
    parts += [(name, text) for name, text in named if text]
    parts += [*_training(subject), *_declared(result), *_entries("energy", _energy(result))]
    parts += [
        *_comparison(subject),
        *_entries("training", [*correctness.in_words(result.verdict)]),
        *_entries("steps", [*step_notes(result)]),
        *_entries("sustained", sustained.in_words(result)),
        *_entries("slow ranks", [straggler_in_words(rank) for rank in _stragglers(result)]),
        *_conditions(subject),
    ]
    parts += _entries("checkpoint", _checkpoints(result))
    parts.append(("log", result.identity.path + subject.log_note))
    return "".join(f"{name:{WIDTH - 1}} {text}\n" for name, text in parts)


def formulas(subject: Subject) -> list[tuple[str, tuple[str, ...]]]:
    """Return each figure of a run by name, with the lines that compute it from numbers."""
    named: list[tuple[str, tuple[str, ...]]] = []
    for name, text in [*_training(subject), *_declared(subject.result), *_comparison(subject)]:
        if name:
            named.append((name, (text,)))
        else:
            named[-1] = (named[-1][0], (*named[-1][1], text))
    return named


def _stragglers(result: Result) -> tuple[Straggler, ...]:
    return () if result.log is None else result.log.stragglers


def _training(subject: Subject) -> list[Line]:
    """Return step time, throughput and FLOPs of a job that trains a model."""
    metrics, job = subject.result.metrics, subject.job
    seconds, trained = metrics.step_time, job.with_dotted
    if seconds is None or job.training is None:
        return []
    std = metrics.measured[STEP_TIME].std
    deviation = "a single value" if std is None else f"standard deviation {std:.4g} s"
    rate = metrics.mean(TOKENS_PER_SECOND)
    term = f"sequence {trained.seq_length} · batch {trained.gbs} / {seconds:.6g} s"
    tokens = f"unknown: {_names(trained)} changes batch or sequence"
    if rate is not None:
        tokens = f"{term} = {shown(rate)}"
        if job.scale > 1:
            tokens += f"; {shown(rate / job.scale)} per GPU on {gpus_in_words(job.scale)}"
    return [
        ("step time", f"{seconds:.6g} s: mean over {_window_of(metrics)}, {deviation}"),
        ("tokens/s", tokens),
        *_flops(subject, trained, seconds),
    ]


def _names(trained: Trained) -> str:
    return ", ".join(trained.changes)


def _declared(result: Result) -> list[Line]:
    """Return the values of the workload's own metrics, the headline first."""
    metrics = result.metrics
    declared = [name for name in metrics.measured if name not in TRAINING_BY_NAME]
    parts = []
    for name in sorted(declared, key=lambda name: name != metrics.headline):
        if name in ENERGY_BY_NAME and name != metrics.headline:
            continue
        measured = metrics.measured[name]
        std = measured.std
        deviation = (
            "a single value" if std is None else f"standard deviation {shown(std, measured.unit)}"
        )
        mean = f"{shown(measured.mean, measured.unit)}: mean over {_window_of(metrics)}"
        text = f"{mean} (n={measured.n}), {deviation}"
        parts.append((name, f"{text}; {measured.better} is better"))
    return parts


def _energy(result: Result) -> list[str]:
    """Return energy, power and cost, and what they are of."""
    values = energy_of(result)
    return [*map(": ".join, values), ENERGY_NOTE] if values else []


def energy_of(result: Result) -> list[tuple[str, str]]:
    """Return the name and the value of each known metric of energy, power and cost."""
    measured = result.metrics.measured
    return [
        (name, shown(measured[name].mean, measured[name].unit))
        for name in ENERGY_BY_NAME
        if name in measured
    ]


def _window_of(metrics: Metrics) -> str:
    return f"{differences.window_in_words(metrics.window)} of {metrics.steps}"


def _entries(name: str, lines: Sequence[str]) -> list[Line]:
    return [("" if number else name, line) for number, line in enumerate(lines)]


def _flops(subject: Subject, trained: Trained, seconds: float) -> list[Line]:
    job, metrics, verdict = subject.job, subject.result.metrics, subject.result.verdict
    if trained.model is None:
        return [("FLOPs", f"unknown: {_names(trained)} changes the model")]
    flops = subject.flops or flops_of(trained.model)
    total, formulas = flops.total, flops.formulas
    lines = [f"{total:.4g} for one sample, by the formula {flops.convention}:"]
    lines += [
        f"  {part} {formulas[part]} = {value:.4g}" if part in formulas else f"  {part} {value:.4g}"
        for part, value in flops.terms.items()
    ]
    tflops = metrics.model_tflops_per_gpu or 0.0
    parts = _entries("FLOPs", lines)
    if trained.gbs is None:
        return parts
    term = f"batch {trained.gbs} · {total:.4g} / {seconds:.6g} s / {gpus_in_words(job.scale)}"
    parts.append(("TFLOPS", f"{term} = {tflops_in_digits(tflops)} per GPU"))
    if trained.other_dtype:
        return [*parts, ("MFU", f"unknown: {_names(trained)} changes the dtype")]
    if metrics.mfu is None:
        return [
            *parts,
            ("MFU", f"unknown: llmb has no peak TFLOPS of {job.gpu_type} for {job.dtype}"),
        ]
    peak = f"{subject.peak_tflops:g} TFLOPS peak of {job.gpu_type} {job.dtype}"
    parts.append(("MFU", f"{tflops:.2f} / {peak} = {100 * metrics.mfu:.2f} %"))
    converted_mfu, figure = verdict.mfu_reference_convention, subject.figure
    if converted_mfu is not None and figure is not None:
        peak = (
            f", a peak of {figure.peak_tflops:g} TFLOPS" if figure.peak_tflops is not None else ""
        )
        formula = (
            f"formula {figure.flops_convention}, {figure.model_flops:.4g} for one sample{peak}"
        )
        parts.append(
            (
                "",
                f"as release {figure.release} computes it: {100 * converted_mfu:.2f} % ({formula})",
            )
        )
    if subject.tflops_note:
        parts.append(("", f"the framework's own TFLOPS are ignored: {subject.tflops_note}"))
    elif (logged := metrics.mean(TFLOPS_PER_GPU)) is not None:
        parts.append(("", f"the framework logs {logged:.2f} TFLOPS per GPU"))
    return parts


def _comparison(subject: Subject) -> list[Line]:
    verdict, figure = subject.result.verdict, subject.figure
    parts = []
    if figure is not None:
        window = f"{differences.window_in_words(figure.window)} of {figure.steps}"
        name = (
            ""
            if figure.metric.name == subject.result.metrics.headline
            else f"{figure.metric.name} "
        )
        lines = [
            f"{name}{_exact(figure.value, figure.metric.unit)} over {window}, published in"
            f" {figure.source}"
        ]
        if figure.mfu is not None and figure.model_flops is not None:
            formula = f"formula {figure.flops_convention}, {figure.model_flops:.4g} for one sample"
            lines.append(f"its printed MFU is {100 * figure.mfu:.2f} % ({formula})")
        parts += _entries("reference", lines)
    elif (baseline := verdict.reference) is not None:
        window = f" over {baseline.window}" if baseline.window else ""
        value = _exact(baseline.value, baseline.unit)
        text = f"{value}{window}, {baseline.release}: {baseline.source}"
        parts.append(("reference", text))
    if verdict.ratio is not None and verdict.reference is not None:
        measured, reference = (
            subject.result.metrics.measured[verdict.reference.metric],
            verdict.reference,
        )
        terms = [
            _exact(reference.value, reference.unit),
            f"{measured.mean:.6g} {measured.unit}".strip(),
        ]
        term = " / ".join(terms if measured.better == LOWER else reversed(terms))
        meaning = "measured relative to published" + (
            " throughput" if reference.metric == STEP_TIME else ""
        )
        meaning = meaning if figure is not None else f"relative to {reference.release}"
        parts.append(("ratio", f"{term} = {_ratio(subject.result)}: {meaning}"))
        if len(subject.repeats) > 1:
            pooled = ", ".join(
                f"{repeat.identity.run} {_ratio(repeat)}"
                for repeat in subject.repeats
                if repeat.verdict.ratio is not None
            )
            parts.append(("", f"pooled with its repeats: {pooled}"))
    if verdict.word is not None:
        parts.append(("verdict", f"{verdict.word}: {verdict.bare_reason}"))
    if verdict.ratio is not None:
        parts.append(("", _rules(bounds_of(subject.result) or USUAL_BOUNDS)))
    failed = {name for name, judged in verdict.metrics.items() if judged.word != PASS}
    parts += [("", rule) for name, rule in correctness.RULES.items() if name in failed]
    return parts


def _ratio(result: Result) -> str:
    return ratio_in_digits(result.verdict.ratio or 0.0, bounds_of(result), decimals=4)


def _rules(bounds: Bounds) -> str:
    fail, warn, most = map(exact, (bounds.fail_below, bounds.warn_below, bounds.suspicious_above))
    return (
        f"rules: FAIL below {fail}, WARN below {warn}, SUSPICIOUS above {most}, otherwise PASS;"
        f" INCONCLUSIVE if the 95 % interval reaches from below {fail} to above {warn}"
    )


def _exact(value: float, unit: str) -> str:
    return f"{value:g} {unit}".strip()


def _conditions(subject: Subject) -> list[Line]:
    """Return the differences from the published run, and the conditions of this run."""
    result, job, figure = subject.result, subject.job, subject.figure
    ran_on = [*differences.where_it_ran(result.log, job.image, subject.digest)]
    printed_by = differences.printed_by(result.log or LogFacts(), subject.program)
    read_as = _entries("read as", [f"step lines of {printed_by}"] if printed_by else [])
    if figure is None:
        differing = _entries("differs", result.verdict.differences)
        return [*differing, *_entries("ran on", ran_on), *read_as]
    peak, row = subject.peak_tflops, subject.row
    ran_on += [
        NOT_PUBLISHED.format(result.identity.run),
        *differences.missing_in_log(result.log, job.scale),
    ]
    differs = differences.differences_from_published(result, job, figure, peak_tflops=peak, row=row)
    return [
        ("the same", differences.settings_in_common(result)),
        *_entries("differs", [*differs]),
        *_entries("ran on", ran_on),
        *read_as,
    ]


def _checkpoints(result: Result) -> list[str]:
    """Return the saved and loaded checkpoints with their folders, and any problems."""
    checkpoints = result.checkpoints
    if checkpoints is None:
        return []
    folders = [
        part.folder
        for part in (checkpoints.loaded, checkpoints.saved)
        if part is not None and part.folder is not None
    ]
    return [*in_words(checkpoints), *folders, *checkpoints.problems]
