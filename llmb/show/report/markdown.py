# SPDX-License-Identifier: Apache-2.0
"""A report as Markdown, and a summary of a few lines below a table of many runs. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from llmb.contract.report_section import ReportSection
from llmb.contract.settings import Settings
from llmb.core.names import listed, shorter
from llmb.core.node_lists import fold
from llmb.core.tables import Column, as_markdown, escape, render
from llmb.judge.judge import pool_key
from llmb.judge.scaling import ScalingPoint, columns, rows_of
from llmb.judge.value import FAIL, INVALID, NO_REFERENCE
from llmb.measure.failure_causes import FailureGroup, group_failures
from llmb.measure.result import CANCELLED, FAILED, PENDING, RUNNING, SUCCESS, UNKNOWN, Result
from llmb.measure.result_notes import parameters_in_words
from llmb.show.report.entries import entries_of
from llmb.show.report.glance import one_line
from llmb.show.report.value import ORDER, Report, Run, count, word_of
from llmb.show.results_table import legend, table_of

LEAST = 12  # runs: with fewer, the table itself is as short
_NAMED, _LONG = 6, 2  # runs in a line; logs without an id, which have long names
_LINES = 8  # of one kind
_MOST_NODES, _OF_NODES = 100, 20  # sets of nodes, and runs of each
STATUS = {
    SUCCESS: "succeeded",
    FAILED: "failed",
    CANCELLED: "cancelled",
    UNKNOWN: "unknown",
    RUNNING: "not ended",
    PENDING: "waiting",
}


def digest(results: Sequence[Result]) -> list[str]:
    """Return lines with runs by status and verdict, bad configurations, and causes of failures.

    Empty for fewer than LEAST runs.
    """
    if len(results) < LEAST:
        return []
    words = [word_of(result) for result in results]
    statuses = Counter(result.status for result in results)
    verdicts = Counter(word for word in words if word not in STATUS)
    lines = [f"{len(results)} runs: {_counted(statuses, STATUS)}"]
    # else the table's legend says why
    if any(result.verdict.word != NO_REFERENCE for result in results) and verdicts:
        lines.append(f"verdicts: {_counted(verdicts, {word: word for word in ORDER})}")
    lines += remarkable(results)
    if any(
        word in (FAIL, INVALID, FAILED) and result.identity.run
        for word, result in zip(words, results, strict=True)
    ):
        lines.append(
            "reasons and fixes: llmb-run explain RUN; everything on one page: llmb-run report -o"
            " report.html"
        )
    return lines


def remarkable(results: Sequence[Result]) -> list[str]:
    """The configurations that are bad or invalid, and each cause of failures with its runs."""
    return [
        *cut([_bad_or_invalid(pool) for pool in _pools(results, FAIL)], "more are FAIL"),
        *cut([_bad_or_invalid(pool) for pool in _pools(results, INVALID)], "more are INVALID"),
        *cut(list(_failed(results)), "more causes of failures"),
    ]


def cut(lines: Sequence[str], more: str) -> list[str]:
    """The first lines, and how many more there are of ``more``."""
    return [*lines[:_LINES], *([f"{len(lines) - _LINES} {more}"] if len(lines) > _LINES else [])]


def _counted(counts: Counter[str], texts: dict[str, str]) -> str:
    return ", ".join(f"{counts[word]} {text}" for word, text in texts.items() if counts[word])


def _pools(results: Iterable[Result], verdict: str) -> list[list[Result]]:
    """The runs of this verdict by configuration, the worst first."""
    pools: dict[object, list[Result]] = {}
    for result in results:
        if result.verdict.word == verdict:
            pools.setdefault(pool_key(result), []).append(result)
    return sorted(
        pools.values(),
        key=lambda pool: (pool[0].verdict.pooled_ratio or 0.0, pool[0].identity.experiment),
    )


def _bad_or_invalid(pool: Sequence[Result]) -> str:
    verdict = pool[0].verdict
    explanation = f", {verdict.reason}"
    if verdict.word == FAIL:
        explanation = ", ".join(
            [f" {verdict.pooled_ratio or 0.0:.3f}", *(cause.text for cause in verdict.causes)]
        )
    identity = pool[0].identity
    name = with_parameters(identity.experiment, identity.configuration)
    return f"{verdict.word}: {name}{explanation}: {_ids(pool)}"


def with_parameters(experiment: str, configuration: Settings | None) -> str:
    """The shortest name of an experiment, with the parameters of its workload."""
    parameters = parameters_in_words(configuration.parameters) if configuration is not None else ""
    return " ".join(filter(None, (shortest(experiment), parameters)))


def _failed(results: Iterable[Result]) -> Iterable[str]:
    failed = [result for result in results if result.status == FAILED]
    by_name = {result.identity.name: result for result in failed}
    causes = [(name, result.cause) for name, result in by_name.items() if result.cause is not None]
    for group in group_failures(causes):
        yield (
            f"{len(group.runs)} failed, {group.cause.kind}:"
            f" {_ids([by_name[name] for name in group.runs])}"
        )
    unexplained = [result for result in failed if result.cause is None]
    if unexplained:
        yield f"{len(unexplained)} failed, unknown cause: {_ids(unexplained)}"


def shortest(experiment: str) -> str:
    """Workload, size, dtype and GPUs of an experiment's name."""
    return list(shorter(experiment))[-1].removesuffix("..")


