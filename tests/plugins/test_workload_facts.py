# SPDX-License-Identifier: Apache-2.0
"""Tests what the three workloads say beside their rows: shapes, defaults, limits, and the size that runs anywhere."""

from __future__ import annotations

import pytest

import llmb_llama31
import llmb_nemotron4
import llmb_nemotronh
from llmb.model import MambaShape
from llmb.workload import Workload

NEMOTRON4, LLAMA, NEMOTRONH = (
    module.llmb_workload() for module in (llmb_nemotron4, llmb_llama31, llmb_nemotronh)
)  # fmt: skip
ALL = [NEMOTRON4, LLAMA, NEMOTRONH]


def key(workload: Workload) -> str:
    return workload.key


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (NEMOTRON4, ("pretrain_nemotron4", "15b", 20, ["15b", "340b", "tiny"])),
        (LLAMA, ("pretrain_llama3.1", "8b", 30, ["8b", "70b", "405b", "405b-proxy", "tiny"])),
        (NEMOTRONH, ("pretrain_nemotronh", "56b", 25, ["56b", "tiny"])),
    ],
    ids=["nemotron4", "llama3.1", "nemotronh"],
)
def test_defaults(workload: Workload, expected: tuple[str, str, int, list[str]]) -> None:
    assert (workload.key, workload.default_size, workload.time_limit_minutes, list(workload.sizes)) == expected
    assert (workload.default_dtype, workload.max_steps) == ("fp8", 50)
    assert workload.image == "nvcr.io/nvidia/nemo:25.04.01"


@pytest.mark.parametrize(
    ("workload", "size", "shape"),
    [
        # layers, hidden, ffn, heads, kv groups, vocab, seq, gated
        (NEMOTRON4, "15b", (32, 6144, 24576, 48, 8, 256000, 4096, False)),
        (NEMOTRON4, "340b", (96, 18432, 73728, 96, 8, 256000, 4096, False)),
        (LLAMA, "8b", (32, 4096, 14336, 32, 8, 128256, 8192, True)),
        (LLAMA, "70b", (80, 8192, 28672, 64, 8, 128256, 8192, True)),
        (LLAMA, "405b", (126, 16384, 53248, 128, 8, 128256, 8192, True)),
        (LLAMA, "405b-proxy", (62, 16384, 53248, 128, 8, 128256, 8192, True)),
        (NEMOTRONH, "56b", (118, 8192, 32768, 64, 8, 131072, 8192, False)),
    ],
)
def test_model_shapes(workload: Workload, size: str, shape: tuple[int | bool, ...]) -> None:
    model = workload.sizes[size].model
    found = (model.layers, model.hidden, model.ffn, model.heads, model.kv_groups, model.vocab, model.seq_length)
    assert (*found, model.gated) == shape
    assert model.architecture == {"nemotron4": "nemotron", "llama3.1": "llama"}.get(workload.key[9:], "nemotronh")


def test_the_hybrid_has_its_three_kinds_of_layers() -> None:
    model = NEMOTRONH.sizes["56b"].model
    assert model.pattern is not None
    assert {letter: model.pattern.count(letter) for letter in "M-*"} == {"M": 54, "-": 54, "*": 10}
    # Each group of Mamba and MLP pairs ends in a Mamba layer, which attention follows.
    assert model.pattern.split("*") == ["M-M-M-M", *["-M-M-M-M-M"] * 9, "-M-M-M-M-M-"]
    assert model.head_dim == 128
    assert model.mamba == MambaShape(heads=256, head_dim=64, expand=2, chunk=256, state=256, groups=8)


def test_405b_counts_embedding_and_loss_and_has_a_proxy() -> None:
    assert {name: size.pipeline_extra for name, size in LLAMA.sizes.items() if size.pipeline_extra} == {
        "405b": 2, "405b-proxy": 2,
    }  # fmt: skip
    assert LLAMA.sizes["405b"].proxy == "405b-proxy"
    assert [name for name, size in LLAMA.sizes.items() if size.exact_scales] == ["405b-proxy"]


def test_strong_scaling_is_340b_on_blackwell_with_a_longer_limit() -> None:
    strong = [
        (workload.key, name, row.gpu, row.time_limit_minutes)
        for workload in ALL
        for name, size in workload.sizes.items()
        for row in size.rows
        if row.strong_scaling
    ]
    assert strong == [("pretrain_nemotron4", "340b", ("b200",), 35), ("pretrain_nemotron4", "340b", ("gb200",), 35)]
    assert all(
        row.time_limit_minutes is None
        for workload in ALL for size in workload.sizes.values() for row in size.rows if not row.strong_scaling
    )  # fmt: skip


@pytest.mark.parametrize("workload", ALL, ids=key)
def test_only_tiny_takes_part_of_a_node_and_is_discovered_on_cpu_alone(workload: Workload) -> None:
    assert [name for name, size in workload.sizes.items() if not size.whole_nodes] == ["tiny"]
    assert {name: size.discover for name, size in workload.sizes.items() if size.discover} == {"tiny": ("cpu",)}


@pytest.mark.parametrize("workload", ALL, ids=key)
def test_tiny_runs_on_anything(workload: Workload) -> None:
    tiny = workload.sizes["tiny"]
    for gpu in ("cpu", "h100", "a card of next year"):
        assert tiny.dtypes(gpu) == ["bf16", "fp32"]
        assert tiny.scales(gpu, "bf16") == [1, 2, 4]
    (row,) = tiny.rows
    assert (row.tp, row.pp, row.cp, row.vp, row.ep) == (1, 1, 1, None, 1)
    assert [(row.gbs.batch(count) or 1) % (row.mbs * count) for count in row.scales.counts] == [0, 0, 0]


@pytest.mark.parametrize("workload", ALL, ids=key)
def test_tiny_has_the_architecture_of_its_big_sisters(workload: Workload) -> None:
    tiny, big = workload.sizes["tiny"].model, workload.sizes[workload.default_size].model
    assert (tiny.architecture, tiny.gated) == (big.architecture, big.gated)
    assert set(tiny.pattern or "") == set(big.pattern or "")


@pytest.mark.parametrize("workload", ALL, ids=key)
def test_the_cpu_runs_nothing_but_tiny(workload: Workload) -> None:
    assert list(workload.on("cpu")) == ["tiny"]
