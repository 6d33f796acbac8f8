# SPDX-License-Identifier: Apache-2.0
"""Tests what a workload needs installed on each kind of cluster, and that workloads share it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.nemo.nemo_needs import OPTIONAL_FILES, TOKENIZER_FILES, needs, nemo_venv, versions
from llmb.builtin.plugins import builtin_plugins
from llmb.contract.launch import Site
from llmb.contract.metrics import MetricSpec
from llmb.contract.needs import HubAsset, Image, Needs, Venv
from llmb.contract.rows import Row, Scales
from llmb.contract.spec import Size, Workload
from llmb.plugins.loaded import Plugins
from llmb.plugins.loader import load_plugins
from llmb_installer.cluster_types import all_types

IMAGE = Image(reference="nvcr.io/nvidia/nemo:25.04.01")
SETTINGS = {"torch": "2.13.0", "transformers": "5.23.0"}
TORCH = Venv(name="torch", requirements=("torch==2.13.0", "transformers==5.23.0"))


def site(cluster_type: str = "slurm", *, container: bool = False, **settings: str) -> Site:
    return Site(
        cluster_type=cluster_type,
        traits=all_types()[cluster_type].traits_of(None),
        gpu_type="h100",
        gpus_per_node=8,
        install=Path("/install"),
        container=container,
        settings=SETTINGS | settings,
    )


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load_plugins(builtin_plugins())


def asked(plugins: Plugins, workloads: dict[str, Workload], place: Site) -> list[Needs]:
    """What each workload needs, each plugin asked as an installation asks it."""
    found = [plugins.setup(workload, place) for workload in workloads.values()]
    assert len(found) == 3
    return [one for one in found if one is not None]


def only_venv(needed: Needs) -> Venv:
    (venv,) = needed.needs
    assert isinstance(venv, Venv)
    return venv


@pytest.mark.parametrize("cluster_type", ["slurm", "runai"])
def test_where_ranks_start_in_a_container_all_share_one_image(
    cluster_type: str, plugins: Plugins, workloads: dict[str, Workload]
) -> None:
    assert (
        asked(plugins, workloads, site(cluster_type, container=True)) == [Needs(needs=(IMAGE,))] * 3
    )


def test_run_ai_has_images_whatever_the_site_says(workloads: dict[str, Workload]) -> None:
    assert needs(workloads["pretrain_nemotron4"], site("runai")) == Needs(needs=(IMAGE,))


def test_bare_metal_has_one_environment_for_all(
    plugins: Plugins, workloads: dict[str, Workload]
) -> None:
    first, *others = asked(plugins, workloads, site())
    assert others == [first, first]
    venv, torch = first.needs
    assert isinstance(venv, Venv)
    assert torch == TORCH, "for the tiny sizes"
    assert (venv.name, venv.python) == ("nemo", "3.12")
    assert set(venv.requirements) >= {
        "nemo_toolkit[nlp]==2.3.1",
        "megatron-core==0.12.1",
        "nemo_run==0.4.0",
        "torch==2.7.0",
        "transformer-engine==2.2.0",
    }
    assert venv.from_source == (
        "transformer-engine-torch==2.2.0",
        "mamba-ssm==2.2.4",
        "causal-conv1d==1.5.0.post8",
    )
    assert {"leptonai<0.47", "numpy==1.26.4", "pyarrow==20.0.0", "transformers==4.51.3"} <= set(
        venv.constraints
    )


def test_this_machine_has_the_torch_environment(
    plugins: Plugins, workloads: dict[str, Workload]
) -> None:
    first, *others = asked(plugins, workloads, site("local"))
    assert others == [first, first]
    assert only_venv(first) == TORCH


def test_a_setting_chooses_another_version_of_one_package() -> None:
    plain, other = nemo_venv({}), nemo_venv({"nemo_toolkit": "2.3.2", "mamba_ssm": "2.2.5"})
    assert "nemo_toolkit[nlp]==2.3.2" in other.requirements
    assert "mamba-ssm==2.2.5" in other.from_source
    assert set(plain.constraints) - set(other.constraints) == {"nemo-toolkit==2.3.1"}
    assert len(other.requirements) == len(plain.requirements)


def test_another_torch_takes_what_fits_the_old_one_alone_with_it() -> None:
    plain, other = nemo_venv({}), nemo_venv({"nemo_torch": "2.6.0"})
    assert "torch==2.6.0" in other.requirements
    gone = {line.partition("==")[0] for line in set(plain.constraints) - set(other.constraints)}
    assert {"torch", "torchvision", "triton", "nvidia-cudnn-cu12", "nvidia-nccl-cu12"} <= gone
    assert all(
        name in ("torch", "torchvision", "triton") or name.endswith("-cu12") for name in gone
    )


def test_the_settings_of_the_torch_program_are_not_nemos() -> None:
    assert nemo_venv(SETTINGS) == nemo_venv({})


def test_every_pin_agrees_with_the_constraints() -> None:
    pinned = dict(
        line.split("==") for line in nemo_venv({}).constraints if ";" not in line and "==" in line
    )
    for package in versions().packages.values():
        name = (package.requirement or "").partition("[")[0].replace("_", "-")
        assert pinned.get(name, package.version) == package.version


@pytest.mark.parametrize("container", [True, False])
def test_tokenizers_only_when_asked_for(container: bool, workloads: dict[str, Workload]) -> None:
    def assets(key: str, **settings: str) -> list[HubAsset]:
        found = needs(workloads[key], site(container=container, **settings))
        assert found is not None
        return [need for need in found.needs if isinstance(need, HubAsset)]

    assert assets("pretrain_llama3.1") == []
    assert assets("pretrain_llama3.1", tokenizer="null") == []
    assert assets("pretrain_llama3.1", tokenizer="hub") == [
        HubAsset(
            repository=f"meta-llama/Llama-3.1-{size}",
            files=TOKENIZER_FILES,
            optional=OPTIONAL_FILES,
            secret="HF_TOKEN",
        )
        for size in ("8B", "70B", "405B")
    ]
    assert assets("pretrain_nemotronh", tokenizer="hub") == [
        HubAsset(
            repository="nvidia/Nemotron-H-8B-Base-8K",
            files=TOKENIZER_FILES,
            optional=OPTIONAL_FILES,
        )
    ]
    assert assets("pretrain_nemotron4", tokenizer="hub") == []


def test_without_tiny_sizes_bare_metal_has_nemo_alone(workloads: dict[str, Workload]) -> None:
    own = workloads["pretrain_nemotron4"]
    sizes = {name: size for name, size in own.sizes.items() if size.nemo is not None}
    found = needs(replace(own, sizes=sizes, default_size=next(iter(sizes))), site())
    assert found is not None
    assert only_venv(found).name == "nemo"


def test_where_there_are_no_gpus_bare_metal_has_the_torch_environment_alone(
    plugins: Plugins, workloads: dict[str, Workload]
) -> None:
    """No size of NeMo's runs there, and its environment builds CUDA extensions for a quarter of an
    hour.
    """
    found = asked(plugins, workloads, replace(site(), gpu_type="cpu"))
    assert [only_venv(one).name for one in found] == ["torch"] * 3


def stranger(workloads: dict[str, Workload], **changes: Any) -> Workload:
    """A workload without a NeMo recipe."""
    own = workloads["pretrain_nemotron4"]
    return replace(own, sizes={"tiny": own.sizes["tiny"]}, default_size="tiny", **changes)


def test_a_workload_without_a_recipe_has_the_torch_environment_on_bare_metal(
    workloads: dict[str, Workload],
) -> None:
    found = needs(stranger(workloads), site())
    assert found is not None
    assert only_venv(found).name == "torch"


def test_a_workload_without_an_image_has_no_known_needs_with_containers(
    workloads: dict[str, Workload],
) -> None:
    assert needs(stranger(workloads, image=None), site(container=True)) is None


@pytest.mark.parametrize(
    ("container", "image"), [(True, "nvcr.io/x/y:1"), (True, None), (False, "nvcr.io/x/y:1")]
)
def test_a_workload_that_trains_no_model_needs_at_most_its_image(
    container: bool, image: str | None
) -> None:
    workload = Workload(
        key="netbench",
        title="t",
        default_size="a",
        default_dtype="bf16",
        image=image,
        metrics=(MetricSpec(name="busbw"),),
        sizes={"a": Size(rows=(Row(gpu=("any",), dtype=("bf16",), scales=Scales((1,))),))},
    )
    found = needs(workload, site(container=container))
    assert found == (
        Needs(needs=(Image(reference=image),))
        if container and image
        else None
        if container
        else Needs()
    )
