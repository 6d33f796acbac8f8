# SPDX-License-Identifier: Apache-2.0
"""Tests of the YAML job list: its defaults, overrides and sweeps, and that every fault is reported
with its line.
"""

import re
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, strategies as st

from llmb.contract.entry import JobEntry, JobList
from llmb.contract.job import Job
from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import Workload
from llmb.contract.switches import given_switches
from llmb.core import yamlfile
from llmb.errors import InputFaults, LlmbError, UsageError
from llmb.plan.joblist import read_job_list, shortened
from llmb.plan.plan import make_plan
from llmb.plan.yaml_joblist import entries_of
from llmb_exemplar import llmb_variables
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

NAME = "jobs.yaml"


def read(text: str) -> JobList:
    document = yamlfile.parse(textwrap.dedent(text).lstrip("\n"), name=NAME, strict=False)
    return entries_of(document, {variable.name: variable for variable in llmb_variables()})


def one(text: str) -> JobEntry:
    listed = read(text)
    assert listed.faults == ()
    (request,) = listed.entries
    return request


def jobs_of(text: str, workloads: dict[str, Workload], gpu_type: str = "h100") -> tuple[Job, ...]:
    listed = read(text)
    plan = make_plan(
        listed.entries,
        workloads,
        ClusterConfig(cluster_type="slurm", gpu_type=gpu_type, kind=all_types()["slurm"]),
    )
    assert listed.faults + plan.faults == ()
    return plan.jobs


EXAMPLE = """
pretrain_llama3.1_405b:
  defaults: {env: {NCCL_IB_QPS_PER_CONNECTION: 1}}
  dtypes: [fp8, bf16]
  scales: [512, 1024]
  repeats: 3
  add_profile: false
  tasks:
    - dtypes: fp8
      scales: [512]
      repeats: 1
      profile: true
      proxy: false
      overrides:
        env: {NCCL_DEBUG: WARN}
        params: {tp: [8, 4]}
    - {}
"""


def test_the_documented_example() -> None:
    listed = read(EXAMPLE)
    assert listed.faults == ()
    first, second = listed.entries
    common: dict[str | int, str] = dict.fromkeys(("fp8", "bf16"), "jobs.yaml:3")
    common |= dict.fromkeys((512, 1024), "jobs.yaml:4")
    assert replace(first, key_places={}) == job_entry(
        workload="pretrain_llama3.1_405b",
        dtypes=("fp8",),
        scales=(512,),
        repeats=1,
        profile=True,
        env={"NCCL_IB_QPS_PER_CONNECTION": "1", "NCCL_DEBUG": "WARN"},
        params={"tp": (8, 4)},
        place="jobs.yaml:8",
        header="jobs.yaml:1",
        places={**common, "fp8": "jobs.yaml:8", 512: "jobs.yaml:9"},
    )
    assert replace(second, key_places={}) == job_entry(
        workload="pretrain_llama3.1_405b",
        dtypes=("fp8", "bf16"),
        scales=(512, 1024),
        repeats=3,
        env={"NCCL_IB_QPS_PER_CONNECTION": "1"},
        place="jobs.yaml:16",
        header="jobs.yaml:1",
        places=common,
    )


def test_repeats_profile_and_a_sweep_multiply(workloads: dict[str, Workload]) -> None:
    jobs = jobs_of(
        """
        pretrain_nemotron4_15b:
          tasks:
            - {dtypes: fp8, scales: [16], repeats: 2, add_profile: true, overrides: {params: {tp: [2, 4]}}}
        """,
        workloads,
    )
    assert [(job.trained.tp, job.repeat, job.profile) for job in jobs] == [
        (2, 1, False),
        (2, 2, False),
        (2, 1, True),
        (4, 1, False),
        (4, 2, False),
        (4, 1, True),
    ]
    names = {job.experiment_name for job in jobs}
    assert len(names) == 4
    assert len({name.removesuffix("_nsys") for name in names}) == 2


def test_a_sweep_has_every_combination(workloads: dict[str, Workload]) -> None:
    jobs = jobs_of(
        """
        pretrain_nemotron4_15b:
          dtypes: fp8
          scales: [16, 32]
          overrides: {params: {tp: [1, 2], mbs: [1, 2], max_steps: 20}}
        """,
        workloads,
    )
    assert [(job.scale, job.trained.tp, job.trained.mbs, job.max_steps) for job in jobs] == [
        (scale, tp, mbs, 20) for scale in (16, 32) for tp in (1, 2) for mbs in (1, 2)
    ]


