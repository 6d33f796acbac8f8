# SPDX-License-Identifier: Apache-2.0
"""Tests of which jobs set vboost: the release that a job is compared with decides, and options
override it.
"""

from collections.abc import Callable
from typing import Any

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.schema import ClusterConfig, GpuTypeConfig
from llmb.contract.switches import Switches
from llmb.plan.plan import Plan, make_plan
from llmb.plan.published_tables import read_published
from llmb.plugins.loader import load_plugins
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

PLUGINS = load_plugins(builtin_plugins())
# The launch scripts of these releases pass enable_vboost to NeMo; those of 24.11 have no such
# thing.
RAISED = {"24.11": False, "25.04": True, "25.05": True, "25.07": True}
SMALL: dict[str, Any] = {"workload": "nemotron4_15b", "dtypes": ("fp8",), "scales": (16,)}


def planned(gpu: str = "h100", kind: str = "slurm", **request: Any) -> Plan:
    sections = {"slurm": SlurmConfig()} if kind == "slurm" else {}
    own = {gpu: GpuTypeConfig(gpus_per_node=16)} if kind == "local" else {}
    config = ClusterConfig(
        cluster_type=kind, kind=all_types()[kind], gpu_type=gpu, sections=sections, gpu_types=own
    )
    plan = make_plan([job_entry(**{**SMALL, **request})], PLUGINS.workloads(), config)
    assert not plan.faults
    return plan


def test_the_default_is_that_of_the_newest_release_with_a_figure() -> None:
    for workload in PLUGINS.workloads().values():
        figures = [
            own
            for own in read_published(workload)
            if own.framework == "nemo" and workload.is_training
        ]
        newest = {
            (own.model_size, own.dtype, own.scale, own.gpu_type, own.gbs): own.release
            for own in sorted(figures, key=lambda own: own.release)
        }
        for (size, dtype, scale, gpu, gbs), release in newest.items():
            (job,) = planned(
                gpu,
                workload=workload.key,
                size=size,
                dtypes=(dtype,),
                scales=(scale,),
                params={"gbs": (gbs,)},
                switches=Switches(
                    strong_scaling=(size, gbs, gpu) == ("340b", 512, "gb200") and scale != 2048
                ),
            ).jobs
            assert job.vboost is RAISED[release], (workload.key, size, dtype, scale, gpu)


def test_rows_without_a_figure_follow_the_newest_release() -> None:
    assert planned("b200").jobs[0].vboost is True
    assert planned("b200", workload="nemotronh_56b", scales=(32,)).jobs[0].vboost is True
    # For A100 there is only release 24.11.
    assert (
        planned("a100", workload="nemotron4_340b", dtypes=("bf16",), scales=(128,)).jobs[0].vboost
        is False
    )


@pytest.mark.parametrize("wanted", [True, False])
def test_an_option_overrides_the_default(wanted: bool) -> None:
    plan = planned(switches=Switches(vboost=wanted))
    assert (plan.jobs[0].vboost, plan.warnings) == (wanted, ())
    (tiny,) = planned(
        workload="nemotron4_tiny", dtypes=("bf16",), scales=(1,), switches=Switches(vboost=wanted)
    ).jobs
    assert tiny.vboost is wanted


def test_a_size_without_nemo_does_not_set_it() -> None:
    assert planned(workload="nemotron4_tiny", dtypes=("bf16",), scales=(1,)).jobs[0].vboost is None


@pytest.mark.parametrize("kind", ["local", "runai"])
def test_on_other_cluster_types_a_requested_vboost_is_a_warning(
    kind: str, wording: Callable[..., None]
) -> None:
    plan = planned(kind=kind)
    assert (plan.jobs[0].vboost, plan.warnings) == (None, ())
    plan = planned(kind=kind, switches=Switches(vboost=False))
    assert (plan.jobs[0].vboost, plan.warnings) == (None, ())
    plan = planned(kind=kind, switches=Switches(vboost=True))
    assert plan.jobs[0].vboost is None
    (warning,) = plan.warnings
    wording("single", warning)


def test_on_cpus_a_requested_vboost_is_a_warning(wording: Callable[..., None]) -> None:
    plan = planned(
        "cpu",
        workload="nemotron4_tiny",
        dtypes=("bf16",),
        scales=(1,),
        switches=Switches(vboost=True),
    )
    assert plan.jobs[0].vboost is None
    (warning,) = plan.warnings
    wording("single", warning)
