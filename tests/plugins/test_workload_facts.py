# SPDX-License-Identifier: Apache-2.0
"""Tests what the three workloads say beside their rows: shapes, defaults, limits, and the size that
runs anywhere.
"""

import itertools
from dataclasses import replace

import pytest

import llmb_llama31
import llmb_nemotron4
import llmb_nemotronh
from llmb.contract.gpus import known_types
from llmb.contract.model import MambaShape
from llmb.contract.nemo_recipe import NemoRecipe, NemoRelease
from llmb.contract.spec import Workload
from llmb.plan.published import release_order
from llmb.plan.published_tables import read_published

NEMOTRON4, LLAMA, NEMOTRONH = (
    module.llmb_workload() for module in (llmb_nemotron4, llmb_llama31, llmb_nemotronh)
)
ALL = [NEMOTRON4, LLAMA, NEMOTRONH]


def key(workload: Workload) -> str:
    return workload.key


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (NEMOTRON4, ("pretrain_nemotron4", "15b", 20, ["15b", "340b", "smoke", "tiny"])),
        (
            LLAMA,
            ("pretrain_llama3.1", "8b", 30, ["8b", "70b", "405b", "405b-proxy", "smoke", "tiny"]),
        ),
        (NEMOTRONH, ("pretrain_nemotronh", "56b", 25, ["56b", "smoke", "tiny"])),
    ],
    ids=["nemotron4", "llama3.1", "nemotronh"],
)
def test_defaults(workload: Workload, expected: tuple[str, str, int, list[str]]) -> None:
    assert (
        workload.key,
        workload.default_size,
        workload.time_limit_minutes,
        list(workload.sizes),
    ) == expected
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
    model = workload.sizes[size].trained_model
    found = (
        model.layers,
        model.hidden,
        model.ffn,
        model.heads,
        model.kv_groups,
        model.vocab,
        model.seq_length,
    )
    assert (*found, model.gated) == shape
    assert model.architecture == {"nemotron4": "nemotron", "llama3.1": "llama"}.get(
        workload.key[9:], "nemotronh"
    )


def test_the_hybrid_has_its_three_kinds_of_layers() -> None:
    model = NEMOTRONH.sizes["56b"].model
    assert model.pattern is not None
    assert {letter: model.pattern.count(letter) for letter in "M-*"} == {"M": 54, "-": 54, "*": 10}
    # Each group of Mamba and MLP pairs ends in a Mamba layer, which attention follows.
    assert model.pattern.split("*") == ["M-M-M-M", *["-M-M-M-M-M"] * 9, "-M-M-M-M-M-"]
    assert model.head_dim == 128
    assert model.mamba == MambaShape(
        heads=256, head_dim=64, expand=2, chunk=256, state=256, groups=8
    )


def test_405b_counts_embedding_and_loss_and_has_a_proxy() -> None:
    assert {
        name: size.pipeline_extra for name, size in LLAMA.sizes.items() if size.pipeline_extra
    } == {
        "405b": 2,
        "405b-proxy": 2,
    }
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
    assert strong == [
        ("pretrain_nemotron4", "340b", ("b200",), 35),
        ("pretrain_nemotron4", "340b", ("gb200",), 35),
    ]
    assert all(
        row.time_limit_minutes is None
        for workload in ALL
        for size in workload.sizes.values()
        for row in size.rows
        if not row.strong_scaling
    )


@pytest.mark.parametrize("workload", ALL, ids=key)
def test_the_sizes_for_trying_take_part_of_a_node_and_are_not_discovered_on_gpus(
    workload: Workload,
) -> None:
    assert [name for name, size in workload.sizes.items() if not size.whole_nodes] == [
        "smoke",
        "tiny",
    ]
    discovered = {
        name: size.discover for name, size in workload.sizes.items() if size.discover is not None
    }
    assert discovered == {"smoke": (), "tiny": ("cpu",)}


@pytest.mark.parametrize("workload", ALL, ids=key)
def test_tiny_runs_on_anything(workload: Workload) -> None:
    tiny = workload.sizes["tiny"]
    for gpu in ("cpu", "h100", "a card of next year"):
        assert tiny.dtypes(gpu) == ["bf16", "fp32"]
        assert tiny.scales(gpu, "bf16") == [1, 2, 4]
    (row,) = tiny.rows
    assert (row.tp, row.pp, row.cp, row.vp, row.ep) == (1, 1, 1, None, 1)
    assert [(row.batch(count) or 1) % ((row.mbs or 0) * count) for count in row.scales.counts] == [
        0,
        0,
        0,
    ]


@pytest.mark.parametrize("workload", ALL, ids=key)
def test_tiny_has_the_architecture_of_its_big_sisters(workload: Workload) -> None:
    tiny, big = (
        workload.sizes["tiny"].trained_model,
        workload.sizes[workload.default_size].trained_model,
    )
    assert (tiny.architecture, tiny.gated) == (big.architecture, big.gated)
    assert set(tiny.pattern or "") == set(big.pattern or "")


