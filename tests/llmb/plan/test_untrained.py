# SPDX-License-Identifier: Apache-2.0
"""Tests of planning for workloads that train no model: names, nodes, parameters, and settings that
are refused.
"""

import re
from dataclasses import replace
from typing import Any

import pytest

from llmb.contract.entry import JobEntry
from llmb.contract.schema import ClusterConfig
from llmb.contract.settings import Settings
from llmb.contract.spec import Workload
from llmb.core import typed, yamlfile
from llmb.core.yamlfile import Document
from llmb.plan.estimate import alike, describe, estimate_job, total
from llmb.plan.plan import Plan, make_plan
from llmb.plan.yaml_joblist import entries_of
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

NETBENCH: dict[str, Any] = {
    "key": "netbench",
    "title": "t",
    "default_size": "all_reduce",
    "default_dtype": "bf16",
    "max_steps": 20,
    "time_limit_minutes": 10,
    "metrics": [
        {"name": "busbw", "unit": "GB/s"},
        {"name": "latency", "unit": "us", "better": "lower"},
    ],
    "parameters": {
        "message_size": {"default": "16M", "choices": ["1M", "16M", "256M"]},
        "algorithm": {"default": "auto"},
    },
    "sizes": {
        "all_reduce": {
            "whole_nodes": False,
            "rows": [{"gpu": "any", "dtype": ["bf16", "fp32"], "scales": [1, 2, 4, 8, 16, 32]}],
        },
        "latency": {
            "rows": [{"gpu": "h100", "dtype": "bf16", "scales": [16], "time_limit_minutes": 5}]
        },
    },
}
CLUSTER = ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"])
REQUEST = job_entry(workload="netbench", size="all_reduce", scales=(8,))


@pytest.fixture
def workloads(workloads: dict[str, Workload]) -> dict[str, Workload]:
    own = typed.read(Workload, Document(name="w.yaml", data=NETBENCH))
    return {**workloads, own.key: own}


def plan_of(workloads: dict[str, Workload], request: JobEntry = REQUEST, **overrides: Any) -> Plan:
    return make_plan([request], workloads, CLUSTER, overrides=Settings(**overrides))


def listed(workloads: dict[str, Workload], text: str, **overrides: Any) -> Plan:
    found = entries_of(yamlfile.parse(text.lstrip("\n"), name="jobs.yaml", strict=False))
    assert not found.faults
    return make_plan(found.entries, workloads, CLUSTER, overrides=Settings(**overrides))


def test_a_job_without_training(workloads: dict[str, Workload]) -> None:
    plan = plan_of(workloads)
    (job,) = plan.jobs
    assert (plan.faults, plan.warnings) == ((), ())
    assert job.training is None
    assert job.parameters == {"message_size": "16M", "algorithm": "auto"}
    assert job.experiment_name == "netbench_all_reduce_bf16_gpus8_message_size16M_algorithmauto"
    assert (job.max_steps, job.time_limit, job.nodes, job.gpus_per_node) == (20, 600, 1, 8)
    assert job.vboost is None


@pytest.mark.parametrize(("scale", "nodes", "per_node"), [(1, 1, 1), (4, 1, 4), (32, 4, 8)])
def test_nodes_are_those_of_other_jobs(
    scale: int, nodes: int, per_node: int, workloads: dict[str, Workload]
) -> None:
    (job,) = plan_of(workloads, replace(REQUEST, sweeps={"scale": (scale,)})).jobs
    assert (job.nodes, job.gpus_per_node) == (nodes, per_node)


def test_an_untested_scale_is_refused(workloads: dict[str, Workload]) -> None:
    (fault,) = plan_of(workloads, replace(REQUEST, sweeps={"scale": (12,)})).faults
    assert (fault.code, fault.value) == ("scale-untested", 12)


def test_a_rows_time_limit_and_given_steps(workloads: dict[str, Workload]) -> None:
    (job,) = plan_of(
        workloads, job_entry(workload="netbench", size="latency", scales=(16,)), max_steps=3
    ).jobs
    assert (job.time_limit, job.max_steps) == (300, 3)
    assert job.experiment_name.endswith("_gpus16_message_size16M_algorithmauto_steps3")


