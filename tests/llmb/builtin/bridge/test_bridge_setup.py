# SPDX-License-Identifier: Apache-2.0
"""What is installed, by the framework that the answers select and by the GPU type."""

from collections.abc import Callable, Mapping

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.launch import Site
from llmb.contract.needs import HubAsset, Image, Venv
from llmb.contract.spec import Workload
from llmb.plugins.loader import load_plugins

NEMO, NEWEST = "nvcr.io/nvidia/nemo:25.04.01", "nvcr.io/nvidia/nemo:26.08"
PLUGINS = load_plugins(builtin_plugins())
Sites = Callable[..., Site]


def needed(workload: Workload, site: Site) -> list[object]:
    found = PLUGINS.setup(workload, site)
    assert found is not None
    return [*found.needs]


@pytest.mark.parametrize(
    ("gpu", "settings", "images"),
    [
        ("h100", {}, [NEMO]),
        ("h100", {"framework": "auto"}, [NEMO]),
        ("b200", {"framework": "auto"}, [NEMO]),
        ("gb300", {"framework": "auto"}, [NEWEST]),
        ("gb300", {"framework": "nemo"}, [NEMO]),
        ("h100", {"framework": "bridge"}, [NEWEST]),
        ("h100", {"framework": "both"}, [NEMO, NEWEST]),
        (
            "h100",
            {"framework": "bridge", "bridge_release": "26.02.01"},
            ["nvcr.io/nvidia/nemo:26.02.01"],
        ),
    ],
)
def test_the_images(
    gpu: str,
    settings: Mapping[str, str],
    images: list[str],
    workloads: dict[str, Workload],
    site: Sites,
) -> None:
    found = needed(workloads["pretrain_llama3.1"], site(gpu, settings=settings))
    assert [one.reference for one in found if isinstance(one, Image)] == images


def test_only_llama_reads_gated_files(workloads: dict[str, Workload], site: Sites) -> None:
    """The three repositories of NVIDIA's exemplar-performance; Nemotron-H is built without one."""
    place = site("gb300", settings={"framework": "bridge"})
    assets = [
        one for one in needed(workloads["pretrain_llama3.1"], place) if isinstance(one, HubAsset)
    ]
    assert [(one.repository, one.files, one.secret) for one in assets] == [
        (f"meta-llama/Meta-Llama-3{size}", ("config.json",), "HF_TOKEN")
        for size in ("-8B", "-70B", ".1-405B")
    ]
    assert not [
        one for one in needed(workloads["pretrain_nemotronh"], place) if isinstance(one, HubAsset)
    ]
    nemo = needed(workloads["pretrain_llama3.1"], site("h100"))
    assert not [one for one in nemo if isinstance(one, HubAsset)]


def test_without_containers_there_is_an_environment_of_each(
    workloads: dict[str, Workload], site: Sites
) -> None:
    versions = {"torch": "2.13.0", "transformers": "5.23.0"}
    place = site("h100", container=False, settings={**versions, "framework": "both"})
    found = [one for one in needed(workloads["pretrain_llama3.1"], place) if isinstance(one, Venv)]
    assert [one.name for one in found] == ["nemo", "torch", "bridge-0.6.0"]
    (own,) = (one for one in found if one.name == "bridge-0.6.0")
    assert {"megatron-bridge==0.6.0", "megatron-core==0.19.0"} <= {*own.requirements}


def test_a_workload_without_rows_is_as_before(workloads: dict[str, Workload], site: Sites) -> None:
    own = workloads["pretrain_nemotron4"]
    assert needed(own, site("h100", settings={"framework": "bridge"})) == needed(own, site("h100"))
