# SPDX-License-Identifier: Apache-2.0
"""A report as Markdown. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from llmb.contract.report_section import ReportSection
from llmb.core.grouping import grouped
from llmb.core.names import listed
from llmb.core.node_lists import fold
from llmb.core.tables import Column, as_markdown, escape, render
from llmb.judge.scaling import ScalingPoint, columns, rows_of
from llmb.measure.failure_causes import FailureGroup
from llmb.measure.result import Result
from llmb.measure.result_notes import parameters_in_words
from llmb.show.report.digest import STATUS, remarkable
from llmb.show.report.entries import entries_of
from llmb.show.report.glance import one_line
from llmb.show.report.value import Report, Run, count
from llmb.show.results_table import legend, table_of

_MOST_NODES, _OF_NODES = 100, 20  # sets of nodes, and runs of each


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
    names = grouped((fold(run.hosts), run.id) for run in runs if run.hosts)
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
