# SPDX-License-Identifier: Apache-2.0
"""Tests of a submission: the record comes first, the script is the preview's, and refusals leave
nothing unknown.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.contract import record
from llmb.contract.cluster import Pace
from llmb.contract.launch import PREVIEW_ID, PREVIEW_TIMESTAMP, Launch, Program, StagedFile, Stamp
from llmb.contract.record import RunRecord
from llmb.contract.sbatch import SECTION, SlurmConfig
from llmb.contract.schema import ClusterConfig, WorkloadConfig, WorkloadsConfig
from llmb.contract.spec import Workload
from llmb.contract.state import COMPLETED, FAILED, PENDING, RUNNING, JobState
from llmb.contract.switches import Switches
from llmb.errors import Fault, LlmbError, PreflightError, UsageError
from llmb.kit.telemetry import with_telemetry
from llmb.plan.plan import Plan, make_plan
from llmb.plugins.loaded import Plugins
from llmb.plugins.loader import add_file, load_plugins
from llmb.run import follow, store
from llmb.run.prepare import Prepared, check, has_telemetry, launch_of, prepare, preview, site_of
from llmb.run.software import Finder
from llmb.run.submit import submit
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry
from llmb_testing.job import SMALLEST_JOB


class Scheduler:
    """A cluster in memory: accepts ``space`` runs, and each poll brings every run one state
    further.
    """

    def __init__(self, space: int = 99) -> None:
        self.space = space
        self.taken: list[RunRecord] = []
        self.polls = 0

    def preflight(self, launches: Sequence[Launch]) -> list[Fault]:
        down = (
            Fault(message=f"{launch.nodes} nodes are down", code="nodes") for launch in launches
        )
        return [Fault(message="no space", code="space"), *down]

    def render(self, launch: Launch, stamp: Stamp) -> str:
        return f"run {launch.name} as {stamp.id} in {stamp.directory}\n"

    @property
    def pace(self) -> Pace:
        return Pace(poll=0, slowest_poll=0)

    def identity(self) -> str | None:
        return None

    def find(self, runs: Sequence[RunRecord]) -> Mapping[str, str]:
        raise AssertionError("nothing was left")

    def submit(self, run: RunRecord) -> str:
        on_disk = record.load(run.directory)
        assert on_disk == run
        assert on_disk.scheduler_id is None
        assert run.script.read_text() == f"run {run.launch.name} as {run.id} in {run.directory}\n"
        if len(self.taken) == self.space:
            raise LlmbError("the queue is full")
        self.taken.append(run)
        return str(100 + len(self.taken))

    def poll(self, runs: Sequence[RunRecord]) -> Mapping[str, JobState]:
        state = (PENDING, RUNNING, COMPLETED)[min(self.polls, 2)]
        self.polls += 1
        return {run.id: JobState(state=state) for run in runs}

    def cancel(self, runs: Sequence[RunRecord]) -> None:
        raise AssertionError("nobody asked for this")


@pytest.fixture
def config(tmp_path: Path) -> ClusterConfig:
    return ClusterConfig(
        cluster_type="local", gpu_type="cpu", llmb_install=tmp_path, kind=all_types()["local"]
    )


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load_plugins(builtin_plugins())


def planned(workloads: dict[str, Workload], config: ClusterConfig, **changes: object) -> Plan:
    values = {"workload": "nemotron4_tiny", "scales": (1, 2), "place": "l:2", **changes}
    request = job_entry(**values)  # type: ignore[arg-type]
    plan = make_plan([request], workloads, config)
    assert not plan.faults
    return plan


@pytest.fixture
def items(
    workloads: dict[str, Workload], config: ClusterConfig, plugins: Plugins
) -> list[Prepared]:
    found, faults = prepare(planned(workloads, config), plugins, config)
    assert not faults
    return found


def test_a_hook_gets_everything_that_is_installed_for_its_workload(
    workloads: dict[str, Workload], config: ClusterConfig
) -> None:
    venvs, assets = {"nemo": Path("/v/nemo"), "torch": Path("/v/torch")}, {"ana/model": Path("/a")}
    repos = {"https://host/code": Path("/r")}
    own = WorkloadConfig(venv_path=Path("/v/nemo"), venvs=venvs, assets=assets, repos=repos)
    config = replace(config, workloads=WorkloadsConfig(config={"nemotron-4": own}))
    site = site_of(config, planned(workloads, config).jobs[0])
    assert (site.venv, site.venvs, site.assets, site.repos) == (
        Path("/v/nemo"),
        venvs,
        assets,
        repos,
    )


def test_each_job_is_recorded_before_the_cluster_hears_of_it(
    items: list[Prepared], config: ClusterConfig
) -> None:
    reported: list[str] = []
    outcome = submit(
        items, Scheduler(), config, "1.2", on_result=lambda one: reported.append(one.run.id)
    )
    runs = outcome.submitted
    assert (outcome.refused, outcome.untried, outcome.interrupted) == ((), (), False)
    assert [run.scheduler_id for run in runs] == ["101", "102"]
    assert [run.job.scale for run in runs] == [1, 2]
    assert reported == [run.id for run in runs]
    assert {run.id for run in store.all_runs(config)[0]} == set(reported)
    assert all(record.load(run.directory) == run for run in runs)
    assert {(run.llmb_version, run.cluster_type) for run in runs} == {("1.2", "local")}


def test_each_record_has_the_software_of_its_submission(
    items: list[Prepared], config: ClusterConfig
) -> None:
    for run in submit(items, Scheduler(), config, "1.2").submitted:
        software = record.load(run.directory).software
        assert software is not None
        assert (software.plugin, software.plugin_version) == (
            "llmb-nemotron4:nemotron4",
            metadata.version("llmb-nemotron4"),
        )
        assert (software.framework, software.image_digest) == ("nemo", None)
        assert re.fullmatch("[0-9a-f]{64}", software.program_sha256 or "")


def test_program_image_and_lock_are_those_that_are_read(
    items: list[Prepared], config: ClusterConfig, plugins: Plugins
) -> None:
    job, script = items[0].job, config.llmb_install / "train.py"
    launch = items[0].launch
    assert launch is not None
    lock = config.llmb_install / ".llmb/locks/torch.txt"
    lock.parent.mkdir(parents=True)
    image = config.llmb_install / "images/a+b.sqsh.json"
    image.parent.mkdir()
    found = []
    for text in ("one", "two", "two"):
        for path in (script, lock):
            path.write_text(text)
        image.write_text(json.dumps({"digest": f"sha256:{text}"}))
        staged = StagedFile(name="run.sh", text=text)
        for own in (
            replace(launch, program=Program(script=str(script))),
            replace(launch, files=(staged,)),
            replace(launch, venv=str(config.llmb_install / "venvs/torch")),
        ):
            finder = Finder(plugins, config)
            found.append(finder.software_of(replace(job, image="a:b"), own))
    first, second, third = found[:3], found[3:6], found[6:]
    assert second == third
    assert all(one != other for one, other in zip(first, second, strict=True))
    assert [software.image_digest for software in second] == 3 * ["sha256:two"]
    assert second[2].environment_lock == hashlib.sha256(b"two").hexdigest()
    assert [
        one.program_sha256 == other.program_sha256 for one, other in zip(first, second, strict=True)
    ] == [
        False,
        False,
        True,
    ]


def test_the_library_of_the_image_is_in_the_software(
    items: list[Prepared], config: ClusterConfig, plugins: Plugins
) -> None:
    image = config.llmb_install / "images/nvidia+nemo+26.08.sqsh.json"
    image.parent.mkdir()
    contents = {
        "megatron-bridge": "0.6.0",
        "nemo-toolkit": "2.7.0",
        "megatron-bridge commit": "5" * 40,
    }
    image.write_text(json.dumps({"contents": contents}))
    job, launch = replace(items[0].job, image="nvcr.io/nvidia/nemo:26.08"), items[0].launch
    assert launch is not None
    finder = Finder(plugins, config)
    bridge = finder.software_of(replace(job, framework="bridge", release="26.08"), launch)
    assert (bridge.framework_version, bridge.framework_commit) == ("0.6.0", "5" * 40)
    nemo = finder.software_of(job, launch)
    assert (nemo.framework_version, nemo.framework_commit) == ("2.7.0", None)
    assert bridge == replace(bridge, framework_version=None, framework_commit=None)


def test_the_preview_is_the_script_but_for_what_only_a_submission_knows(
    items: list[Prepared], config: ClusterConfig
) -> None:
    shown = preview(items[0], Scheduler(), config)
    (run,) = submit(items[:1], Scheduler(), config, "1").submitted
    stamp = run.directory.name.rpartition("_")[2]
    assert shown is not None
    assert (
        shown.replace(PREVIEW_ID, run.id).replace(PREVIEW_TIMESTAMP, stamp)
        == run.script.read_text()
    )


def test_there_is_no_preview_without_a_cluster_or_a_launch(
    items: list[Prepared], config: ClusterConfig
) -> None:
    assert preview(items[0], None, config) is None
    assert preview(Prepared(job=items[0].job, launch=None), Scheduler(), config) is None


@pytest.mark.parametrize(("keep_going", "tried"), [(False, 2), (True, 4)])
def test_a_refusal_is_an_end_and_stops_the_others(
    keep_going: bool,
    tried: int,
    workloads: dict[str, Workload],
    config: ClusterConfig,
    plugins: Plugins,
) -> None:
    items, _ = prepare(planned(workloads, config, repeats=2), plugins, config)
    outcome = submit(items, Scheduler(space=1), config, "1", keep_going=keep_going)
    on_disk, _ = store.all_runs(config)
    assert [run.scheduler_id for run in on_disk] == ["101", *[None] * (tried - 1)]
    assert [run.id for run in outcome.submitted] == [on_disk[0].id]
    assert [one.run.id for one in outcome.refused] == [run.id for run in on_disk[1:]]
    assert outcome.untried == tuple(items[tried:])
    for run in on_disk[1:]:
        seen = store.seen_state(run)
        assert seen is not None
        assert (seen.state, seen.is_refused) == (FAILED, True)
        assert "queue is full" in seen.reason  # what the scheduler says


def test_a_job_that_nothing_launches_is_not_submitted(
    items: list[Prepared], config: ClusterConfig
) -> None:
    several = [Prepared(job=item.job, launch=None) for item in items]
    with pytest.raises(PreflightError) as raised:
        submit(several, Scheduler(), config, "1")
    assert {fault.code for fault in raised.value.faults} == {"not-launchable"}
    assert len(raised.value.faults) == len({item.job.experiment_name for item in items}) > 1
    assert store.all_runs(config) == ([], [])


def test_every_failed_check_is_reported_once(items: list[Prepared]) -> None:
    with pytest.raises(PreflightError) as raised:
        check(items, Scheduler())
    assert [fault.code for fault in raised.value.faults] == ["space", "nodes"]
    assert raised.value.exit_code == 1


def test_what_cannot_be_launched_is_a_fault_of_its_place(
    workloads: dict[str, Workload], plugins: Plugins, tmp_path: Path
) -> None:
    config = ClusterConfig(
        cluster_type="local", gpu_type="cpu", llmb_install=tmp_path, kind=all_types()["local"]
    )
    tiny = {
        "workload": "nemotron4_tiny",
        "scales": (2,),
        "dtypes": ("bf16",),
        "params": {"tp": (2,)},
    }
    plan = planned(workloads, config, **tiny, repeats=3)
    found, faults = prepare(plan, plugins, config)
    assert found == []
    assert [fault.place for fault in faults] == ["l:2"]


def test_waiting_polls_until_every_run_has_ended(
    items: list[Prepared], config: ClusterConfig
) -> None:
    scheduler = Scheduler()
    runs = submit(items, scheduler, config, "1").submitted
    rounds: list[set[str]] = []
    watcher = follow.Watcher(
        on_round=lambda _, seen: rounds.append({state.state for state in seen.values()})
    )
    followed, states = follow.wait(scheduler, runs, watcher)
    assert rounds == [{PENDING}, {RUNNING}, {COMPLETED}]
    assert [run.id for run in followed] == [run.id for run in runs] == list(states)
    assert all(store.seen_state(run) == JobState(state=COMPLETED) for run in runs)


OWN_LAUNCHES = """\
from pathlib import Path

