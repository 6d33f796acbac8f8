# SPDX-License-Identifier: Apache-2.0
"""Tests of NeMo's launch: variables, image or environment, mounts, secrets, what is looked at
before.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.job import Job
from llmb.contract.launch import Launch
from llmb.contract.switches import Switches
from llmb.errors import UsageError, describe
from llmb_workloads.torch_pretrain import NEEDED

One = Callable[..., Launch]
Launched = Callable[..., list[tuple[Job, "Launch | None"]]]
FP8: dict[str, Any] = {"dtypes": ("fp8",), "scales": (512,)}
ALWAYS = {
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "False",
    "NCCL_NVLS_ENABLE": "0",
    "NVTE_FLASH_ATTN": "1",
    "NVTE_FUSED_ATTN": "1",
    "NEMO_LOG_MEMORY_USAGE": "1",
    "NVTE_FWD_LAYERNORM_SM_MARGIN": "16",
    "NVTE_BWD_LAYERNORM_SM_MARGIN": "16",
    "NCCL_DEBUG": "WARN",
}
CHUNKS = {"NCCL_P2P_NET_CHUNKSIZE": "2097152"}
NORMS = {"NVTE_NORM_FWD_USE_CUDNN": "1", "NVTE_NORM_BWD_USE_CUDNN": "1"}


@pytest.mark.parametrize(
    ("workload", "gpu", "more"),
    [
        ("nemotron4_15b", "h100", {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}),
        ("nemotron4_15b", "b200", {}),
        ("nemotron4_15b", "gb200", {"NCCL_NET_GDR_LEVEL": "PHB"}),
        ("nemotron4_340b", "h100", {"CUDA_DEVICE_MAX_CONNECTIONS": "1", **CHUNKS}),
        ("nemotron4_340b", "b200", {"CUDA_DEVICE_MAX_CONNECTIONS": "32", **CHUNKS, **NORMS}),
        (
            "nemotron4_340b",
            "gb200",
            {"CUDA_DEVICE_MAX_CONNECTIONS": "32", "NCCL_NET_GDR_LEVEL": "PHB", **CHUNKS, **NORMS},
        ),
        ("llama3.1_70b", "h100", {"CUDA_DEVICE_MAX_CONNECTIONS": "1", **CHUNKS}),
        ("llama3.1_405b", "h100", {"CUDA_DEVICE_MAX_CONNECTIONS": "1", **CHUNKS, **NORMS}),
        ("nemotronh_56b", "h100", {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NVTE_FUSED_ATTN": "0"}),
        ("nemotronh_56b", "b200", {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}),
    ],
)
def test_the_variables(workload: str, gpu: str, more: dict[str, str], one: One) -> None:
    assert one(workload, gpu=gpu, **FP8).environment == {**ALWAYS, **more}


@pytest.mark.parametrize(
    ("workload", "norms"),
    [
        # 25.04 had no norms of cuDNN, 25.05 had them; 24.11 cannot be repeated by NeMo 2.
        ({"workload": "nemotron4_340b", "scales": (128,)}, NORMS),
        ({"workload": "nemotron4_340b", "scales": (256,)}, NORMS),
        ({"workload": "nemotron4_340b", "scales": (1024,)}, {}),
        ({"workload": "llama3.1_405b", "scales": (1024,)}, {}),
        ({"workload": "llama3.1_405b-proxy", "scales": (64,)}, {}),
        ({"workload": "llama3.1_405b", "scales": (512,), "gpu": "gb200"}, NORMS),
    ],
)
def test_the_norms_are_of_the_release_that_a_row_follows(
    workload: dict[str, Any], norms: dict[str, str], one: One
) -> None:
    found = one(**workload, dtypes=("fp8",)).environment
    assert {name: value for name, value in found.items() if name.startswith("NVTE_NORM")} == norms


def test_flash_attention_goes_without_the_fused_one(one: One) -> None:
    """Megatron takes no other pair: it refuses flash where NVTE_FUSED_ATTN is 1, and auto where one
    is 0.
    """
    for gpu, backend, fused in (
        ("h100", "flash", "0"),
        ("b200", "auto", "1"),
        ("gb200", "auto", "1"),
    ):
        found = one("nemotronh_56b", gpu=gpu, dtypes=("fp8",), scales=(64,))
        assert json.loads(found.files[0].text)["model"]["attention_backend"] == backend
        assert (found.environment["NVTE_FLASH_ATTN"], found.environment["NVTE_FUSED_ATTN"]) == (
            "1",
            fused,
        )


def test_context_parallelism_alone_counts_too(one: One) -> None:
    found = one("llama3.1_8b", dtypes=("bf16",), scales=(8,))
    assert found.environment == {**ALWAYS, "CUDA_DEVICE_MAX_CONNECTIONS": "1"}


def test_a_jobs_own_variables_override_these(one: One) -> None:
    found = one("nemotron4_15b", **FP8, env={"NVTE_FUSED_ATTN": "0", "MINE": "x"})
    assert found.environment == {
        **ALWAYS,
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "NVTE_FUSED_ATTN": "0",
        "MINE": "x",
    }


@pytest.mark.parametrize("found", [True, False])
def test_whether_the_image_is_writable_is_of_slurm(found: bool, one: One) -> None:
    switches = Switches(container_writable=found)
    assert one("llama3.1_405b", **FP8, switches=switches).container_writable is found
    with pytest.raises(UsageError) as caught:
        one("llama3.1_405b", **FP8, kind="runai", switches=switches)
    fault = ("switch-without-effect", "container_writable", "runai")
    assert (caught.value.code, caught.value.key, caught.value.value) == fault


def test_in_a_container(one: One) -> None:
    found = one("llama3.1_405b", **FP8, switches=Switches(mounts=("/data:/data",)))
    assert (found.image, found.venv, found.packages) == ("nvcr.io/nvidia/nemo:25.04.01", None, ())
    assert (found.mounts, found.program.module, found.args) == (
        ("/data:/data",),
        "llmb_workloads.nemo_pretrain",
        ("recipe.json",),
    )
    assert (found.nodes, found.ranks_per_node, found.gpu_type, found.gpu_memory_gb) == (
        64,
        8,
        "h100",
        80,
    )
    assert [wrapper.name for wrapper in found.wrappers] == ["numa"]


@pytest.mark.parametrize("place", [{"container": "none"}, {"kind": "local"}])
def test_without_one(place: dict[str, str], one: One) -> None:
    found = one("llama3.1_8b", dtypes=("bf16",), scales=(8,), **place)
    assert (found.image, found.venv, found.mounts) == (None, "/venvs/nemo", ())
    assert found.packages == ("nemo_toolkit>=2.0", "megatron", "nemo_run")
    assert [wrapper.name for wrapper in found.wrappers] == ["numa", "libraries"]
    assert found.program.module == "llmb_workloads.nemo_pretrain"


@pytest.mark.parametrize(
    ("place", "module"),
    [
        ({"container": "none"}, "llmb_workloads.torch_pretrain"),
        ({"kind": "local", "gpu": "h100"}, "llmb_workloads.torch_pretrain"),
        ({"kind": "local", "gpu": "cpu"}, "llmb_workloads.torch_pretrain"),
    ],
)
def test_a_tiny_size_is_for_the_torch_program(
    place: dict[str, str], module: str | None, launched: Launched
) -> None:
    ((_, found),) = launched("nemotron4_tiny", dtypes=("bf16",), scales=(2,), **place)
    assert (found.program.module if found is not None else None) == module


def test_in_a_container_a_tiny_size_runs_in_an_image_that_is_named(one: One) -> None:
    tiny: dict[str, Any] = {"dtypes": ("bf16",), "scales": (2,)}
    with pytest.raises(UsageError) as refused:
        one("nemotron4_tiny", **tiny)
    assert refused.value.code == "image-without-packages"
    found = one("nemotron4_tiny", **tiny, switches=Switches(image="own:1", mounts=("/a:/b",)))
    assert (found.image, found.venv, found.packages, found.mounts) == (
        "own:1",
        None,
        (),
        ("/a:/b",),
    )


def test_a_gated_tokenizer_takes_a_token_by_its_name(
    one: One, wording: Callable[..., None]
) -> None:
    found = one("llama3.1_8b", dtypes=("bf16",), scales=(8,), switches=Switches(tokenizer="hub"))
    assert found.secrets == ("HF_TOKEN",)
    wording("submit-all", found.fixes["HF_TOKEN"])
    assert found.environment["TRANSFORMERS_OFFLINE"] == "0"


def test_one_that_is_open_takes_none(one: One) -> None:
    found = one("nemotronh_56b", **FP8, switches=Switches(tokenizer="hub"))
    assert (found.secrets, found.environment["TRANSFORMERS_OFFLINE"]) == ((), "0")


HUB: dict[str, Any] = {"dtypes": ("bf16",), "scales": (8,), "switches": Switches(tokenizer="hub")}
FOLDER = "/llmb/datasets/hub/meta-llama--Llama-3.1-8B/main"
INSTALLED = {"assets": {"meta-llama/Llama-3.1-8B": Path(FOLDER)}}


@pytest.mark.parametrize(
    ("container", "mounts"), [("pyxis", (f"{FOLDER}:{FOLDER}:ro",)), ("none", ())]
)
def test_one_that_is_installed_comes_from_its_folder(
    container: str, mounts: tuple[str, ...], one: One
) -> None:
    found = one("llama3.1_8b", container=container, installed=INSTALLED, **HUB)
    assert json.loads(found.files[0].text)["tokenizer"] == {"kind": "hub", "name": FOLDER}
    assert (found.secrets, found.environment["TRANSFORMERS_OFFLINE"], found.mounts) == (
        (),
        "1",
        mounts,
    )
    assert found.inputs == (f"{FOLDER}/tokenizer.json", f"{FOLDER}/tokenizer_config.json")
    assert {*found.fixes} == {*found.inputs}


def test_one_that_is_installed_and_not_asked_for_changes_nothing(one: One) -> None:
    plain = {"dtypes": ("bf16",), "scales": (8,)}
    assert one("llama3.1_8b", installed=INSTALLED, **plain) == one("llama3.1_8b", **plain)


def test_each_program_has_its_own_environment(one: One) -> None:
    several = {"venvs": {"nemo": Path("/venvs/a"), "torch": Path("/venvs/b")}}
    place: dict[str, Any] = {"container": "none", "installed": several, "dtypes": ("bf16",)}
    assert one("llama3.1_8b", scales=(8,), **place).venv == "/venvs/a"
    tiny = one("llama3.1_tiny", scales=(8,), **place)
    assert tiny.venv == "/venvs/b"
    assert one("llama3.1_tiny", scales=(8,), **{**place, "installed": {}}).venv == "/venvs/nemo"


def test_the_torch_program_says_which_versions_it_needs(one: One) -> None:
    found = one("llama3.1_tiny", container="none", dtypes=("bf16",), scales=(8,))
    wanted = {
        name: tuple(map(int, least.split(".")))
        for name, least in (p.split(">=") for p in found.packages)
    }
    assert wanted == NEEDED
    assert {*found.fixes} == {*found.packages}


def test_a_checkpoint_that_is_loaded_is_looked_at_and_mounted(
    one: One, wording: Callable[..., None]
) -> None:
    found = one(
        "llama3.1_8b",
        dtypes=("bf16",),
        scales=(16,),
        switches=Switches(load_checkpoint="/c/default--x"),
    )
    assert found.inputs == ("/c/default--x/weights/*.distcp",)
    wording("submit-all", found.fixes[found.inputs[0]])
    assert found.mounts == ("/c/default--x:/c/default--x:ro",)
    assert found.disk_gb == 0


@pytest.mark.parametrize(
    ("workload", "size"),
    [("nemotron4_15b", 204), ("nemotron4_340b", 4400), ("llama3.1_405b", 5200)],
)
def test_a_checkpoint_that_is_saved_has_a_size(workload: str, size: float, one: One) -> None:
    assert one(workload, **FP8, switches=Switches(save_checkpoint=True)).disk_gb == size


def test_memory_that_the_340b_needs_on_b200(one: One) -> None:
    assert one("nemotron4_340b", gpu="b200", **FP8).gpu_memory_gb == 180


def test_a_profile_is_a_second_wrapper(one: One) -> None:
    found = one("nemotron4_15b", **FP8, profile=True)
    assert [wrapper.name for wrapper in found.wrappers] == ["numa", "nsight"]


@pytest.mark.parametrize(
    ("switches", "more", "switch"),
    [
        (Switches(load_checkpoint="/c"), {}, "load_checkpoint"),
        (Switches(nccl_trace=True), {}, "nccl_trace"),
        (Switches(gpu_metrics=True), {"profile": True}, "gpu_metrics"),
        (Switches(profile_ranks="0"), {"profile": True}, "profile_ranks"),
        (Switches(stragglers=True), {}, "stragglers"),
    ],
)
def test_switches_without_effect_in_the_torch_program(
    switches: Switches,
    more: dict[str, Any],
    switch: str,
    launched: Launched,
    wording: Callable[..., None],
) -> None:
    with pytest.raises(UsageError) as caught:
        launched(
            "nemotron4_tiny",
            kind="local",
            gpu="cpu",
            dtypes=("bf16",),
            scales=(2,),
            switches=switches,
            **more,
        )
    assert (caught.value.code, caught.value.key) == ("switch-without-effect", switch)
    wording("single", describe(caught.value))


def test_switches_of_the_torch_program(recipe: Callable[..., dict[str, Any]]) -> None:
    place: dict[str, Any] = {"kind": "local", "gpu": "cpu", "dtypes": ("bf16",), "scales": (2,)}
    saved = recipe("nemotron4_tiny", **place, switches=Switches(save_checkpoint=True))
    assert saved["checkpoint"] == {"save": True, "dir": "nemo_experiments/default/checkpoints"}
    profiled = recipe(
        "nemotron4_tiny", **place, profile=True, switches=Switches(profile_start=3, profile_stop=6)
    )
    assert profiled["profile"] == {"start_step": 3, "stop_step": 6, "dir": "torch_profile"}
    assert profiled["max_steps"] == 6
