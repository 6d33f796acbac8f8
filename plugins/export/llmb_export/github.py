# SPDX-License-Identifier: Apache-2.0
"""Results for GitHub Actions: annotations and the summary of a step, within GitHub's limits.

The limits: https://docs.github.com/en/actions/reference/limits and
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from llmb_export.results import Outcome, Results, Row, outcome_of, ratio_of, reason_of, word_of

ANNOTATIONS = 10  # of each kind in one step
SUMMARY_BYTES = 1 << 20  # of one step
_MESSAGE_CHARACTERS = 4000  # of one annotation
_KINDS: Mapping[Outcome, str] = {"failed": "error", "undecided": "warning", "warned": "warning"}
_ORDER = ("failed", "undecided", "warned", "open", "passed")  # the worst first
_LAST_LINE = 200  # bytes for the line on rows that are omitted
_HEAD = (
    "| verdict | experiment | run | metric | value | ratio | reason |\n"
    "|---|---|---|---|--:|--:|---|\n"
)


def worst_first(rows: Sequence[Row]) -> list[Row]:
    """Return the rows by outcome, and of equal outcomes those of the lowest ratio first."""

    def rank(row: Row) -> tuple[int, float]:
        ratio = ratio_of(row)
        return _ORDER.index(outcome_of(row)), float("inf") if ratio is None else ratio

    return sorted(rows, key=rank)


def workflow_commands(results: Results) -> str:
    """Return a workflow command for each bad or undecided run, the worst first.

    Beyond GitHub's limit for a kind, the last one counts the runs without one.
    """
    by_kind: dict[str, list[Row]] = {}
    for row in worst_first(results.rows):
        if (kind := _KINDS.get(outcome_of(row))) is not None:
            by_kind.setdefault(kind, []).append(row)
    return "".join(line for kind, rows in by_kind.items() for line in _commands(kind, rows))


def _commands(kind: str, rows: Sequence[Row]) -> Iterator[str]:
    shown = rows if len(rows) <= ANNOTATIONS else rows[: ANNOTATIONS - 1]
    for row in shown:
        title, message = f"{word_of(row)}: {row['experiment']}", reason_of(row) or word_of(row)
        yield _command(kind, title, message)
    if omitted := len(rows) - len(shown):
        yield _command(kind, f"{omitted} more runs", "The summary of the step lists all of them.")


def _command(kind: str, title: str, message: str) -> str:
    is_long = len(message) > _MESSAGE_CHARACTERS
    text = f"{message[:_MESSAGE_CHARACTERS]} ..." if is_long else message
    name = _escaped(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={name}::{_escaped(text)}\n"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def summary(results: Results, *, used: int = 0) -> str:
    """Return a table of all runs in Markdown, the worst first.

    ``used``: bytes that the summary of this step has already. Rows beyond GitHub's limit are
    counted.
    """
    rows = worst_first(results.rows)
    parts, space = [f"## llmb\n\n{_HEAD}"], SUMMARY_BYTES - used - _LAST_LINE
    space -= len(parts[0].encode())
    for number, row in enumerate(rows):
        line = _row(row)
        space -= len(line.encode())
        if space < 0:
            parts.append(f"\n{len(rows) - number} more runs do not fit into the summary.\n")
            break
        parts.append(line)
    return "".join(parts) + "\n"


def _row(row: Row) -> str:
    measured, ratio = row["metrics"].get(row["headline"]), ratio_of(row)
    measured = measured if measured and measured["mean"] is not None else None
    cells = (
        word_of(row),
        row["experiment"],
        row.get("run") or "",
        row["headline"] if measured else "",
        f"{measured['mean']:.4g} {measured['unit']}".strip() if measured else "",
        "" if ratio is None else f"{100 * ratio:.1f} %",
        reason_of(row),
    )
    return f"| {' | '.join(map(_cell, cells))} |\n"


def _cell(text: str) -> str:
    """Return text as a cell of a table, in which it is no markup."""
    text = " ".join(text.split())[:_MESSAGE_CHARACTERS]
    for char in "\\`*_~[]<>|":
        text = text.replace(char, f"\\{char}")
    return text.replace("&", "&amp;")
