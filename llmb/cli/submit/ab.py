# SPDX-License-Identifier: Apache-2.0
"""`--ab SETTING=A,B`: pairs of runs that differ in one setting, alternately on the same nodes.

The order is A B B A and so on, so that a drift of the cluster favours neither side.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from llmb.cli.submit.options import SubmitOptions
from llmb.contract.record import PairMember
from llmb.contract.sbatch import NODE_OPTIONS, OWN_OPTIONS, long_name
from llmb.contract.schema import ClusterConfig
from llmb.core.node_lists import expand
from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.run.prepare import Prepared

SIDES = ("A", "B")
_OPTIONS = ("image", "framework", "release")  # that are no key of --set


@dataclass(frozen=True, slots=True, kw_only=True)
class AbTest:
    """The setting in which the two sides differ, and its values."""

    setting: str
    values: tuple[str, str]

    @property
    def is_sbatch_option(self) -> bool:
        """True for an option of sbatch with a name of its own, such as ``exclude``."""
        return long_name(self.setting) in OWN_OPTIONS

    def options_of(self, side: int, options: SubmitOptions) -> SubmitOptions:
        """Return the options of a side: an option, a variable in capitals, or a key of --set."""
        pair = f"{self.setting}={self.values[side]}"
        if self.is_sbatch_option:
            return options
        if self.setting in _OPTIONS:
            changes: dict[str, Any] = {self.setting: self.values[side]}
            return replace(options, **changes)
        if self.setting.isupper():
            return replace(options, env=(*options.env, pair))
        return replace(options, params=(*options.params, pair))

    def slurm_args_of(
        self, side: int, slurm_args: Mapping[str, str | bool]
    ) -> Mapping[str, str | bool]:
        """Return the options of sbatch of a side."""
        if not self.is_sbatch_option:
            return slurm_args
        return {**slurm_args, long_name(self.setting): self.values[side]}


def read_test(text: str) -> AbTest:
    """Read ``NCCL_ALGO=Ring,Tree``, or with values that have commas ``exclude=n1,n2;n3,n4``.

    Raises UsageError.
    """
    setting, _, sides = text.partition("=")
    values = [value.strip() for value in sides.split(";" if ";" in sides else ",")]
    if not setting.strip() or len(values) != len(SIDES) or not all(values):
        raise UsageError(
            f"--ab '{text}' does not name one setting with two values",
            hint="--ab NCCL_ALGO=Ring,Tree; values with commas: --ab 'exclude=n1,n2;n3,n4'",
            code="ab-invalid",
            key="ab",
            value=text,
        )
    if values[0] == values[1]:
        raise UsageError(
            f"--ab '{text}' has the same value twice",
            hint="give two different values; without --ab, --repeats repeats one configuration",
            code="ab-equal",
            key="ab",
            value=text,
        )
    return AbTest(setting=setting.strip(), values=(values[0], values[1]))


def in_pairs(test: AbTest, sides: Sequence[Sequence[Prepared]]) -> list[Prepared]:
    """Return the jobs of both sides in the order of their submission, each with its pair.

    Raises UsageError for sides with different jobs, or without any difference.
    """
    first, second = sides
    names = [[(item.job.workload, item.job.model_size) for item in side] for side in sides]
    if names[0] != names[1]:
        raise UsageError(
            f"--ab {test.setting}: the two sides have different jobs",
            hint="choose a setting that both values of every job support",
            code="ab-different",
            key="ab",
        )
    if any(a.job == b.job and a.launch == b.launch for a, b in zip(first, second, strict=True)):
        raise UsageError(
            f"--ab {test.setting}: {test.values[0]} and {test.values[1]} make the same job",
            hint="choose a setting that the workload uses",
            code="ab-equal",
            key="ab",
        )
    counts: dict[Hashable, int] = {}
    ordered: list[Prepared] = []
    for pair in zip(first, second, strict=True):
        name = pair[0].job.experiment_name, pair[1].job.experiment_name
        counts[name] = number = counts.get(name, 0) + 1
        members = [
            replace(
                item,
                pair=PairMember(number=number, side=side, setting=test.setting, value=value),
            )
            for item, side, value in zip(pair, SIDES, test.values, strict=True)
        ]
        ordered += members if number % 2 else members[::-1]
    return ordered


def check_nodes(test: AbTest, items: Sequence[Prepared], config: ClusterConfig) -> None:
    """Raise UsageError unless both sides run on the same nodes.

    Where a scheduler chooses the nodes, they must be named, as many as a job has.
    """
    # with lists of nodes the two sides are about the nodes themselves
    if not config.traits.sbatch_options or long_name(test.setting) in NODE_OPTIONS:
        return
    for job_nodes, nodelist in _nodes_of(items):
        names = list(expand(nodelist))
        if len(names) != job_nodes:
            chosen = f"--nodelist {nodelist} names {len(names)}" if names else "none are named"
            raise UsageError(
                f"both sides of --ab must run on the same {job_nodes} nodes, and {chosen}",
                hint=f"name {job_nodes}: --nodelist n[1-{job_nodes}]",
                code="ab-nodes",
                key="nodelist",
                value=nodelist,
            )


def _nodes_of(items: Sequence[Prepared]) -> Iterator[tuple[int, str]]:
    """Yield how many nodes each job has, and the list of nodes that it asks for."""
    for item in items:
        if item.launch is not None:
            nodelist = item.launch.slurm_args.get("nodelist")
            yield item.launch.nodes, nodelist if isinstance(nodelist, str) else ""
