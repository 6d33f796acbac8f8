# SPDX-License-Identifier: Apache-2.0
"""Tests a mixture of experts with the real NeMo: the configuration that it builds, and its own
FLOPs formulas.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.nemo.nemo_pretrain import recipe_of
from llmb.builtin.nemo.recipe_checks import installed_names, listed_names
from llmb.contract.flops import model_flops
from llmb.contract.model import MlaShape, ModelShape, MoeShape
from llmb.contract.rows import find_row
from llmb.contract.settings import Settings
from llmb.contract.spec import Workload, read_workload
from llmb.plan.configure import configure
from llmb.plan.limits import ClusterLimits

Run = Callable[..., subprocess.CompletedProcess[str]]

YAML = """
key: pretrain_mixtral
title: Mixtral with experts
default_size: 8x7b
default_dtype: bf16
sizes:
  8x7b:
    model: {architecture: mixtral, layers: 32, hidden: 4096, ffn: 14336, heads: 32, kv_groups: 8, gated: true,
            vocab: 32000, seq_length: 4096, moe: {experts: 8, top_k: 2}}
    nemo:
      recipe: mixtral_8x7b
      flops_name: mixtral
      vocab: 31999
      overrides: {model.config.moe_permute_fusion: true, trainer.strategy.ddp.average_in_collective: false}
      optimizer: {adam_beta2: 0.98}
      recompute: {granularity: full, method: block, num_layers: 3}
    rows: [{gpu: h100, dtype: bf16, scales: [64], tp: 2, pp: 4, vp: 8, ep: 8, etp: 1, mbs: 1, gbs: 4N}]
"""


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    """The workload, read as a plugin's."""
    path = tmp_path_factory.mktemp("mixtral") / "workload.yaml"
    path.write_text(YAML, encoding="utf-8")
    return read_workload(path)


def recipe(workload: Workload) -> dict[str, Any]:
    """The recipe.json of its only row."""
    size = workload.sizes["8x7b"]
    limits = ClusterLimits(gpu_type="h100", rows="h100", gpus_per_node=8)
    settings = Settings(
        workload=workload.key, model_size="8x7b", dtype="bf16", scale=64, framework="nemo"
    )
    job, _ = configure(settings, workload, limits)
    row = find_row(size.rows, "h100", "bf16", 64, strong=False)
    assert size.nemo is not None
    assert row is not None
    return recipe_of(job, size, size.nemo, row)


DRIVER = """
import dataclasses
import importlib
import json
from pathlib import Path
from megatron.core.optimizer import OptimizerConfig
from nemo.collections.llm import recipes
from nemo.lightning.pytorch.callbacks.megatron_comm_overlap import MegatronCommOverlapCallback
from nemo.utils import flops_formulas as formulas
from llmb_workloads.fields import RefusedError
from llmb_workloads.library import plain
from llmb_workloads.nemo_pretrain.build import build
from llmb_workloads.nemo_pretrain.recipe import parse_recipe

def answer(raw):
    try:
        return plain(build(parse_recipe(raw)))
    except RefusedError as error:
        return str(error)

def callbacks(name):
    module = importlib.import_module(f"{recipes.__name__}.{name}")
    try:
        built = module.pretrain_recipe(num_nodes=1, num_gpus_per_node=8, performance_mode=True)
    except TypeError as error:
        return str(error)
    return sum(getattr(one, "__fn_or_cls__", None) is MegatronCommOverlapCallback for one in built.trainer.callbacks)

def names():
    files = sorted(Path(recipes.__path__[0]).glob("*.py"))
    have = [file.stem for file in files if "\\ndef pretrain_recipe(" in file.read_text()]
    fields = [field.name for field in dataclasses.fields(OptimizerConfig)]
    return {"recipes": {name: callbacks(name) for name in have}, "optimizer": fields}

mixtral = formulas.FLOPSConfig(gbs=1, layers=32, hs=4096, ffn_hs=14336, attention_heads=32, query_groups=8,
    enc_seq_len=4096, moe_router_topk=2)
deepseek = formulas.FLOPSConfig(gbs=1, layers=61, hs=7168, ffn_hs=18432, attention_heads=128, enc_seq_len=4096,
    vocab_size=129280, moe_router_topk=8, moe_ffn_hidden_size=2048, moe_shared_expert_intermediate_size=2048,
    moe_layer_freq=[0] * 3 + [1] * 58, q_lora_rank=1536, kv_lora_rank=512, qk_head_dim=128, qk_pos_emb_head_dim=64,
    v_head_dim=128)
flops = {"mixtral": formulas.mixtral(mixtral), "deepseek": formulas.deepseekv3(deepseek)}
built = {name: answer(raw) for name, raw in json.loads(Path("recipes.json").read_text()).items()}
Path("found.json").write_text(json.dumps({"built": built, "flops": flops, **names()}))
"""
WRONG = {
    "model.config.moe_permute_fuson": "moe_permute_fusion",
    "optim.config.adam_beta3": "adam_beta",
    "model.confg.moe_permute_fusion": "config",
}