@pytest.mark.parametrize("workload", ALL, ids=key)
def test_the_cpu_runs_nothing_but_tiny(workload: Workload) -> None:
    assert list(workload.on("cpu")) == ["tiny"]


NORMS = {"NVTE_NORM_FWD_USE_CUDNN": "1", "NVTE_NORM_BWD_USE_CUDNN": "1"}
# Release 25.04 had neither Transformer Engine's cross entropy nor the precision-aware optimizer,
# nor cuDNN's norms.
BEFORE = NemoRelease(cross_entropy="native", precision_aware_optimizer=False)
WITHOUT_NORMS = replace(BEFORE, environment=dict.fromkeys(NORMS))
# Llama 3's recipes, as the figures were made, for the model of Llama 3.1. The null tokenizer adds
# one word.
OF_405B = NemoRecipe(
    recipe="llama31_405b",
    flops_name="llama3",
    vocab=128255,
    hub_tokenizer="meta-llama/Llama-3.1-405B",
    gated=True,
    wgrad_deferral_limit=50,
    environment=NORMS,
    releases={"25.04": WITHOUT_NORMS},
)


@pytest.mark.parametrize(
    ("workload", "recipes"),
    [
        (
            NEMOTRON4,
            {
                "15b": NemoRecipe(
                    recipe="nemotron4_15b",
                    flops_name="nemotron",
                    vocab=256000,
                    releases={"25.04": BEFORE},
                ),
                "340b": NemoRecipe(
                    recipe="nemotron4_340b",
                    flops_name="nemotron",
                    vocab=256000,
                    wgrad_deferral_limit=22,
                    environment=NORMS,
                    releases={"25.04": WITHOUT_NORMS},
                ),
            },
        ),
        (
            LLAMA,
            {
                "8b": NemoRecipe(
                    recipe="llama3_8b",
                    model="llama31_8b",
                    flops_name="llama3",
                    vocab=128255,
                    hub_tokenizer="meta-llama/Llama-3.1-8B",
                    gated=True,
                    releases={"25.04": BEFORE},
                ),
                "70b": NemoRecipe(
                    recipe="llama3_70b",
                    model="llama31_70b",
                    flops_name="llama3",
                    vocab=128255,
                    hub_tokenizer="meta-llama/Llama-3.1-70B",
                    gated=True,
                    wgrad_deferral_limit=22,
                    releases={"25.04": BEFORE},
                ),
                "405b": OF_405B,
                "405b-proxy": OF_405B,
            },
        ),
        (
            NEMOTRONH,
            {
                "56b": NemoRecipe(
                    recipe="nemotronh_56b",
                    flops_name="nemotronh",
                    vocab=131072,
                    hub_tokenizer="nvidia/Nemotron-H-8B-Base-8K",
                    attention_backend="auto",
                    releases={
                        "25.05": NemoRelease(
                            attention_backend="flash", environment={"NVTE_FUSED_ATTN": "0"}
                        )
                    },
                )
            },
        ),
    ],
    ids=["nemotron4", "llama3.1", "nemotronh"],
)
def test_the_recipe_of_each_size(workload: Workload, recipes: dict[str, NemoRecipe]) -> None:
    assert {name: size.nemo for name, size in workload.sizes.items() if name != "smoke"} == {
        **recipes,
        "tiny": None,
    }
    assert {size.nemo.fp8_plugin for size in workload.sizes.values() if size.nemo} == {
        "bf16_with_fp8_mixed"
    }
    own_end = (
        1 if workload is LLAMA else 0
    )  # Llama's vocabulary has one, the others' comes on top, as in NVIDIA's scripts
    for size in workload.sizes.values():
        assert size.nemo is None or size.nemo.vocab == size.trained_model.vocab - own_end


@pytest.mark.parametrize("workload", ALL, ids=key)
def test_a_row_follows_the_release_of_its_newest_figure(workload: Workload) -> None:
    """Which is what a run is compared with where nobody asks for another release."""
    newest: dict[tuple[str, str, str, int, int | None], str] = {}
    for figure in read_published(workload):
        if figure.framework != "nemo":
            continue
        case = (figure.model_size, figure.gpu_type, figure.dtype, figure.scale, figure.gbs)
        newest[case] = max(figure.release, newest.get(case, ""), key=release_order)
    followed = {
        (name, gpu, dtype, scale, row.batch(scale)): row.release(scale)
        for name, size in workload.sizes.items()
        for row in size.rows
        for gpu, dtype, scale in itertools.product(row.gpu, row.dtype, row.scales.counts)
    }
    assert newest
    assert {case: followed[case] for case in newest} == newest


