# SPDX-License-Identifier: Apache-2.0
"""Tests of what overrides of a split are refused for, the same in a sweep as alone."""

import pytest

from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import Workload
from llmb.plan.plan import make_plan
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

H100 = ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"])


@pytest.mark.parametrize(
    ("name", "scale", "params", "fix"),
    [
        ("nemotron4_15b", 64, {"tp": 16}, "choose a tp of 1, 2, 4 or 8: --set tp=N"),
        ("nemotronh_56b", 64, {"tp": 16}, "choose a tp of 1, 2, 4 or 8: --set tp=N"),
        ("nemotronh_56b", 32, {"pp": 4}, "choose pp and vp whose product is 1, 2, 59 or 118"),
        (
            "llama3.1_405b",
            512,
            {"vp": 5},
            "choose pp and vp whose product is 1, 2, 4, 8, 16, 32, 64 or 128",
        ),
        (
            "nemotron4_340b",
            512,
            {"gbs": 72},
            "--set gbs=N, a multiple of mbs·dp·pp = 64; or --set vp=1",
        ),
        ("nemotron4_15b", 64, {"vp": 2}, "--set vp=1"),
        ("nemotronh_56b", 32, {"cp": 2}, "--set cp=1"),
    ],
)
def test_the_fix_names_what_would_split(
    name: str, scale: int, params: dict[str, int], fix: str, workloads: dict[str, Workload]
) -> None:
    given = {key: (value,) for key, value in params.items()}
    (fault,) = make_plan(
        [job_entry(workload=name, dtypes=("fp8",), scales=(scale,), params=given)], workloads, H100
    ).faults
    assert fix in (fault.hint or "")


@pytest.mark.parametrize(
    ("name", "scale", "params", "message"),
    [
        (
            "nemotronh_56b",
            32,
            {"cp": 2},
            "a hybrid of Mamba and attention layers cannot be split by cp, which is 2",
        ),
        ("nemotronh_56b", 32, {"pp": 2, "vp": 59, "tp": 4}, "cannot be split by vp, which is 59"),
        ("nemotronh_56b", 64, {"tp": 16}, "8 query groups is not a multiple of tp = 16"),
        ("nemotronh_56b", 32, {"pp": 4}, "118 layers is not a multiple of pp·vp = 4·1 = 4"),
        ("llama3.1_405b", 512, {"pp": 7}, "the scale is not a multiple of tp·pp·cp"),
        (
            "llama3.1_405b",
            512,
            {"vp": 5},
            "126 layers (128 with embedding and loss) is not a multiple",
        ),
        ("nemotron4_15b", 64, {"vp": 2}, "vp 2 needs a pipeline, pp is 1"),
        # nor do 32 layers divide by 3
        ("nemotron4_15b", 64, {"vp": 3}, "vp 3 needs a pipeline, pp is 1"),
        ("nemotron4_15b", 64, {"tp": 4, "gbs": 24}, "is not a multiple of mbs·dp = 2·16"),
    ],
)
def test_an_override_and_a_sweep_are_checked_alike(
    name: str, scale: int, params: dict[str, int], message: str, workloads: dict[str, Workload]
) -> None:
    swept = {key: (value, value) for key, value in params.items()}
    plan = make_plan(
        [job_entry(workload=name, dtypes=("fp8",), scales=(scale,), params=swept)], workloads, H100
    )
    assert not plan.jobs
    (fault,) = plan.faults
    assert message in fault.message
    assert fault.hint
