# SPDX-License-Identifier: Apache-2.0
"""A summary of many runs in a few lines, for the terminal below their table. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from llmb.failures import group_failures
from llmb.report.value import ORDER, word_of
from llmb.results.result import CANCELLED, FAILED, PENDING, RUNNING, SUCCESS, UNKNOWN, Result
from llmb.text.names import listed, shorter
from llmb.verdict.judge import pool_key
from llmb.verdict.rules import FAIL, INVALID, NO_REFERENCE

LEAST = 12  # runs: with fewer, the table itself is as short
_NAMED, _LONG = 6, 2  # runs in a line; logs without an id, which have long names
_LINES = 8  # of one kind
STATUS = {
    SUCCESS: "succeeded",
    FAILED: "failed",
    CANCELLED: "cancelled",
    UNKNOWN: "unknown",
    RUNNING: "not ended",
    PENDING: "waiting",
}


def digest(results: Sequence[Result]) -> list[str]:
    """Lines with the number of runs by status and verdict, slow and invalid configurations, and causes of failures.

    Empty for fewer than LEAST runs.
    """
    if len(results) < LEAST:
        return []
    words = [word_of(result) for result in results]
    statuses = Counter(one.status for one in results)
    verdicts = Counter(word for word in words if word not in STATUS)
    lines = [f"{len(results)} runs: {_counted(statuses, STATUS)}"]
    if any(result.verdict.word != NO_REFERENCE for result in results) and verdicts:  # else the table's legend says why
        lines.append(f"verdicts: {_counted(verdicts, {word: word for word in ORDER})}")
    lines += remarkable(results)
    if any(word in (FAIL, INVALID, FAILED) and one.identity.run for word, one in zip(words, results, strict=True)):
        lines.append("reasons and fixes: llmb-run explain RUN; everything on one page: llmb-run report -o report.html")
    return lines


def remarkable(results: Sequence[Result]) -> list[str]:
    """The configurations that are slow or invalid, and each cause of failures with its runs."""
    return [
        *cut([_slow_or_invalid(pool) for pool in _pools(results, FAIL)], "more are slower than published"),
        *cut([_slow_or_invalid(pool) for pool in _pools(results, INVALID)], "more are invalid"),
        *cut(list(_failed(results)), "more causes of failures"),
    ]


def cut(lines: Sequence[str], what: str) -> list[str]:
    """The first lines, and how many more there are of ``what``."""
    return [*lines[:_LINES], *([f"{len(lines) - _LINES} {what}"] if len(lines) > _LINES else [])]


def _counted(counts: Counter[str], texts: dict[str, str]) -> str:
    return ", ".join(f"{counts[word]} {text}" for word, text in texts.items() if counts[word])


def _pools(results: Iterable[Result], verdict: str) -> list[list[Result]]:
    """The runs of this verdict by configuration, the slowest first."""
    pools: dict[object, list[Result]] = {}
    for result in results:
        if result.verdict.word == verdict:
            pools.setdefault(pool_key(result), []).append(result)
    return sorted(pools.values(), key=lambda pool: (pool[0].verdict.pooled_ratio or 0.0, pool[0].identity.experiment))


def _slow_or_invalid(pool: Sequence[Result]) -> str:
    verdict = pool[0].verdict
    why = f" {verdict.pooled_ratio or 0.0:.3f}" if verdict.word == FAIL else f", {verdict.reason}"
    return f"{verdict.word}: {shortest(pool[0].identity.experiment)}{why}: {_ids(pool)}"


def _failed(results: Iterable[Result]) -> Iterable[str]:
    failed = [one for one in results if one.status == FAILED]
    by_name = {one.identity.name: one for one in failed}
    known = [(name, one.cause) for name, one in by_name.items() if one.cause is not None]
    for group in group_failures(known):
        yield f"{len(group.runs)} failed, {group.cause.kind}: {_ids([by_name[name] for name in group.runs])}"
    unknown = [one for one in failed if one.cause is None]
    if unknown:
        yield f"{len(unknown)} failed, unknown cause: {_ids(unknown)}"


def shortest(experiment: str) -> str:
    """Workload, size, dtype and GPUs of an experiment's name."""
    return list(shorter(experiment))[-1].removesuffix("..")


def _ids(pool: Sequence[Result]) -> str:
    names = [result.identity.run or result.identity.experiment for result in pool]
    return listed(names, _NAMED if pool[0].identity.run else _LONG, " ")