def test_parameters_are_swept_with_those_of_llmb(workloads: dict[str, Workload]) -> None:
    text = """
netbench_all_reduce:
  scales: [8]
  defaults: {params: {message_size: 1M, algorithm: tree}}
  tasks:
    - {overrides: {params: {message_size: [1M, 256M], max_steps: [5, 10]}}}
    - {scales: [16]}
"""
    plan = listed(workloads, text)
    assert not plan.faults
    assert [(job.scale, job.max_steps, *job.parameters.values()) for job in plan.jobs] == [
        (8, 5, "1M", "tree"),
        (8, 5, "256M", "tree"),
        (8, 10, "1M", "tree"),
        (8, 10, "256M", "tree"),
        (16, 20, "1M", "tree"),
    ]
    assert len({job.experiment_name for job in plan.jobs}) == 5
    # by message size and scale, not by steps
    assert len({job.settings.key for job in plan.jobs}) == 3
    one = listed(workloads, text, parameters={"message_size": "16M"})
    assert {job.parameters["message_size"] for job in one.jobs} == {"16M"}


def test_a_number_in_yaml_is_taken_as_it_is_written(workloads: dict[str, Workload]) -> None:
    plan = listed(
        workloads, "netbench_all_reduce: {scales: 8, overrides: {params: {algorithm: [1.50, 2]}}}"
    )
    assert [job.parameters["algorithm"] for job in plan.jobs] == ["1.50", "2"]


def test_a_training_workload_may_have_parameters(workloads: dict[str, Workload]) -> None:
    own = replace(workloads["pretrain_nemotron4"], parameters=workloads["netbench"].parameters)
    request = job_entry(
        workload="nemotron4_15b", scales=(16,), parameters={"message_size": ("1M",)}
    )
    (job,) = make_plan([request], {own.key: own}, CLUSTER, overrides=Settings(max_steps=7)).jobs
    assert job.trained.gbs == 64
    assert job.experiment_name.endswith("_mbs2_gbs64_message_size1M_algorithmauto_steps7")


def test_wrong_parameters_have_line_and_choices(workloads: dict[str, Workload]) -> None:
    text = """
netbench_all_reduce:
  scales: [8]
  overrides:
    params:
      message_size: [1M, 255M]
      mesage_size: 1M
      algorithm: a/b
"""
    plan = listed(workloads, text)
    assert not plan.jobs
    assert [(fault.place, fault.code, fault.key, fault.value) for fault in plan.faults] == [
        ("jobs.yaml:5", "value-not-allowed", "message_size", "255M"),
        ("jobs.yaml:6", "param-unknown", "mesage_size", "mesage_size"),
        ("jobs.yaml:7", "value-invalid", "algorithm", "a/b"),
    ]
    # none of them is nearer
    assert {"1M", "16M", "256M"} <= set(re.findall(r"\w+", plan.faults[0].hint or ""))
    assert "'message_size'" in (plan.faults[1].hint or "")


def test_an_unknown_name_lists_those_of_llmb_and_of_the_workload(
    workloads: dict[str, Workload],
) -> None:
    (fault,) = plan_of(workloads, parameters={"x": "1"}).faults
    assert (fault.place, fault.code) == ("--set x=1", "param-unknown")
    assert all(name in (fault.hint or "") for name in ("max_steps", "message_size", "algorithm"))
    assert "tp" not in (fault.hint or "").split(", ")
    (fault,) = plan_of(
        workloads,
        job_entry(workload="nemotron4_15b", scales=(16,)),
        parameters={"message_size": "1M"},
    ).faults
    assert (fault.place, fault.code) == ("--set message_size=1M", "param-unknown")


@pytest.mark.parametrize("name", ["tp", "pp", "cp", "vp", "mbs", "gbs", "num_layers"])
def test_parameters_of_training_are_refused(name: str, workloads: dict[str, Workload]) -> None:
    (fault,) = plan_of(workloads, REQUEST, **{name: 2}).faults
    assert (fault.code, fault.key) == ("not-training", name)
    plan = listed(
        workloads,
        f"netbench_all_reduce:\n  scales: 8\n  overrides:\n    params:\n      {name}: 2\n",
    )
    assert [(fault.place, fault.code, fault.key) for fault in plan.faults] == [
        ("jobs.yaml:5", "not-training", name)
    ]


