# SPDX-License-Identifier: Apache-2.0
"""Tests of a workload that names the function with which Megatron-Bridge trains its sizes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin import frameworks
from llmb.builtin.bridge.bridge_rows import table_of
from llmb.builtin.bridge.functions import check_function, recorded
from llmb.builtin.plugins import builtin_plugins
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import BridgeModel, Workload, read_workload
from llmb.errors import InputFaults, UsageError
from llmb.plan.plan import Plan, make_plan
from llmb.plugins.loader import load_plugins
from llmb.run.prepare import site_of
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

FUNCTION = "megatron.bridge.recipes.llama:llama32_1b_pretrain_config"
PERFORMANCE = (
    "megatron.bridge.perf_recipes.qwen.{gpu}.qwen3_moe:"
    "qwen3_30b_a3b_pretrain_{gpus}gpu_{gpu}_{dtype}_config"
)
MODEL = (
    "{architecture: llama, layers: 16, hidden: 2048, ffn: 8192, heads: 32, kv_groups: 8,"
    " gated: true, vocab: 128256, seq_length: 4096}"
)
EXPERTS = MODEL.replace("4096}", "4096, moe: {experts: 16, top_k: 2}}")
ROW = "{gpu: h100, dtype: [bf16, fp8_cs], scales: 8..64, tp: 2, mbs: 1, gbs: 16N}"
EXPERT_ROW = "{gpu: h100, dtype: bf16, scales: 16, tp: 2, ep: 8, etp: 1, mbs: 1, gbs: 64N}"


def write(folder: Path, bridge: str, model: str = MODEL, row: str = ROW) -> Path:
    file = folder / "workload.yaml"
    file.write_text(
        f"key: pretrain_acme\ntitle: Acme\nbridge: {bridge}\n"
        f"sizes:\n  1b:\n    model: {model}\n    rows: [{row}]\n"
    )
    return file


def planned(workload: Workload, scale: int = 8, **wanted: Any) -> Plan:
    config = ClusterConfig(
        cluster_type="slurm",
        gpu_type="h100",
        llmb_install=Path("/llmb"),
        sections={"slurm": SlurmConfig()},
        kind=all_types()["slurm"],
    )
    request = job_entry(workload=workload.key, size="1b", scales=(scale,), **wanted)
    known = {framework.name: framework for framework in frameworks.llmb_frameworks()}
    return make_plan([request], {workload.key: workload.known_to(known)}, config)


def recipe_of(workload: Workload, scale: int = 8, **wanted: Any) -> Mapping[str, Any]:
    """The recipe.json of its job."""
    plan = planned(workload, scale, **wanted)
    assert not plan.faults
    config = ClusterConfig(
        cluster_type="slurm", gpu_type="h100", llmb_install=Path("/llmb"), kind=all_types()["slurm"]
    )
    found = frameworks.llmb_launch(workload, plan.jobs[0], site_of(config, plan.jobs[0]))
    assert found is not None
    (staged,) = found.files
    recipe: dict[str, Any] = json.loads(staged.text)
    return recipe


def test_a_job_is_planned_with_megatron_bridge(tmp_path: Path) -> None:
    workload = read_workload(write(tmp_path, f'{{function: "{FUNCTION}"}}'))
    (job,) = planned(workload).jobs
    assert (job.framework, job.release, job.image) == (
        "bridge",
        "26.08",
        "nvcr.io/nvidia/nemo:26.08",
    )
    assert (job.dtype, job.trained.tp, job.trained.gbs) == ("bf16", 2, 128)
    older = read_workload(write(tmp_path, f'{{function: "{FUNCTION}", release: "26.02.01"}}'))
    assert planned(older).jobs[0].release == "26.02.01"


def test_the_recipe_sets_layout_batch_sequence_and_dtype(tmp_path: Path) -> None:
    workload = read_workload(write(tmp_path, f'{{function: "{FUNCTION}"}}'))
    found = recipe_of(workload, dtypes=("fp8_cs",))
    assert (found["base"], found["function_environment"]) == (FUNCTION, True)
    assert (
        found["set"].items()
        >= {
            "model.tensor_model_parallel_size": 2,
            "model.sequence_parallel": True,
            "model.seq_length": 4096,
            "train.micro_batch_size": 1,
            "train.global_batch_size": 128,
        }.items()
    )
    assert found["set"]["mixed_precision"]["call"].endswith("fp8_current_scaling_mixed")
    assert found["set"]["dataset"]["with"]["seq_length"] == 4096
    assert "model.expert_model_parallel_size" not in found["set"]


def test_experts_are_split_as_in_the_row_and_placeholders_are_filled(tmp_path: Path) -> None:
    file = write(tmp_path, f'{{function: "{PERFORMANCE}"}}', EXPERTS, EXPERT_ROW)
    found = recipe_of(read_workload(file), 16)
    assert found["base"] == PERFORMANCE.format(gpu="h100", gpus=16, dtype="bf16")
    assert (
        found["set"].items()
        >= {
            "model.expert_model_parallel_size": 8,
            "model.expert_tensor_parallel_size": 1,
        }.items()
    )
    assert "mixed_precision" not in found["set"]  # the function has it


@pytest.mark.parametrize(
    ("bridge", "word"),
    [
        ('{function: "module.name"}', "function-invalid"),
        ('{function: "a.b:c_{gpu_count}"}', "function-invalid"),
        ('{funktion: "a.b:c"}', "key-unknown"),
        ("{release: '26.08'}", "key-missing"),
    ],
)
def test_a_faulty_key_is_refused_with_its_place(bridge: str, word: str, tmp_path: Path) -> None:
    with pytest.raises(InputFaults) as caught:
        read_workload(write(tmp_path, bridge))
    assert word in [fault.code for fault in caught.value.faults]


def test_a_size_without_a_row_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, f'{{function: "{FUNCTION}"}}')
    file.write_text(file.read_text() + f"  2b:\n    model: {MODEL}\n")
    with pytest.raises(InputFaults) as caught:
        read_workload(file)
    assert [fault.code for fault in caught.value.faults] == ["rows-missing"]


def test_an_unknown_release_is_refused(tmp_path: Path) -> None:
    workload = read_workload(write(tmp_path, f'{{function: "{FUNCTION}", release: "26.8"}}'))
    with pytest.raises(UsageError) as caught:
        table_of(workload)
    assert (caught.value.code, "26.08" in str(caught.value.hint)) == ("release-unknown", True)


@pytest.mark.parametrize(
    ("function", "hint"),
    [
        ("megatron.bridge.recipes.llama:lama32_1b_pretrain_config", "llama32_1b_pretrain_config"),
        (
            "megatron.bridge.recipes.lama:llama32_1b_pretrain_config",
            "megatron.bridge.recipes.llama",
        ),
    ],
)
def test_a_function_that_the_library_lacks_has_the_nearest_name(function: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_function(function, "0.6.0", "acme 1b")
    assert caught.value.code == "function-unknown"
    assert hint in str(caught.value.hint)
    check_function(function, "0.3.1", "acme 1b")  # without a record of its functions


def test_other_functions_are_taken() -> None:
    check_function("my_recipes:anything", "0.6.0", "acme 1b")
    check_function(FUNCTION, "0.6.1", "acme 1b")
    check_function("megatron.bridge.recipes:llama32_1b_pretrain_config", "0.6.0", "acme 1b")


def test_the_functions_of_our_own_rows_are_recorded() -> None:
    """Each row that names NVIDIA's function, on each of its GPU counts."""
    known = {name for names in recorded()[1].values() for name in names}
    count = 0
    for workload in load_plugins(builtin_plugins()).workloads().values():
        if workload.bridge is None or isinstance(workload.bridge, BridgeModel):
            continue
        for size in table_of(workload).sizes.values():
            for row in size.rows.get("26.08", ()) if size.function is not None else ():
                for gpu in row.gpu:
                    for dtype in row.dtype:
                        for scale in row.scales.counts:
                            function = str(size.function_of(row, scale, gpu, dtype))
                            assert function.partition(":")[2] in known, function
                            count += 1
    assert count > 20
