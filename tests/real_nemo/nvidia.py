# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's launch scripts configure for a row: the recipe, and variables and options of its
Slurm job.

The scripts are in NeMo's wheel, package scripts.performance. Each runs as its launcher would run
it, up to the moment when it gives NeMo-Run its experiment, which is only kept. Nothing is executed
or submitted.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import nemo_run
from nemo.lightning.run.plugins import PerfEnvPlugin

SCRIPTS = {
    "15b": "nemotron4_15b",
    "340b": "nemotron4_340b",
    "8b": "llama3_8b",
    "70b": "llama3_70b",
    "405b": "llama31_405b",
    "405b-proxy": "llama31_405b",
}
BLACKWELL = ("b200", "gb200")
CHUNKS = 2097152

# Nemotron-H's script is in no wheel. Its launcher's commits: 7a8f1cc7 for 25.05, 00b778eb for
# 25.07.
NEMOTRON_H: dict[str, dict[str, Any]] = {
    "25.05": {"backend": None, "gather": False, "environment": {"NVTE_FUSED_ATTN": "0"}},
    "25.07": {"backend": "auto", "gather": True, "environment": {}},
}


@dataclass(frozen=True, slots=True)
class Configured:
    """A recipe (a nemo_run.Partial), and its executor with the settings of the plugins."""

    recipe: Any
    executor: Any


@dataclass
class Kept:
    """Replaces NeMo-Run's experiment: records what is added, and runs nothing."""

    added: list[dict[str, Any]] = field(default_factory=list)

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def add(self, recipe: Any, **given: Any) -> None:
        """Record the recipe with its executor and plugins."""
        self.added.append({"recipe": recipe, **given})

    def dryrun(self) -> None:
        """Do nothing."""


def configured(row: dict[str, Any]) -> Configured:
    """NVIDIA's configuration of ``row``, which has the values for the command line below."""
    if row["size"] == "56b":
        return _nemotron_h(row)
    kept = Kept()
    with (
        _patched(nemo_run, "Experiment", lambda _: kept),
        _patched(sys, "argv", ["script", *_arguments(row)]),
    ):
        runpy.run_module(
            f"scripts.performance.llm.pretrain_{SCRIPTS[row['size']]}", run_name="__main__"
        )
    (added,) = kept.added
    return _with_plugins(added["recipe"], added["executor"], added["plugins"])


def _arguments(row: dict[str, Any]) -> list[str]:
    """The launcher's command line. Its CSV files, which are not in the wheel, enable graphs only
    for these rows.
    """
    graphs = row["size"] in ("15b", "340b") and row["gpu"] in BLACKWELL
    sizes = {
        "-tp": row["tp"],
        "-pp": row["pp"],
        "-cp": row["cp"],
        "-ep": row["ep"],
        "-mb": row["mbs"],
        "-gb": row["gbs"],
        "-g": row["gpu"],
        "-ng": row["nodes"] * row["gpus_per_node"],
        "-gn": row["gpus_per_node"],
        "-ms": row["steps"],
        "-c": row["dtype"],
        "-fr": "ds",
        "-cg": str(graphs).lower(),
        "-a": "account",
        "-p": "partition",
    }
    if row["vp"] is not None:
        sizes["-vp"] = row["vp"]
    return [*(str(word) for pair in sizes.items() for word in pair), "-d"]


def _nemotron_h(row: dict[str, Any]) -> Configured:
    """Nemotron-H's configuration: the scripts' common functions, and the settings of its commit."""
    utils, own = importlib.import_module("scripts.performance.utils"), NEMOTRON_H[row["release"]]
    module = importlib.import_module("nemo.collections.llm.recipes.nemotronh_56b")
    recipe = module.pretrain_recipe(performance_mode=True)
    sizes = [row[name] for name in ("mbs", "gbs", "steps", "tp", "pp", "cp", "vp", "ep")]
    recipe = utils.set_primary_perf_configs(
        recipe,
        "pre_train",
        row["nodes"],
        row["gpus_per_node"],
        *sizes,
        compute_dtype=row["dtype"],
        fp8_recipe="ds",
    )
    recipe = utils.set_exp_logging_configs(
        recipe, "pre_train", "llm", "nemotronh", False, False, "", ""
    )
    if own["backend"] is not None:
        recipe.model.config.attention_backend = own["backend"]
    recipe.trainer.strategy.ddp.overlap_param_gather = own["gather"]
    executor = utils.slurm_executor(
        "account",
        "partition",
        utils.get_nemorun_home(),
        row["nodes"],
        row["gpus_per_node"],
        custom_env_vars=dict(own["environment"]),
    )
    chunks = CHUNKS if row["pp"] > 1 else None
    plugin = PerfEnvPlugin(
        enable_vboost=True,
        nccl_pp_comm_chunksize=chunks,
        gpu_sm100_or_newer=row["gpu"] in BLACKWELL,
    )
    return _with_plugins(recipe, executor, [plugin])


def executed(executor: Any) -> dict[str, str]:
    """The variables that the job script exports, and how many local ranks share a NUMA node."""
    binding = next(words for words in executor.srun_args if words.startswith("numactl"))
    return {**executor.env_vars, "numactl": binding.partition("/")[2].partition(")")[0]}


def _with_plugins(recipe: Any, executor: Any, plugins: list[Any]) -> Configured:
    for plugin in plugins:
        plugin.setup(recipe, executor)
    return Configured(recipe, executor)


@contextmanager
def _patched(owner: Any, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
