# SPDX-License-Identifier: Apache-2.0
"""Tests of the plan: names resolved, combinations expanded, layers of environment, every fault
collected.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from llmb.contract.entry import JobEntry
from llmb.contract.sbatch import SlurmConfig, SlurmOptions
from llmb.contract.schema import ClusterConfig, GpuTypeConfig, WorkloadConfig, WorkloadsConfig
from llmb.contract.settings import Settings
from llmb.contract.spec import Workload
from llmb.contract.switches import Switches
from llmb.errors import UsageError, describe
from llmb.plan.plan import Plan, limits_of, make_plan, resolve
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

Workloads = dict[str, Workload]

SLURM = ClusterConfig(
    cluster_type="slurm",
    gpu_type="h100",
    sections={"slurm": SlurmConfig()},
    kind=all_types()["slurm"],
)


def request(workload: str = "nemotron4_15b", **changes: Any) -> JobEntry:
    return job_entry(**{"workload": workload, "scales": (16,), "dtypes": ("fp8",), **changes})


def plan(
    workloads: Workloads, *requests: JobEntry, config: ClusterConfig = SLURM, **more: Any
) -> Plan:
    return make_plan(requests, workloads, config, **more)


@pytest.mark.parametrize(
    ("name", "size", "found"),
    [
        ("pretrain_nemotron4_15b", None, ("pretrain_nemotron4", "15b")),
        ("pretrain_nemotron4-15b", None, ("pretrain_nemotron4", "15b")),
        ("nemotron-h", None, ("pretrain_nemotronh", "56b")),
        ("nemotron_h", None, ("pretrain_nemotronh", "56b")),
        ("llama3.1", "70B", ("pretrain_llama3.1", "70b")),
        ("llama3.1_70b", "70b", ("pretrain_llama3.1", "70b")),
        ("Llama31", "405b_proxy", ("pretrain_llama3.1", "405b-proxy")),
        ("pretraining_nemotronh", "56b", ("pretrain_nemotronh", "56b")),
    ],
)
def test_names_in_every_spelling(
    name: str, size: str | None, found: tuple[str, str], workloads: Workloads
) -> None:
    workload, chosen = resolve(request(name, size=size), workloads, "h100", "h100")
    assert (workload.key, chosen) == found


@pytest.mark.parametrize(
    ("changes", "code", "value"),
    [
        ({"workload": "nemotorn4"}, "workload-unknown", "nemotorn4"),
        ({"workload": "nemotron4", "size": "15"}, "size-unknown", "15"),
        ({"workload": "nemotron4_16b"}, "size-unknown", "16b"),
        ({"proxy": True}, "no-proxy", None),
        ({"workload": "nemotron4", "place": "a:1"}, "size-missing", None),
    ],
)
def test_an_unknown_name(
    changes: dict[str, Any],
    code: str,
    value: object,
    workloads: Workloads,
    wording: Callable[..., None],
) -> None:
    with pytest.raises(UsageError) as raised:
        resolve(request(**changes), workloads, "h100", "h100")
    assert (raised.value.code, raised.value.value) == (code, value)
    wording("submit-all", describe(raised.value))


def test_every_request_is_planned_and_every_fault_reported(workloads: Workloads) -> None:
    found = plan(
        workloads,
        request("nemotron9", place="l:2", header="l:1"),
        request(dtypes=("fp8", "fp7"), place="l:3", header="l:1"),
        request(scales=(16, 17), place="l:4"),
        request(env={"NGC_API_KEY": "x"}, dtypes=("fp7", "fp8"), place="l:5"),
        request(place="l:6"),
    )
    assert [(fault.place, fault.code, fault.value) for fault in found.faults] == [
        ("l:1", "workload-unknown", "nemotron9"),
        ("l:3", "dtype-unknown", "fp7"),
        ("l:4", "scale-untested", 17),
        ("l:5", "variable-refused", "NGC_API_KEY"),
        ("l:5", "dtype-unknown", "fp7"),
    ]
    assert [(job.dtype, job.scale) for job in found.jobs] == [("fp8", 16)] * len(found.jobs)
    assert tuple(request.place for request in found.entries) == ("l:3", "l:4", "l:6")


def test_one_wrong_dtype_is_one_fault_at_however_many_scales(workloads: Workloads) -> None:
    assert (
        len(plan(workloads, request(dtypes=("fp7",), scales=(16, 32, 64), repeats=3)).faults) == 1
    )


def test_one_wrong_scale_is_one_fault_in_however_many_dtypes(workloads: Workloads) -> None:
    assert (
        len(plan(workloads, request(dtypes=("fp8", "bf16"), scales=(24,), repeats=3)).faults) == 1
    )


def test_a_faulty_request_is_no_job(workloads: Workloads) -> None:
    assert plan(workloads, request(faulty=True)) == Plan(jobs=())


def test_repeats_are_numbered_and_the_profiled_one_comes_beside(workloads: Workloads) -> None:
    jobs = plan(workloads, request(repeats=2, add_profile=True)).jobs
    assert [(job.repeat, job.profile) for job in jobs] == [(1, False), (2, False), (1, True)]
    assert [job.profile for job in plan(workloads, request(repeats=2, profile=True)).jobs] == [
        True,
        True,
    ]


def test_warnings_name_their_place_and_come_once(
    workloads: Workloads, wording: Callable[..., None]
) -> None:
    found = plan(workloads, request(scales=(4096,), repeats=3, place="l:2"))
    (warning,) = found.warnings
    wording("submit-all", warning)
    assert len(found.jobs) == 3


def test_equal_requests_share_values_and_have_jobs_of_their_own(workloads: Workloads) -> None:
    equal = [request(repeats=2, place=f"l:{line}") for line in (2, 3)]
    overrides = Settings(env={"A": "1"})
    found = plan(workloads, *equal, overrides=overrides)
    alone = [plan(workloads, each, overrides=overrides) for each in equal]
    assert found.jobs == (*alone[0].jobs, *alone[1].jobs)
    assert found.entries == (*alone[0].entries, *alone[1].entries)
    assert [entry.place for entry in found.entries] == ["l:2", "l:2", "l:3", "l:3"]
    assert len({id(job) for job in found.jobs}) == 4
    assert found.jobs[0].training is found.jobs[2].training


@pytest.mark.parametrize(
    "change",
    [
        {"slurm": {"account": "other"}},
        {"proxy": True},
        {"header": "l:9"},
        {"faulty": True},
        {"places": {512: "l:4"}},
        {"key_places": {"env": "l:4"}},
        {"add_profile": True},
        {"dotted": {"optimizer.lr": (1.0, 2.0)}},
        {"settings": {"env": {"A": "2"}}},
        {"settings": {"profile": True}},
        {"settings": {"nccl_trace": True}},
        {"settings": {"framework": "bridge"}},
    ],
)
def test_a_request_that_differs_is_planned_itself(
    workloads: Workloads, change: dict[str, Any]
) -> None:
    first = request("llama3.1_405b", scales=(512,), place="l:2", env={"A": "1"})
    other = replace(first, place="l:3", **{**change, "settings": first.settings})
    other = other.with_settings(**change.get("settings", {}))
    assert other != replace(first, place="l:3")
    found, alone = plan(workloads, first, other), plan(workloads, other)
    assert found.jobs == (*plan(workloads, first).jobs, *alone.jobs)
    assert found.entries[1:] == alone.entries
    assert found.faults == alone.faults


def test_faults_and_warnings_of_equal_requests_name_each_place(workloads: Workloads) -> None:
    wrong = [request(scales=(17,), place=f"l:{line}") for line in (2, 3)]
    assert [fault.place for fault in plan(workloads, *wrong).faults] == ["l:2", "l:3"]
    unusual = [request(scales=(4096,), place=f"l:{line}") for line in (2, 3)]
    warnings = plan(workloads, *unusual).warnings
    assert [text.partition(": ")[0] for text in warnings] == ["l:2", "l:3"]


def test_force_lifts_scales_alone(workloads: Workloads) -> None:
    found = plan(workloads, request(scales=(24, 20)), force=True)
    assert [job.scale for job in found.jobs] == [24]
    assert (found.faults[0].code, found.faults[0].value) == ("nodes-not-full", 8)


def test_the_command_lines_params_override_the_lists(workloads: Workloads) -> None:
    swept = request(params={"tp": (2, 4), "mbs": (1,)})
    assert [(job.trained.tp, job.trained.mbs) for job in plan(workloads, swept).jobs] == [
        (2, 1),
        (4, 1),
    ]
    assert [
        (job.trained.tp, job.trained.mbs)
        for job in plan(workloads, swept, overrides=Settings(tp=1)).jobs
    ] == [(1, 1)]


def test_the_layers_of_the_environment(workloads: Workloads) -> None:
    names = ("A", "B", "C", "D")
    config = ClusterConfig(
        cluster_type="slurm",
        gpu_type="h100",
        environment=dict.fromkeys(names, "cluster"),
        workloads=WorkloadsConfig(
            config={
                "pretrain_nemotron4": WorkloadConfig(
                    environment=dict.fromkeys(names[1:], "workload")
                ),
                "pretrain_llama3.1": WorkloadConfig(environment={"Z": "other"}),
            }
        ),
        kind=all_types()["slurm"],
    )
    listed = request(env=dict.fromkeys(names[2:], "list"))
    (job,) = plan(
        workloads, listed, config=config, overrides=Settings(env={"D": "command line", "E": ""})
    ).jobs
    assert job.env == {"A": "cluster", "B": "workload", "C": "list", "D": "command line", "E": ""}


def test_the_submitting_shell_is_no_layer(
    workloads: Workloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    assert plan(workloads, request()).jobs[0].env == {}


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "NGC_API_KEY", "APP_SECRET", "MY_PASSWORD", "hf_token", "KEY"]
)
def test_a_secret_is_refused_with_the_way_to_do_it(name: str, workloads: Workloads) -> None:
    for how in (
        {"requests": request(env={name: "abc"})},
        {"requests": request(), "overrides": Settings(env={name: "abc"})},
    ):
        (fault,) = plan(workloads, how.pop("requests"), **how).faults  # type: ignore[arg-type]
        assert (fault.code, fault.key, fault.value) == ("variable-refused", "env", name)
        assert "~/.config/llmb/secrets" in (fault.hint or "")
        assert "abc" not in f"{fault}{fault.hint}"


@pytest.mark.parametrize(
    "name", ["WORLD_SIZE", "RANK", "MASTER_ADDR", "LLMB_RUN_ID", "SLURM_NTASKS", "PATH", "1X"]
)
def test_what_starts_the_ranks_is_not_for_a_list_to_set(name: str, workloads: Workloads) -> None:
    found = plan(workloads, request(env={name: "1", "HF_TOKEN": "x"}, place="l:1"))
    assert [fault.place for fault in found.faults] == ["l:1", "l:1"]
    assert [fault.value for fault in found.faults] == [name, "HF_TOKEN"]
    assert found.faults[0].hint is not None
    assert found.jobs == ()


def test_a_duplicate_scale_is_a_warning(workloads: Workloads, wording: Callable[..., None]) -> None:
    found = plan(workloads, request(scales=(16, 16, 32), place="l:1"))
    assert len(found.jobs) == 3
    (warning,) = found.warnings
    wording("submit-all", warning)


@pytest.mark.parametrize(
    ("ranks", "fault"), [("0-7", False), ("15", False), ("all", False), ("0-16", True)]
)
def test_ranks_of_a_profile_are_ranks_of_the_job(
    ranks: str, fault: bool, workloads: Workloads
) -> None:
    found = plan(workloads, request(profile=True, switches=Switches(profile_ranks=ranks)))
    assert bool(found.faults) == fault
    assert all((one.code, one.value) == ("rank-unknown", 16) for one in found.faults)


def test_no_more_ranks_on_a_node_than_gpus_are_asked_for(workloads: Workloads) -> None:
    for args, faults in ({}, 1), ({"gres": "gpu:16"}, 0):
        slurm = SlurmConfig(gres="h100:8", args=dict(args))
        config = ClusterConfig(
            cluster_type="slurm",
            gpu_type="h100",
            sections={"slurm": slurm},
            kind=all_types()["slurm"],
        )
        found = plan(workloads, request(switches=Switches(gpus_per_node=16)), config=config)
        assert len(found.faults) == faults
        assert all((fault.code, fault.value) == ("gres-exceeded", 16) for fault in found.faults)


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "MONKEY", "NCCL_IB_PKEY_INDEX", "KEYS"])
def test_names_that_only_look_a_little_like_secrets_pass(name: str, workloads: Workloads) -> None:
    assert plan(workloads, request(env={name: "1"})).faults == ()


@pytest.mark.parametrize(
    ("config", "needs_image", "one_machine"),
    [
        (SLURM, True, False),
        (
            ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"]),
            True,
            False,
        ),
        (
            ClusterConfig(
                cluster_type="slurm",
                gpu_type="h100",
                sections={"slurm": SlurmConfig(container="none")},
                kind=all_types()["slurm"],
            ),
            False,
            False,
        ),
        (
            ClusterConfig(cluster_type="runai", gpu_type="h100", kind=all_types()["runai"]),
            True,
            False,
        ),
        (
            ClusterConfig(cluster_type="local", gpu_type="h100", kind=all_types()["local"]),
            False,
            True,
        ),
    ],
)
def test_what_a_job_must_know_of_its_cluster(
    config: ClusterConfig, needs_image: bool, one_machine: bool
) -> None:
    place = limits_of(config, "h100", "pretrain_nemotron4")
    assert (place.needs_image, place.one_machine) == (needs_image, one_machine)


@pytest.mark.parametrize(
    ("own", "slurm", "per_node"),
    [
        (GpuTypeConfig(like="h100"), None, 8),
        (GpuTypeConfig(like="gb200"), None, 4),
        (GpuTypeConfig(like="h100"), SlurmConfig(gpu=SlurmOptions({"gres": 4})), 4),
        (GpuTypeConfig(like="h100"), SlurmConfig(gres="h200:2"), 2),
        (GpuTypeConfig(like="h100"), SlurmConfig(gres="gpu:h200:2"), 2),
        (GpuTypeConfig(like="h100"), SlurmConfig(gres="gpu:h200"), 8),
        (GpuTypeConfig(like="h100"), SlurmConfig(gres=8, gpu=SlurmOptions({"gres": None})), 8),
        (GpuTypeConfig(like="h100"), SlurmConfig(gpu=SlurmOptions({"gres": None})), 8),
        (GpuTypeConfig(like="h100", gres=2), SlurmConfig(gres=8), 2),
        (GpuTypeConfig(like="h100", gres=2, gpus_per_node=1), SlurmConfig(gres=8), 1),
    ],
)
def test_gpus_of_a_node_by_the_nearest_that_says_so(
    own: GpuTypeConfig, slurm: SlurmConfig, per_node: int
) -> None:
    config = ClusterConfig(
        cluster_type="slurm",
        gpu_type="l40s",
        gpu_types={"l40s": own},
        sections={"slurm": slurm},
        kind=all_types()["slurm"],
    )
    assert limits_of(config, "l40s", "w").gpus_per_node == per_node


def test_a_type_that_is_like_another_takes_its_rows_under_its_own_name(
    workloads: Workloads,
) -> None:
    config = ClusterConfig(
        cluster_type="slurm",
        gpu_type="h100",
        gpu_types={"h200": GpuTypeConfig(like="h100")},
        kind=all_types()["slurm"],
    )
    (job,) = plan(workloads, request(), config=config, gpu_type="h200").jobs
    assert (job.gpu_type, job.trained.tp, job.trained.gbs) == ("h200", 2, 64)
    assert plan(workloads, request(), config=config).jobs[0].gpu_type == "h100"


def test_b200_is_not_gb200(workloads: Workloads) -> None:
    nodes = {
        gpu: plan(
            workloads,
            request(),
            config=ClusterConfig(cluster_type="slurm", gpu_type=gpu, kind=all_types()["slurm"]),
        )
        .jobs[0]
        .nodes
        for gpu in ("b200", "gb200")
    }
    assert nodes == {"b200": 2, "gb200": 4}


def test_a_size_that_the_type_does_not_run(
    workloads: Workloads, wording: Callable[..., None]
) -> None:
    config = ClusterConfig(cluster_type="slurm", gpu_type="a100", kind=all_types()["slurm"])
    (fault,) = plan(workloads, request(), config=config).faults
    assert (fault.code, fault.key, fault.value) == ("gpu-type-unsupported", "gpu_type", "a100")
    wording("submit-all", f"{fault}\nhint: {fault.hint}")


def test_more_repeats_than_can_be_meant(workloads: Workloads) -> None:
    found = plan(workloads, request(repeats=10**9, place="jobs.txt:2"))
    assert [(one.place, one.code, one.value) for one in found.faults] == [
        ("jobs.txt:2", "repeats", 10**9)
    ]
    assert found.jobs == ()


def test_a_size_in_the_name_and_another_one(workloads: Workloads) -> None:
    (fault,) = plan(workloads, request("nemotron4_15b", size="340b")).faults
    assert (fault.code, fault.value) == ("size-conflict", "340b")