def test_rows_without_a_figure_follow_the_release_that_has_them() -> None:
    found = {
        (name, gpu): {row.release(scale) for scale in row.scales.counts}
        for workload in ALL
        for name, size in workload.sizes.items()
        for row in size.rows
        for gpu in row.gpu
    }
    # Releases after 25.07 have 15b on Blackwell; it has the settings of the scripts in NeMo 2.3.1.
    assert found["15b", "b200"] == found["15b", "gb200"] == {None}
    assert found["340b", "a100"] == {"24.11"}
    for case in (("340b", "b200"), ("405b", "b200"), ("56b", "b200"), ("56b", "gb200")):
        assert found[case] == {"25.07"}


@pytest.mark.parametrize(
    ("workload", "size", "size_gb", "save", "load"),
    [
        # GPU type: the first and the last scale that saving works at; the least for loading.
        (
            NEMOTRON4,
            "15b",
            204,
            {"h100": (16, 2048), "b200": (8, 1024), "gb200": (8, 512)},
            {"h100": 64, "b200": 8, "gb200": 8},
        ),
        (
            NEMOTRON4,
            "340b",
            4400,
            {"h100": (256, 2048), "b200": (128, 1024), "gb200": (128, 512)},
            {"h100": 512, "b200": 128, "gb200": 128},
        ),
        (LLAMA, "8b", 105, {"h100": (16, 128)}, {"h100": 16}),
        (LLAMA, "70b", 920, {"h100": (128, 2048)}, {"h100": 128}),
        (LLAMA, "405b", 5200, {"h100": (512, 2048)}, {"h100": 1024}),
    ],
)
def test_checkpoints(
    workload: Workload,
    size: str,
    size_gb: float,
    save: dict[str, tuple[int, int]],
    load: dict[str, int],
) -> None:
    checkpoint = workload.sizes[size].checkpoint
    assert checkpoint is not None
    assert checkpoint.size_gb == size_gb
    assert {
        gpu: (scales.counts[0], scales.counts[-1]) for gpu, scales in checkpoint.save.items()
    } == save
    assert checkpoint.load == load


def test_nothing_was_published_of_other_checkpoints() -> None:
    sizes = [
        (name, size)
        for workload in ALL
        for name, size in workload.sizes.items()
        if size.checkpoint is None
    ]
    assert {name for name, _ in sizes} == {"405b-proxy", "56b", "smoke", "tiny"}


OVERLAP = {
    ("15b", "b200"): ("bf16_b200_h6144_tp2_mbs1_seqlen4096", "bf16_b200_h6144_tp2_mbs1_seqlen4096"),
    ("340b", "b200"): (
        "fp8_b200_h18432_tp8_mbs1_seqlen4096",
        "bf16_b200_h18432_tp8_mbs1_seqlen4096",
    ),
    ("70b", "h100"): ("fp8_h100_h8192_tp4_mbs1_seqlen8192", "bf16_h100_h8192_tp4_mbs1_seqlen8192"),
    ("405b", "h100"): (
        "fp8_h100_h16384_tp8_cp2_mbs1_seqlen8192",
        "bf16_h100_h16384_tp8_cp2_mbs1_seqlen8192",
    ),
    ("405b", "b200"): (
        "fp8_b200_h16384_tp4_cp2_mbs1_seqlen8192",
        "bf16_b200_h16384_tp4_cp2_mbs1_seqlen8192",
    ),
}
for kind in ("15b", "340b", "405b"):
    OVERLAP[kind, "gb200"] = OVERLAP[kind, "b200"]  # NeMo has none of its own for GB200
OVERLAP["405b-proxy", "h100"] = OVERLAP["405b", "h100"]


@pytest.mark.parametrize("workload", ALL, ids=key)
def test_user_buffers_cuda_graphs_and_memory(workload: Workload) -> None:
    for name, size in workload.sizes.items():
        for row in size.rows:
            for gpu, dtype in itertools.product(row.gpu, row.dtype):
                fp8, bf16 = OVERLAP.get((name, gpu), (None, None))
                overlap = {"fp8": fp8, "bf16": bf16}.get(dtype)
                assert row.userbuffers.get(dtype) == (overlap and f"userbuffers_{overlap}")
                assert row.cuda_graphs == (workload is NEMOTRON4 and gpu in ("b200", "gb200"))
                memory = {"tiny": None, "smoke": 80}.get(
                    name, 180 if gpu in ("b200", "gb200") else 80
                )
                assert row.memory_gb == memory
                assert memory is None or memory <= (known_types()[gpu].memory_gb or 0)


@pytest.mark.parametrize("workload", ALL, ids=key)
def test_user_buffers_are_of_the_models_width(workload: Workload) -> None:
    for size in workload.sizes.values():
        for name in {name for row in size.rows for name in row.userbuffers.values() if name}:
            assert f"_h{size.trained_model.hidden}_" in name
            assert name.endswith(f"_seqlen{size.trained_model.seq_length}")
