# SPDX-License-Identifier: Apache-2.0
"""Tests of what switches do to a job: its steps, limit, name and environment, and what does not go
together.
"""

from collections.abc import Callable
from typing import Any

import pytest

from llmb.contract.job import Job
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.schema import ClusterConfig
from llmb.contract.settings import NOTHING, Settings
from llmb.contract.spec import Workload
from llmb.contract.switches import Switches, given_switches
from llmb.errors import Fault, UsageError
from llmb.plan.plan import Plan, make_plan
from llmb.plan.rules import mode_of
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

Workloads = dict[str, Workload]
PYXIS = ClusterConfig(
    cluster_type="slurm",
    gpu_type="h100",
    gpu_types={},
    sections={"slurm": SlurmConfig()},
    environment={"NCCL_DEBUG": "WARN"},
    kind=all_types()["slurm"],
)
BARE = ClusterConfig(
    cluster_type="slurm",
    gpu_type="h100",
    sections={"slurm": SlurmConfig(container="none")},
    kind=all_types()["slurm"],
)
PLAIN = "pretrain_nemotron4_15b_fp8_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256"


def planned(
    workloads: Workloads,
    config: ClusterConfig = PYXIS,
    *,
    overrides: Settings = NOTHING,
    force: bool = False,
    **request: Any,
) -> Plan:
    fields = {"workload": "nemotron4_15b", "dtypes": ("fp8",), "scales": (64,), **request}
    return make_plan([job_entry(**fields)], workloads, config, overrides=overrides, force=force)


def job(workloads: Workloads, config: ClusterConfig = PYXIS, **request: Any) -> Job:
    plan = planned(workloads, config, **request)
    assert not plan.faults
    (found,) = plan.jobs
    return found


def refusal(workloads: Workloads, config: ClusterConfig = PYXIS, **request: Any) -> Fault:
    plan = planned(workloads, config, **request)
    assert not plan.jobs
    (fault,) = plan.faults
    assert fault.hint
    return fault


def test_a_plain_job_sets_nothing(workloads: Workloads) -> None:
    plain = job(workloads)
    assert (plain.experiment_name, plain.max_steps, plain.time_limit) == (PLAIN, 50, 1200)
    assert given_switches(plain.switches) == {}


def test_a_profile_is_of_the_last_five_steps_of_ranks_0_to_7(workloads: Workloads) -> None:
    profiled = job(workloads, profile=True)
    assert (profiled.experiment_name, profiled.max_steps) == (f"{PLAIN}_nsys", 50)
    assert given_switches(profiled.switches) == {
        "profile_start": 45,
        "profile_stop": 50,
        "profile_ranks": "0-7",
    }


@pytest.mark.parametrize(
    ("given", "params", "window", "steps", "word"),
    [
        ({"profile_stop": 60}, {}, (45, 60), 60, "_steps60"),
        ({"profile_stop": 25}, {}, (20, 25), 25, "_steps25"),
        ({"profile_stop": 3}, {}, (0, 3), 3, "_steps3"),
        ({"profile_start": 47}, {}, (47, 50), 50, ""),
        ({"profile_start": 0, "profile_stop": 2}, {}, (0, 2), 2, "_steps2"),
        ({}, {"max_steps": (100,)}, (95, 100), 100, "_steps100"),
        ({"profile_stop": 100}, {"max_steps": (100,)}, (45, 100), 100, "_steps100"),
    ],
)
def test_a_profiled_run_ends_at_its_stop_step(
    given: dict[str, int],
    params: dict[str, Any],
    window: tuple[int, int],
    steps: int,
    word: str,
    workloads: Workloads,
) -> None:
    found = job(workloads, profile=True, params=params, switches=Switches(**given))  # type: ignore[arg-type]
    assert (found.switches.profile_start, found.switches.profile_stop) == window
    assert (found.max_steps, found.experiment_name) == (steps, f"{PLAIN}{word}_nsys")


