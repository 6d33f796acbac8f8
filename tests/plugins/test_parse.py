# SPDX-License-Identifier: Apache-2.0
"""Tests of how logs of the workloads are read."""

from types import SimpleNamespace
from typing import cast

import pytest

import llmb_nemotronh
from llmb.logs.formats import ParseSpec
from llmb.runs.record import RunRecord


def parse(cluster_type: str, framework: str = "nemo") -> ParseSpec | None:
    run = SimpleNamespace(cluster_type=cluster_type, job=SimpleNamespace(framework=framework))
    spec: ParseSpec | None = llmb_nemotronh.llmb_parse(cast(RunRecord, run))
    return spec


@pytest.mark.parametrize("cluster_type", ["slurm", "runai"])
def test_nemo_counts_the_hybrid_wrongly(cluster_type: str) -> None:
    spec = parse(cluster_type)
    assert spec is not None
    assert not spec.tflops_valid
    assert "hybrid" in spec.tflops_note
    assert spec.keys == ParseSpec().keys


def test_the_torch_program_and_megatron_bridge_count_it_right() -> None:
    assert parse("local") is None
    assert parse("slurm", "bridge") is None