def test_several_values_of_a_dotted_setting_are_a_sweep(workloads: dict[str, Workload]) -> None:
    jobs = jobs_of(
        """
        pretrain_llama3.1_70b:
          framework: bridge
          dtypes: bf16
          scales: [64]
          overrides: {params: {optimizer.lr: [1.0e-4, 3.0e-4], model.new: [a, null], ddp.x: true}}
        """,
        workloads,
    )
    assert [dict(job.dotted) for job in jobs] == [
        {"optimizer.lr": rate, "model.new": value, "ddp.x": True}
        for rate in (1e-4, 3e-4)
        for value in ("a", None)
    ]
    faulty = "pretrain_llama3.1_70b: {framework: bridge, overrides: {params: {optimizer.lr: []}}}"
    assert any("is empty" in fault.message for fault in read(faulty).faults)


def test_params_change_name_and_plan(workloads: dict[str, Workload]) -> None:
    text = (
        "nemotron4_15b: {dtypes: bf16, scales: 16, overrides: {params: {tp: 4, max_steps: 10,"
        " num_layers: 16}}}"
    )
    (job,) = jobs_of(text, workloads)
    assert (
        job.experiment_name
        == "pretrain_nemotron4_15b_bf16_gpus16_tp4_pp1_cp1_vpNone_mbs2_gbs64_steps10_layers16"
    )
    assert (
        job.trained.tp,
        job.trained.dp,
        job.trained.ga,
        job.max_steps,
        job.trained.num_layers,
        job.trained.model.layers,
    ) == (4, 4, 8, 10, 16, 16)


def test_a_task_value_wins_over_the_sections() -> None:
    request = one("""
        w_s:
          dtypes: fp8
          scales: 16
          repeats: 3
          add_profile: true
          proxy: true
          strong_scaling: true
          tasks: [{dtypes: bf16, scales: 32, repeats: 1, add_profile: false, proxy: false, strong_scaling: false}]
        """)
    assert (request.dtypes, request.scales, request.repeats) == (("bf16",), (32,), 1)
    assert (request.add_profile, request.proxy, request.settings.strong_scaling) == (
        False,
        False,
        False,
    )


def test_what_a_task_does_not_say_comes_from_its_section() -> None:
    text = (
        "w_s: {dtypes: fp8, scales: 16, repeats: 3, add_profile: true, proxy: true, strong_scaling:"
        " true, tasks: [{}]}"
    )
    request = one(text)
    assert (request.dtypes, request.scales, request.repeats) == (("fp8",), (16,), 3)
    assert (request.add_profile, request.proxy, request.settings.strong_scaling) == (
        True,
        True,
        True,
    )


def test_overrides_win_over_defaults_and_the_nearer_over_the_farther() -> None:
    request = one("""
        w_s:
          scales: 16
          defaults: {env: {A: default, B: default, C: default}, params: {tp: 1, pp: 1, cp: 1}}
          overrides: {env: {B: section, C: section}, params: {pp: 2, cp: 2}}
          tasks: [{overrides: {env: {C: task}, params: {cp: 4}}}]
        """)
    assert request.settings.env == {"A": "default", "B": "section", "C": "task"}
    assert request.sweeps == {"dtype": (), "scale": (16,), "tp": (1,), "pp": (2,), "cp": (4,)}


def test_a_section_without_tasks_is_one_task() -> None:
    request = one("nemotron4_15b:\n  dtypes: [fp8, bf16]\n  scales: [16]\n")
    assert (request.dtypes, request.scales, request.place) == (
        ("fp8", "bf16"),
        (16,),
        "jobs.yaml:1",
    )


def test_the_default_dtype_where_none_is_given(workloads: dict[str, Workload]) -> None:
    assert [job.dtype for job in jobs_of("nemotron4_15b: {scales: 16}", workloads)] == ["fp8"]
    assert [job.dtype for job in jobs_of("nemotron4_340b: {scales: 128}", workloads, "a100")] == [
        "bf16"
    ]