def _ids(pool: Sequence[Result]) -> str:
    names = [result.identity.run or result.identity.experiment for result in pool]
    return listed(names, _NAMED if pool[0].identity.run else _LONG, " ")


def to_markdown(report: Report) -> str:
    results = report.results
    parts = [
        f"# {as_markdown(report.title)}",
        as_markdown(_origin_of(report)),
        *(_section(section) for section in report.sections if section.first),
        as_markdown(compared_with(report)),
    ]
    parts += [_summary(results), missing(report)]
    if results:
        parts.append(as_markdown(one_line(report, entries_of(report.runs))))
    parts += ["\n".join(f"- {as_markdown(str(result.reason))}" for result in report.unreadable)]
    parts += [
        "\n".join(f"- {as_markdown(line)}" for line in remarkable(results)),
        "## Results",
        _table(results, report),
    ]
    if report.points:
        scaling = render(columns(report.points, "md"), rows_of(report.points, "md"), "md")
        parts += ["## Scaling", scaling_note(report.points), scaling]
    if report.failures:
        parts += ["## Failures", *(_failure(group) for group in report.failures)]
    parts += ["## Conditions", _conditions(results)]
    if any(run.hosts for run in report.runs):
        parts += ["## Nodes", _nodes(report.runs)]
    parts += [_section(section) for section in report.sections if not section.first]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def sections_markdown(report: Report) -> str:
    """A page of plugins alone."""
    parts = [f"# {as_markdown(report.title)}", as_markdown(_origin_of(report))]
    parts += [_section(section) for section in report.sections]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _section(section: ReportSection) -> str:
    """The section of a plugin. Its text is no Markdown."""
    paragraphs = (" ".join(text.split()) for text in section.text.split("\n\n"))
    parts = [f"## {as_markdown(section.title)}", *map(as_markdown, paragraphs)]
    if section.columns:
        columns = [
            Column(key=str(number), heading=heading, right=_is_numeric(section, number))
            for number, heading in enumerate(section.columns)
        ]
        rows = [{str(n): cell for n, cell in enumerate(row)} for row in section.rows]
        parts.append(render(columns, rows, "md"))
    return "\n\n".join(filter(None, parts))


def _is_numeric(section: ReportSection, column: int) -> bool:
    return all(not isinstance(row[column], str) for row in section.rows)


def scaling_note(points: Iterable[ScalingPoint]) -> str:
    training = {point.kind is not None for point in points}
    if training == {True}:
        return "Throughput per GPU, relative to the smallest scale."
    trained_note = (
        "; of models that are trained, the throughput per GPU" if True in training else ""
    )
    return (
        f"The measured value, relative to the smallest scale{trained_note}. Above 100 % is better."
    )


def missing(report: Report) -> str:
    """Return a sentence on the runs without a result, empty if the report has all."""
    if not report.unreadable:
        return ""
    noun = (
        "record of 1 run: its"
        if len(report.unreadable) == 1
        else f"records of {len(report.unreadable)} runs: their"
    )
    return f"llmb cannot read the {noun} status is Unknown."


