# SPDX-License-Identifier: Apache-2.0
"""Tests that the plan accepts exactly the splits that Megatron core accepts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.rows import find_row
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.schema import ClusterConfig
from llmb.plan.plan import make_plan
from llmb.plugins.loader import load_plugins
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

HERE = Path(__file__).parent
# The workload, the scale and the --set values of each; the number of GPUs does not affect a split.
CASES: dict[str, tuple[str, int, dict[str, int]]] = {
    "as published, 15b": ("nemotron4_15b", 64, {}),
    "as published, 340b": ("nemotron4_340b", 512, {}),
    "as published, 405b": ("llama3.1_405b", 512, {}),
    "query groups": ("nemotron4_15b", 64, {"tp": 16}),
    "heads": ("nemotron4_15b", 64, {"tp": 32}),
    "layers": ("nemotron4_340b", 512, {"vp": 5}),
    "layers, no virtual pipeline": ("nemotron4_15b", 96, {"pp": 3}),
    "layers, embedding and loss": ("llama3.1_405b", 512, {"vp": 3}),
    "layers of a proxy": ("llama3.1_405b-proxy", 64, {"num_layers": 31}),
    "fewer layers": ("nemotron4_15b", 64, {"num_layers": 16, "pp": 4, "vp": 2, "gbs": 512}),
}
TAKEN = {"as published, 15b", "as published, 340b", "as published, 405b", "fewer layers"}


def case(name: str) -> dict[str, Any]:
    """The fields of Megatron's configuration."""
    label, scale, params = CASES[name]
    key, _, size_name = label.partition("_")
    workload = load_plugins(builtin_plugins()).workloads()[f"pretrain_{key}"]
    size = workload.sizes[size_name]
    row = find_row(size.rows, "h100", "fp8", scale, strong=False)
    assert row is not None
    model = size.trained_model
    chosen = {"tp": row.tp, "pp": row.pp, "cp": row.cp, "vp": row.vp, **params}
    return {
        "num_layers": params.get("num_layers", row.layers or model.layers),
        "hidden_size": model.hidden,
        "ffn_hidden_size": model.ffn,
        "num_attention_heads": model.heads,
        "num_query_groups": model.kv_groups,
        "tensor_model_parallel_size": chosen["tp"],
        "pipeline_model_parallel_size": chosen["pp"],
        "context_parallel_size": chosen["cp"],
        "virtual_pipeline_model_parallel_size": chosen["vp"],
        "sequence_parallel": (chosen["tp"] or 1) > 1,
        "account_for_embedding_in_pipeline_split": size.pipeline_extra > 0,
        "account_for_loss_in_pipeline_split": size.pipeline_extra > 0,
    }


@pytest.fixture(scope="module")
def refusals(
    run_nemo: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Megatron's error for each case."""
    folder = tmp_path_factory.mktemp("splits")
    (folder / "cases.json").write_text(
        json.dumps({name: case(name) for name in CASES}), encoding="utf-8"
    )
    done = run_nemo(HERE / "megatron_splits.py", "cases.json", "found.json", cwd=folder)
    assert done.returncode == 0, done.stdout[-4000:]
    found: dict[str, str] = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_plan_and_megatron_agree(name: str, refusals: dict[str, str]) -> None:
    workload, scale, params = CASES[name]
    request = job_entry(
        workload=workload,
        dtypes=("fp8",),
        scales=(scale,),
        params={key: (value,) for key, value in params.items()},
    )
    config = ClusterConfig(
        cluster_type="slurm",
        gpu_type="h100",
        sections={"slurm": SlurmConfig()},
        kind=all_types()["slurm"],
    )
    # Any GPU count is accepted, so that only the split can be refused.
    plan = make_plan(
        [request],
        load_plugins(builtin_plugins()).workloads(),
        config,
        force=True,
    )
    assert bool(refusals[name]) is bool(plan.faults), refusals[name]
    assert bool(plan.jobs) is (name in TAKEN)
    for fault in plan.faults:
        assert fault.code == "not-divisible"
        assert {*params} & {*fault.key.split()}
        assert fault.hint
