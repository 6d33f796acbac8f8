# SPDX-License-Identifier: Apache-2.0
"""Tests which names of NeMo's recipes and FLOPs formulas are known, with NeMo and without."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.nemo.recipe_checks import NemoNames, installed_names, listed_names
from llmb.builtin.plugins import builtin_plugins
from llmb.check.workload_trial import faults_of, jobs_of
from llmb.contract.launch import Site
from llmb.contract.nemo_recipe import Recompute
from llmb.contract.spec import Workload
from llmb.errors import Fault, UsageError
from llmb.plugins.loader import load_plugins
from llmb_installer.cluster_types import all_types

KEY = "pretrain_llama3.1"


def with_names(workload: Workload, **names: Any) -> Workload:
    """The workload, with other names in the ``nemo`` of its size 8b."""
    size = workload.sizes["8b"]
    assert size.nemo is not None
    return replace(
        workload, sizes={**workload.sizes, "8b": replace(size, nemo=replace(size.nemo, **names))}
    )


def faults(
    image: str | None = None, installed: NemoNames | None = None, **names: Any
) -> list[Fault]:
    plugins = load_plugins(builtin_plugins())
    workload = plugins.workloads()[KEY]
    return faults_of(
        replace(with_names(workload, **names), image=image or workload.image), plugins, installed
    )


def selective(*modules: str) -> Recompute:
    return Recompute(granularity="selective", modules=modules)


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment with a NeMo that has two recipes and one formula."""
    package = tmp_path / "lib" / "python3.12" / "site-packages" / "nemo"
    recipes, callbacks = (
        package / "collections/llm/recipes",
        package / "lightning/pytorch/callbacks",
    )
    recipes.mkdir(parents=True)
    callbacks.mkdir(parents=True)
    for name in ("llama4_e16", "qwen3_8b"):
        (recipes / f"{name}.py").write_text(
            "import x\n\ndef pretrain_recipe(dir=None):\n    pass\n"
        )
    (recipes / "finetune_default.py").write_text("def default():\n    pass\n")
    (callbacks / "flops_callback.py").write_text(
        'import x\n_model_flops_map = {\n    "qwen3": x.qwen3,\n}\n'
    )
    return tmp_path


def test_names_of_an_installed_nemo_without_importing_it(venv: Path) -> None:
    found = installed_names(venv)
    assert found is not None
    assert (found.recipes, found.flops) == (("llama4_e16", "qwen3_8b"), ("qwen3",))
    assert str(venv) in found.source


def test_without_nemo_there_are_none(tmp_path: Path) -> None:
    assert installed_names(tmp_path) is None


def test_llmbs_own_recipes_are_all_known() -> None:
    plugins = load_plugins(builtin_plugins())
    own = [
        size.nemo
        for one in plugins.workloads().values()
        for size in one.sizes.values()
        if size.nemo is not None
    ]
    names = listed_names()
    assert own
    assert {nemo.recipe for nemo in own} | {nemo.model for nemo in own if nemo.model} <= set(
        names.recipes
    )
    assert all(names.has_flops(nemo.flops_name) for nemo in own)


@pytest.mark.parametrize(
    ("key", "name", "nearest", "code"),
    [
        ("recipe", "lama3_8b", "llama3_8b", "recipe-unknown"),
        ("model", "llama31_8bb", "llama31_8b", "recipe-unknown"),
        ("recipe", "finetune_default", "", "recipe-unknown"),  # a module without a pretrain_recipe
        ("flops_name", "lama3", "llama3", "flops-name-unknown"),
    ],
)
def test_a_name_that_nemo_lacks_is_found_by_its_spelling(
    key: str, name: str, nearest: str, code: str
) -> None:
    (fault,) = faults(None, None, **{key: name})
    assert (fault.code, fault.key, fault.value) == (code, f"sizes.8b.nemo.{key}", name)
    assert fault.place.rpartition(":")[2].isdecimal()
    assert nearest in (fault.hint or "")


@pytest.mark.parametrize("recipe", ["deepseek_v3", "llama32_1b", "hyena_1b"])
def test_a_recipe_that_the_program_refuses_is_found(recipe: str) -> None:
    """The real NeMo, in tests/real_nemo: none of them has a performance mode with the callback for
    overlap.
    """
    (fault,) = faults(recipe=recipe)
    assert (fault.code, fault.key, fault.value) == (
        "recipe-unusable",
        "sizes.8b.nemo.recipe",
        recipe,
    )


def test_planning_refuses_such_a_recipe() -> None:
    plugins = load_plugins(builtin_plugins())
    workload = with_names(plugins.workloads()[KEY], recipe="deepseek_v3")
    job = next(job for job in jobs_of(workload, "8b", plugins.gpu_types) if job.gpu_type == "h100")
    site = Site(
        cluster_type="slurm",
        gpu_type="h100",
        gpus_per_node=8,
        install=Path("/i"),
        container=True,
        traits=all_types()["slurm"].traits_of(None),
    )
    with pytest.raises(UsageError) as caught:
        plugins.launch(workload, job, site)
    assert (caught.value.code, caught.value.key, caught.value.value) == (
        "recipe-unusable",
        "recipe",
        "deepseek_v3",
    )


def test_the_model_of_such_a_recipe_can_be_trained() -> None:
    assert faults(model="llama32_1b") == []


@pytest.mark.parametrize(
    ("settings", "code", "key"),
    [
        ({"optimizer": {"lr_typo": 3}}, "field-unknown", "optimizer.lr_typo"),
        ({"optimizer": {"lr": "abc"}}, "value-type", "optimizer.lr"),
        ({"optimizer": {"lr": True}}, "value-type", "optimizer.lr"),
        ({"optimizer": {"hysteresis": 1.5}}, "value-type", "optimizer.hysteresis"),
        ({"optimizer": {"clip_grad": None}}, "value-type", "optimizer.clip_grad"),
        ({"optimizer": {"lr": None, "adam_beta2": 1, "bf16": False, "optimizer": "sgd"}}, "", ""),
        (
            {"overrides": {"optim.config.lr_typo": 3}},
            "field-unknown",
            "overrides.optim.config.lr_typo",
        ),
        (
            {"recompute": Recompute(granularity="selective", modules=("moe_acts",))},
            "module-unknown",
            "recompute.modules",
        ),
        ({"recompute": Recompute(granularity="selective", modules=("moe_act", "mlp"))}, "", ""),
    ],
)
def test_words_of_optimizer_and_recomputation_are_those_of_megatron(
    settings: dict[str, Any], code: str, key: str
) -> None:
    found = [(fault.code, fault.key) for fault in faults(**settings)]
    assert found == ([(code, f"sizes.8b.nemo.{key}")] if code else [])


def test_any_flops_name_that_contains_a_known_one() -> None:
    assert faults(flops_name="llama31") == []  # llama3


def test_an_installed_nemo_decides(venv: Path) -> None:
    installed = installed_names(venv)
    found = faults(installed=installed, recipe="qwen3_8b", flops_name="qwen3")
    assert "sizes.8b.nemo.recipe" not in {fault.key for fault in found}
    assert "sizes.70b.nemo.recipe" in {fault.key for fault in found}


def test_names_of_another_release_are_not_judged_without_it() -> None:
    assert faults(image="nvcr.io/nvidia/nemo:25.09", recipe="qwen3_8b", flops_name="qwen3") == []
