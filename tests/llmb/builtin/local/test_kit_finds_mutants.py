# SPDX-License-Identifier: Apache-2.0
"""The contract tests of cluster types find each fault that was put into a good cluster."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from llmb.builtin.own_types import LOCAL
from llmb.contract.cluster import Cluster
from llmb.contract.record import RunRecord
from llmb.contract.state import CANCELLED, COMPLETED, WAITING, JobState
from llmb.plugins.guarded_cluster import guard
from llmb_testing.contract_cluster import SECRET, VALUE, ClusterTypeContract, InTime

pytestmark = pytest.mark.timeout(600)


class Mutant:
    """The local cluster with a fault."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)


class EndsWhileItWaits(Mutant):
    """Takes a job that waits for one that has ended."""

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        states = self.cluster.poll(runs)
        return {
            run: replace(state, state=COMPLETED) if state.state in WAITING else state
            for run, state in states.items()
        }


class MixesIds(Mutant):
    """Finds each run by the id of another one."""

    def find(self, runs: Sequence[RunRecord]) -> Mapping[str, str]:
        ids = self.cluster.find(runs)
        return dict(zip(ids, [*ids.values()][1:] + [*ids.values()][:1], strict=True))


class Hangs(Mutant):
    """Never answers."""

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        subprocess.run(["sleep", "600"], check=True)
        raise AssertionError


class CancelsNothing(Mutant):
    """Lets jobs run on."""

    def cancel(self, runs: Sequence[RunRecord]) -> None:
        return


class SaysThatItCancelled(Mutant):
    """Lets jobs run on, and calls them cancelled."""

    cancelled: frozenset[str] = frozenset()

    def cancel(self, runs: Sequence[RunRecord]) -> None:
        self.cancelled |= {run.id for run in runs}

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        states = self.cluster.poll(runs)
        return {
            run: replace(state, state=CANCELLED) if run in self.cancelled else state
            for run, state in states.items()
        }


class SubmitsAgain(Mutant):
    """Starts a job for each submission of a run."""

    submitted: frozenset[str] = frozenset()

    def submit(self, run: RunRecord) -> str:
        if run.id in self.submitted:
            _start_copy(run)
        self.submitted |= {run.id}
        return str(self.cluster.submit(run))


class SubmitsTwice(Mutant):
    """Starts two jobs by one submission."""

    def submit(self, run: RunRecord) -> str:
        _start_copy(run)
        return str(self.cluster.submit(run))


def _start_copy(run: RunRecord) -> None:
    """Start the program of a run once more, in the background."""
    run.work.mkdir(exist_ok=True)
    copy = f"({run.launch.program.shell}) > /dev/null 2>&1 &"
    subprocess.run(["bash", "-c", copy], cwd=run.work, check=True)


TESTS = [
    (EndsWhileItWaits, "test_a_job_has_no_end_before_its_program"),
    (MixesIds, "test_each_of_two_runs_is_found_as_itself"),
    (Hangs, "test_a_job_has_no_end_before_its_program"),
    (CancelsNothing, "test_a_running_job_is_cancelled"),
    (SaysThatItCancelled, "test_a_running_job_is_cancelled"),
    (SubmitsAgain, "test_a_run_that_is_submitted_twice_runs_once"),
    (SubmitsTwice, "test_a_submission_starts_one_job"),
]


class Quick(ClusterTypeContract):
    """The contract, which waits only as long as jobs of this machine need."""

    patience = 6.0
    answer_seconds = 3.0


@pytest.mark.parametrize(("mutant", "name"), TESTS)
def test_a_mutant_fails_the_test_of_its_fault(
    mutant: type[Mutant], name: str, machine: Any
) -> None:
    machine.environ |= {SECRET: VALUE}
    real = machine.cluster()
    kind = replace(LOCAL, source="contract:local")
    contract = Quick()
    contract._left = []
    cluster: Any = InTime(guard(kind, lambda: _as_cluster(mutant(real))), contract.answer_seconds)
    try:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            getattr(contract, name)(cluster, real.config)
    finally:
        real.cancel([run for run in contract._left if not real.poll([run])[run.id].is_end])


def _as_cluster(mutant: Mutant) -> Cluster:
    cluster: Any = mutant
    return cluster  # type: ignore[no-any-return]
