# SPDX-License-Identifier: Apache-2.0
"""Compares the published figures of Megatron-Bridge with NVIDIA's tables, typed again, and with a
count of FLOPs.
"""

from dataclasses import replace

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.flops import causal_flops
from llmb.contract.metrics import TFLOPS_PER_GPU, TOKENS_PER_SECOND_PER_GPU
from llmb.contract.model import ModelShape
from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import Workload
from llmb.contract.window import Window
from llmb.plan.find_reference import find_reference
from llmb.plan.plan import make_plan
from llmb.plan.published import Figure
from llmb.plan.published_tables import read_published
from llmb.plugins.loader import load_plugins
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

# The tables "Performance Summary" of Megatron-Bridge's documentation. A line: size, system, batch;
# then tokens/s and TFLOPS of one GPU for c (FP8, current scaling), m (MXFP8) and n (NVFP4).
PRINTED = {
    "26.06": """
405b gb300x256 1536 c 1048/2646 m 952/2403 n 1413/3575
405b gb200x256 1536 c 843/2129 m 783/1976 n 1166/2944
405b h100x1024 1536 c 326/822""",
    "26.04.01": """
70b gb300x64 256 c 5248/2348 m 4864/2186 n 7296/3253
70b gb200x64 256 c 4224/1892 m 3712/1664 n 4864/2202
70b h100x64 256 c 1664/731
405b gb300x256 1536 c 1024/2617 m 960/2453 n 1440/3653
405b gb200x256 1536 c 864/2144 m 800/1994 n 1184/2960
405b h100x1024 1536 c 328/827""",
    "26.04": """
70b gb300x64 256 c 5243/2355 m 4742/2131 n 7397/3321
70b gb200x64 256 c 4143/1861 m 3828/1721 n 4898/2201
70b h100x64 256 c 1633/734
405b gb300x256 1536 c 1036/2615 m 968/2443 n 1424/3594
405b gb200x256 1536 c 842/2126 m 793/2002 n 1136/2866""",
    "26.02.01": """
70b gb300x64 256 c 5243/2353 m 4798/2157 n 7002/3147
70b gb200x64 256 c 4357/1956 m 3837/1724 n 4557/2047
70b h100x64 256 c 1639/736
405b gb300x256 1536 c 1024/2585 m 949/2394 n 1358/3428
405b gb200x256 1536 c 818/2063 m 775/1957 n 1083/2734""",
    "26.02": """
70b gb300x64 256 c 5003/2248 m 4596/2064 n 6798/3056
70b gb200x64 256 c 4040/1815 m 3613/1623 n 4458/2004
70b h100x64 256 c 1621/728
405b gb300x256 1536 c 988/2495 m 931/2349 n 1333/3365
405b gb200x256 1536 c 793/2004 m 786/1983 n 1076/2716
405b h100x1024 1536 c 311/784""",
    "25.11": """
8b gb300x8 128 c 37556/1933 m 36108/1858
8b gb200x8 128 c 31508/1622 m 29789/1533
8b b200x8 128 c 30624/1576 m 29521/1519
8b h100x8 128 c 14451/744
70b gb300x64 256 c 4520/2030
70b gb200x64 256 c 4312/1937
70b h100x64 128 c 1602/719
405b gb300x256 1536 c 999/2522
405b gb200x256 1536 c 813/2053
405b b200x128 64 c 661/1667 m 624/1576
405b h100x1024 512 c 292/737""",
    "25.09": """
8b gb200x8 128 c 31357/1614 m 29925/1540
8b b200x8 128 c 29994/1544 m 29388/1513
8b h100x8 128 c 14079/725
70b gb200x64 128 c 3986/1791 m 3546/1593
70b h100x64 128 c 1619/727
405b gb200x128 64 c 729/1840 m 578/1458
405b b200x128 64 c 664/1676 m 622/1569
405b h100x1024 512 c 302/763""",
}
_DTYPES = {"c": "fp8_cs", "m": "fp8_mx", "n": "nvfp4"}
Key = tuple[str, str, str, int, int, str]


def printed() -> dict[Key, tuple[float, float]]:
    """Tokens/s and TFLOPS of one GPU by release, size, GPU type, GPUs, batch and dtype."""
    found = {}
    for release, text in PRINTED.items():
        for line in text.split("\n")[1:]:
            size, system, gbs, *pairs = line.split()
            gpu, _, count = system.partition("x")
            for letter, pair in zip(pairs[::2], pairs[1::2], strict=True):
                tokens, tflops = map(float, pair.split("/"))
                found[release, size, gpu, int(count), int(gbs), _DTYPES[letter]] = (tokens, tflops)
    return found


@pytest.fixture(scope="module")
def figures(workloads: dict[str, Workload]) -> dict[str, dict[Key, Figure]]:
    """The figures of Megatron-Bridge by metric and key."""
    found: dict[str, dict[Key, Figure]] = {}
    for one in read_published(workloads["pretrain_llama3.1"]):
        if one.framework == "bridge":
            assert one.gbs is not None
            key = (one.release, one.model_size, one.gpu_type, one.scale, one.gbs, one.dtype)
            found.setdefault(one.metric.name, {})[key] = one
    return found


def test_every_figure_is_printed(figures: dict[str, dict[Key, Figure]]) -> None:
    for number, metric in enumerate((TOKENS_PER_SECOND_PER_GPU, TFLOPS_PER_GPU)):
        ours = {key: one.value for key, one in figures[metric].items()}
        assert ours == {key: pair[number] for key, pair in printed().items()}


