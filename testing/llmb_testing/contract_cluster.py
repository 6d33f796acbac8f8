# SPDX-License-Identifier: Apache-2.0
"""Contract tests of cluster types: a vendor's test class inherits them and says which cluster to
test.

    class TestSsh(ClusterTypeContract):
        nodes = 1  # of a job there

        @pytest.fixture
        def cluster_type(self) -> api.ClusterType:
            (kind,) = llmb_ssh.llmb_clusters()
            return kind

        @pytest.fixture
        def cluster_config(self, cluster_type: api.ClusterType, tmp_path: Path) -> api.ClusterConfig:
            section = llmb_ssh.SshConfig(hosts=("gpu1",))
            return api.ClusterConfig(
                cluster_type="ssh", gpu_type="cpu", llmb_install=tmp_path, kind=cluster_type,
                sections={"ssh": section},
            )

Each test submits small programs of bash to the real cluster, and waits for them. The cluster is
checked like every plugin's cluster: an answer that llmb would refuse fails the test.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llmb.contract import record
from llmb.contract.cluster import Cluster
from llmb.contract.cluster_type import ClusterType
from llmb.contract.launch import Launch, Program, StagedFile, Stamp, Wrapper
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.state import (
    CANCELLED,
    COMPLETED,
    ENDS,
    FAILED,
    LOST,
    RUNNING,
    UNKNOWN,
    WAITING,
    JobState,
)
from llmb.core import files
from llmb.core.call_time_limit import OverdueError, time_limit
from llmb.core.process import ProcessId
from llmb.plugins.guarded_cluster import guard
from llmb.run import store
from llmb_testing.job import SMALLEST_JOB

SECRET, VALUE = "CONTRACT_TOKEN", "s3cret-of-the-contract"
AWKWARD = (
    "it's",
    'a "b"',
    "$HOME `id`",
    "c\\d",
    "two\nlines",
    "-n",
    "",
    "é 日本",
    "*",
    "; exit 9 #",
)
SLEEP = "echo started; exec sleep 600"
# Runs until the file `go` is there, and shows by the file `beat` that it runs.
BEAT = "n=0; until [[ -e go ]]; do echo $((n += 1)) > beat; sleep 0.1; done; echo gone"
# Each rank writes its place, and waits for the others.
MEET = """\
place="$RANK $LOCAL_RANK $WORLD_SIZE $LLMB_RANK $LLMB_NODE_RANK $LLMB_LOCAL_RANK $MASTER_ADDR:$MASTER_PORT"
echo "$place" > ".place$RANK"
mv ".place$RANK" "place$RANK"
for (( other = 0; other < WORLD_SIZE; other++ )); do
    until [[ -e place$other ]]; do sleep 0.1; done