@pytest.mark.parametrize(
    "switches",
    [
        {"strong_scaling": True},
        {"tokenizer": "hub"},
        {"fp8": "current"},
        {"save_checkpoint": True},
        {"load_checkpoint": "/c"},
    ],
)
def test_switches_of_training_are_refused_with_the_cause(
    switches: dict[str, Any], workloads: dict[str, Workload]
) -> None:
    (name,) = switches
    (fault,) = plan_of(workloads, **switches).faults
    assert (fault.code, fault.key) == ("not-training", name)
    assert fault.hint


@pytest.mark.parametrize("how", [{"profile": True}, {"add_profile": True}])
def test_profiles_are_refused(how: dict[str, Any], workloads: dict[str, Workload]) -> None:
    plan = plan_of(workloads, job_entry(workload="netbench", size="all_reduce", scales=(8,), **how))
    assert not plan.jobs
    assert [(fault.code, fault.key) for fault in plan.faults] == [("not-training", "profile")]


def test_a_proxy_is_refused(workloads: dict[str, Workload]) -> None:
    (fault,) = plan_of(workloads, replace(REQUEST, proxy=True)).faults
    assert (fault.code, fault.key) == ("no-proxy", "proxy")


def test_every_fault_is_found_at_once(workloads: dict[str, Workload]) -> None:
    request = replace(REQUEST, sweeps={"scale": (12,)}, parameters={"message_size": ("2M",)})
    plan = plan_of(workloads, request, gbs=4, fp8="current")
    assert {fault.key for fault in plan.faults} == {"scale", "message_size", "gbs", "fp8"}


def test_switches_of_the_job_apply(workloads: dict[str, Workload]) -> None:
    given: dict[str, Any] = {"nccl_trace": True, "time_limit": "00:07:00", "gpus_per_node": 4}
    (job,) = plan_of(workloads, REQUEST, **given).jobs
    assert (job.nodes, job.gpus_per_node, job.time_limit, job.env["NCCL_DEBUG"]) == (
        2,
        4,
        420,
        "INFO",
    )


def test_a_name_that_no_file_could_have_is_refused(workloads: dict[str, Workload]) -> None:
    (fault,) = plan_of(workloads, parameters={"algorithm": "x" * 200}).faults
    assert fault.code == "name-too-long"


def test_estimates_without_step_times(workloads: dict[str, Workload]) -> None:
    jobs = plan_of(workloads, replace(REQUEST, repeats=3)).jobs
    first = total([estimate_job(job, job.scale, {}, lambda key: ()) for job in jobs])
    assert (first.limit, first.published) == (3, 0)
    assert first.gpu_hours == pytest.approx(3 * 8 * 600 / 3600)
    assert describe(first, "GPU") == "at most 4.0 GPU-hours by their time limits"
    past = {alike(jobs[0]): 60.0}
    later = total([estimate_job(job, job.scale, past, lambda key: ()) for job in jobs])
    assert later.past == 3
    assert later.gpu_hours == pytest.approx(3 * 8 * 60 / 3600)


def test_a_size_without_a_parameter_does_not_have_it_in_its_name_and_refuses_it(
    workloads: dict[str, Workload],
) -> None:
    sizes = {
        **NETBENCH["sizes"],
        "latency": {**NETBENCH["sizes"]["latency"], "parameters": ["algorithm"]},
    }
    own = typed.read(Workload, Document(name="w.yaml", data={**NETBENCH, "sizes": sizes}))
    request = job_entry(workload="netbench", size="latency", scales=(16,))
    (job,) = plan_of({**workloads, own.key: own}, request).jobs
    assert (job.parameters, job.experiment_name) == (
        {"algorithm": "auto"},
        "netbench_latency_bf16_gpus16_algorithmauto",
    )
    (fault,) = plan_of(
        {**workloads, own.key: own}, request, parameters={"message_size": "1M"}
    ).faults
    assert (fault.code, fault.value) == ("param-unknown", "message_size")
