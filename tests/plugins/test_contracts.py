# SPDX-License-Identifier: Apache-2.0
"""llmb's own workloads and the examples pass the contract tests that plugin authors use."""

from pathlib import Path

from llmb_testing.contract import ParserContract, WorkloadContract

_REAL = Path(__file__).parents[1] / "llmb/measure/nemo/save.log"  # of the real NeMo 2.3.1


class TestNemotron4(WorkloadContract):
    plugin = "llmb_nemotron4"


class TestLlama31(WorkloadContract):
    plugin = "llmb_llama31"


class TestNemotronH(WorkloadContract):
    plugin = "llmb_nemotronh"


class TestMicrobench(WorkloadContract):
    plugin = "llmb_microbench"


class TestInferenceExample(WorkloadContract):
    plugin = "llmb_inference"


class TestMinimalPlugin(WorkloadContract):
    plugin = "llmb_example"


class TestParserOfNemo(ParserContract):
    plugin = "llmb_nemotronh"
    log = _REAL
    expected = {"step_time": (0.1248 + 0.1863 + 0.1822 + 0.1104) / 4}


class TestParserOfTheInferenceExample(ParserContract):
    plugin = "llmb_inference"
    expected = {"requests_per_second": 150, "p50": 24.5, "p99": 33}
