# SPDX-License-Identifier: Apache-2.0
"""Repeats of a job: they follow each other in a plan and differ in their numbers alone."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from llmb.contract.job import Job

T = TypeVar("T")


def is_repeat(job: Job, before: Job) -> bool:
    """Return True if ``job`` and ``before`` differ in nothing but the number of the repeat."""
    return replace(before, repeat=job.repeat) == job


def once_for_repeats(function: Callable[[Job], T], jobs: Sequence[Job]) -> list[T]:
    """Return the result of ``function`` for each job. Repeats share the result of the first one."""
    results: list[T] = []
    for index, job in enumerate(jobs):
        shares = index > 0 and is_repeat(job, jobs[index - 1])
        results.append(results[-1] if shares else function(job))
    return results
