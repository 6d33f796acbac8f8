# SPDX-License-Identifier: Apache-2.0
"""The rows of Megatron-Bridge against two tables of NVIDIA that do not come from its launch
scripts.

They are the published figures of release 26.02.01 (docs/performance-summary-archive.md of
Megatron-Bridge) and the README of exemplar-performance 26.08. tests/real_bridge compares all other
settings.
"""

import pytest

from llmb.builtin.bridge.bridge_rows import table_of
from llmb.builtin.nvidia_images import releases
from llmb.builtin.plugins import builtin_plugins
from llmb.contract.entry import JobEntry
from llmb.contract.schema import ClusterConfig
from llmb.contract.settings import Settings
from llmb.plan.plan import Plan, make_plan
from llmb.plugins.loader import load_plugins
from llmb_installer.cluster_types import all_types

# Release, size, GPU type, GPUs, dtype: tp, pp, cp, vp, micro batch, global batch.
PUBLISHED = {
    ("26.02.01", "70b", "gb300", 64, "fp8_cs"): (1, 1, 1, None, 2, 256),
    ("26.02.01", "70b", "gb200", 64, "nvfp4"): (2, 4, 1, 5, 1, 256),
    ("26.02.01", "70b", "gb200", 64, "fp8_mx"): (2, 4, 1, 5, 1, 256),
    ("26.02.01", "70b", "gb200", 64, "fp8_cs"): (1, 1, 1, None, 2, 256),
    ("26.02.01", "70b", "h100", 64, "fp8_cs"): (4, 8, 1, 5, 1, 256),
    ("26.02.01", "405b", "gb300", 256, "nvfp4"): (4, 8, 1, 4, 1, 1536),
    ("26.02.01", "405b", "gb300", 256, "fp8_mx"): (2, 8, 2, 4, 1, 1536),
    ("26.02.01", "405b", "gb200", 256, "fp8_mx"): (4, 16, 1, 8, 1, 1536),
    ("26.02.01", "405b", "gb200", 256, "fp8_cs"): (4, 16, 1, 4, 1, 1536),
    ("26.08", "405b", "gb300", 256, "fp8_cs"): (4, 8, 1, 4, 1, 6 * 256),
    ("26.08", "405b", "b300", 256, "nvfp4"): (4, 8, 1, 4, 1, 6 * 256),
    ("26.08", "405b", "gb200", 256, "fp8_cs"): (4, 16, 1, 4, 1, 6 * 256),
    ("26.08", "405b", "gb200", 256, "nvfp4"): (4, 16, 1, 8, 1, 6 * 256),
    ("26.08", "405b", "b200", 256, "nvfp4"): (4, 16, 1, 8, 1, 6 * 256),
    ("26.08", "405b", "h100", 1024, "fp8_cs"): (8, 8, 2, 8, 1, 1536),
    ("26.08", "70b", "gb300", 64, "fp8_cs"): (1, 1, 1, None, 2, 4 * 64),
    ("26.08", "70b", "b300", 64, "nvfp4"): (1, 4, 1, 5, 1, 4 * 64),
    ("26.08", "70b", "b200", 64, "fp8_cs"): (1, 1, 1, None, 1, 4 * 64),
    ("26.08", "70b", "h100", 64, "bf16"): (4, 4, 2, 5, 1, 4 * 64),
    ("26.08", "8b", "b300", 8, "nvfp4"): (1, 1, 1, None, 4, 16 * 8),
    ("26.08", "8b", "gb200", 8, "fp8_cs"): (1, 1, 1, None, 2, 16 * 8),
    ("26.08", "8b", "h100", 8, "bf16"): (1, 1, 2, None, 1, 16 * 8),
    ("26.08", "56b", "b300", 64, "fp8_cs"): (2, 1, 1, None, 1, 3 * 64),
    ("26.08", "56b", "h100", 64, "fp8_cs"): (8, 1, 1, None, 1, 3 * 64),
}
WORKLOADS = load_plugins(builtin_plugins()).workloads()
TABLES = {
    key: table_of(workload) for key, workload in WORKLOADS.items() if workload.bridge is not None
}
SIZES = {
    size.model + " cut" * size.cut: size
    for table in TABLES.values()
    for size in table.sizes.values()
}
NAMES = {"8b": "llama3_8b", "70b": "llama3_70b", "405b": "llama31_405b", "56b": "nemotronh_56b"}
GPUS = {"h100", "b200", "b300", "gb200", "gb300"}