def test_the_proxy_of_a_workload_that_has_one(workloads: dict[str, Workload]) -> None:
    (job,) = jobs_of("pretrain_llama3.1_405b: {dtypes: fp8, scales: 64, proxy: true}", workloads)
    assert (job.model_size, job.trained.num_layers, job.trained.gbs) == ("405b-proxy", 30, 64)


def test_strong_scaling_where_it_exists(workloads: dict[str, Workload]) -> None:
    text = "nemotron4_340b: {dtypes: fp8, scales: 256, strong_scaling: true}"
    (job,) = jobs_of(text, workloads, "gb200")
    assert (job.trained.gbs, job.trained.ga, job.time_limit) == (512, 64, 35 * 60)


def test_numbers_in_an_environment_stay_as_they_are_written() -> None:
    request = one(
        'w_s: {scales: 16, overrides: {env: {A: 2.20, B: 010, C: 1_000, D: 0x10, E: "", F: 1}}}'
    )
    assert request.settings.env == {
        "A": "2.20",
        "B": "010",
        "C": "1_000",
        "D": "0x10",
        "E": "",
        "F": "1",
    }


@pytest.mark.parametrize(
    "line",
    [
        "dtyps: fp8",
        "gpu_type: h100",
        "repeats: 0",
        "repeats: -1",
        "repeats: two",
        "repeats: 1.5",
        "repeats: true",
        "scales: [16, sixteen]",
        "scales: 0",
        "scales: []",
        "dtypes: []",
        "overrides: {params: {tp: []}}",
        "add_profile: 2",
        "dtypes: [yes]",
        "overrides: {env: {MAX_STEPS: many}}",
        "overrides: {env: {ENABLE_CHECKPOINT: perhaps}}",
        "overrides: {env: {A: b, HIDDEN_SIZE: 1, MODEL_SIZE: 8b}}",
        "overrides: {env: {ADDITIONAL_SLURM_PARAMS: nodelist=n1;exclusive}}",
        "overrides: {max_steps: 10, env: {MAX_STEPS: 100}}",
        "overrides: {env: {MAX_STEPS: 100, RUN_CONF_MAX_STEPS: 50}}",
        "qos: ''",
        "nice: high",
        "segment: 0",
        "overrides: {env: {A: }}",
        "overrides: {env: {A: [1]}}",
        "overrides: {env: A=1}",
        "overrides: {param: {tp: 1}}",
        "overrides: {params: {tp: 0}}",
        "overrides: {params: {tp: [2, x]}}",
        "defaults: {scales: [16]}",
        "env: {A: 1}",
        "scales: 16, 32",
        "tasks: all",
        "tasks: [all]",
        "tasks: [{tasks: []}]",
        "tasks: []",
        "profile: true\n  add_profile: true",
    ],
)
def test_whatever_is_wrong_is_one_fault_with_its_line(
    line: str, wording: Callable[..., None]
) -> None:
    """Below a valid section, so that the line is tested."""
    faulty = "w_s:\n  " + line + ("" if line.startswith("scales") else "\n  scales: [16]")
    (fault,) = read(f"nemotron4_15b: {{scales: 16}}\n{faulty}\n").faults
    assert fault.place == ("jobs.yaml:2" if line.startswith("profile") else "jobs.yaml:3")
    assert fault.code
    wording("submit-all", f"{fault.code} {fault.key} {fault.value!r}\n{fault}\nhint: {fault.hint}")
    assert not [item for item in read(faulty).entries if not item.faulty]


def test_a_section_without_scales() -> None:
    (fault,) = read("w_s: {dtypes: fp8}\n").faults
    assert (fault.place, fault.code, fault.key) == ("jobs.yaml:1", "key-missing", "scales")


@pytest.mark.parametrize("value", ["", "null", "[16]", "16"])
def test_a_section_that_is_no_mapping(value: str) -> None:
    (fault,) = read(f"w_s: {value}\n").faults
    assert (fault.place, fault.code, fault.key) == ("jobs.yaml:1", "section-empty", "w_s")
    assert fault.hint


