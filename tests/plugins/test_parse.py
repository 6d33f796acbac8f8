# SPDX-License-Identifier: Apache-2.0
"""Tests of how logs of the workloads are read."""

from types import SimpleNamespace
from typing import cast

import llmb_nemotronh
from llmb.contract.formats import ParseSpec
from llmb.contract.record import RunRecord


def parse(module: str, framework: str = "nemo") -> ParseSpec | None:
    launch = SimpleNamespace(program=SimpleNamespace(module=module))
    run = SimpleNamespace(launch=launch, job=SimpleNamespace(framework=framework))
    spec: ParseSpec | None = llmb_nemotronh.llmb_parse(cast(RunRecord, run))
    return spec


def test_nemo_counts_the_hybrid_wrongly() -> None:
    spec = parse("llmb_workloads.nemo_pretrain")
    assert spec is not None
    assert not spec.tflops_valid
    assert "hybrid" in spec.tflops_note
    assert spec.keys == ParseSpec().keys


def test_the_torch_program_and_megatron_bridge_count_it_right() -> None:
    assert parse("llmb_workloads.torch_pretrain") is None
    assert parse("llmb_workloads.bridge_pretrain", "bridge") is None
