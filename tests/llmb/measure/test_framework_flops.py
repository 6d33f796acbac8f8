# SPDX-License-Identifier: Apache-2.0
"""The TFLOPS of a log are compared with the formula of the framework that logged them.

The figures are all that NVIDIA publishes for Megatron-Bridge and Llama 3: tokens and TFLOPS of one
GPU, from the same run.
"""

from pathlib import Path

import pytest
import yaml

import llmb_llama31
from llmb.contract.flops import causal_flops, model_flops
from llmb.contract.model import ModelShape
from llmb.contract.settings import Settings
from llmb.contract.spec import Workload
from llmb.measure.log_result import result_of_log
from llmb.measure.reader import LogReader
from llmb.measure.result import Result

PUBLISHED = Path(llmb_llama31.__file__).with_name("published-bridge.yaml")
GPUS, BATCH = 64, 256
LINE = (
    " iteration {0:8d}/{1:8d} | consumed samples: {2:12d} | elapsed time per iteration (ms): {3:.1f}"
    " | learning rate: 3.0E-04 | global batch size: {4:5d} | lm loss: 1.187123E+01 | grad norm:"
    " 0.123 |\n"
)
STEP_TIME = "Step Time : {:.2f}s GPU utilization: {:.1f}MODEL_TFLOP/s/GPU\n"


def bridge(
    folder: Path, workloads: dict[str, Workload], size: str, rate: float, tflops: float
) -> Result:
    seconds = BATCH * 8192 / GPUS / rate
    path = folder / "log-x.out"
    path.write_text(
        "".join(
            LINE.format(n, 50, BATCH * n, 1000 * seconds, BATCH) + STEP_TIME.format(seconds, tflops)
            for n in range(1, 51)
        ),
        encoding="utf-8",
    )
    settings = Settings(
        workload="pretrain_llama3.1",
        model_size=size,
        dtype="fp8_cs",
        scale=GPUS,
        gbs=BATCH,
        gpu_type="gb300",
    )
    return result_of_log(path, LogReader(), workloads=workloads, overrides=settings)


def test_no_published_figure_of_megatron_bridge_is_called_wrong(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    tables = [
        (table["size"], table["values"][gpus], tflops)
        for table in yaml.safe_load(PUBLISHED.read_text("utf-8"))["tables"]
        for gpus, tflops in table.get("also", {}).get("tflops_per_gpu", {}).items()
    ]
    assert len(tables) == 89
    for size, rate, tflops in tables:
        got = bridge(tmp_path, workloads, size, rate, tflops)
        assert "check which of them" not in (got.reason or ""), (size, rate, tflops, got.reason)
        assert got.metrics.statistics is not None
        assert 0.88 < (got.metrics.statistics.tflops_by_formula or 0) < 0.98


@pytest.mark.parametrize("factor", [0.62, 0.9, 1.1])
def test_a_mistake_is_reported(
    tmp_path: Path, workloads: dict[str, Workload], factor: float
) -> None:
    got = bridge(tmp_path, workloads, "70b", 5243, 2353 * factor)
    assert f"the logged TFLOPS are {factor:.2f} of the value computed" in (got.reason or "")


def test_half_of_the_attention_of_llama_8b_by_hand() -> None:
    shape = ModelShape(
        architecture="llama",
        layers=32,
        hidden=4096,
        ffn=14336,
        heads=32,
        kv_groups=8,
        gated=True,
        vocab=128256,
        seq_length=8192,
    )
    # queries by keys, and weights by values: 2 matrices, 3 passes, 2 operations, half of 8192 squared
    assert model_flops(shape) - causal_flops(shape) == 32 * 2 * 3 * 2 * 4096 * 8192**2 / 2