def test_the_same_section_twice() -> None:
    text = "w_s:\n  scales: 16\nx_s:\n  scales: 16\nw_s:\n  scales: 32\n"
    (fault,) = read(text).faults
    assert (fault.place, fault.code, fault.key) == ("jobs.yaml:5", "key-duplicate", "w_s")


def test_every_fault_of_every_task_is_reported(workloads: dict[str, Workload]) -> None:
    listed = read("""
        pretrain_nemotron4_15b:
          repeat: 2
          scales: [16]
          tasks:
            - {dtypes: fp9}
            - {dtype: fp8}
            - {profile: true, add_profile: true}
            - {scales: [x], dtypes: int8}
        pretrain_nemotron4_51b:
          scales: [16]
          defaults: {env: {HF_TOKEN: x}}
        """)
    plan = make_plan(
        listed.entries,
        workloads,
        ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"]),
    )
    assert [fault.place for fault in listed.faults] == [
        f"jobs.yaml:{line}" for line in (2, 6, 7, 8, 11)
    ]
    assert sorted((fault.place, fault.code, fault.value) for fault in plan.faults) == [
        ("jobs.yaml:5", "dtype-unknown", "fp9"),
        ("jobs.yaml:8", "dtype-unknown", "int8"),
        ("jobs.yaml:9", "size-unknown", "51b"),
    ]
    assert plan.jobs == ()


def test_a_fault_of_a_section_is_reported_once_at_its_line(workloads: dict[str, Workload]) -> None:
    listed = read("""
        pretrain_nemotron4_15b:
          dtypes:
            - fp8
            - fp9
          scales: [16, 24, 4096]
          tasks:
            - {}
            - {repeats: 2}
            - repeats: 3
              scales: 48
            - {dtypes: bf16}
        """)
    plan = make_plan(
        listed.entries,
        workloads,
        ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"]),
    )
    assert sorted((fault.place, fault.code, fault.value) for fault in plan.faults) == [
        ("jobs.yaml:10", "scale-untested", 48),
        ("jobs.yaml:4", "dtype-unknown", "fp9"),
        ("jobs.yaml:5", "scale-untested", 24),
    ]
    (warning,) = plan.warnings
    assert warning.startswith("jobs.yaml:5: ")
    assert "4096" in warning


def test_strong_scaling_of_a_section_is_refused_once(workloads: dict[str, Workload]) -> None:
    text = (
        "nemotron4_340b:\n  scales: [256]\n  strong_scaling: true\n  tasks:\n  - {}\n  - dtypes:"
        " bf16\n"
    )
    plan = make_plan(
        read(text).entries,
        workloads,
        ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"]),
    )
    assert [(fault.place, fault.code) for fault in plan.faults] == [
        ("jobs.yaml:3", "no-strong-scaling")
    ]


def test_unknown_parameters_have_their_line_and_the_nearest_name(
    workloads: dict[str, Workload],
) -> None:
    text = (
        "nemotron4_15b:\n  scales: [16]\n  overrides:\n    params:\n      tpp: 2\n      mb: 1\n    "
        "  fp8: current\n"
    )
    plan = make_plan(
        read(text).entries,
        workloads,
        ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"]),
    )
    assert not plan.jobs
    assert [(fault.place, fault.code, fault.key) for fault in plan.faults] == [
        ("jobs.yaml:5", "param-unknown", "tpp"),
        ("jobs.yaml:6", "param-unknown", "mb"),
        ("jobs.yaml:7", "param-unknown", "fp8"),
    ]
    assert all(
        word in (fault.hint or "")
        for word, fault in zip(("'tp'", "'mbs'", "key"), plan.faults, strict=True)
    )


def test_every_wrong_variable_has_its_line() -> None:
    listed = read("""
        pretrain_nemotron4_15b:
          scales: [16]
          overrides:
            params: {tp: 0, mb: [true]}
            env:
              1X: b
              WORLD_SIZE: 3
              SLURM_NTASKS: 3
              LLMB_RUN_ID: x
              PATH: /x
              MASTER_PORT: 29500
              NCCL_DEBUG: INFO
        """)
    assert [
        (fault.place, re.split(r"(?:env|params)[.]", fault.key)[1]) for fault in listed.faults
    ] == [
        ("jobs.yaml:4", "tp"),
        ("jobs.yaml:4", "mb.0"),
        ("jobs.yaml:6", "1X"),
        ("jobs.yaml:7", "WORLD_SIZE"),
        ("jobs.yaml:8", "SLURM_NTASKS"),
        ("jobs.yaml:9", "LLMB_RUN_ID"),
        ("jobs.yaml:10", "PATH"),
    ]
    assert all(fault.hint for fault in listed.faults[2:])


