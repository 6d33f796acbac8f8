# SPDX-License-Identifier: Apache-2.0
"""Find causes of verdicts: a clock, limit, driver, network or node that other runs lack. Pure.

A condition is a cause only if it is rare among passing runs: a driver that good runs have too
explains nothing. It explains a speed, never a wrong loss or memory.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from llmb.core.grouping import grouped
from llmb.judge.correctness import speed_word
from llmb.judge.judge import pool_key
from llmb.judge.steps import slow_steps
from llmb.judge.value import FAIL, INCONCLUSIVE, INVALID, PASS, SUSPICIOUS, WARN
from llmb.measure import facts, stragglers, uneven
from llmb.measure.facts import NETWORK, NODE, SOCKET, LogFacts, VerdictCause
from llmb.measure.result import SUCCESS, Result
from llmb.measure.uneven import CLOCKS_DIFFER, ECC, SLOWED, in_words, megahertz, watts

_SLOW = frozenset({FAIL, WARN, INCONCLUSIVE})
EXPLAINED = _SLOW | {SUSPICIOUS, INVALID}
_RARE = 0.2  # the largest share of the compared runs that may have the value too
_SAME = 0.01  # a fraction by which two power limits may differ
_LEAST_OTHERS = 2  # runs that show what is usual, where no run passes
_MOST_NODES = 4
_MOST_RUNS = 3


@dataclass(frozen=True, slots=True)
class _Condition:
    """A condition in a log, read as a ``number`` (less is slower) or else as a ``word``."""

    name: str
    word: Callable[[LogFacts], str]
    number: Callable[[LogFacts], float | None] | None = None
    #: A fraction by which two numbers may differ and count as equal.
    same: float = _SAME


_NOTHING = "nothing"  # of SLOWED, as far as the run was sampled
_HARMLESS = {SLOWED: _NOTHING, ECC: "0"}  # the values of conditions that never make a run faster


def _reasons(log: LogFacts) -> str:
    return ", ".join(log.slowed_by or ())


def _errors(log: LogFacts) -> str:
    return "" if log.ecc_uncorrected is None else str(log.ecc_uncorrected)


_CONDITIONS = (
    _Condition(
        uneven.SM_CLOCK,
        lambda log: megahertz(log.sm_clock_mhz),
        lambda log: log.sm_clock_mhz,
        same=CLOCKS_DIFFER,
    ),
    _Condition(SLOWED, lambda log: _NOTHING if log.slowed_by == () else _reasons(log)),
    _Condition(ECC, _errors),
    _Condition(
        uneven.POWER_LIMIT, lambda log: watts(log.power_limit_w), lambda log: log.power_limit_w
    ),
    _Condition(NETWORK, lambda log: ", ".join(log.networks)),
    _Condition(uneven.GPU, lambda log: ", ".join(log.gpu_models)),
    _Condition(uneven.DRIVER, lambda log: ", ".join(log.drivers)),
    _Condition(facts.NCCL, lambda log: log.nccl_version or ""),
    _Condition(facts.WARNING, lambda log: ", ".join(log.warnings)),
)


@dataclass(slots=True, kw_only=True)
class _Peers:
    """The runs of one GPU type that others are compared with: all that passed, or else all."""

    passed: bool
    runs: list[Result]
    #: The values of each condition, with the number of runs that have it.
    values: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    numbers: dict[str, float] = field(default_factory=dict)
    good_nodes: set[str]  #: the nodes of runs that passed
    slow_runs: Counter[str]  #: by node

    @property
    def called(self) -> str:
        """The name of these runs in a text."""
        return "passing runs" if self.passed else "other runs"


def with_causes(judged: Sequence[Result], further_results: Iterable[Result] = ()) -> list[Result]:
    """Return the ``judged`` results, with the causes of their verdicts in front of the reasons.

    ``further_results`` are judged results of the same cluster, to compare with.
    """
    keys = [
        (result.verdict.word, pool_key(result))
        if speed_word(result.verdict) in EXPLAINED and result.log is not None
        else None
        for result in judged
    ]
    pools = grouped(
        (key, result) for result, key in zip(judged, keys, strict=True) if key is not None
    )
    if not pools:
        return list(judged)
    peers = _find_peers([*judged, *further_results])
    causes = {
        key: (*_causes(pool, peers.get(_gpu_type(pool[0]))), *_slow_steps(pool))
        for key, pool in pools.items()
    }
    return [
        result if key is None else _explained(result, causes[key])
        for result, key in zip(judged, keys, strict=True)
    ]


def _explained(result: Result, causes: tuple[VerdictCause, ...]) -> Result:
    if not causes:
        return result
    reason = "; ".join([*(cause.text for cause in causes), *filter(None, [result.verdict.reason])])
    return replace(result, verdict=replace(result.verdict, causes=causes, reason=reason))


def _gpu_type(result: Result) -> str | None:
    configuration = result.identity.configuration
    return None if configuration is None else configuration.gpu_type


def _find_peers(results: Sequence[Result]) -> dict[str | None, _Peers]:
    """Return the runs to compare with, by GPU type."""
    measured = grouped(
        (_gpu_type(result), result)
        for result in results
        if result.log is not None and result.status == SUCCESS and result.verdict.word != INVALID
    )
    peers_by_type = {}
    for kind, runs in measured.items():
        passing = [run for run in runs if run.verdict.word == PASS]
        slow = [run for run in runs if speed_word(run.verdict) in _SLOW]
        peers_by_type[kind] = peers = _Peers(
            passed=bool(passing),
            runs=passing or runs,
            good_nodes={host for run in passing if run.log for host in run.log.hosts},
            slow_runs=Counter(host for run in slow if run.log for host in run.log.hosts),
        )
        for run in peers.runs:
            for condition in _CONDITIONS:
                _count(peers, condition, run)
    return peers_by_type


def _count(peers: _Peers, condition: _Condition, run: Result) -> None:
    assert run.log is not None
    if not (word := _word(condition, run)):
        return
    peers.values[condition.name][word] += 1
    if condition.number is not None:
        peers.numbers[word] = condition.number(run.log) or 0.0


def _word(condition: _Condition, run: Result) -> str:
    """Return the value of a condition, empty if it is unknown or makes no difference.

    The network makes none within one node.
    """
    log = run.log
    if log is None or (condition.name == NETWORK and not _several_nodes(run)):
        return ""
    return condition.word(log)


def _several_nodes(run: Result) -> bool:
    configuration, logged = (
        run.identity.configuration,
        (run.log.nodes if run.log is not None else None) or 1,
    )
    return logged > 1 or (
        configuration is not None
        and configuration.gpus_per_node is not None
        and configuration.scale > configuration.gpus_per_node
    )


def _causes(pool: Sequence[Result], peers: _Peers | None) -> list[VerdictCause]:
    """Find the causes of a pool's verdict between its nodes, between runs, and in single nodes."""
    verdict = speed_word(pool[0].verdict)
    causes = [*_on_nodes(pool)] if verdict in _SLOW else []
    if verdict in _SLOW or verdict == INVALID:  # a run with a detector is always INVALID
        causes += _stragglers(pool)
    if peers is None:
        return causes
    explained = {cause.condition for cause in causes}
    for condition in _CONDITIONS:
        if condition.name not in explained and (verdict != INVALID or condition.name == NETWORK):
            causes += _between_runs(condition, pool, peers, faster=verdict == SUSPICIOUS)
    if not causes and verdict in _SLOW:
        causes += _nodes(pool, peers)
    return causes


