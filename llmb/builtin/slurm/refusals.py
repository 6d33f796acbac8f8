# SPDX-License-Identifier: Apache-2.0
"""Asks Slurm which runs it would refuse (sbatch --test-only)."""

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from llmb.builtin.slurm.commands import Client, SilentError, epoch_seconds, full_queue, refusal
from llmb.builtin.slurm.sbatch_options import GPU_OPTIONS
from llmb.contract.sbatch import NODE_OPTIONS
from llmb.core import console
from llmb.core.node_lists import expand, fold
from llmb.core.times import day_and_time, iso
from llmb.core.values import dataclass
from llmb.errors import Fault, LlmbError
from llmb.kit.advice import advice

Options = dict[str, str | None]

_NOT_TESTED = frozenset({"job-name", "chdir", "output", "open-mode", "export"})
_SIZES = ("nodes", "ntasks-per-node", "time", "segment")
# Slurm may refuse a job as a whole because of these: it is no use to ask about each of them alone.
_OF_THE_WHOLE = frozenset(
    {*_NOT_TESTED, *_SIZES, *GPU_OPTIONS, "no-requeue", "exclusive", "mem", "gres", "partition"}
)
_SHOWN = ("account", "partition", "qos", "gres", "reservation", "constraint", "nodelist", "time")
OUT_OF_SERVICE = "nodes-out-of-service"
_NO_NODE = "Requested node configuration is not available"
_WRONG_TIME = "Invalid time specified"
_CLOCKS_DIFFER = 60  # seconds after a reservation's start at which its jobs are tested


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A job that Slurm would refuse: what kind of job, Slurm's ``reason``, and the ``partition``
    that it names.
    """

    what: str
    reason: str
    partition: str | None
    #: The options that say which nodes it may use, as ``--exclude n[1-4]``.
    placement: tuple[str, ...] = ()
    #: The nodes that it names, as ``n[1-4]``.
    nodelist: str = ""

    @property
    def is_of_nodes(self) -> bool:
        """Return True if no node fits. Slurm also says so about nodes whose state it does not know
        yet.
        """
        return _NO_NODE in self.reason

    @property
    def fault(self) -> Fault:
        """The refusal as users read it."""
        hint = advice("slurm_refused", self.reason)
        if self.is_of_nodes and self.placement:
            hint = (
                f"check {' and '.join(self.placement)}: as many nodes as the job has must be left"
            )
        return Fault(
            message=f"Slurm would refuse a job {self.what}: {self.reason}",
            hint=hint,
            code="slurm-would-refuse",
            value=self.reason,
        )

    def fault_with(self, states: Mapping[str, str]) -> Fault:
        """Return the fault. ``states``: the nodes that are out of service, each with its state.

        If no node fits because nodes that the job names are out of service, it names those.
        """
        out = [name for name in dict.fromkeys(expand(self.nodelist)) if name in states]
        if not self.is_of_nodes or not out:
            return self.fault
        shown = " and ".join(f"{name} is {states[name]}" for name in out)
        return replace(
            self.fault,
            message=f"{self.fault.message}, as {shown}",
            hint="name other nodes; with --force the job waits for the nodes",
            code=OUT_OF_SERVICE,
            key="nodelist",
            value=fold(out),
        )


def refusals(
    client: Client, jobs: Sequence[tuple[Options, bool]], usable: frozenset[str]
) -> Iterator[Refusal]:
    """Return what Slurm would refuse of ``jobs``: the options of each, and whether it fits its
    partition.

    One that does not fit would be refused for that alone, so only its options are asked about, one
    by one. ``usable``: the partitions that take jobs.
    """
    for options, is_fitting in _largest(jobs):
        tested = {name: value for name, value in options.items() if name not in _NOT_TESTED}
        reason = _refused(client, tested) if is_fitting else ""
        if reason is None:
            continue
        parts = list(_parts(client, tested, usable))
        yield from parts
        if reason and not parts:
            nodes = f"{tested['nodes']} node{'s' if tested['nodes'] != '1' else ''}"
            words = [f"{name} {tested[name]}" for name in _SHOWN if tested.get(name) is not None]
            yield Refusal(
                what=", ".join([f"of {nodes}", *words]),
                reason=reason,
                partition=tested.get("partition"),
                placement=_placement(tested),
                nodelist=tested.get("nodelist") or "",
            )


def _largest(jobs: Sequence[tuple[Options, bool]]) -> list[tuple[Options, bool]]:
    """The job with most nodes of each kind, separately those that fit and those that do not."""
    largest: dict[object, tuple[Options, bool]] = {}
    for options, is_fitting in jobs:
        kind = (
            is_fitting,
            *(
                (name, value)
                for name, value in options.items()
                if name not in {*_NOT_TESTED, *_SIZES}
            ),
        )
        if kind not in largest or int(options["nodes"] or 0) > int(largest[kind][0]["nodes"] or 0):
            largest[kind] = options, is_fitting
    return list(largest.values())


def _parts(client: Client, options: Options, usable: frozenset[str]) -> Iterator[Refusal]:
    """The options that Slurm refuses by themselves, in a partition that would take them."""
    partition = options.get("partition")
    base: Options = {"partition": partition} if partition in usable else {}
    if "account" in options:
        base["account"] = options["account"]
        if reason := _refused(client, base):
            yield Refusal(
                what=f"with account {base.pop('account')}", reason=reason, partition=partition
            )
    if _refused(client, base) is not None:
        return
    for name in options:
        if name not in {*_OF_THE_WHOLE, "account"} and (
            reason := _refused(client, {**base, name: options[name]})
        ):
            what = f"with {name} {options[name]}" if options[name] is not None else f"with {name}"
            yield Refusal(
                what=what,
                reason=reason,
                partition=partition,
                placement=_placement({name: options[name]}),
                nodelist=(options[name] or "") if name == "nodelist" else "",
            )


def _placement(options: Options) -> tuple[str, ...]:
    """Return the options that say which nodes a job may use, as users write them."""
    return tuple(f"--{name} {options[name]}" for name in NODE_OPTIONS if options.get(name))


def _refused(client: Client, options: Mapping[str, str | None]) -> str | None:
    """Return why Slurm would not take such a job, or None where it would, or does not answer."""
    reason = _tested(client, options)
    name = options.get("reservation")
    if reason is None or name is None or _WRONG_TIME not in reason:
        return reason
    # sbatch takes such a job, which waits for its reservation; only --test-only, which looks for a
    # start now, refuses it.
    start = _start_of(client, name)
    if start is None or start <= (now := time.time()):
        return reason
    shown_start = day_and_time(iso(start) or "")
    text = f"reservation {name} begins at {shown_start}; its jobs wait until then"
    console.warn_once(text, kind="note")
    begin = f"now+{math.ceil(start - now) + _CLOCKS_DIFFER}seconds"
    return _tested(client, {**options, "begin": begin})


def _start_of(client: Client, reservation: str) -> float | None:
    """Return when a reservation begins, in seconds since the epoch, None if it is unknown."""
    try:
        answer = client.ask_once(["scontrol", "--oneliner", "show", "reservation", reservation])
    except LlmbError:
        return None
    match = re.search(r"\bStartTime=(\d+)", answer)
    return None if match is None else epoch_seconds(match[1])


def _tested(client: Client, options: Mapping[str, str | None]) -> str | None:
    """Return why sbatch --test-only refuses a job, None if it does not, or does not answer."""
    argv = [
        "sbatch",
        "--test-only",
        *(f"--{name}" if v is None else f"--{name}={v}" for name, v in options.items()),
    ]
    try:
        completed = client.run([*argv, "--wrap=true"], timeout=client.ask_seconds)
    except SilentError:  # the submission itself will show it
        return None
    # A full queue says nothing about this job: it is taken when others have ended.
    if completed.code == 0 or full_queue(completed.err) is not None:
        return None
    return refusal(completed.err) or f"sbatch ended with exit code {completed.code}"
