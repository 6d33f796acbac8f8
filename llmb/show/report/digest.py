# SPDX-License-Identifier: Apache-2.0
"""What many runs come to in a few lines, below a table of their results. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from llmb.contract.settings import Settings
from llmb.core.names import listed, shorter
from llmb.judge.correctness import speed_word
from llmb.judge.judge import pool_key
from llmb.judge.value import FAIL, INVALID, NO_REFERENCE, bounds_of, ratio_in_digits
from llmb.measure.failure_causes import group_failures
from llmb.measure.result import CANCELLED, FAILED, PENDING, RUNNING, SUCCESS, UNKNOWN, Result
from llmb.measure.result_notes import parameters_in_words
from llmb.show.report.value import ORDER, word_of

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
    if verdict.word == FAIL and verdict.pooled_ratio is not None:
        ratio = ratio_in_digits(verdict.pooled_ratio, bounds_of(pool[0]))
        explanation = ", ".join([f" {ratio}" if speed_word(verdict) == FAIL else "", *verdict.why])
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