# What the releases' pages print: the steps profiled, and how many steps the run has.
PAGES = {
    "25.07": ("nemotron4_340b", "h100", 256, (45, 50), 50),
    "25.07, Blackwell": ("nemotron4_15b", "b200", 16, (45, 50), 50),
    "25.07, Nemotron-H": ("nemotronh_56b", "b200", 32, (45, 50), 50),
    "25.05": ("nemotronh_56b", "h100", 32, (46, 50), 50),
    "25.05, 405b": ("llama3.1_405b", "h100", 512, (46, 50), 50),
    "25.04, 405b": ("llama3.1_405b", "h100", 1024, (20, 25), 25),
    "25.05, Blackwell": ("llama3.1_405b", "gb200", 128, (46, 50), 50),
    "25.04": ("llama3.1_70b", "h100", 64, (20, 25), 25),
    "25.04, the proxy": ("llama3.1_405b-proxy", "h100", 32, (20, 25), 25),
}


@pytest.mark.parametrize(
    ("workload", "gpu", "scale", "window", "steps"), PAGES.values(), ids=list(PAGES)
)
def test_a_profile_is_of_the_steps_of_its_release(
    workload: str, gpu: str, scale: int, window: tuple[int, int], steps: int, workloads: Workloads
) -> None:
    request = job_entry(workload=workload, dtypes=("fp8",), scales=(scale,), profile=True)
    (found,) = make_plan(
        [request],
        workloads,
        ClusterConfig(cluster_type="slurm", gpu_type=gpu, kind=all_types()["slurm"]),
    ).jobs
    assert (found.switches.profile_start, found.switches.profile_stop, found.max_steps) == (
        *window,
        steps,
    )
    # The first eight: the pages say 0-8, the scripts of 25.04 took these.
    assert found.switches.profile_ranks == "0-7"
    assert found.experiment_name.endswith(f"_gbs{found.trained.gbs}_nsys")


def test_other_steps_keep_the_length_of_the_releases_profile(workloads: Workloads) -> None:
    request = job_entry(
        workload="nemotronh_56b",
        dtypes=("fp8",),
        scales=(32,),
        profile=True,
        params={"max_steps": (30,)},
    )
    (found,) = make_plan(
        [request],
        workloads,
        ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"]),
    ).jobs
    assert (found.switches.profile_start, found.switches.profile_stop) == (26, 30)
    assert found.experiment_name.endswith("_steps30_nsys")


def test_a_size_without_nemo_has_another_profiler_and_the_last_steps(workloads: Workloads) -> None:
    request = job_entry(workload="llama3.1_tiny", dtypes=("bf16",), scales=(1,), profile=True)
    (found,) = make_plan(
        [request],
        workloads,
        ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"]),
    ).jobs
    assert (found.switches.profile_start, found.switches.profile_stop) == (45, 50)
    assert found.experiment_name.endswith("_profile")


def test_only_added_profiles_use_switches_of_profiles(workloads: Workloads) -> None:
    plan = planned(
        workloads, add_profile=True, switches=Switches(profile_stop=20, gpu_metrics=True)
    )
    assert [(one.profile, one.max_steps, one.switches.gpu_metrics) for one in plan.jobs] == [
        (False, 50, None),
        (True, 20, True),
    ]


def test_a_trace_is_5_steps_in_15_minutes_over_the_clusters_own_nccl_debug(
    workloads: Workloads,
) -> None:
    traced = job(workloads, switches=Switches(nccl_trace=True), env={"NCCL_DEBUG": "VERSION"})
    assert (traced.experiment_name, traced.max_steps, traced.time_limit) == (
        f"{PLAIN}_nccltrace",
        5,
        900,
    )
    assert traced.env == {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "COLL,P2P,NET"}
    longer = job(
        workloads,
        switches=Switches(nccl_trace=True, time_limit="02:00:00"),
        params={"max_steps": (8,)},
    )
    assert (longer.max_steps, longer.time_limit) == (8, 7200)


def test_the_command_lines_variables_override_a_trace(workloads: Workloads) -> None:
    extra = Settings(nccl_trace=True, env={"NCCL_DEBUG_SUBSYS": "ALL"})
    assert job(workloads, overrides=extra).env == {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "ALL"}


def test_the_command_line_overrides_a_list(workloads: Workloads) -> None:
    own = Switches(nccl_trace=True, time_limit="00:01:00", image="own:1")
    found = job(
        workloads,
        switches=own,
        overrides=Settings(nccl_trace=False, time_limit="00:02:00"),
    )
    assert (found.max_steps, found.time_limit, found.image, found.experiment_name) == (
        50,
        120,
        "own:1",
        PLAIN,
    )
    assert given_switches(found.switches) == {"nccl_trace": False}


