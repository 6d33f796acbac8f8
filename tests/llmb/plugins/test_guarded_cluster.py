# SPDX-License-Identifier: Apache-2.0
"""A plugin's cluster whose methods are missing, fail or answer nonsense: the plugin is named, the
run's state stays.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract import record
from llmb.contract.cluster import Cluster, Pace, UnclearError
from llmb.contract.cluster_type import ClusterType
from llmb.contract.launch import Launch, Program
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.state import COMPLETED, KNOWN, RUNNING, UNKNOWN, JobState
from llmb.core.process import ProcessId
from llmb.errors import Fault, LlmbError, describe
from llmb.plugins.guarded_cluster import METHODS, ClusterPluginError, NoAnswerError, create
from llmb.run import polling, store
from llmb.run.prepare import faults_seen
from llmb.run.submission import start_attempt, submission_lock
from llmb_testing.job import SMALLEST_JOB

SOURCE = "llmb-moon:moon"
CONFIG = ClusterConfig(cluster_type="moon", gpu_type="cpu")
LAUNCH = Launch(name="job", nodes=1, ranks_per_node=1, time_limit=60, program=Program(shell="true"))


class Moon:
    """A cluster whose methods are right, unless an answer replaces one: a value, or an exception to
    raise.
    """

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.has: dict[str, str] = {}

    def _answer(self, method: str, right: Callable[[], Any]) -> Any:
        given = self.answers.get(method, right)
        if isinstance(given, BaseException) or (
            isinstance(given, type) and issubclass(given, BaseException)
        ):
            raise given
        return given() if callable(given) else given

    @property
    def pace(self) -> Any:
        return self._answer("pace", Pace)

    def identity(self) -> Any:
        return self._answer("identity", lambda: "the moon")

    def preflight(self, launches: Any) -> Any:
        return self._answer("preflight", list)

    def faults_here(self, launches: Any) -> Any:
        return self._answer("faults_here", list)

    def render(self, launch: Any, stamp: Any) -> Any:
        return self._answer("render", lambda: "script\n")

    def submit(self, run: Any) -> Any:
        self.has[run.id] = "7"
        return self._answer("submit", lambda: "7")

    def find(self, runs: Any) -> Any:
        return self._answer(
            "find", lambda: {run.id: self.has[run.id] for run in runs if run.id in self.has}
        )

    def poll(self, runs: Any) -> Any:
        return self._answer("poll", lambda: {run.id: JobState(state=RUNNING) for run in runs})

    def cancel(self, runs: Any) -> Any:
        return self._answer("cancel", lambda: None)


def cluster_of(moon: object, tmp_path: Path) -> Cluster:
    kind = ClusterType(name="moon", create=lambda config: moon, source=SOURCE)  # type: ignore[arg-type, return-value]
    return create(kind, ClusterConfig(cluster_type="moon", gpu_type="cpu", llmb_install=tmp_path))


@pytest.fixture
def run(tmp_path: Path) -> RunRecord:
    """A recorded run."""
    stamp = store.new_directory(tmp_path / "experiments", "job", 1)
    found = RunRecord(
        id=stamp.id,
        created=1.0,
        llmb_version="0",
        cluster_type="moon",
        directory=stamp.path,
        job=SMALLEST_JOB,
        launch=LAUNCH,
        script_name="launch_job",
        submitter=ProcessId.current(),
    )
    record.save(found)
    return found


CALLS: dict[str, Callable[[Cluster, RunRecord], object]] = {
    "pace": lambda cluster, run: cluster.pace,
    "identity": lambda cluster, run: cluster.identity(),
    "preflight": lambda cluster, run: cluster.preflight([run.launch]),
    "faults_here": lambda cluster, run: faults_seen([run.launch], cluster, CONFIG),
    "render": lambda cluster, run: cluster.render(run.launch, run.stamp),
    "submit": lambda cluster, run: cluster.submit(run),
    "find": lambda cluster, run: cluster.find([run]),
    "poll": lambda cluster, run: cluster.poll([run]),
    "cancel": lambda cluster, run: cluster.cancel([run]),
}


def test_a_right_cluster_is_passed_through(run: RunRecord, tmp_path: Path) -> None:
    cluster = cluster_of(
        Moon(preflight=[Fault(message="full")], faults_here=[Fault(message="far")]), tmp_path
    )
    assert faults_seen([LAUNCH], cluster, CONFIG) == [Fault(message="far")]

    assert cluster.pace == Pace()
    assert cluster.identity() == "the moon"
    assert cluster.preflight([LAUNCH]) == [Fault(message="full")]
    assert cluster.find([run]) == {}
    assert (cluster.submit(run), cluster.find([run])) == ("7", {run.id: "7"})
    assert cluster.poll([run])[run.id].state == RUNNING
    cluster.cancel([run])


def test_of_launches_that_need_the_same_the_largest_is_judged() -> None:
    class Asked(Moon):
        def faults_here(self, launches: Any) -> Any:
            return [Fault(message=f"{one.nodes} {one.ranks_per_node}") for one in launches]

    cluster: Any = Asked()
    sizes = ((1, 4), (2, 1), (1, 8))
    launches = [replace(LAUNCH, nodes=nodes, ranks_per_node=ranks) for nodes, ranks in sizes]
    launches.append(replace(LAUNCH, venv="/other"))
    wide = [replace(LAUNCH, nodes=1, ranks_per_node=ranks) for ranks in (4, 8)]
    assert [fault.message for fault in faults_seen(wide, cluster, CONFIG)] == ["1 8"]
    found = faults_seen(launches, cluster, CONFIG)
    assert [fault.message for fault in found] == ["2 1", f"{LAUNCH.nodes} {LAUNCH.ranks_per_node}"]


@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize(
    "error", [RuntimeError("boom"), SystemExit(3), KeyError("x"), AttributeError("y")]
)
def test_a_method_that_fails_names_the_plugin(
    method: str, error: BaseException, run: RunRecord, tmp_path: Path
) -> None:
    cluster = cluster_of(Moon(**{method: error}), tmp_path)
    with pytest.raises(ClusterPluginError) as caught:
        CALLS[method](cluster, run)
    assert (caught.value.code, caught.value.key, caught.value.value) == (
        "plugin-failed",
        method,
        SOURCE,
    )
    assert f"{Path(__file__).name}:" in caught.value.message  # where it was raised


@pytest.mark.parametrize("method", CALLS)
def test_an_error_for_users_is_passed_on(method: str, run: RunRecord, tmp_path: Path) -> None:
    with pytest.raises(LlmbError) as caught:
        CALLS[method](
            cluster_of(Moon(**{method: LlmbError("no moon tonight", code="dark")}), tmp_path), run
        )
    assert caught.value.code == "dark"


def test_an_interrupt_of_its_own_costs_the_plugin_alone(run: RunRecord, tmp_path: Path) -> None:
    with pytest.raises(ClusterPluginError):
        cluster_of(Moon(poll=KeyboardInterrupt()), tmp_path).poll([run])


def test_what_it_prints_goes_to_stderr(
    run: RunRecord, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def poll() -> dict[str, JobState]:
        print("moonlight")
        return {run.id: JobState(state=RUNNING)}

    cluster_of(Moon(poll=poll), tmp_path).poll([run])
    out, err = capfd.readouterr()
    assert (out, "moonlight" in err) == ("", True)


NONSENSE: list[tuple[str, object]] = [
    ("pace", 5),
    ("pace", Pace(parallel=0)),
    ("pace", Pace(poll="often")),  # type: ignore[arg-type]
    ("identity", 5),
    ("identity", "two\nlines"),
    ("preflight", None),
    ("preflight", "full"),
    ("preflight", ["full"]),
    ("render", None),
    ("render", b"script"),
    ("render", "a\0b"),
    ("submit", None),
    ("submit", 7),
    ("submit", ""),
    ("submit", "7\n8"),
    ("find", None),
    ("find", ["7"]),
    ("find", {"another-run": "7"}),
    ("poll", None),
    ("poll", "RUNNING"),
    ("poll", {}),
    ("poll", {"another-run": JobState(state=RUNNING)}),
]
STATES: list[object] = [
    None,
    "COMPLETED",
    JobState(state="DONE"),
    JobState(state="completed"),
    JobState(state="NOT_SUBMITTED"),
    JobState(state=None),  # type: ignore[arg-type]
    JobState(state=COMPLETED, exit_code="0"),  # type: ignore[arg-type]
    JobState(state=COMPLETED, ended=-1.0),
    JobState(state=COMPLETED, ended=float("nan")),
    JobState(state=COMPLETED, reason=None),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("method", "answer"), NONSENSE)
def test_nonsense_names_the_plugin(
    method: str, answer: object, run: RunRecord, tmp_path: Path
) -> None:
    cluster = cluster_of(Moon(**{method: lambda: answer}), tmp_path)
    with pytest.raises(ClusterPluginError) as caught:
        CALLS[method](cluster, run)
    assert (caught.value.code, caught.value.key, caught.value.value) == (
        "answer-invalid",
        method,
        SOURCE,
    )


def test_the_error_of_an_unknown_state_is_short(
    run: RunRecord, tmp_path: Path, wording: Callable[..., None]
) -> None:
    moon = Moon(poll=lambda: {run.id: JobState(state="COMPLETE", reason="a long reason" * 20)})
    with pytest.raises(ClusterPluginError) as caught:
        cluster_of(moon, tmp_path).poll([run])
    wording("bad plugins", describe(caught.value), {run.id: "<id>"})


def test_the_documentation_has_every_state_of_a_poll() -> None:
    page = (Path(__file__).parents[3] / "docs/cluster-types.md").read_text()
    section = page.partition("### States")[2].partition("\n#")[0]
    assert set(re.findall(r"`([A-Z_]+)`", section)) == KNOWN | {UNKNOWN}


@pytest.mark.parametrize("state", STATES)
def test_a_state_that_cannot_be(state: object, run: RunRecord, tmp_path: Path) -> None:
    """Nothing of it reaches the run: what was seen last stays."""
    seen = store.save_state(run, JobState(state=RUNNING))
    cluster = cluster_of(Moon(poll=lambda: {run.id: state}), tmp_path)
    states, error = polling.try_poll(cluster, [run.submitted("7")])
    assert error is not None
    assert (error.code, error.key) == ("answer-invalid", "poll")
    assert states[run.id].state == RUNNING == seen.state
    stored = store.seen_state(run)
    assert stored is not None
    assert stored.state == RUNNING


@pytest.mark.parametrize("answer", [RuntimeError("boom"), None, 7])
def test_a_submission_that_fails_can_be_reconciled(
    answer: object, run: RunRecord, tmp_path: Path
) -> None:
    """The scheduler may have it: the run is not refused, and is found where it is."""
    moon = Moon(submit=answer if isinstance(answer, Exception) else lambda: answer)
    with pytest.raises(NoAnswerError):
        cluster_of(moon, tmp_path).submit(run)
    with submission_lock(run):
        found = start_attempt(run, cluster_of(moon, tmp_path))
    assert (found.error, found.run.scheduler_id) == (None, "7")
    moon.answers["find"] = RuntimeError("boom again")
    with submission_lock(run):
        lost = start_attempt(run, cluster_of(moon, tmp_path))
    assert isinstance(lost.error, UnclearError)
    assert lost.run.scheduler_id is None
    assert store.seen_state(run) is None  # neither refused nor ended


def test_a_refusal_is_an_end(run: RunRecord, tmp_path: Path) -> None:
    with submission_lock(run):
        found = start_attempt(run, cluster_of(Moon(submit=LlmbError("no", code="no")), tmp_path))
    assert found.error is not None
    state = store.seen_state(run)
    assert state is not None
    assert state.is_refused


@pytest.mark.parametrize("method", METHODS)
def test_a_missing_method(method: str, tmp_path: Path) -> None:
    moon = type("Half", (), {name: lambda self: None for name in METHODS if name != method})()
    with pytest.raises(ClusterPluginError) as caught:
        cluster_of(moon, tmp_path)
    assert (caught.value.code, caught.value.key, caught.value.value) == (
        "method-missing",
        method,
        SOURCE,
    )


def test_identity_and_pace_may_be_missing(run: RunRecord, tmp_path: Path) -> None:
    moon = type("Small", (), {name: lambda self: None for name in METHODS})()
    cluster = cluster_of(moon, tmp_path)
    assert (cluster.identity(), cluster.pace) == (None, Pace())


@pytest.mark.parametrize(
    "made", [lambda config: 1 / 0, lambda config: None, "no_such_module:create", "llmb:missing"]
)
def test_a_cluster_that_cannot_be_made(made: Any, tmp_path: Path) -> None:
    kind = ClusterType(name="moon", create=made, source=SOURCE)
    with pytest.raises(ClusterPluginError) as caught:
        create(kind, ClusterConfig(cluster_type="moon", gpu_type="cpu", llmb_install=tmp_path))
    assert caught.value.value == SOURCE


def test_llmbs_own_types_are_not_guarded(tmp_path: Path) -> None:
    """Their exceptions are bugs of llmb, which keep their tracebacks."""
    moon = Moon()
    kind = replace(ClusterType(name="moon", create=lambda config: moon))
    assert (
        create(kind, ClusterConfig(cluster_type="moon", gpu_type="cpu", llmb_install=tmp_path))
        is moon
    )
