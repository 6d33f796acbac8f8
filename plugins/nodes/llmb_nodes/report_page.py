# SPDX-License-Identifier: Apache-2.0
"""The report's page of nodes, suspects first, in words for a person who must call an administrator.

Pure but for reading checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmb import api
from llmb_nodes import diagnosis, history, past_runs, slow_nodes, words
from llmb_nodes.suspects import FromRuns, FromTest, Suspect, find, odds

PAGE = "nodes"
_MOST_RUNS = 5  # of a suspect
_Rows = Sequence[past_runs.ResultRow]
#: By node, what the runs of the report say of it.
_Causes = Mapping[str, Sequence[str]]


def sections(
    results: _Rows, runs: Sequence[api.RunRecord], kept_results: _Rows
) -> list[api.ReportSection]:
    """Return a summary for the report itself if there are suspects, and the page of all nodes."""
    rows = [*{row["run"]: row for row in (*kept_results, *results)}.values()]
    observations = past_runs.observations(past_runs.measured(runs, rows))
    nodes = _nodes(runs, rows, observations)
    if not nodes:
        return []
    suspects = find(runs, rows)
    causes = _causes_of(results)
    names = [suspect.name for suspect in suspects]
    return [
        *([_summary(suspects, "")] if suspects else ()),
        _summary(suspects, PAGE),
        *(_of_suspect(suspect, causes.get(suspect.name, ())) for suspect in suspects),
        _all_nodes(nodes, names, causes),
    ]


def _causes_of(results: _Rows) -> _Causes:
    """Return, by node, the causes of verdicts that name it: a low clock, a straggler."""
    texts: dict[str, dict[str, None]] = {}
    for row in results:
        for cause in row["causes"] or ():
            text = f"{cause['text']} ({', '.join(cause['runs'])})"
            for node in cause["nodes"]:
                texts.setdefault(node, {})[text] = None
    return {node: [*causes] for node, causes in texts.items()}


def _summary(suspects: Sequence[Suspect], page: str) -> api.ReportSection:
    """Return who is suspected of what, in the report itself and as the beginning of the page."""
    if not suspects:
        text = (
            "No node is a suspect: none was SLOW or a FAULT in its newest check or diagnosis, and"
            f" none slows the runs of the newest {past_runs.DAYS} days beyond chance."
        )
        return api.ReportSection(title="Suspect nodes", text=text, page=page)
    sentences = [
        f"{runs.loss} to {' or '.join(runs.blame.nodes)}." for runs in _accusations(suspects)
    ]
    sentences += [
        f"{suspect.name} {_in_test(test)}." for suspect in suspects for test in suspect.tests
    ]
    hint = "" if page else "\n\nThe evidence for an administrator: llmb-run report --page nodes"
    return api.ReportSection(
        title="Suspect nodes",
        text=" ".join(sentences) + hint,
        columns=("node", "found by", "GPUs lost", "evidence"),
        rows=tuple(
            (
                suspect.name,
                _found_by(suspect),
                None
                if suspect.runs is None
                else f"{suspect.runs.gpus_lost} of {suspect.runs.gpus}",
                "; ".join(suspect.evidence),
            )
            for suspect in suspects
        ),
        page=page,
    )


def _accusations(suspects: Iterable[Suspect]) -> Iterator[FromRuns]:
    """Yield what past runs say, once for nodes that cannot be distinguished."""
    by_nodes = {
        suspect.runs.blame.nodes: suspect.runs for suspect in suspects if suspect.runs is not None
    }
    yield from by_nodes.values()


_IN_WORDS = {
    ("check", words.FAULT): "is broken",
    ("check", words.SLOW): "is slower than its peers",
    ("diagnosis", words.FAULT): "fails together with other nodes",
    ("diagnosis", words.SLOW): "slows other nodes",
}


def _in_test(test: FromTest) -> str:
    finding = _IN_WORDS[test.kind, test.word]
    return f"{finding} ({test.word} in its newest {test.kind})"


def _found_by(suspect: Suspect) -> str:
    sources = dict.fromkeys(f"{test.kind} ({test.word})" for test in suspect.tests)
    return ", ".join([*sources, *(["past runs"] if suspect.runs is not None else ())])


def _of_suspect(suspect: Suspect, causes: Sequence[str]) -> api.ReportSection:
    """Return what to say to an administrator about one node, with its slow runs."""
    paragraphs = [
        f"{suspect.name} {_in_test(test)}: {'; '.join(test.reasons)}." for test in suspect.tests
    ]
    if suspect.runs is not None:
        paragraphs.append(_by_runs(suspect.name, suspect.runs))
    if causes:
        paragraphs.append(f"In the runs of this report: {'; '.join(causes)}.")
    advice = [f"What to do: {'; '.join(suspect.fixes)}."] if suspect.fixes else []
    paragraphs.append(
        " ".join(
            [
                *advice,
                f"llmb has not drained {suspect.name} and has changed nothing on it. Until it is"
                " repaired, jobs that are submitted with --exclude @suspects avoid it.",
            ]
        )
    )
    slow = () if suspect.runs is None else suspect.runs.slow[:_MOST_RUNS]
    return api.ReportSection(
        title=suspect.name,
        text="\n\n".join(paragraphs),
        columns=("day", "slow runs", "GPUs", "nodes", "speed") if slow else (),
        rows=tuple(
            (
                observation.day,
                ", ".join(observation.runs),
                observation.gpus,
                api.fold_nodes(observation.nodes),
                f"{100 * observation.speed:.1f} % of the usual",
            )
            for observation in slow
        ),
        page=PAGE,
    )


def _by_runs(name: str, runs: FromRuns) -> str:
    accusation = runs.blame
    together = [node for node in accusation.nodes if node != name]
    also = (
        f" {', '.join(together)} ran in nearly all of them too, so that one of these nodes is slow."
        if together
        else ""
    )
    subject = name if not together else f"{name} or {' or '.join(together)}"
    lost = (
        f" The newest of them had {runs.gpus} GPUs and lost the work of {runs.gpus_lost}."
        if runs.gpus_lost
        else ""
    )
    return (
        f"{accusation.slow} of {accusation.total} runs with {subject} were slow, and"
        f" {accusation.slow_without} of {accusation.total_without} runs without. They have"
        f" {100 * accusation.loss:.1f} % less speed than the others.{lost}{also} By chance, this"
        f" would happen in {odds(accusation.chance)}. A day that is"
        " slow as a whole is no explanation, because runs are compared with others of the same day."
    )


@dataclass(slots=True)
class _Node:
    """The facts and findings of a node."""

    total: int = 0
    slow: int = 0
    last: str = ""  # the day of its newest run
    #: Its object in the newest result that describes it.
    facts: Mapping[str, Any] = field(default_factory=dict)
    check: str = ""  # the word of its newest check


def _nodes(
    runs: Sequence[api.RunRecord], rows: _Rows, observations: Iterable[slow_nodes.Observation]
) -> dict[str, _Node]:
    """Return the nodes of the observations, of described runs, checks and diagnoses."""
    nodes: dict[str, _Node] = {}
    for observation in observations:
        for name in observation.nodes:
            node = nodes.setdefault(name, _Node())
            node.total += 1
            node.slow += observation.is_slow
            node.last = max(node.last, observation.day)
    submitted = {run.id: run.submitted_at for run in runs}
    for row in sorted(rows, key=lambda row: submitted.get(str(row["run"]), 0.0)):
        for facts in row["nodes"] or ():
            if facts["name"] in nodes:
                nodes[facts["name"]].facts = facts
    for name, (_, report) in history.latest(history.checks_of(runs)).items():
        nodes.setdefault(name, _Node()).check = report.word
    for name, _ in diagnosis.latest(runs):
        nodes.setdefault(name, _Node())
    return nodes


def _all_nodes(
    nodes: Mapping[str, _Node], suspects: Sequence[str], causes: _Causes
) -> api.ReportSection:
    """Return a row for each node: suspects, then those with the largest share of slow runs."""
    order = Counter({name: len(suspects) - number for number, name in enumerate(suspects)})

    def key(item: tuple[str, _Node]) -> tuple[float, float, int, str]:
        name, node = item
        return -order[name], -node.slow / max(1, node.total), len(name), name

    rows = [
        (
            name,
            node.total,
            node.slow,
            node.last or None,
            node.facts.get("gpu"),
            node.facts.get("driver"),
            _clock(node.facts),
            node.check or None,
            "; ".join(causes.get(name, ())) or None,
        )
        for name, node in sorted(nodes.items(), key=key)
    ]
    headings = (
        "node",
        "runs",
        "slow",
        "newest",
        "GPU",
        "driver",
        "SM clock",
        "check",
        "in this report",
    )
    return api.ReportSection(
        title="All nodes",
        text=(
            f"Of the newest {past_runs.DAYS} days. Runs of a day on the same nodes count once. Slow"
            f" are those more than {100 * slow_nodes.SLOWER:g} % below the fast quarter of their"
            " configuration; where all nodes have slow runs, they accuse none."
        ),
        columns=headings,
        rows=tuple(rows),
        page=PAGE,
    )


def _clock(facts: Mapping[str, Any]) -> str | None:
    """Return the median SM clock under load, None without telemetry."""
    clock = (facts.get("telemetry") or {}).get("sm_clock_mhz")
    return f"{clock['median']:g} MHz" if clock else None