def _on_nodes(pool: Sequence[Result]) -> Iterator[VerdictCause]:
    """Yield the conditions that differ between the nodes of a run."""
    by_fact = grouped(
        ((difference.condition, difference.text), (run, difference))
        for run in pool
        for difference in (run.log.uneven if run.log is not None else ())
    )
    for (condition, text), members in by_fact.items():
        runs, difference = [run for run, _ in members], members[0][1]
        yield VerdictCause(
            condition=condition,
            value=difference.value,
            usual=difference.usual,
            runs=_names(runs),
            nodes=difference.hosts,
            text=text + _in_runs(runs, pool),
        )


def _stragglers(pool: Sequence[Result]) -> Iterator[VerdictCause]:
    """Yield the ranks that a straggler detector of the training program warned of."""
    by_rank = grouped(
        ((straggler.measure, straggler.rank, straggler.host), (run, straggler))
        for run in pool
        for straggler in (run.log.stragglers if run.log is not None else ())
        if straggler.flagged
    )
    for members in list(by_rank.values())[:_MOST_NODES]:
        runs = [run for run, _ in members]
        scores = [straggler.score for _, straggler in members if straggler.score is not None]
        straggler = replace(members[0][1], score=min(scores, default=None))
        yield VerdictCause(
            condition=facts.STRAGGLER,
            value="" if straggler.score is None else f"{straggler.score:.2f}",
            usual="",
            runs=_names(runs),
            nodes=() if straggler.host is None else (straggler.host,),
            text=stragglers.in_words(straggler) + _in_runs(runs, pool),
        )


