# SPDX-License-Identifier: Apache-2.0
"""The report as Markdown: verdicts, failures and their fixes, and the conditions. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from llmb.failures import Group
from llmb.report.digest import STATUS, remarkable
from llmb.report.value import Report, count
from llmb.results.columns import legend, table_of
from llmb.results.result import Result
from llmb.text.tables import Column, as_markdown, escape, render
from llmb.verdict.scaling import cells, columns


def to_markdown(report: Report) -> str:
    """The report as Markdown."""
    results = report.results
    parts = [f"# {as_markdown(report.title)}", as_markdown(_made(report)), _summary(results), missing(report)]
    parts += ["\n".join(f"- {as_markdown(str(one.reason))}" for one in report.unreadable)]
    parts += ["\n".join(f"- {as_markdown(line)}" for line in remarkable(results)), "## Results", _table(results)]
    if report.points:
        scaling = render(columns(report.points, "md"), [cells(point) for point in report.points], "md")
        parts += ["## Scaling", "Throughput per GPU, relative to the smallest scale.", scaling]
    if report.failures:
        parts += ["## Failures", *(_failure(group) for group in report.failures)]
    parts += ["## Conditions", _conditions(results)]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def missing(report: Report) -> str:
    """How many runs the report has no result of; empty where it has all."""
    if not report.unreadable:
        return ""
    noun = "record of 1 run: its" if len(report.unreadable) == 1 else f"records of {len(report.unreadable)} runs: their"
    return f"llmb cannot read the {noun} status is Unknown."


def _made(report: Report) -> str:
    day = report.made.strftime("%Y-%m-%d %H:%M")
    where = f"cluster type {report.cluster_type}, GPU type {report.gpu_type}"
    return f"Made by llmb {report.llmb_version} on {day}; {where}."


def _summary(results: Sequence[Result]) -> str:
    statuses = Counter(result.status for result in results)
    runs = [f"{statuses[status]} {word}" for status, word in STATUS.items() if statuses[status]]
    verdicts = Counter(result.verdict.word for result in results if result.verdict.word is not None)
    lines = [f"{count(len(results), 'run')}: {', '.join(runs) or 'none'}."]
    if verdicts:
        lines.append(f"Verdicts: {', '.join(f'{number} {word}' for word, number in sorted(verdicts.items()))}.")
    return "\n".join(lines)


def _table(results: Sequence[Result]) -> str:
    if not results:
        return ""
    table = render(*table_of(results), "md")
    return "\n".join([table, *(as_markdown(line).replace("*", r"\*", 1) for line in legend(results))])


def _failure(group: Group) -> str:
    heading = f"### {as_markdown(group.cause.kind)}: {count(len(group.runs), 'run')}"
    runs = ", ".join(as_markdown(run) for run in group.runs)
    return "\n\n".join(filter(None, [heading, runs, f"    {escape(group.cause.line)}", as_markdown(group.cause.fix)]))


_HEADINGS = {"gpu_type": "GPU", "scale": "GPUs", "gbs": "batch", "seq_length": "sequence", "formula": "FLOPs formula"}
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
    own, reference = result.identity.configuration, result.verdict.reference
    return {
        "experiment": result.identity.experiment,
        "gpu_type": own and own.gpu_type,
        "scale": own and own.scale,
        "gbs": own and own.gbs,
        "seq_length": own and own.seq_length,
        "window": f"{result.metrics.window} of {result.metrics.steps}" if result.metrics.window else None,
        "formula": result.metrics.flops_convention,
        "image": own and own.image,
        "variables": (own and " ".join(f"{name}={value}" for name, value in sorted(own.env.items()))) or None,
        "reference": reference and f"{reference.step_time_s:g} s, {reference.source}, window {reference.window}",
    }
