# SPDX-License-Identifier: Apache-2.0
"""The rows of Megatron-Bridge against two tables of NVIDIA that do not come from its launch
scripts.

They are the published figures of release 26.02.01 (docs/performance-summary-archive.md of
Megatron-Bridge) and the README of exemplar-performance 26.08. tests/real_bridge compares all other
settings.
"""

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.plan.bridge_rows import releases, table_of
from llmb.plugins.loader import load_plugins

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
TABLES = {
    key: table_of(workload)
    for key, workload in load_plugins(builtin_plugins()).workloads().items()
    if workload.bridge is not None
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
