# SPDX-License-Identifier: Apache-2.0
"""Finds what may explain a verdict: clock, power limit, driver, network or node that the other runs do not have. Pure.

A condition is a cause only if it is rare where runs pass: a driver that good runs have too explains nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from llmb.results import facts
from llmb.results.facts import NETWORK, NODE, SOCKET, LogFacts, VerdictCause, megahertz, watts
from llmb.results.result import SUCCESS, Result
from llmb.verdict.judge import FAIL, INCONCLUSIVE, INVALID, PASS, SUSPICIOUS, WARN, pool_key

_SLOW = frozenset({FAIL, WARN, INCONCLUSIVE})
EXPLAINED = _SLOW | {SUSPICIOUS, INVALID}
_RARE = 0.2  # the largest share of the compared runs that may have the value too
_SAME = 0.01  # a fraction by which two clocks or power limits may differ
_LEAST_OTHERS = 2  # runs that show what is usual, where no run passes
_MOST_NODES = 4
_MOST_RUNS = 3


@dataclass(frozen=True, slots=True)
class _Condition:
    """How to read a condition from a log: as a ``number``, of which less is slower, or else as a ``word``."""

    name: str
    word: Callable[[LogFacts], str]
    number: Callable[[LogFacts], float | None] | None = None


_CONDITIONS = (
    _Condition(facts.SM_CLOCK, lambda log: megahertz(log.max_sm_clock_mhz), lambda log: log.max_sm_clock_mhz),
    _Condition(facts.POWER_LIMIT, lambda log: watts(log.power_limit_w), lambda log: log.power_limit_w),
    _Condition(NETWORK, lambda log: ", ".join(log.networks)),
    _Condition(facts.GPU, lambda log: ", ".join(log.gpu_models)),
    _Condition(facts.DRIVER, lambda log: ", ".join(log.drivers)),
    _Condition(facts.NCCL, lambda log: log.nccl_version or ""),
)


@dataclass(slots=True, kw_only=True)
class _Others:
    """The runs of one GPU type that others are compared with: those that ``passed``, or where none did, all.

    ``values``: each condition's values with the runs that have it; ``good``: the nodes of runs that passed; ``slow``:
    how many slow runs each node was part of.
    """

    passed: bool
    runs: list[Result] = field(default_factory=list)
    values: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    numbers: dict[str, float] = field(default_factory=dict)
    good: set[str] = field(default_factory=set)
    slow: Counter[str] = field(default_factory=Counter)

    @property
    def called(self) -> str:
        """What a text calls them."""
        return "the runs that pass" if self.passed else "the other runs"


def with_causes(judged: Sequence[Result], known: Iterable[Result] = ()) -> list[Result]:
    """The ``judged`` results, with the causes of their verdicts in front of the reasons.

    ``known``: judged results of further runs of the same cluster, to compare with.
    """
    pools: dict[Hashable, list[Result]] = {}
    for result in judged:
        if result.verdict.word in EXPLAINED and result.log is not None:
            pools.setdefault((result.verdict.word, pool_key(result)), []).append(result)
    if not pools:
        return list(judged)
    others = _others([*judged, *known])
    causes = {key: tuple(_causes(pool, others.get(_gpu_type(pool[0])))) for key, pool in pools.items()}
    return [_explained(result, causes.get((result.verdict.word, pool_key(result)), ())) for result in judged]


def _explained(result: Result, causes: tuple[VerdictCause, ...]) -> Result:
    if not causes or result.log is None:
        return result
    reason = "; ".join([*(cause.text for cause in causes), *filter(None, [result.verdict.reason])])
    return replace(result, verdict=replace(result.verdict, causes=causes, reason=reason))


def _gpu_type(result: Result) -> str | None:
    own = result.identity.configuration
    return None if own is None else own.gpu_type


def _others(results: Sequence[Result]) -> dict[str | None, _Others]:
    """For each GPU type the runs to compare with."""
    measured: dict[str | None, list[Result]] = {}
    for result in results:
        if result.log is not None and result.status == SUCCESS and result.verdict.word != INVALID:
            measured.setdefault(_gpu_type(result), []).append(result)
    found = {}
    for kind, runs in measured.items():
        passing = [run for run in runs if run.verdict.word == PASS]
        own = _Others(passed=bool(passing), runs=passing or runs)
        for run in own.runs:
            for condition in _CONDITIONS:
                _count(own, condition, run)
        for run in passing:
            own.good.update(run.log.hosts if run.log is not None else ())
        own.slow.update(host for run in runs if run.verdict.word in _SLOW and run.log for host in run.log.hosts)
        found[kind] = own
    return found


def _count(own: _Others, condition: _Condition, run: Result) -> None:
    assert run.log is not None
    if not (word := _word(condition, run)):
        return
    own.values[condition.name][word] += 1
    if condition.number is not None:
        own.numbers[word] = condition.number(run.log) or 0.0


def _word(condition: _Condition, run: Result) -> str:
    """The value of a condition; empty where it is unknown, or makes no difference: the network within one node."""
    log = run.log
    if log is None or (condition.name == NETWORK and not _several_nodes(run)):
        return ""
    return condition.word(log)


def _several_nodes(run: Result) -> bool:
    own, logged = run.identity.configuration, (run.log.nodes if run.log is not None else None) or 1
    return logged > 1 or (own is not None and own.gpus_per_node is not None and own.scale > own.gpus_per_node)


def _causes(pool: Sequence[Result], others: _Others | None) -> list[VerdictCause]:
    """The causes of the verdict on a pool: between its nodes, then between runs; single nodes where there are none."""
    verdict = pool[0].verdict.word
    found = list(_on_nodes(pool)) if verdict in _SLOW else []
    if others is None:
        return found
    known = {cause.condition for cause in found}
    for condition in _CONDITIONS:
        if condition.name not in known and (verdict != INVALID or condition.name == NETWORK):
            found += _between_runs(condition, pool, others, faster=verdict == SUSPICIOUS)
    if not found and verdict in _SLOW:
        found += _nodes(pool, others)
    return found


def _on_nodes(pool: Sequence[Result]) -> Iterator[VerdictCause]:
    """What differs between the nodes of a run."""
    seen: dict[tuple[str, str], list[Result]] = {}
    for run in pool:
        for own in run.log.uneven if run.log is not None else ():
            seen.setdefault((own.condition, own.text), []).append(run)
    for (condition, text), runs in seen.items():
        assert runs[0].log is not None
        own = next(one for one in runs[0].log.uneven if one.text == text)
        yield VerdictCause(
            condition=condition,
            value=own.value,
            usual=own.usual,
            runs=_names(runs),
            nodes=own.hosts,
            text=text + _in_runs(runs, pool),
        )


def _between_runs(
    condition: _Condition, pool: Sequence[Result], others: _Others, *, faster: bool
) -> Iterator[VerdictCause]:
    """The values of a condition in the ``pool`` that are rare in the ``others``."""
    seen: dict[str, list[Result]] = {}
    for run in pool:
        if word := _word(condition, run):
            seen.setdefault(word, []).append(run)
    counts = others.values[condition.name]
    if not others.passed:  # then the pool is one of them
        counts = counts - Counter({word: len(runs) for word, runs in seen.items()})
    for word, runs in seen.items():
        alike = _alike(condition, word, runs[0], counts, others.numbers, faster=faster)
        rest = Counter({other: number for other, number in counts.items() if other not in alike})
        enough = others.passed or rest.total() >= _LEAST_OTHERS or condition.number is not None
        if not rest or not enough or sum(counts[other] for other in alike) > _RARE * counts.total():
            continue
        usual = rest.most_common(1)[0][0]
        shown = f"{word} (TCP)" if condition.name == NETWORK and word.startswith(SOCKET) else word
        text = f"{condition.name} {shown}{_in_runs(runs, pool)}, {usual} in {others.called}"
        yield VerdictCause(condition=condition.name, value=word, usual=usual, runs=_names(runs), text=text)


def _alike(
    condition: _Condition, word: str, run: Result, counts: Iterable[str], numbers: Mapping[str, float], *, faster: bool
) -> set[str]:
    """The values that explain the verdict no better than ``word``: the same one; of numbers, those beyond it too."""
    if condition.number is None or run.log is None:
        return {word}
    own = condition.number(run.log) or 0.0
    if faster:
        return {other for other in counts if numbers[other] >= own * (1 - _SAME)}
    return {other for other in counts if numbers[other] <= own * (1 + _SAME)}


def _nodes(pool: Sequence[Result], others: _Others) -> Iterator[VerdictCause]:
    """The few nodes of all these runs that no run which passes used, although it used their other nodes."""
    hosts = [set(run.log.hosts) for run in pool if run.log is not None]
    common = set.intersection(*hosts)
    strange = sorted(common - others.good)
    if not strange or len(strange) > _MOST_NODES or not common & others.good:
        return
    runs = min(others.slow[host] for host in strange)
    what = f"{NODE}{'s' if len(strange) > 1 else ''} {', '.join(strange)}"
    slow = f"{runs} slow runs" if runs > 1 else "this run" if len(pool) == 1 else "these runs"
    yield VerdictCause(
        condition=NODE,
        value=", ".join(strange),
        usual="",
        runs=_names(pool),
        nodes=tuple(strange),
        text=f"{what} in {slow} and in no run that passes",
    )


def _names(runs: Iterable[Result]) -> tuple[str, ...]:
    return tuple(run.identity.name for run in runs)


def _in_runs(runs: Sequence[Result], pool: Sequence[Result]) -> str:
    """Which of the pool's runs it is, where not all have it."""
    if len(runs) == len(pool):
        return ""
    named = ", ".join(_names(runs[:_MOST_RUNS]))
    return f" in {len(runs)} of {len(pool)} runs ({named}{', ...' if len(runs) > _MOST_RUNS else ''})"