def test_a_loaded_checkpoint_is_followed_by_one_step(workloads: Workloads) -> None:
    found = job(workloads, switches=Switches(load_checkpoint="/c"))
    assert (found.max_steps, found.experiment_name) == (1, f"{PLAIN}_load")
    assert (
        job(
            workloads, switches=Switches(load_checkpoint="/c"), params={"max_steps": (1,)}
        ).max_steps
        == 1
    )


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"save_checkpoint": True}, ""),
        ({"fp8": "current"}, "_fp8current"),
        ({"fp8": "delayed"}, ""),
        ({"tokenizer": "null"}, ""),
        ({"save_checkpoint": True, "load_checkpoint": "/c"}, "_load"),
        ({"stragglers": True}, "_stragglers"),
        ({"stragglers": False}, ""),
    ],
)
def test_what_changes_the_run_is_in_its_name(
    given: dict[str, Any], word: str, workloads: Workloads
) -> None:
    assert job(workloads, switches=Switches(**given)).experiment_name == PLAIN + word


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"profile": True, "switches": Switches(nccl_trace=True)}, "profile-and-trace"),
        ({"profile": True, "switches": Switches(load_checkpoint="/c")}, "profile-and-load"),
        (
            {"params": {"max_steps": (50,)}, "switches": Switches(load_checkpoint="/c")},
            "load-steps",
        ),
        ({"profile": True, "switches": Switches(profile_start=50)}, "profile-empty"),
        (
            {"profile": True, "params": {"max_steps": (9,)}, "switches": Switches(profile_stop=8)},
            "profile-end",
        ),
        ({"switches": Switches(profile_stop=8)}, "not-profiled"),
        ({"switches": Switches(tokenizer="hub")}, "no-tokenizer"),
        ({"dtypes": ("bf16",), "switches": Switches(fp8="current")}, "fp8-dtype"),
        (
            {
                "workload": "nemotron4_tiny",
                "dtypes": ("fp32",),
                "scales": (2,),
                "switches": Switches(tokenizer="hub"),
            },
            "no-tokenizer",
        ),
        ({"switches": Switches(strong_scaling=True)}, "no-strong-scaling"),
        (
            {
                "workload": "nemotron4_340b",
                "scales": (256,),
                "switches": Switches(strong_scaling=True),
            },
            "no-strong-scaling",
        ),
        ({"workload": "nemotronh", "size": "56b", "dtypes": ("bf16",)}, "dtype-unknown"),
        ({"scales": (16,), "switches": Switches(load_checkpoint="/c")}, "checkpoint-untested"),
        (
            {
                "workload": "nemotron4_340b",
                "scales": (128,),
                "switches": Switches(save_checkpoint=True),
            },
            "checkpoint-untested",
        ),
        (
            {
                "workload": "nemotron4_340b",
                "scales": (256,),
                "switches": Switches(load_checkpoint="/c"),
            },
            "checkpoint-untested",
        ),
        (
            {"workload": "nemotronh_56b", "switches": Switches(save_checkpoint=True)},
            "checkpoint-untested",
        ),
        (
            {"workload": "llama3.1_405b-proxy", "switches": Switches(load_checkpoint="/c")},
            "checkpoint-untested",
        ),
        ({"switches": Switches(gpus_per_node=3)}, "nodes-not-full"),
        ({"profile": True, "switches": Switches(stragglers=True)}, "profile-and-stragglers"),
    ],
)
def test_a_contradiction_is_refused_with_its_fix(
    request_: dict[str, Any], code: str, workloads: Workloads, wording: Callable[..., None]
) -> None:
    fault = refusal(workloads, **request_)
    assert fault.code == code
    wording("submit-all", f"{fault}\nhint: {fault.hint}")


@pytest.mark.parametrize("given", [Switches(image="own:1"), Switches(mounts=("/a:/a",))])
def test_images_and_mounts_are_for_containers(given: Switches, workloads: Workloads) -> None:
    assert refusal(workloads, BARE, switches=given).code == "no-container"
    assert job(workloads, switches=given).image == (given.image or "nvcr.io/nvidia/nemo:25.04.01")


def test_force_allows_an_untested_checkpoint_with_a_warning(
    workloads: Workloads, wording: Callable[..., None]
) -> None:
    extra = Settings(load_checkpoint="/c")
    plan = planned(workloads, scales=(16,), overrides=extra, force=True)
    assert not plan.faults
    (warning,) = plan.warnings
    wording("submit-all", warning)


