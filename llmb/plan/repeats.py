# SPDX-License-Identifier: Apache-2.0
"""Repeats of a job: they have one name, and differ in nothing but their number."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from operator import attrgetter
from typing import TypeVar

from llmb.contract.job import Job

T = TypeVar("T")

# As a tuple, since thousands of jobs are compared: most values are one object, and equal at once.
_COMMON = attrgetter(*(own.name for own in fields(Job) if own.name != "repeat"))


def is_repeat(job: Job, other: Job) -> bool:
    """Return True if both jobs differ in nothing but the number of the repeat."""
    return _COMMON(job) == _COMMON(other)


def once_for_repeats(function: Callable[[Job], T], jobs: Iterable[Job]) -> list[T]:
    """Return the result of ``function`` for each job. Repeats share the result of the first one."""
    newest: dict[str, tuple[Job, T]] = {}
    results: list[T] = []
    for job in jobs:
        result = newest.get(job.experiment_name)
        if result is None or not is_repeat(job, result[0]):
            newest[job.experiment_name] = result = job, function(job)
        results.append(result[1])
    return results
