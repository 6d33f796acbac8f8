# SPDX-License-Identifier: Apache-2.0
"""Tests of what Megatron-Bridge needs installed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.bridge.bridge_needs import venv_at
from llmb.builtin.frameworks import llmb_setup
from llmb.builtin.nvidia_images import releases
from llmb.contract.launch import Site
from llmb.contract.needs import HubAsset, Image, Needs, Venv
from llmb.contract.spec import Workload
from llmb.errors import UsageError

MakeSite = Callable[..., Site]
BRIDGE = {"framework": "bridge"}


def needs(workload: Workload, site: Site) -> Needs:
    found: Needs | None = llmb_setup(workload, site)
    assert found is not None
    return found


def of(found: Needs, kind: type[Any]) -> list[Any]:
    return [need for need in found.needs if isinstance(need, kind)]


def test_the_image_and_the_gated_files(workloads: dict[str, Workload], site: MakeSite) -> None:
    """A config.json for each size of llama; nemotronh needs none."""
    found = needs(workloads["pretrain_llama3.1"], site("gb300", settings=BRIDGE))
    assert of(found, Image) == [Image(reference="nvcr.io/nvidia/nemo:26.08")]
    assert [(asset.repository, asset.files, asset.secret) for asset in of(found, HubAsset)] == [
        (f"meta-llama/{name}", ("config.json",), "HF_TOKEN")
        for name in ("Meta-Llama-3-8B", "Meta-Llama-3-70B", "Meta-Llama-3.1-405B")
    ]
    older = site(
        "gb300",
        settings={**BRIDGE, "bridge_release": "26.02.01"},
        cluster_type="runai",
        container=False,
    )
    assert needs(workloads["pretrain_nemotronh"], older).needs == (
        Image(reference="nvcr.io/nvidia/nemo:26.02.01"),
    )


def test_the_open_files_and_the_tokenizer(workloads: dict[str, Workload], site: MakeSite) -> None:
    """Megatron-Bridge is all that trains it, so the answer for others does not matter."""
    found = needs(workloads["pretrain_qwen3"], site("h100", settings={"framework": "nemo"}))
    assert of(found, Image) == [Image(reference="nvcr.io/nvidia/nemo:26.08")]
    small, large = of(found, HubAsset)
    assert (small.repository, small.secret) == ("Qwen/Qwen3-30B-A3B", None)
    assert (large.repository, large.revision) == ("Qwen/Qwen3-235B-A22B", "main")
    assert len(small.revision) == 40
    assert {"config.json", "tokenizer.json"} < set(small.files)


def test_a_tokenizer_of_another_repository(workloads: dict[str, Workload], site: MakeSite) -> None:
    """Nemotron 3 Super has Nano's, which is installed once. Lightning has its own."""
    found = of(needs(workloads["pretrain_nemotron3"], site("gb300", settings=BRIDGE)), HubAsset)
    nano, lightning, large = found
    assert "tokenizer.json" in nano.files
    assert "Lightning" in lightning.repository
    assert (large.repository.partition("Super")[1], large.files) == ("Super", ("config.json",))


def test_an_environment_without_containers(workloads: dict[str, Workload], site: MakeSite) -> None:
    (venv,) = of(
        needs(workloads["pretrain_nemotronh"], site("h100", settings=BRIDGE, container=False)), Venv
    )
    assert {"megatron-bridge==0.6.0", "megatron-core==0.19.0"} <= set(venv.requirements)


def test_the_environment_of_another_patch_level_serves(site: MakeSite, tmp_path: Path) -> None:
    """The ranks only warn of it; another minor version they refuse."""
    release = releases()["26.08"]
    for name, expected in (("bridge-0.6.0", True), ("bridge-0.6.2", True), ("bridge-0.3.1", False)):
        path = tmp_path / name
        found = venv_at(site("h100", container=False, venvs={name: path}, venv=path), release)
        assert found == (path if expected else None), name


def test_a_release_without_it(workloads: dict[str, Workload], site: MakeSite) -> None:
    settings = {**BRIDGE, "bridge_release": "26.02"}
    with pytest.raises(UsageError) as caught:
        needs(workloads["pretrain_nemotronh"], site("h100", settings=settings))
    assert (caught.value.code, caught.value.value) == ("release-unknown", "26.02")
    assert "26.02.01" in str(caught.value.hint)


def test_nemo_needs_what_it_needed(workloads: dict[str, Workload], site: MakeSite) -> None:
    found = needs(workloads["pretrain_nemotronh"], site("h100"))
    assert of(found, Image) == [Image(reference="nvcr.io/nvidia/nemo:25.04.01")]