done"""


class ClusterTypeContract:
    """What llmb relies on. ``patience``: seconds until a job must have ended. ``answer_seconds``:
    within which each method must answer. ``ranks``: of each node of a larger job.

    ``nodes``: of the job of several nodes. 1 where a job has one, which ``preflight`` then says. A
    type with the trait ``one_machine`` is asked for one. ``passes_secrets``: whether the values of
    secrets come from the shell that submits, as on most clusters.
    """

    patience = 120.0
    answer_seconds = 60.0
    ranks = 2
    nodes = 2
    passes_secrets = True

    @pytest.fixture
    def cluster_type(self) -> ClusterType:
        """The cluster type to test."""
        raise NotImplementedError("override the fixture 'cluster_type'")

    @pytest.fixture
    def cluster_config(self, tmp_path: Path) -> ClusterConfig:
        """The configuration of an install directory of this type."""
        raise NotImplementedError("override the fixture 'cluster_config'")

    def make_cluster(self, kind: ClusterType, config: ClusterConfig) -> Cluster:
        """Return the cluster of a configuration."""
        return kind.make(config)

    def completed(self, launch: Launch) -> Launch:
        """``launch`` with what the cluster needs, such as an image."""
        return launch

    @pytest.fixture
    def cluster(
        self,
        cluster_type: ClusterType,
        cluster_config: ClusterConfig,
        monkeypatch: pytest.MonkeyPatch,
    ) -> Iterator[Cluster]:
        """The cluster, as llmb sees a plugin's. Jobs that a test leaves are cancelled."""
        monkeypatch.setenv(SECRET, VALUE)
        kind = replace(cluster_type, source=cluster_type.source or f"contract:{cluster_type.name}")
        guarded = guard(kind, lambda: self.make_cluster(cluster_type, cluster_config))
        cluster: Any = InTime(guarded, self.answer_seconds)
        self._left: list[RunRecord] = []
        yield cluster
        states = cluster.poll(self._left)
        cluster.cancel([run for run in self._left if not states[run.id].is_end])

    def launch(self, shell: str, name: str = "contract", **changes: object) -> Launch:
        """Return a launch whose rank runs lines of bash."""
        launch = Launch(
            name=name,
            nodes=1,
            ranks_per_node=1,
            time_limit=600,
            program=Program(shell=shell),
            gpu_type="cpu",
        )
        return self.completed(replace(launch, **changes))  # type: ignore[arg-type]

    def recorded(self, cluster: Cluster, config: ClusterConfig, launch: Launch) -> RunRecord:
        """Return a run with its record and its script on disk, not submitted yet."""
        now = time.time()
        stamp = store.new_directory(config.experiments("contract"), launch.name, int(now))
        run = RunRecord(
            id=stamp.id,
            created=now,
            llmb_version="0",
            cluster_type=config.cluster_type,
            directory=stamp.path,
            job=SMALLEST_JOB,
            launch=launch,
            script_name=f"launch_{launch.name}",
            submitter=ProcessId.current(),
        )
        record.save(run)
        files.write_text(run.script, cluster.render(launch, run.stamp))
        return run

    def submitted(self, cluster: Cluster, config: ClusterConfig, launch: Launch) -> RunRecord:
        """Return a submitted run."""
        run = self.recorded(cluster, config, launch)
        run = run.submitted(cluster.submit(run))
        record.save(run)
        self._left.append(run)
        return run

    def until(
        self, cluster: Cluster, runs: Sequence[RunRecord], ends: frozenset[str] = ENDS
    ) -> Mapping[str, JobState]:
        """Return the states of all runs once each has one of the ``ends`` states."""
        deadline = time.monotonic() + self.patience
        while True:
            states = cluster.poll(runs)
            if all(states[run.id].state in ends for run in runs):
                return states
            logs = [
                f"{run.id} {states[run.id]}\n{_text(run.batch_log)}\n{_text(run.log)}"
                for run in runs
            ]
            assert time.monotonic() < deadline, f"not within {self.patience:g} s:\n" + "\n".join(
                logs
            )
            time.sleep(max(0.1, cluster.pace.poll))

    def settle(self, cluster: Cluster) -> None:
        """Wait as long as a second copy of a job that has ended may take to start."""
        time.sleep(max(2.0, 2 * cluster.pace.poll))

    # What the type says of itself.

    def test_it_is_complete_as_data(
        self, cluster_type: ClusterType, cluster_config: ClusterConfig
    ) -> None:
        """Its questions are about keys of its section, and its traits can be read with and without
        one.
        """
        from llmb.plugins.cluster_checks import with_source

        kind = with_source(
            replace(cluster_type, source=""),
            f"contract:{cluster_type.name}" if _is_foreign(cluster_type) else "",
        )
        assert kind.name == cluster_config.cluster_type
        assert kind.title
        assert kind.traits_of(None).nodes
        assert kind.traits_of(cluster_config.section).runs_in == cluster_config.traits.runs_in
        if kind.schema is not None:
            names = {field.name for field in fields(kind.schema)}
            assert {question.key.partition(".")[0] for question in kind.questions} <= names

    def test_render_is_pure(self, cluster: Cluster, cluster_config: ClusterConfig) -> None:
        """The script depends on nothing but launch and stamp, writes nothing, and has no secret in
        it.
        """
        launch = self.launch("exit 0", secrets=(SECRET,) if self.passes_secrets else ())
        folder = cluster_config.experiments("contract") / "contract" / "contract_1"
        stamp = Stamp(id="contract-1", timestamp="1", directory=str(folder))
        first = cluster.render(launch, stamp)
        assert first == cluster.render(launch, stamp)
        assert "contract-1" in first
        assert not folder.exists()
        assert VALUE not in first

    def test_its_identity_stays(
        self, cluster: Cluster, cluster_type: ClusterType, cluster_config: ClusterConfig
    ) -> None:
        """Two commands see the same cluster, if it names itself at all."""
        kind = replace(cluster_type, source="contract:other")
        second = guard(kind, lambda: self.make_cluster(cluster_type, cluster_config))
        assert cluster.identity() == second.identity()

    def test_preflight_passes_what_can_run(self, cluster: Cluster) -> None:
        """No fault for a program that the other tests run."""
        assert cluster.preflight([self.launch("exit 0")]) == []

    def test_preflight_finds_a_secret_that_is_not_set(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also a file that does not exist, and both at once."""
        launch = self.launch(
            "exit 0", secrets=("CONTRACT_UNSET_TOKEN",), inputs=("/nonexistent/file",)
        )
        codes = [fault.code for fault in cluster.preflight([launch])]
        assert "input-missing" in codes
        assert len(codes) >= 2

    # How runs end.

    def test_ends_and_exit_codes(self, cluster: Cluster, cluster_config: ClusterConfig) -> None:
        """Success, an exit code, and a signal: states, codes, times and logs."""
        succeeding = self.submitted(
            cluster, cluster_config, self.launch("echo all is well", "good")
        )
        failing = self.submitted(cluster, cluster_config, self.launch("echo oh; exit 7", "bad"))
        killed = self.submitted(cluster, cluster_config, self.launch("kill -9 $$", "killed"))
        states = self.until(cluster, [succeeding, failing, killed])
        assert states[succeeding.id].state == COMPLETED, states[succeeding.id]
        assert states[succeeding.id].exit_code in (None, 0)
        assert _text(succeeding.log).splitlines()[-1] == "all is well"
        assert (states[failing.id].state, states[failing.id].exit_code) == (FAILED, 7), states[
            failing.id
        ]
        assert "oh" in _text(failing.log)
        assert (states[killed.id].state, states[killed.id].exit_code) == (FAILED, 137), states[
            killed.id
        ]
        for state in states.values():
            if state.started is not None and state.ended is not None:
                assert succeeding.created - 5 <= state.started <= state.ended + 1

    def test_a_rank_fails_after_the_others_have_ended(
        self, cluster: Cluster, cluster_config: ClusterConfig
    ) -> None:
        """The job has failed although its first node succeeded, and the log is complete once it has
        ended.
        """
        nodes = 1 if cluster_config.traits.one_machine else self.nodes
        late = "(( RANK < WORLD_SIZE - 1 )) || { sleep 3; echo too late; exit 7; }"
        run = self.submitted(
            cluster, cluster_config, self.launch(late, nodes=nodes, ranks_per_node=self.ranks)
        )
        state = self.until(cluster, [run])[run.id]
        logs = [_text(path) for path in run.work.glob("*.out")]
        assert (state.state, state.exit_code) == (FAILED, 7), (state, *logs)
        assert any("too late" in log.splitlines() for log in logs), logs

    def test_a_state_stays_after_the_end(
        self, cluster: Cluster, cluster_config: ClusterConfig
    ) -> None:
        """Polled and cancelled again, by another command, an ended run is the same."""
        run = self.submitted(cluster, cluster_config, self.launch("exit 3"))
        first = self.until(cluster, [run])[run.id]
        cluster.cancel([run])
        again = cluster.poll([run])[run.id]
        assert (again.state, again.exit_code) == (first.state, first.exit_code) == (FAILED, 3)

    def test_a_job_has_no_end_before_its_program(
        self, cluster: Cluster, cluster_config: ClusterConfig
    ) -> None:
        """Neither while it waits, such as behind another job, nor while it runs."""
        runs = [
            self.submitted(cluster, cluster_config, self.launch(BEAT, name))
            for name in ("first", "second")
        ]
        deadline = time.monotonic() + self.patience
        polls = 0
        while polls < 5 or not any((run.work / "beat").exists() for run in runs):
            states = cluster.poll(runs)
            for run in runs:
                assert not states[run.id].is_end, f"{run.launch.name} still runs: {states[run.id]}"
            assert time.monotonic() < deadline, f"no job runs within {self.patience:g} s: {states}"
            polls += any((run.work / "beat").exists() for run in runs)
            time.sleep(max(0.1, cluster.pace.poll))
        for run in runs:
            run.work.mkdir(exist_ok=True)
            (run.work / "go").touch()
        states = self.until(cluster, runs)
        assert {state.state for state in states.values()} == {COMPLETED}, states
        assert all("gone" in _text(run.log) for run in runs)

    def test_a_running_job_is_cancelled(
        self, cluster: Cluster, cluster_config: ClusterConfig
    ) -> None:
        """It is RUNNING before, CANCELLED after, and its program has ended."""
        run = self.submitted(cluster, cluster_config, self.launch(BEAT))
        self.until(cluster, [run], frozenset({RUNNING}))
        cluster.cancel([run])
        assert self.until(cluster, [run])[run.id].state == CANCELLED
        deadline = time.monotonic() + self.patience
        while (before := _text(run.work / "beat")) is not None:
            time.sleep(1.0)
            if _text(run.work / "beat") == before:
                break
            assert time.monotonic() < deadline, "its program runs on after it was cancelled"

    def test_a_job_is_cancelled_by_its_run(
        self, cluster: Cluster, cluster_config: ClusterConfig
    ) -> None:
        """The scheduler's id may not be known: the submitter was killed before it wrote it."""
        run = self.submitted(cluster, cluster_config, self.launch(SLEEP))
        cluster.cancel([replace(run, scheduler_id=None)])
        assert self.until(cluster, [run])[run.id].state == CANCELLED

    # Exactly once.

    def test_a_run_that_is_submitted_twice_runs_once(
        self, cluster: Cluster, cluster_config: ClusterConfig
    ) -> None:
        """A command that was killed between submission and answer may submit again."""
        run = self.submitted(cluster, cluster_config, self.launch("sleep 1; echo once >> count"))
        cluster.submit(replace(run, scheduler_id=None))
        state = self.until(cluster, [run])[run.id]
        assert state.state == COMPLETED, state
        self.settle(cluster)
        assert _text(run.work / "count") == "once\n"

    def test_a_submission_starts_one_job(
        self, cluster: Cluster, cluster_config: ClusterConfig
    ) -> None:
        """Also one whose answer arrives."""
        run = self.submitted(cluster, cluster_config, self.launch("echo once >> count"))
        assert self.until(cluster, [run])[run.id].state == COMPLETED
        self.settle(cluster)
        assert _text(run.work / "count") == "once\n"

    def test_each_of_two_runs_is_found_as_itself(
        self, cluster: Cluster, cluster_config: ClusterConfig
    ) -> None:
        """Their ids are those that ``submit`` gave, and each id is that of its own end."""
        runs = [
            self.submitted(cluster, cluster_config, self.launch(f"exit {code}", f"exit{code}"))
            for code in (3, 5)
        ]
        ids = cluster.find([replace(run, scheduler_id=None) for run in runs])
        assert ids == {run.id: run.scheduler_id for run in runs}
        states = self.until(cluster, [replace(run, scheduler_id=ids[run.id]) for run in runs])
        assert [states[run.id].exit_code for run in runs] == [3, 5]

    def test_a_submitted_run_is_found(
        self, cluster: Cluster, cluster_config: ClusterConfig
    ) -> None:
        """While it runs and after its end. One that was never submitted is neither."""
        never = self.recorded(cluster, cluster_config, self.launch("exit 0", "never"))
        run = self.submitted(cluster, cluster_config, self.launch("sleep 1"))
        lost = replace(run, scheduler_id=None)
        assert set(cluster.find([lost, never])) == {run.id}
        self.until(cluster, [run])
        assert set(cluster.find([lost, never])) == {run.id}
        assert cluster.poll([never])[never.id].state in {LOST, UNKNOWN, *WAITING}

    # What a program gets.

    def test_a_program_gets_exactly_what_the_launch_says(
        self, cluster: Cluster, cluster_config: ClusterConfig
    ) -> None:
        """Arguments, variables, files and wrappers, however awkward. No secret in any file of the
        run.
        """
        secret = (SECRET,) if self.passes_secrets else ()
        shell = (
            'printf "%s\\0" "$@" > arguments; printf %s "$ODD" > variable; printf %s'
            ' "${#CONTRACT_TOKEN}" > length'
        )
        launch = self.launch(
            f"{shell}; cat a/staged.txt; echo $LLMB_RANK $LLMB_RUN_ID $WRAPPED",
            args=AWKWARD,
            environment={"ODD": "".join(AWKWARD)},
            secrets=secret,
            files=(StagedFile(name="a/staged.txt", text="it's\n$HOME\n"),),
            wrappers=(Wrapper(name="env", argv=("env", "WRAPPED=yes")),),
        )
        run = self.submitted(cluster, cluster_config, launch)
        state = self.until(cluster, [run])[run.id]
        assert state.state == COMPLETED, (state, _text(run.batch_log), _text(run.log))
        assert tuple(_text(run.work / "arguments").split("\0")[:-1]) == AWKWARD
        assert _text(run.work / "variable") == "".join(AWKWARD)
        assert _text(run.log).splitlines()[-3:] == ["it's", "$HOME", f"0 {run.stamp.id} yes"]
        if self.passes_secrets:
            assert _text(run.work / "length") == str(len(VALUE))
        written = [path for path in run.directory.rglob("*") if path.is_file()]
        assert [path for path in written if VALUE.encode() in path.read_bytes()] == []

    def test_ranks_know_their_place(self, cluster: Cluster, cluster_config: ClusterConfig) -> None:
        """torch's variables, and llmb's own for wrappers, on one node."""
        self._check_places(cluster, cluster_config, 1)

    def test_the_ranks_of_several_nodes_meet(
        self, cluster: Cluster, cluster_config: ClusterConfig
    ) -> None:
        """They run at the same time, each knows its node, and all have one address of the first
        node.

        Where a job has one node, ``preflight`` refuses two.
        """
        nodes = 1 if cluster_config.traits.one_machine else self.nodes
        if nodes == 1 and not cluster_config.traits.one_machine:
            assert cluster.preflight([self.launch("exit 0", nodes=2)]), (
                "preflight must refuse a job of two nodes"
            )
        self._check_places(cluster, cluster_config, nodes)

    def _check_places(self, cluster: Cluster, config: ClusterConfig, nodes: int) -> None:
        run = self.submitted(
            cluster, config, self.launch(MEET, nodes=nodes, ranks_per_node=self.ranks)
        )
        state = self.until(cluster, [run])[run.id]
        assert state.state == COMPLETED, (state, _text(run.batch_log), _text(run.log))
        world, addresses = nodes * self.ranks, set()
        for rank in range(world):
            *place, address = _text(run.work / f"place{rank}").split()
            node, local = divmod(rank, self.ranks)
            assert place == [str(number) for number in (rank, local, world, rank, node, local)]
            addresses.add(address)
        assert len(addresses) == 1, (
            f"each rank must see the same MASTER_ADDR:MASTER_PORT: {addresses}"
        )


class InTime:
    """A cluster whose methods must answer within some seconds, or the test fails."""

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        self._cluster, self._seconds = cluster, seconds

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._cluster, name)
        return partial(self._call, name, value) if callable(value) else value

    def _call(self, name: str, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            with time_limit(self._seconds):
                return method(*arguments)
        except OverdueError:
            pytest.fail(f"{name} has not answered within {self._seconds:g} s", pytrace=False)


def _is_foreign(kind: ClusterType) -> bool:
    return (
        bool(kind.source) or not isinstance(kind.create, str) or not kind.create.startswith("llmb.")
    )


def _text(path: Path) -> str:
    return (
        path.read_text(encoding="utf-8", errors="replace") if path.exists() else f"(no {path.name})"
    )
