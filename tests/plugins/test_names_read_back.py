# SPDX-License-Identifier: Apache-2.0
"""Tests that every configuration of every workload reads back from the name of its experiment, as
`parse` does.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.check.workload_trial import jobs_of
from llmb.contract.gpus import known_types
from llmb.contract.samples import Samples
from llmb.contract.settings import COMPARED, Settings
from llmb.contract.spec import Workload
from llmb.core import typed
from llmb.core.yamlfile import Document
from llmb.measure.describe_log import complete, describe_log, missing
from llmb_microbench import llmb_workload

NOT_IN_LOGS = ("gpus_per_node", "image", "vboost", "env")
MOE: dict[str, Any] = {
    "key": "mixx",
    "title": "a mixture of experts",
    "default_size": "8x7b",
    "default_dtype": "bf16",
    "sizes": {
        "8x7b": {
            "model": {
                **{
                    "architecture": "mixtral",
                    "layers": 32,
                    "hidden": 4096,
                    "ffn": 14336,
                    "heads": 32,
                    "kv_groups": 8,
                },
                **{
                    "gated": True,
                    "vocab": 32000,
                    "seq_length": 4096,
                    "moe": {"experts": 8, "top_k": 2},
                },
            },
            "rows": [
                {
                    **{
                        "gpu": "h100",
                        "dtype": "bf16",
                        "scales": "64..256",
                        "tp": 2,
                        "pp": 4,
                        "vp": 8,
                        "ep": 8,
                    },
                    **{"mbs": 1, "gbs": "4N"},
                }
            ],
        }
    },
}


def experts(etp: int | None) -> Workload:
    data = MOE if etp is None else {**MOE, "sizes": {"8x7b": {**MOE["sizes"]["8x7b"]}}}
    if etp is not None:
        (row,) = MOE["sizes"]["8x7b"]["rows"]
        data["sizes"]["8x7b"]["rows"] = [{**row, "etp": etp}]
    return typed.read(Workload, Document(name="w.yaml", data=data))


def of_log(own: Settings) -> dict[str, Any]:
    return {name: getattr(own, name) for name in COMPARED if name not in NOT_IN_LOGS}


def differing(workloads: dict[str, Workload]) -> dict[str, Any]:
    found = {}
    for workload in workloads.values():
        for size in workload.sizes:
            for job in jobs_of(workload, size, known_types()):
                given = Settings(gpu_type=job.gpu_type)
                path = Path(f"/x/log-{job.experiment_name}_4711.out")
                own = complete(describe_log(path, Samples(), workloads, given), workload)
                assert own is not None, job.experiment_name
                if of_log(own) != of_log(job.settings):
                    found[job.experiment_name] = (own, job.settings)
    return found


def test_of_every_workload(workloads: dict[str, Workload]) -> None:
    microbench = llmb_workload()
    assert differing({**workloads, microbench.key: microbench}) == {}


@pytest.mark.parametrize("etp", [None, 1, 2])
def test_of_experts(etp: int | None) -> None:
    own = experts(etp)
    assert differing({"mixx": own}) == {}
    given = Settings(workload="mixx", model_size="8x7b", dtype="bf16", scale=64, gpu_type="h100")
    found = describe_log(Path("/x/mix.log"), Samples(), {"mixx": own}, given)
    assert (found.tp, found.ep, found.etp, found.gbs) == (2, 8, etp or 2, 256)


def test_the_settings_of_a_run_without_a_model() -> None:
    workload = llmb_workload()
    own = Settings(
        workload=workload.key,
        model_size="gemm",
        dtype="bf16",
        scale=8,
        gbs=64,
        gpu_type="h100",
        env={"A": "1"},
    )
    lacks = missing(own, workload)
    assert lacks
    assert not {"gbs", "workload"} & {*lacks}
    known = replace(own, parameters=dict.fromkeys(lacks, "1"))
    found = complete(known, workload)
    assert found is not None
    assert (found.gbs, found.framework, found.env) == (None, "nemo", {"A": "1"})