@pytest.mark.parametrize("port", ["1", "70000", "a", "²", "-1"])
def test_a_port_must_be_one(port: str) -> None:
    (fault,) = read(
        f"w_s:\n  scales: [16]\n  overrides:\n    env:\n      MASTER_PORT: '{port}'\n"
    ).faults
    assert fault.place == "jobs.yaml:5"
    assert (fault.key, fault.code) == ("w_s.overrides.env.MASTER_PORT", "value-not-allowed")


@pytest.mark.parametrize(
    "value", ["http://me:word1234@proxy.example:3128", "hf_" + "a1B2" * 8, "nvapi-" + "x" * 20]
)
def test_a_secret_by_its_value_is_refused_and_not_quoted(value: str) -> None:
    (fault,) = read(
        f"w_s:\n  scales: [16]\n  overrides:\n    env:\n      A: 'b'\n      B: '{value}'\n"
    ).faults
    assert (fault.place, fault.key) == ("jobs.yaml:6", "w_s.overrides.env.B")
    assert value not in repr(fault)


def test_a_proxy_without_a_password_is_no_secret() -> None:
    listed = read(
        "pretrain_nemotron4_15b:\n  scales: [16]\n  overrides:\n"
        "    env: {https_proxy: 'http://proxy.example:3128'}\n"
    )
    assert not listed.faults


def test_both_of_a_duplicate_section_are_checked(workloads: dict[str, Workload]) -> None:
    text = (
        "nemotron4_15b:\n  scales: x\nnemotron4_15b:\n  scales: [16]\n  repeats: 0\n  dtypes: fp9\n"
    )
    listed = read(text)
    assert [fault.place for fault in listed.faults] == ["jobs.yaml:3", "jobs.yaml:2", "jobs.yaml:5"]
    assert [request.faulty for request in listed.entries] == [True, True]
    plan = make_plan(
        listed.entries,
        workloads,
        ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"]),
    )
    assert [(fault.code, fault.value) for fault in plan.faults] == [("dtype-unknown", "fp9")]
    sound = read("nemotron4_15b:\n  scales: [16]\nnemotron4_15b:\n  scales: [32]\n")
    assert [(request.scales, request.faulty) for request in sound.entries] == [
        ((16,), False),
        ((32,), True),
    ]


@pytest.mark.parametrize("image", ["3", "word", "/no/such", "a b/c:1", "", "https://x/y"])
def test_what_is_no_image(image: str) -> None:
    (fault,) = read(f"w_s:\n  scales: [16]\n  image: '{image}'\n").faults
    assert fault.place == "jobs.yaml:3"
    assert (fault.code, fault.key, fault.value) == ("value-not-allowed", "w_s.image", image)


@pytest.mark.parametrize(
    "image",
    [
        "nvcr.io/nvidia/nemo:25.09",
        "nvcr.io#nvidia/nemo:25.09",
        "docker://a:5000/b/c@sha256:ab12",
        "ubuntu:24.04",
        "/images/nvidia+nemo+25.09.sqsh",
        "~/own.sqsh",
        "nvidia/nemo",
    ],
)
def test_what_is_an_image(image: str) -> None:
    listed = read(f"w_s:\n  scales: [16]\n  image: '{image}'\n")
    assert (listed.faults, listed.entries[0].settings.image) == ((), image)


@pytest.mark.parametrize("image", ["./own.sqsh", "own.sqsh", "../own.sqsh"])
def test_a_relative_path_of_an_image_is_refused(image: str) -> None:
    (fault,) = read(f"w_s:\n  scales: [16]\n  image: '{image}'\n").faults
    assert fault.place == "jobs.yaml:3"
    assert f"write {Path(image).absolute()}" in fault.message


def test_a_faulty_task_leaves_the_others_sound() -> None:
    listed = read("w_s:\n  scales: 16\n  tasks:\n    - {repeats: 0}\n    - {repeats: 2}\n")
    assert [(item.place, item.faulty) for item in listed.entries] == [
        ("jobs.yaml:4", True),
        ("jobs.yaml:5", False),
    ]


