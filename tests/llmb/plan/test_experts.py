# SPDX-License-Identifier: Apache-2.0
"""Tests the parallelism of experts in a job: which sizes are valid, how they are set, named and
shown.
"""

from dataclasses import replace
from typing import Any

import pytest

from llmb.contract.job import Job
from llmb.contract.model import ModelShape, MoeShape
from llmb.contract.rows import BatchRule, Row, Scales
from llmb.contract.settings import Settings
from llmb.contract.spec import Size, Workload
from llmb.errors import UsageError
from llmb.measure import describe_log
from llmb.plan.configure import configure
from llmb.plan.limits import ClusterLimits

MIXTRAL = ModelShape(
    architecture="mixtral",
    layers=32,
    hidden=4096,
    ffn=14336,
    heads=32,
    kv_groups=8,
    gated=True,
    vocab=32000,
    seq_length=4096,
    moe=MoeShape(experts=8, top_k=2),
)
H100 = ClusterLimits(gpu_type="h100", rows="h100", gpus_per_node=8)


def job(
    *,
    model: ModelShape = MIXTRAL,
    scale: int = 64,
    params: dict[str, Any] | None = None,
    **row: Any,
) -> Job:
    own = {"tp": 2, "pp": 4, "vp": 8, "ep": 8, "mbs": 1, "gbs": BatchRule.parse("4N"), **row}
    rows = (Row(gpu=("h100",), dtype=("bf16",), scales=Scales((scale,)), **own),)
    size = Size(model=model, rows=rows)
    workload = Workload(
        key="pretrain_moe",
        title="",
        sizes={"8x7b": size},
        default_size="8x7b",
        default_dtype="bf16",
    )
    settings = Settings(
        framework="nemo",
        workload=workload.key,
        model_size="8x7b",
        dtype="bf16",
        scale=scale,
        **params or {},
    )
    return configure(settings, workload, H100)[0]


@pytest.mark.parametrize(
    ("own", "params", "ep", "etp", "named"),
    [
        ({}, {}, 8, 2, "_vp8_ep8_mbs1_"),  # etp as tp, which Megatron uses where it is not set
        ({"etp": 1}, {}, 8, 1, "_vp8_ep8_etp1_mbs1_"),
        ({}, {"ep": 4}, 4, 2, "_vp8_ep4_mbs1_"),
        ({}, {"etp": 1}, 8, 1, "_vp8_ep8_etp1_mbs1_"),
        ({}, {"tp": 1, "ep": 2}, 2, 1, "_vp8_ep2_mbs1_"),
        ({"ep": 1}, {}, 1, 2, "_vp8_ep1_mbs1_"),
    ],
)
def test_sizes_of_a_job_with_experts(
    own: dict[str, Any], params: dict[str, int], ep: int, etp: int, named: str
) -> None:
    found = job(params=params, **own)
    assert (found.trained.ep, found.trained.etp) == (ep, etp)
    assert named in found.experiment_name


def test_a_dense_model_has_no_experts_in_its_name() -> None:
    found = job(model=replace(MIXTRAL, moe=None), ep=1)
    assert (found.trained.ep, found.trained.etp) == (1, 1)
    assert "_vp8_mbs1_" in found.experiment_name


@pytest.mark.parametrize(
    ("own", "params", "code", "key"),
    [
        ({"ep": 3}, {}, "not-divisible", "ep"),  # 8 experts
        ({}, {"ep": 16}, "not-divisible", "ep"),
        ({}, {"etp": 5}, "not-divisible", "etp"),  # 14336 units
        ({}, {"etp": 4}, "not-divisible", "scale pp ep etp"),  # 8·4 of the 16 GPUs of a stage
        # 64 of 128
        ({"pp": 1, "vp": None}, {"ep": 8, "etp": 16}, "not-divisible", "scale pp ep etp"),
    ],
)
def test_experts_that_do_not_divide(
    own: dict[str, Any], params: dict[str, int], code: str, key: str
) -> None:
    with pytest.raises(UsageError) as caught:
        job(params=params, **own)
    assert (caught.value.code, caught.value.key) == (code, key)


@pytest.mark.parametrize("name", ["ep", "etp"])
def test_a_dense_model_has_no_experts_to_split(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        job(model=replace(MIXTRAL, moe=None), ep=1, params={name: 2})
    assert (caught.value.code, caught.value.key, caught.value.value) == ("no-experts", name, 2)


def test_a_name_with_experts_is_read_back() -> None:
    name = job(params={"etp": 1}).experiment_name
    numbers = {word: int(number) for word, number in describe_log._NUMBERED.findall(name)}
    assert numbers == {
        "gpus": 64,
        "tp": 2,
        "pp": 4,
        "cp": 1,
        "vp": 8,
        "ep": 8,
        "etp": 1,
        "mbs": 1,
        "gbs": 256,
    }