@pytest.fixture(scope="module")
def found(
    run_nemo: Run, tmp_path_factory: pytest.TempPathFactory, workload: Workload
) -> dict[str, Any]:
    """What NeMo answers, in one process: its import takes longer than all else."""
    raw, folder = recipe(workload), tmp_path_factory.mktemp("experts")
    plain = raw | {"overrides": {}, "model": raw["model"] | {"moe": None}}
    plain["parallelism"] = raw["parallelism"] | {"ep": 1, "etp": None}
    recipes = {
        "own": raw,
        "plain": plain,
        **{path: raw | {"overrides": {path: 1}} for path in WRONG},
    }
    (folder / "recipes.json").write_text(json.dumps(recipes), encoding="utf-8")
    done = run_nemo("-c", DRIVER, cwd=folder)
    assert done.returncode == 0, done.stdout
    answer: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return answer


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every value of a configuration by its dotted path."""
    if not isinstance(value, dict):
        return {path: value}
    found: dict[str, Any] = {}
    for name, item in value.items():
        found |= leaves(item, f"{path}.{name}" if path else name)
    return found


def test_experts_and_overrides_reach_nemos_configuration(found: dict[str, Any]) -> None:
    own, without = found["built"]["own"], found["built"]["plain"]
    before, after = leaves(without), leaves(own)
    changed = {
        name: after.get(name) for name in {*before, *after} if before.get(name) != after.get(name)
    }
    # FLOPs, of the same model
    callback = {name for name in changed if name.startswith("trainer.callbacks")}
    assert {name: changed[name] for name in changed.keys() - callback} == {
        "model.config.moe_ffn_hidden_size": 14336,
        "model.config.moe_permute_fusion": True,
        "model.config.recompute_granularity": "full",
        "model.config.recompute_method": "block",
        "model.config.recompute_num_layers": 3,
        "optim.config.adam_beta2": 0.98,
        "trainer.strategy.ddp.average_in_collective": False,
        "trainer.strategy.expert_model_parallel_size": 8,
        "trainer.strategy.expert_tensor_parallel_size": 1,
    }
    # The rest of the experts is NeMo's own, and equal to what llmb says.
    config = own["model"]["config"]
    assert (config["num_moe_experts"], config["moe_router_topk"], config["moe_layer_freq"]) == (
        8,
        2,
        1,
    )


@pytest.mark.parametrize("path", WRONG)
def test_nemo_has_no_such_setting(path: str, found: dict[str, Any]) -> None:
    message = found["built"][path]
    assert message.startswith(f"overrides.{path}: ")
    assert f"did you mean '{WRONG[path]}" in message


def test_nemos_own_formulas_give_the_same_flops(found: dict[str, Any], workload: Workload) -> None:
    shape = ModelShape(
        architecture="deepseek",
        layers=61,
        hidden=7168,
        ffn=18432,
        heads=128,
        kv_groups=128,
        gated=True,
        vocab=129280,
        seq_length=4096,
        moe=MoeShape(experts=256, top_k=8, ffn=2048, shared_experts=1, dense_layers=3),
        mla=MlaShape(q_rank=1536, kv_rank=512, head_dim=128, rope_dim=64, value_dim=128),
    )
    assert model_flops(workload.sizes["8x7b"].trained_model) == pytest.approx(
        found["flops"]["mixtral"], rel=1e-12
    )
    assert model_flops(shape) == pytest.approx(found["flops"]["deepseek"], rel=1e-12)


def test_the_listed_names_are_those_of_this_nemo(nemo_python: Path) -> None:
    installed, listed = installed_names(nemo_python.parent.parent), listed_names()
    assert installed is not None
    assert (installed.recipes, set(installed.flops)) == (
        tuple(sorted(listed.recipes)),
        set(listed.flops),
    )
    assert (installed.usable, installed.recompute_modules) == (
        listed.usable,
        listed.recompute_modules,
    )
    assert installed.optimizer == listed.optimizer


def test_usable_recipes_have_what_the_program_sets(found: dict[str, Any]) -> None:
    """By calling every recipe in performance mode: 1 callback for communication overlap."""
    usable = {name for name, answer in found["recipes"].items() if answer == 1}
    assert usable == set(listed_names().usable)
    assert found["recipes"].keys() == set(listed_names().recipes)


def test_the_fields_of_the_optimizer_are_those_that_python_sees(found: dict[str, Any]) -> None:
    assert found["optimizer"] == [*listed_names().optimizer]
