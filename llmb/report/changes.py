# SPDX-License-Identifier: Apache-2.0
"""What changed between two sets of runs of one configuration: machines, software, settings. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmb.report.entries import Entry
from llmb.results.deviations import DRIVER, GPU, NCCL, NETWORK, POWER_LIMIT, SM_CLOCK, megahertz, watts
from llmb.results.facts import LogFacts
from llmb.verdict.differences import differences

_MOST_NODES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What changed (``name``), and how, as ``driver 570.86.15 → 575.51.03``."""

    name: str
    text: str


def changes_between(before: Entry, after: Entry) -> Iterator[Change]:
    """What differs between the runs of two nights, as far as records and logs know it; nodes last."""
    earlier, later = _facts(before), _facts(after)
    for name, old in earlier.items():
        new = later[name]
        if old and new and old != new:
            yield Change(name=name, text=f"{name} {old} → {new}")
    ours, theirs = after.result.identity.configuration, before.result.identity.configuration
    if ours is not None and theirs is not None:
        for text in differences(ours, theirs):
            if not text.startswith(("image ", "framework ")):  # among the facts
                yield Change(name="setting", text=f"setting: {text}")
    yield from _nodes(_hosts(before), _hosts(after))


def _facts(entry: Entry) -> dict[str, str]:
    """The values of all runs of an entry, by what they are of."""
    logs = [run.result.log or LogFacts() for run in entry.runs]
    return {
        SM_CLOCK: megahertz(min((log.max_sm_clock_mhz for log in logs if log.max_sm_clock_mhz), default=None)),
        POWER_LIMIT: watts(min((log.power_limit_w for log in logs if log.power_limit_w), default=None)),
        DRIVER: _each([word for log in logs for word in log.drivers]),
        GPU: _each([word for log in logs for word in log.gpu_models]),
        NETWORK: _each([word for log in logs for word in log.networks]),
        NCCL: _each([log.nccl_version or "" for log in logs]),
        "image": _each([run.job.image or "" for run in entry.runs]),
        "llmb": _each([run.llmb_version for run in entry.runs]),
    }


def _each(words: Sequence[str]) -> str:
    return ", ".join(sorted({word for word in words if word}))


def _hosts(entry: Entry) -> set[str]:
    return {host for run in entry.runs for host in run.hosts}


def _nodes(before: set[str], after: set[str]) -> Iterator[Change]:
    """Nodes that are new; a scheduler gives others each time, so many are only counted."""
    new = sorted(after - before)
    if not before or not new:
        return
    if len(new) <= _MOST_NODES:
        text = f"new node{'s' if len(new) > 1 else ''} {', '.join(new)}"
    else:
        text = f"{len(new)} of {len(after)} nodes are new"
    yield Change(name="nodes", text=text)