def test_each_has_window_and_sequence(figures: dict[str, dict[Key, Figure]]) -> None:
    every = [one for own in figures.values() for one in own.values()]
    assert {(one.window, one.steps, one.seq_length) for one in every} == {
        (Window(35, 44), 50, 8192)
    }
    assert {(one.model_size, one.num_layers) for one in every} == {
        ("8b", 32),
        ("70b", 80),
        ("405b", 126),
    }


# Layers, hidden size, width of all query groups, MLP width.
SHAPES = {
    "8b": (32, 4096, 1024, 14336),
    "70b": (80, 8192, 1024, 28672),
    "405b": (126, 16384, 1024, 53248),
}


def flops_of_a_token(size: str) -> float:
    """Operations for one token of 8192, forward and backward, with half of the attention matrix (it
    is causal).
    """
    layers, hidden, groups, ffn = SHAPES[size]
    attention = hidden * (hidden + 2 * groups) + hidden * hidden + 8192 * hidden
    return 6.0 * (layers * (attention + 3 * hidden * ffn) + 128256 * hidden)


@pytest.mark.parametrize("key", printed(), ids=lambda key: "-".join(map(str, key)))
def test_tokens_and_flops_agree(key: Key, figures: dict[str, dict[Key, Figure]]) -> None:
    """Both were printed for the same run: their ratio is the model's FLOPs, within the rounding of
    both.
    """
    release, size, *_ = key
    tokens, tflops = (
        figures[name][key].value for name in (TOKENS_PER_SECOND_PER_GPU, TFLOPS_PER_GPU)
    )
    # rounded more there
    unit = {"8b": 1, "70b": 64, "405b": 16}[size] if release == "26.04.01" else 1
    rounding = unit / tokens + 0.5 / tflops
    assert tflops * 1e12 / tokens == pytest.approx(flops_of_a_token(size), rel=0.003 + rounding)


def reference(workloads: dict[str, Workload], gpu: str, **wanted: str | None) -> Figure | None:
    """The figure for the job of 70b on 64 GPUs."""
    llama = workloads["pretrain_llama3.1"]
    request = job_entry(workload=llama.key, size="70b", scales=(64,), **wanted)  # type: ignore[arg-type]
    plan = make_plan(
        [request],
        workloads,
        ClusterConfig(cluster_type="slurm", gpu_type=gpu, kind=all_types()["slurm"]),
    )
    assert not plan.faults
    return find_reference(plan.jobs[0].settings, read_published(llama))[0]


@pytest.mark.parametrize(
    ("release", "published", "tokens"),
    [
        ("26.02.01", "26.02.01", 5243),
        ("26.04.01", "26.04.01", 5248),
        (None, "26.04.01", 5248),
        ("26.08", "26.04.01", 5248),
    ],
)
def test_a_run_is_judged_by_its_own_image_else_by_the_newest(
    release: str | None, published: str, tokens: float, workloads: dict[str, Workload]
) -> None:
    found = reference(workloads, "gb300", release=release)
    assert found is not None
    assert (found.framework, found.release, found.value) == ("bridge", published, tokens)


def test_frameworks_do_not_judge_each_other(workloads: dict[str, Workload]) -> None:
    """On H100, the 70b was published with both; NeMo's batch is half of Megatron-Bridge's."""
    ours, theirs = (reference(workloads, "h100", framework=name) for name in ("nemo", "bridge"))
    assert ours is not None
    assert theirs is not None
    assert [(one.framework, one.dtype, one.gbs) for one in (ours, theirs)] == [
        ("nemo", "fp8", 128),
        ("bridge", "fp8_cs", 256),
    ]


# Workload, size, lines of NVIDIA's tables, and the share of NVIDIA's FLOPs that llmb's formula has.
# The tables count Mamba-2 layers of Nemotron 3 Nano and 3.5 Lightning twice as wide as the hidden
# size (5376); they are 64 heads of 64.
EXPERTS = [
    ("pretrain_qwen3", "30b-a3b", 32, 1),
    ("pretrain_qwen3", "235b-a22b", 28, 1),
    ("pretrain_nemotron3", "nano", 20, 0.932),
    ("pretrain_nemotron3", "lightning", 1, 0.947),
    ("pretrain_nemotron3", "super", 30, 1),
    ("pretrain_deepseek", "v3", 26, 1),
    ("pretrain_gpt_oss", "120b", 31, 1),
    ("pretrain_kimi", "k2", 4, 1),
]


def counted(model: ModelShape, one: Figure) -> ModelShape:
    """The model as NVIDIA counted it for a figure: before 26.06 that of GPT-OSS without windows and
    without the gates of its experts.
    """
    shape = replace(model, seq_length=one.seq_length or model.seq_length)
    if model.window is not None and one.release < "26.06":
        return replace(shape, window=None, gated=False)
    return shape


@pytest.mark.parametrize(("key", "size", "count", "share"), EXPERTS)
def test_tokens_and_tflops_of_experts_agree_with_the_formula(
    key: str, size: str, count: int, share: float
) -> None:
    """Within what NVIDIA rounds: tokens since 26.04.01, TFLOPS of 118 to whole numbers."""
    workload = load_plugins(builtin_plugins()).workloads()[key]
    figures = [one for one in read_published(workload) if one.model_size == size]
    rates = {
        (one.release, one.gpu_type, one.scale, one.dtype, one.gbs): one.value
        for one in figures
        if one.metric.name == TOKENS_PER_SECOND_PER_GPU
    }
    model = workload.sizes[size].trained_model
    for one in figures:
        if one.metric.name == TFLOPS_PER_GPU:
            rate = rates[one.release, one.gpu_type, one.scale, one.dtype, one.gbs]
            shape = counted(model, one)
            computed = rate / shape.seq_length * causal_flops(shape) / 1e12
            assert computed == pytest.approx(share * one.value, rel=0.02)
    assert len(rates) == count