def test_a_tp_that_does_not_divide_is_one_fault(workloads: dict[str, Workload]) -> None:
    listed = read(
        "nemotron4_15b:\n  dtypes: [fp8, bf16]\n  scales: [16]\n  overrides: {params: {tp: 3}}\n"
    )
    plan = make_plan(
        listed.entries,
        workloads,
        ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"]),
    )
    assert [(fault.place, fault.code, fault.value) for fault in plan.faults] == [
        ("jobs.yaml:4", "not-divisible", 3)
    ]


def test_a_contradicting_switch_is_a_fault_at_its_line(workloads: dict[str, Workload]) -> None:
    """Not at the section's, or at the first line of the list."""
    listed = read(
        "nemotron4_15b:\n  scales: [16]\n  profile: true\n  max_steps: 9\n  profile_stop: 8\n"
    )
    plan = make_plan(
        listed.entries,
        workloads,
        ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"]),
    )
    assert [(fault.place, fault.code, fault.value) for fault in plan.faults] == [
        ("jobs.yaml:5", "profile-end", 8)
    ]


def test_every_switch_is_a_key_of_every_level() -> None:
    text = (
        "w_s:\n  scales: [16]\n  defaults: {strong_scaling: true, vboost: true}\n  overrides:"
        " {vboost: false}\n"
    )
    assert given_switches(one(text).settings) == {"strong_scaling": True, "vboost": False}