def _origin_of(report: Report) -> str:
    day = report.made.strftime("%Y-%m-%d %H:%M")
    place = f"cluster type {report.cluster_type}, GPU type {report.gpu_type}"
    return f"Made by llmb {report.llmb_version} on {day}; {place}."


def _summary(results: Sequence[Result]) -> str:
    statuses = Counter(result.status for result in results)
    runs = [f"{statuses[status]} {word}" for status, word in STATUS.items() if statuses[status]]
    verdicts = Counter(result.verdict.word for result in results if result.verdict.word is not None)
    lines = [f"{count(len(results), 'run')}: {', '.join(runs) or 'none'}."]
    if verdicts:
        lines.append(
            "Verdicts:"
            f" {', '.join(f'{number} {word}' for word, number in sorted(verdicts.items()))}."
        )
    return "\n".join(lines)


def compared_with(report: Report) -> str:
    """Return the baseline that the runs are compared with, empty for the published figures."""
    if report.baseline is None:
        return ""
    return f"Compared with {report.against.dated}, {count(len(report.baseline.results), 'run')}."


def _table(results: Sequence[Result], report: Report) -> str:
    if not results:
        return ""
    table = render(*table_of(results), "md")
    against = report.against
    lines = legend(results, "" if against.is_published else against.as_, archived=report.archived)
    return "\n".join([table, *(as_markdown(line).replace("*", r"\*", 1) for line in lines)])


def _nodes(runs: Iterable[Run]) -> str:
    """Return each set of nodes with the runs that had it, the most frequent first."""
    names: dict[str, list[str]] = {}
    for run in runs:
        if run.hosts:
            names.setdefault(fold(run.hosts), []).append(run.id)
    rows = sorted(names.items(), key=lambda item: (-len(item[1]), item[0]))
    lines = [
        f"- {as_markdown(nodes)}: {as_markdown(listed(ids, _OF_NODES))}"
        for nodes, ids in rows[:_MOST_NODES]
    ]
    return "\n".join(
        [*lines, *([f"- {len(rows) - _MOST_NODES} more"] if len(rows) > _MOST_NODES else [])]
    )


def _failure(group: FailureGroup) -> str:
    heading = f"### {as_markdown(group.cause.kind)}: {count(len(group.runs), 'run')}"
    runs = ", ".join(as_markdown(run) for run in group.runs)
    return "\n\n".join(
        filter(
            None, [heading, runs, f"    {escape(group.cause.line)}", as_markdown(group.cause.fix)]
        )
    )


_HEADINGS = {
    "gpu_type": "GPU",
    "scale": "GPUs",
    "gbs": "batch",
    "seq_length": "sequence",
    "formula": "FLOPs formula",
}
_NUMBERS = ("scale", "gbs", "seq_length")


def _conditions(results: Iterable[Result]) -> str:
    """One line for each configuration."""
    rows = [_condition(result) for result in results]
    distinct = list({repr(row): row for row in rows}.values())
    if not distinct:
        return ""
    keys = [key for key in distinct[0] if any(row[key] is not None for row in distinct)]
    shown = [Column(key=key, heading=_HEADINGS.get(key), right=key in _NUMBERS) for key in keys]
    return render(shown, distinct, "md")


def _condition(result: Result) -> dict[str, object]:
    configuration, reference = result.identity.configuration, result.verdict.reference
    return {
        "experiment": result.identity.experiment,
        "gpu_type": configuration and configuration.gpu_type,
        "scale": configuration and configuration.scale,
        "parameters": (configuration and parameters_in_words(configuration.parameters)) or None,
        "gbs": configuration and configuration.gbs,
        "seq_length": configuration and configuration.seq_length,
        "window": (
            f"{result.metrics.window} of {result.metrics.steps}" if result.metrics.window else None
        ),
        "formula": result.metrics.flops_convention,
        "image": configuration and configuration.image,
        "variables": (
            (
                configuration
                and " ".join(f"{name}={value}" for name, value in sorted(configuration.env.items()))
            )
            or None
        ),
        "reference": (
            reference
            and f"{reference.value:g} {reference.unit}, {reference.source},"
            f" window {reference.window}"
        ),
    }