def _slow_steps(pool: Sequence[Result]) -> Iterator[VerdictCause]:
    """Yield the steps that alone make the runs of the ``pool`` slow."""
    if text := slow_steps(pool):
        yield VerdictCause(condition=facts.STEPS, value="", usual="", runs=_names(pool), text=text)


def _between_runs(
    condition: _Condition, pool: Sequence[Result], peers: _Peers, *, faster: bool
) -> Iterator[VerdictCause]:
    """Yield the values of a condition in the ``pool`` that are rare among its ``peers``."""
    runs_by_word = grouped((word, run) for run in pool if (word := _word(condition, run)))
    counts = peers.values[condition.name]
    if not peers.passed:  # then the pool is one of them
        counts = counts - Counter({word: len(runs) for word, runs in runs_by_word.items()})
    for word, runs in runs_by_word.items():
        harmless = _HARMLESS.get(condition.name)
        if harmless is not None and (word == harmless or faster):
            continue
        alike = _equally_suspect(condition, word, runs[0], counts, peers.numbers, faster=faster)
        usual_counts = Counter(
            {value: number for value, number in counts.items() if value not in alike}
        )
        enough = (
            peers.passed or usual_counts.total() >= _LEAST_OTHERS or condition.number is not None
        )
        if (
            not usual_counts
            or not enough
            or sum(counts[value] for value in alike) > _RARE * counts.total()
        ):
            continue
        usual = usual_counts.most_common(1)[0][0]
        if condition.number is not None:  # measured, so that hardly two runs have the same
            ordered = sorted(usual_counts.elements(), key=lambda value: peers.numbers[value])
            usual = ordered[len(ordered) // 2]
        shown = in_words(condition.name, word)
        if condition.name == NETWORK and word.startswith(SOCKET):
            shown = f"{word}, which is TCP"
        verb = "are slowed by" if condition.name == SLOWED else "have"
        text = f"{condition.name} {shown}{_in_runs(runs, pool)} ({peers.called} {verb} {usual})"
        yield VerdictCause(
            condition=condition.name, value=word, usual=usual, runs=_names(runs), text=text
        )


def _equally_suspect(
    condition: _Condition,
    word: str,
    run: Result,
    counts: Iterable[str],
    numbers: Mapping[str, float],
    *,
    faster: bool,
) -> set[str]:
    """Return the values that explain the verdict no better than ``word``.

    They are ``word`` itself, and for numbers also the ones beyond it.
    """
    if condition.number is None or run.log is None:
        return {word}
    limit = condition.number(run.log) or 0.0
    if faster:
        return {value for value in counts if numbers[value] >= limit * (1 - condition.same)}
    return {value for value in counts if numbers[value] <= limit * (1 + condition.same)}


def _nodes(pool: Sequence[Result], peers: _Peers) -> Iterator[VerdictCause]:
    """Yield the few nodes that all runs of the pool used and no passing run did.

    Passing runs must have used other nodes of the pool, or nothing is known about the difference.
    """
    hosts = [set(run.log.hosts) for run in pool if run.log is not None]
    common = set.intersection(*hosts)
    strange = sorted(common - peers.good_nodes)
    if not strange or len(strange) > _MOST_NODES or not common & peers.good_nodes:
        return
    runs = min(peers.slow_runs[host] for host in strange)
    named_nodes = f"{NODE}{'s' if len(strange) > 1 else ''} {', '.join(strange)}"
    slow = f"{runs} slow runs" if runs > 1 else "this run" if len(pool) == 1 else "these runs"
    yield VerdictCause(
        condition=NODE,
        value=", ".join(strange),
        usual="",
        runs=_names(pool),
        nodes=tuple(strange),
        text=f"{named_nodes} in {slow} and in no run that passes",
    )


def _names(runs: Iterable[Result]) -> tuple[str, ...]:
    return tuple(run.identity.name for run in runs)


def _in_runs(runs: Sequence[Result], pool: Sequence[Result]) -> str:
    """Return the runs of the pool that have it, empty if all have it."""
    if len(runs) == len(pool):
        return ""
    named = ", ".join(_names(runs[:_MOST_RUNS]))
    return (
        f" in {len(runs)} of {len(pool)} runs ({named}{', ...' if len(runs) > _MOST_RUNS else ''})"
    )