from llmb import api


@api.hookimpl
def llmb_workload():
    return api.read_workload(Path(__file__).with_name("own.yaml"))


@api.hookimpl
def llmb_launch(job, site):
    argv = ("train", "--seed", str(job.repeat))
    return api.Command(program=api.Program(argv=argv))
"""
OWN_WORKLOAD = """\
key: own
title: A benchmark whose repeats differ
default_size: all
default_dtype: bf16
max_steps: 5
time_limit_minutes: 5
metrics: [{name: rate, unit: GB/s}]
sizes: {all: {whole_nodes: false, rows: [{gpu: any, dtype: bf16, scales: [1]}]}}
"""


def test_a_plugin_may_launch_each_repeat_in_another_way(
    config: ClusterConfig, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN_LAUNCHES)
    (tmp_path / "own.yaml").write_text(OWN_WORKLOAD)
    plugins = load_plugins(builtin_plugins())
    add_file(plugins, tmp_path / "own.py")
    plan = planned(plugins.workloads(), config, workload="own", scales=(1,), repeats=3)
    items, faults = prepare(plan, plugins, config)
    assert not faults
    argvs = [item.launch.program.argv for item in items if item.launch is not None]
    assert argvs == [("train", "--seed", str(repeat)) for repeat in (1, 2, 3)]


def test_a_plugin_sees_the_recorded_choices_of_the_installer(config: ClusterConfig) -> None:
    assert site_of(config, SMALLEST_JOB).settings == {}
    install = replace(config.install, framework="nemo", bridge_release="26.08")
    settings = site_of(replace(config, install=install), SMALLEST_JOB).settings
    assert settings == {"framework": "nemo", "bridge_release": "26.08"}


@pytest.mark.parametrize("enabled", [True, False])
def test_gpus_are_sampled_unless_the_configuration_says_no(
    enabled: bool, workloads: dict[str, Workload], config: ClusterConfig, plugins: Plugins
) -> None:
    config = replace(config, telemetry=enabled, gpu_type="h100")
    plan = planned(workloads, config, dtypes=("bf16",))
    assert all(has_telemetry(job, config) is enabled for job in plan.jobs)
    items, _ = prepare(plan, plugins, config)
    launches = [item.launch for item in items if item.launch is not None]
    assert launches
    for launch in launches:
        plain = replace(launch, wrappers=())
        assert (launch == with_telemetry(plain)) is enabled
        assert (launch == plain) is not enabled


@pytest.mark.parametrize(
    ("gpu_type", "enabled", "switch", "is_sampled"),
    [
        ("h100", True, None, True),
        ("h100", True, False, False),
        ("h100", False, True, True),
        ("cpu", True, None, False),
        ("cpu", False, True, False),
    ],
)
def test_a_switch_of_the_job_goes_before_the_configuration_and_cpus_are_never_sampled(
    gpu_type: str, enabled: bool, switch: bool | None, is_sampled: bool, config: ClusterConfig
) -> None:
    job = replace(SMALLEST_JOB, gpu_type=gpu_type, switches=Switches(telemetry=switch))
    assert has_telemetry(job, replace(config, telemetry=enabled)) is is_sampled


def test_a_job_that_nothing_launches_has_no_telemetry(
    workloads: dict[str, Workload],
    config: ClusterConfig,
    plugins: Plugins,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = replace(config, telemetry=True, gpu_type="h100")
    monkeypatch.setattr(Plugins, "launch", lambda *_: None)
    items, faults = prepare(planned(workloads, config, dtypes=("bf16",)), plugins, config)
    assert (faults, {item.launch for item in items}) == ([], {None})


@pytest.mark.parametrize(
    ("image", "slurm", "names_key"),
    [("i", SlurmConfig(), True), (None, SlurmConfig(), False), ("i", None, False)],
)
def test_without_a_launch_a_container_on_slurm_has_a_way_out(
    image: str | None, slurm: SlurmConfig | None, names_key: bool
) -> None:
    job = replace(SMALLEST_JOB, image=image)
    sections = {} if slurm is None else {SECTION: slurm}
    config = ClusterConfig(
        cluster_type="slurm", gpu_type="h100", llmb_install=Path("/i"), sections=sections
    )
    with pytest.raises(UsageError) as caught:
        launch_of(Prepared(job=job, launch=None), config)
    assert caught.value.code == "not-launchable"
    assert ("slurm.container" in (caught.value.hint or "")) is names_key


def test_repeats_of_each_job_have_its_launch(
    workloads: dict[str, Workload], config: ClusterConfig, plugins: Plugins
) -> None:
    plan = planned(workloads, config, repeats=3)
    items, _ = prepare(plan, plugins, config)
    single, _ = prepare(planned(workloads, config), plugins, config)
    assert [item.job for item in items] == list(plan.jobs)
    assert [item.job.repeat for item in items] == [1, 2, 3] * len(single)
    assert [item.launch for item in items] == [item.launch for item in single for _ in range(3)]


def test_jobs_of_one_name_have_their_own_variables(
    workloads: dict[str, Workload], config: ClusterConfig, plugins: Plugins
) -> None:
    requests = [
        job_entry(workload="nemotron4_tiny", scales=(1,), place="l:2", env={"TRIAL": trial})
        for trial in ("a", "b", "a")
    ]
    items, _ = prepare(make_plan(requests, workloads, config), plugins, config)
    launches = [item.launch for item in items if item.launch is not None]
    assert len({launch.name for launch in launches}) == 1
    assert [launch.environment["TRIAL"] for launch in launches] == ["a", "b", "a"]
