# SPDX-License-Identifier: Apache-2.0
"""Names of NVIDIA's recipes: each means a workload and a size, and fp8 is the dtype that their
launch scripts select. Source: metadata.yaml and launch.sh of exemplar-performance 26.08.00.
"""

from collections.abc import Mapping

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import Workload
from llmb.core.names import find_workload
from llmb.plan.plan import make_plan, resolve
from llmb.plugins.loader import load_plugins
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

Workloads = Mapping[str, Workload]


@pytest.fixture(scope="module")
def offered() -> Workloads:
    """Every workload of the plugins here."""
    return load_plugins(builtin_plugins()).workloads()


@pytest.mark.parametrize(
    ("name", "size", "found"),
    [
        ("pretrain_deepseek-v3", "671b", ("pretrain_deepseek", "v3")),
        ("pretrain_deepseek-v3_671b", None, ("pretrain_deepseek", "v3")),
        ("pretrain_kimi-k2_1t", None, ("pretrain_kimi", "k2")),
        ("pretrain_gpt_oss", "120b", ("pretrain_gpt_oss", "120b")),
        ("pretrain_nemotron_3_120b", None, ("pretrain_nemotron3", "super")),
        ("nemotron-3-nano", None, ("pretrain_nemotron3", "nano")),
        ("pretrain_qwen3_235b", None, ("pretrain_qwen3", "235b-a22b")),
        ("pretrain_qwen3", "30b", ("pretrain_qwen3", "30b-a3b")),
    ],
)
def test_a_recipe_names_a_workload_and_a_size(
    name: str, size: str | None, found: tuple[str, str], offered: Workloads
) -> None:
    workload, chosen = resolve(job_entry(name, size or ""), offered, "gb300", "gb300")
    assert (workload.key, chosen) == found
    if size is not None:
        assert find_workload(name, offered) == workload.key


FP8 = [
    ("deepseek-v3_671b", "gb300", 256, "fp8_mx"),
    ("gpt_oss_120b", "b200", 64, "fp8_mx"),
    ("gpt_oss_120b", "h100", 64, "fp8_cs"),
    ("kimi-k2_1t", "b200", 256, "fp8_mx"),
    ("nemotron_3_30b", "h100", 16, "fp8_cs"),
    ("nemotron_3_120b", "gb300", 512, "fp8_mx"),
    ("qwen3_30b", "h100", 16, "fp8_cs"),
    ("qwen3_235b", "gb200", 256, "fp8_mx"),
    ("llama3.1_70b", "b200", 64, "fp8_cs"),
    ("llama3.1_70b", "b200", 128, "fp8_mx"),
    ("llama3.1_70b", "b300", 512, "fp8_mx"),
    ("llama3.1_70b", "gb200", 512, "fp8_cs"),
    ("llama3.1_405b", "b200", 256, "fp8_cs"),
    ("nemotron-h_56b", "gb300", 64, "fp8_cs"),
]


@pytest.mark.parametrize(("name", "gpu", "scale", "dtype"), FP8)
def test_fp8_is_what_nvidias_launch_script_makes_of_it(
    name: str, gpu: str, scale: int, dtype: str, offered: Workloads
) -> None:
    config = ClusterConfig(cluster_type="slurm", gpu_type=gpu, kind=all_types()["slurm"])
    for word in ("fp8", dtype):
        entry = job_entry(name, dtypes=(word,), scales=(scale,), framework="bridge")
        (job,) = make_plan([entry], offered, config).jobs
        assert job.dtype == dtype