@pytest.mark.parametrize("key", PUBLISHED)
def test_layouts_that_nvidia_publishes(key: tuple[str, str, str, int, str]) -> None:
    release, name, gpu, gpus, dtype = key
    row = SIZES[NAMES[name]].row(release, gpu, dtype, gpus)
    assert row is not None
    assert (row.tp, row.pp, row.cp, row.vp, row.mbs, row.batch(gpus)) == PUBLISHED[key]


MULTIPLES_OF_72 = (72, 144, 216, 288, 360, 432, 504, 576)
# Model, GPU type, dtype, GPUs: tp, pp, vp, ep and micro batch by the launch options of
# exemplar-performance 26.08 (launch.sh of deepseek_v3 and gpt-oss); None: not among the options.
LAUNCHED = {
    ("deepseek_v3", "gb300", "bf16", 128): (None, 4, 4, 32, None),
    ("deepseek_v3", "gb300", "fp8_mx", 128): (None, 4, 4, 32, None),
    ("deepseek_v3", "gb300", "nvfp4", 128): (None, 4, 4, 32, None),
    ("deepseek_v3", "gb200", "fp8_mx", 128): (2, 2, 8, 32, None),
    **{
        ("gpt_oss_120b", "gb300", "bf16", gpus): (None, None, None, 8, 5)
        for gpus in MULTIPLES_OF_72
    },
}


@pytest.mark.parametrize("release", ["26.08", "26.06.01"])
@pytest.mark.parametrize("key", LAUNCHED)
def test_layouts_of_launch_options(release: str, key: tuple[str, str, str, int]) -> None:
    """The job has them, and jobs of other counts have the settings of the nearest other row."""
    model, gpu, dtype, gpus = key
    row = SIZES[model].row(release, gpu, dtype, gpus)
    assert row is not None
    values = (row.tp, row.pp, row.vp, row.ep, row.mbs)
    expected = LAUNCHED[key]
    assert values == tuple(
        own if value is None else value for own, value in zip(values, expected, strict=True)
    )
    for other in (gpus - 4, gpus + 4):
        near = SIZES[model].row(release, gpu, dtype, other)
        assert near is not None
        assert near != row
        assert near.scales.counts[0] in (64, 256)


def plan_of(workload: str, size: str, gpu: str, dtype: str, gpus: int) -> Plan:
    """The plan of one job with the newest release."""
    settings = Settings(workload=workload, model_size=size, framework="bridge")
    entry = JobEntry(settings=settings, sweeps={"dtype": (dtype,), "scale": (gpus,)})
    config = ClusterConfig(cluster_type="slurm", gpu_type=gpu, kind=all_types()["slurm"])
    return make_plan([entry], WORKLOADS, config)


@pytest.mark.parametrize("gpus", MULTIPLES_OF_72)
def test_racks_of_72_are_planned(gpus: int) -> None:
    """With ep 8 and micro batches of 5, in the batch of 20 samples for each GPU, as tested."""
    plan = plan_of("pretrain_gpt_oss", "120b", "gb300", "bf16", gpus)
    assert not plan.faults
    (job,) = plan.jobs
    training = job.trained
    assert (training.ep, training.mbs, training.gbs) == (8, 5, 20 * gpus)
    assert not any("untested" in warning for warning in plan.warnings)


def test_the_warning_names_the_row_that_is_used() -> None:
    """192 GPUs have the settings of 256, although there is a row for 128 alone."""
    plan = plan_of("pretrain_deepseek", "v3", "gb300", "fp8_mx", 192)
    assert not plan.faults
    assert plan.jobs[0].trained.pp == 2
    assert any("192 has the settings of 256, untested" in text for text in plan.warnings)


@pytest.mark.parametrize("name", SIZES)
def test_every_row_can_run(name: str) -> None:
    """Replicas and accumulation are whole, and with virtual stages the accumulation is a multiple
    of the stages.
    """
    for release, rows in SIZES[name].rows.items():
        assert release in releases()
        for row in rows:
            for count in row.scales.counts:
                replicas, rest = divmod(count, row.tp * row.pp * row.cp)
                steps, left = divmod(row.batch(count) or 0, (row.mbs or 0) * replicas)
                assert (rest, left) == (0, 0), (release, row)
                assert row.vp is None or steps % row.pp == 0


@pytest.mark.parametrize("key", ["pretrain_llama3.1", "pretrain_nemotronh"])
def test_the_small_size_is_for_every_gpu_type(key: str) -> None:
    """In every release, on 1 to 16 GPUs."""
    smoke = TABLES[key].sizes["smoke"]
    assert smoke.cut
    for release in releases():
        assert {gpu for row in smoke.rows[release] for gpu in row.gpu} == GPUS
        assert {count for row in smoke.rows[release] for count in row.scales.counts} == {
            1,
            2,
            4,
            8,
            16,
        }