# What the pages print: the least scale that saving and loading were tested at, by release.
CHECKPOINTS: list[tuple[str, str, str, int]] = [
    ("nemotron4_15b", "h100", "save", 16),
    ("nemotron4_15b", "h100", "load", 64),  # 25.04, 25.07
    ("nemotron4_15b", "b200", "save", 8),
    ("nemotron4_15b", "b200", "load", 8),
    ("nemotron4_15b", "gb200", "save", 8),
    ("nemotron4_15b", "gb200", "load", 8),
    ("nemotron4_340b", "h100", "save", 256),
    ("nemotron4_340b", "h100", "load", 512),  # 25.04 saves at 256
    ("nemotron4_340b", "b200", "save", 128),
    ("nemotron4_340b", "gb200", "load", 128),
    ("llama3.1_8b", "h100", "save", 16),
    ("llama3.1_8b", "h100", "load", 16),
    ("llama3.1_70b", "h100", "save", 128),
    ("llama3.1_70b", "h100", "load", 128),
    ("llama3.1_405b", "h100", "save", 512),
    ("llama3.1_405b", "h100", "load", 1024),
]


@pytest.mark.parametrize(("workload", "gpu", "verb", "least"), CHECKPOINTS)
def test_a_checkpoint_needs_no_force_from_its_least_tested_scale_on(
    workload: str, gpu: str, verb: str, least: int, workloads: Workloads
) -> None:
    switches = Switches(save_checkpoint=True) if verb == "save" else Switches(load_checkpoint="/c")
    config = ClusterConfig(
        cluster_type="slurm",
        gpu_type=gpu,
        sections={"slurm": SlurmConfig()},
        kind=all_types()["slurm"],
    )
    request = job_entry(workload=workload, dtypes=("fp8",), scales=(least,), switches=switches)
    plan = make_plan([request], workloads, config)
    assert (plan.faults, plan.warnings) == ((), ())
    assert [one.scale for one in plan.jobs] == [least]
    below = make_plan(
        [job_entry(workload=workload, dtypes=("fp8",), scales=(least // 2,), switches=switches)],
        workloads,
        config,
    )
    assert below.faults


def test_a_scale_for_checkpoints_is_for_nothing_else(workloads: Workloads) -> None:
    config = ClusterConfig(
        cluster_type="slurm",
        gpu_type="b200",
        sections={"slurm": SlurmConfig()},
        kind=all_types()["slurm"],
    )
    plan = make_plan(
        [job_entry(workload="nemotron4_15b", dtypes=("fp8",), scales=(8,))], workloads, config
    )
    assert [(fault.code, fault.value) for fault in plan.faults] == [("scale-untested", 8)]


def test_strong_scaling_by_switch_and_by_request_is_the_same(workloads: Workloads) -> None:
    config = ClusterConfig(
        cluster_type="slurm",
        gpu_type="gb200",
        sections={"slurm": SlurmConfig()},
        kind=all_types()["slurm"],
    )
    request: dict[str, Any] = {"workload": "nemotron4_340b", "scales": (128, 256)}
    by_request = planned(workloads, config, **request, switches=Switches(strong_scaling=True)).jobs
    by_switch = planned(workloads, config, **request, overrides=Settings(strong_scaling=True)).jobs
    assert by_request == by_switch
    assert [
        (one.trained.gbs, one.trained.ga, one.time_limit, one.switches.strong_scaling)
        for one in by_switch
    ] == [
        (512, 128, 2100, True),
        (512, 64, 2100, True),
    ]
    off = planned(
        workloads,
        config,
        **request,
        switches=Switches(strong_scaling=True),
        overrides=Settings(strong_scaling=False),
    )
    assert [one.trained.gbs for one in off.jobs] == [32, 64]


def test_gpus_per_node_of_one_job(workloads: Workloads) -> None:
    found = job(workloads, switches=Switches(gpus_per_node=4))
    assert (found.nodes, found.gpus_per_node, found.switches.gpus_per_node) == (16, 4, None)


def test_wrong_ranks_are_named() -> None:
    with pytest.raises(UsageError) as raised:
        mode_of(Settings(profile_ranks="x", profile=True), default_steps=50)
    assert (raised.value.code, raised.value.key, raised.value.value) == (
        "ranks-invalid",
        "profile_ranks",
        "x",
    )