@pytest.mark.parametrize("text", ["", "{}", "- w"])
def test_a_file_that_is_no_list_is_an_error(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(text)
    assert raised.value.code == "joblist-empty"


@pytest.mark.parametrize("text", ["cluster_type: slurm\n", "schema_version: 2\nx_s: {}\n"])
def test_the_configuration_of_a_cluster_is_named_as_such(text: str) -> None:
    with pytest.raises(UsageError, match="describes a cluster") as raised:
        read(text)
    assert raised.value.code == "joblist-unknown"


def test_another_file_has_a_few_faults_and_their_number(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    """A list that names a workload has all of its faults: its author wants to fix them."""
    path = tmp_path / "jobs.yaml"
    faulty = "".join(f"key{number}: 1\n" for number in range(40))

    def read_shortened(text: str) -> JobList:
        path.write_text(text)
        return shortened(path, read_job_list(path), workloads)

    listed = read_shortened(faulty)
    *faults, last = listed.faults
    assert [fault.place for fault in faults] == [f"{path}:{line}" for line in range(1, 11)]
    assert (last.place, last.code) == (f"{path}:11", "joblist-unknown")
    assert last.message.startswith("30 more faults")
    assert listed.entries == ()
    assert len(read_shortened(f"w_s:\n  scales: [16]\n{faulty}").faults) == 40
    ten_faults = "".join(f"key{number}: 1\n" for number in range(10))
    assert len(read_shortened(ten_faults).faults) == 10
    # Each of its jobs has a fault, also an unknown size; all of them are shown.
    tasks = "".join(f"nemotron4_{number}b:\n  scales: [0]\n" for number in range(12))
    assert len(read_shortened(tasks).faults) == 12


def test_a_folder_is_no_job_list(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder") as raised:
        read_job_list(tmp_path)
    assert raised.value.code == "joblist-folder"


def test_a_file_that_is_no_yaml_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yml"
    path.write_text("w_s:\n  scales: [16\nx_s: {}\n")
    with pytest.raises(InputFaults) as raised:
        read_job_list(path)
    assert [(fault.place, fault.code) for fault in raised.value.faults] == [
        (f"{path}:3", "yaml-invalid")
    ]


def test_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "jobs.YAML"
    path.write_bytes("\ufeffw_s:\r\n  scales: [16]\r\n".encode())
    listed = read_job_list(path)
    assert [(item.settings.workload, item.scales) for item in listed.entries] == [("w_s", (16,))]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda parts: (
        st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=5), parts, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = [
    "dtypes",
    "scales",
    "repeats",
    "add_profile",
    "profile",
    "proxy",
    "overrides",
    "defaults",
    "env",
    "params",
]
ENTRIES = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4)
LISTS = st.dictionaries(
    st.text(max_size=5),
    ENTRIES
    | st.builds(lambda own, tasks: {**own, "tasks": tasks}, ENTRIES, VALUES | st.lists(ENTRIES)),
)


def check(text: str) -> None:
    try:
        listed = entries_of(yamlfile.parse(text, name=NAME, strict=False))
    except LlmbError:
        return
    assert all(fault.place.startswith(NAME) for fault in listed.faults)
    assert all(
        request.scales and request.repeats > 0 for request in listed.entries if not request.faulty
    )
    assert listed.entries or listed.faults


@given(st.text(max_size=60))
@example("a: &a [*a]")
@example("&a {<<: *a}")
@example("a: 2024-13-45")
@example("a: 0x_")
@example("a: !!bool maybe")
@example("a: !!timestamp x")
@example("a: !!binary é")
@example("? [a]\n: b")
@example("? {a: b}\n: c")
@example("a: " + "[" * 3000)
@example("a: " + "[" * 900 + "]" * 900)
@example("a: 1" + "0" * 5000)
@example("!!python/object:os.system {}")
@example("a: \x07")
@example("--- a\n--- b")
@example("=: =")
@example("<<: 3")
def test_no_text_makes_the_reader_raise_anything_else(text: str) -> None:
    check(text)


@given(LISTS)
def test_no_data_makes_the_reader_raise_anything_else(data: dict[str, Any]) -> None:
    check(yaml.safe_dump(data))


def test_true_and_false_are_the_texts_that_nvidias_lists_mean() -> None:
    found = read(
        "w_s:\n  scales: [16]\n  overrides: {env: {DEBUG: true, QUIET: no, A: 'true', B: 010}}\n"
    )
    assert found.faults == ()
    assert found.entries[0].settings.env == {
        "DEBUG": "True",
        "QUIET": "False",
        "A": "true",
        "B": "010",
    }


def test_variables_of_nvidias_scripts_are_the_settings_that_they_set_there() -> None:
    """Its launch.sh reads them; a list's `env` reaches it."""
    listed = read("""
        pretrain_nemotron4_15b:
          scales: [16]
          defaults: {env: {MAX_STEPS: 100, NCCL_DEBUG: WARN}}
          tasks:
            - overrides:
                env: {GBS: 128, ENABLE_CHECKPOINT: "true", TIME_LIMIT: "00:45:00", TP: 4, SBATCH_QOS: high}
            - overrides: {env: {ENABLE_PROFILE: true, RUN_CONF_IMAGE: nvcr.io/nvidia/nemo:25.07, MAX_STEPS: 60}}
        """)
    assert not listed.faults
    first, second = listed.entries
    assert first.settings.env == second.settings.env == {"NCCL_DEBUG": "WARN"}
    assert first.settings.params == {"max_steps": 100, "gbs": 128, "tp": 4}
    assert given_switches(first.settings) == {"save_checkpoint": True, "time_limit": "00:45:00"}
    assert (first.slurm, first.settings.profile) == ({"qos": "high"}, False)
    assert second.settings.params == {"max_steps": 60}
    assert given_switches(second.settings) == {"image": "nvcr.io/nvidia/nemo:25.07"}
    assert second.settings.profile is True
    assert second.key_places["max_steps"] == "jobs.yaml:7"
    assert len(listed.notes) == 9  # one for each variable, those of the defaults once
    assert all(note.startswith("jobs.yaml:") for note in listed.notes)


def test_options_of_slurm_are_keys_and_the_nearer_overrides() -> None:
    listed = read("""
        pretrain_nemotron4_15b:
          scales: [16]
          qos: high
          defaults: {partition: batch, reservation: night}
          tasks:
            - {nodelist: "n[1-2]", overrides: {qos: low}}
            - {nice: 10, segment: 2, exclude: n3, account: a}
        """)
    assert not listed.faults
    assert [request.slurm for request in listed.entries] == [
        {"partition": "batch", "reservation": "night", "qos": "low", "nodelist": "n[1-2]"},
        {
            "partition": "batch",
            "reservation": "night",
            "qos": "high",
            "nice": "10",
            "segment": "2",
            "exclude": "n3",
            "account": "a",
        },
    ]
