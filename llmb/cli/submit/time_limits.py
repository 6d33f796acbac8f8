# SPDX-License-Identifier: Apache-2.0
"""Which time limit counts, where several places say one: --slurm-arg, --time-limit, the job list, the configuration."""

from collections.abc import Sequence
from dataclasses import replace

from llmb.cli.context import Context, say
from llmb.cli.options import slurm_arg_in_words
from llmb.config.slurm import seconds
from llmb.planning.plan import Extra
from llmb.runs.job import JobRequest
from llmb.text.times import clock


def settled(context: Context, requests: Sequence[JobRequest], extra: Extra) -> Extra:
    """``extra`` with the limit of ``--slurm-arg time=``, which is that of every job; what it comes over is said."""
    given = context.slurm_args.get("time")
    said = [spoken(given)] if given is not None else []
    said += [f"--time-limit {clock(option)}"] if (option := extra.switches.time_limit) is not None else []
    said += ["the job list's time_limit"] if any(one.switches.time_limit is not None for one in requests) else []
    own = context.config.slurm is not None and context.config.slurm.time_limit is not None
    said += ["slurm.args.time of cluster_config.yaml"] if own else []
    if len(said) > 1:
        say(f"note: {said[0]} comes over {' and '.join(said[1:])}")
    limit = seconds_of(given)
    return replace(extra, switches=replace(extra.switches, time_limit=limit)) if limit else extra


def spoken(given: str | bool) -> str:
    """``--slurm-arg time=`` as it was given."""
    return slurm_arg_in_words("time", given)


def seconds_of(given: str | bool | None) -> int | None:
    """The seconds of ``--slurm-arg time=``; None for a word of Slurm's own, as for a limit that is left away."""
    return seconds(given) or None if isinstance(given, str) else None
