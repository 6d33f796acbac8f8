# SPDX-License-Identifier: Apache-2.0
"""Rows without a script in NVIDIA's wheel (Nemotron-H, A100, the 405b proxy), compared with the
rules of others.

They are compared with the nearest script as well (test_parity.py); here is what must follow for
them alone.
"""

from collections.abc import Mapping
from typing import Any

import pytest

Leaves = Mapping[str, Any]
OVERLAP = "trainer.callbacks.MegatronCommOverlapCallback"
DEFERRAL = {f"{OVERLAP}.defer_embedding_wgrad_compute", f"{OVERLAP}.wgrad_deferral_limit"}
SIZES = {
    "data.global_batch_size",
    "data.num_train_samples",
    "trainer.num_nodes",
    "trainer.strategy.pipeline_model_parallel_size",
    "trainer.strategy.virtual_pipeline_model_parallel_size",
    f"{OVERLAP}.overlap_param_gather_with_optimizer_step",
}


@pytest.fixture(scope="module")
def ours(built: dict[str, Any]) -> Mapping[str, Leaves]:
    """Our leaves of every row."""
    return {label: settings["ours"] for label, settings in built["compared"].items()}


def differing(one: Leaves, other: Leaves) -> set[str]:
    return {
        name
        for name in one.keys() | other.keys()
        if one.get(name, "absent") != other.get(name, "absent")
    }


def test_a100_is_configured_like_h100(
    ours: Mapping[str, Leaves], cases_by_label: Mapping[str, Any]
) -> None:
    one, other = (f"nemotron4 340b {gpu} bf16 128 24.11" for gpu in ("a100", "h100"))
    assert differing(ours[one], ours[other]) == set()
    assert cases_by_label[one].exported == cases_by_label[other].exported
    larger = {"data.global_batch_size", "data.num_train_samples", "trainer.num_nodes"}
    for scale in (256, 512, 1024, 2048):
        label = f"nemotron4 340b a100 bf16 {scale} 24.11"
        assert differing(ours[one], ours[label]) == larger


@pytest.mark.parametrize("dtype", ["fp8", "bf16"])
@pytest.mark.parametrize("scale", [32, 64, 128])
def test_the_proxy_is_the_405b_with_fewer_layers(
    dtype: str, scale: int, ours: Mapping[str, Leaves], cases_by_label: Mapping[str, Any]
) -> None:
    whole = f"llama3.1 405b h100 {dtype} 1024 25.04"
    proxy = f"llama3.1 405b-proxy h100 {dtype} {scale} 25.04"
    changed = differing(ours[proxy], ours[whole])
    assert "model.config.num_layers" in changed
    assert changed - {"model.config.num_layers"} - SIZES == (DEFERRAL if scale == 32 else set())
    assert ours[proxy][f"{OVERLAP}.wgrad_deferral_limit"] == (None if scale == 32 else 50)
    own = {"WORLD_SIZE"} | ({"NCCL_P2P_NET_CHUNKSIZE"} if scale == 32 else set())
    assert differing(cases_by_label[proxy].exported, cases_by_label[whole].exported) == own


HYBRID = {
    # What each release's script and recipe set; the variables override the common ones.
    "h100": (
        "25.05",
        "flash",
        {"NVTE_FLASH_ATTN": "1", "NVTE_FUSED_ATTN": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    ),
    "b200": (
        "25.07",
        "auto",
        {"NVTE_FLASH_ATTN": "1", "NVTE_FUSED_ATTN": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "32"},
    ),
    "gb200": (
        "25.07",
        "auto",
        {
            "NVTE_FLASH_ATTN": "1",
            "NVTE_FUSED_ATTN": "1",
            "CUDA_DEVICE_MAX_CONNECTIONS": "32",
            "NCCL_NET_GDR_LEVEL": "PHB",
        },
    ),
}


@pytest.mark.parametrize("gpu", HYBRID)
def test_nemotron_h(
    gpu: str, ours: Mapping[str, Leaves], cases_by_label: Mapping[str, Any]
) -> None:
    release, backend, variables = HYBRID[gpu]
    labels = [label for label in ours if label.startswith(f"nemotronh 56b {gpu} ")]
    assert len(labels) == (7 if gpu == "h100" else 5)
    for label in labels:
        assert label.endswith(f" {release}")
        settings = ours[label]
        expected = {
            "model.config.attention_backend": backend,
            "model.config.cross_entropy_fusion_impl": "te",
            "model.config.enable_cuda_graph": False,
            "optim.config.use_precision_aware_optimizer": False,
            # Per-tensor delayed scaling, where the recipe's own plugin has current scaling.
            "trainer.plugins.fp8_recipe": "delayed",
            "trainer.plugins.grad_reduce_in_fp32": False,
            "trainer.strategy.ddp.check_for_nan_in_grad": True,
            f"{OVERLAP}.tp_comm_overlap": True,
            f"{OVERLAP}.tp_comm_overlap_cfg": None,
            f"{OVERLAP}.wgrad_deferral_limit": None,
        }
        assert {name: settings[name] for name in expected} == expected
        exported = cases_by_label[label].exported
        own = (
            "NVTE_FLASH",
            "NVTE_FUSED",
            "NVTE_UNFUSED",
            "NVTE_NORM",
            "CUDA_",
            "NCCL_NET",
            "NCCL_P2P",
        )
        assert {
            name: value for name, value in exported.items() if name.startswith(own)
        } == variables


def test_what_releases_up_to_25_07_do_not_set(
    ours: Mapping[str, Leaves], cases_by_label: Mapping[str, Any]
) -> None:
    """NaN checks are on. Expandable segments and C2C belong to later releases."""
    assert {
        settings["trainer.strategy.ddp.check_for_nan_in_grad"] for settings in ours.values()
    } == {True}
    later = {"PYTORCH_CUDA_ALLOC_CONF", "NCCL_NET_GDR_C2C"}
    assert not later & {
        name for case in cases_by_label.values() for name in (*case.exported, *case.set_in_rank)
    }
