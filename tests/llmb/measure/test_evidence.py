# SPDX-License-Identifier: Apache-2.0
"""Lines about slow ranks, energy and memory, as the frameworks print them.

The scores are the example of Megatron-Bridge's documentation (resiliency), the detector's line that
of Megatron-LM's README_STRAGGLER, the sniff test's lines are made by the print statements of
gpu_sniff_test.py, and the energy lines those of Megatron-LM's training_log.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.samples import Straggler
from llmb.judge.verdict_causes import with_causes
from llmb.measure import facts, log_result
from llmb.measure.columns import csv_columns, report
from llmb.measure.log_reader import read_log
from llmb.measure.reader import LogReader
from llmb.measure.result import Verdict
from llmb.measure.stragglers import in_words

RELATIVE, INDIVIDUAL = "GPU relative performance", "GPU individual performance"
NVRX = """\
STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: {affected}

GPU relative performance:
 Worst performing 2/512 ranks:
  Rank=76 Node=h100-001-253-012 Score=0.62
  Rank=13 Node=h100-001-010-003 Score=0.94
 Best performing 2/512 ranks:
  Rank=432 Node=h100-004-141-026 Score=0.99
  Rank=376 Node=h100-004-005-003 Score=0.98

GPU individual performance:
 Worst performing 2/512 ranks:
  Rank=162 Node=h100-002-042-026 Score=0.98
  Rank=79 Node=h100-001-253-012 Score=0.99

 Straggler report processing time: 0.042 sec.
"""
SNIFF_TEST = """\
============================================================
  GPU sniff test -- iteration 100
============================================================
  GEMM throughput (8192x8192x8192, bf16) [TFLOP/s/GPU]: median=578.20, mean=575.11, min=512.30, max=640.02
    OUTLIER rank 17 (gpu-003): 512.30 (-11.4%)
    OUTLIER rank 3 (gpu-000): 640.02 (+10.7%)
  All-reduce busbw (global PG, size=64, 268 MB) [GB/s]: median=350.00, mean=349.00, min=300.00, max=351.00
    OUTLIER rank 9 (gpu-001): 300.00 (-14.3%)
  Result: OUTLIERS DETECTED
"""
DETECTOR = (
    " 0: INFO:megatron.core.utils:[2024-03-14 23:07:56] | MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk:"
    " 3468.20ms/0 | MnPwr/Rnk: 601796W/8 | MxPwr/Rnk: 683801W/18 | MnTmp/Rnk: 52C/0 | MxTmp/Rnk:"
    " 65C/21 | MnUtl/Rnk: 97%/8 | MxUtl/Rnk: 100%/6 | MnClk/Rnk: 1950MHz/28 | MxClk/Rnk: 1980MHz/0"
    " | MnDRtt/Rnk: 14.27ms/23 | MxDRtt/Rnk: 34.65ms/3 | MnEtpt/Rnk: 296.02TF/0 | MxEtpt/Rnk:"
    " 297.32TF/8\n"
)
MEMORY = {
    "Megatron-LM": (
        "[Rank 0] (after 2 iterations) memory (MB) | allocated: 26873.7 | max allocated: 45623.5"
        " | reserved: 50000.0 | max reserved: 50000.0\n",
        45623.5 * 1048576,
    ),
    "Megatron-Bridge": (
        "[Rank 0] (after 1 iterations) memory (GB) | mem-allocated-gigabytes: 51.072"
        " | mem-reserved-gigabytes: 216.89 | mem-max-allocated-gigabytes: 194.41"
        " | mem-max-reserved-gigabytes: 216.89 | mem-alloc-retires: 0\n",
        194.41e9,
    ),
}


@pytest.mark.parametrize("program", MEMORY)
@pytest.mark.parametrize("number", ["n/a", "0.0", "-1.0", ""])
def test_memory_without_a_number_is_none(program: str, number: str, tmp_path: Path) -> None:
    line, _ = MEMORY[program]
    value = {"Megatron-LM": "45623.5", "Megatron-Bridge": "194.41"}[program]
    log = tmp_path / "log-x.out"
    log.write_text(step(1) + line.replace(value, number) + step(2))
    assert read_log(log).environment.peak_memory is None


def step(number: int, joules: float = 2000.0, watts: float = 500.0) -> str:
    return (
        f" [2026-02-06 20:55:02] iteration {number:8d}/      50 | consumed samples: {number * 32:12d}"
        " | elapsed time per iteration (ms): 4000.0 | throughput per GPU (TFLOP/s/GPU): 478.0"
        f" | energy per GPU (J/iter/GPU): {joules} | power per GPU (W/GPU): {watts} | learning rate:"
        " 9.5E-08 | global batch size:    32 | lm loss: 2.4E-02 | loss scale: 1.0 | grad norm: 1.7 |\n"
    )


STEPS = "".join(map(step, range(1, 51)))


def stragglers(folder: Path, text: str) -> dict[tuple[str, int], Straggler]:
    log = folder / "log-x.out"
    log.write_text(text, encoding="utf-8")
    found = facts.facts_of(read_log(log)).stragglers
    return {(one.measure, one.rank): one for one in found}


@pytest.mark.parametrize(
    "affected",
    ["{StragglerId(rank=76, node='h100-001-253-012')}", "[76]", "{76}", "(76)"],
)
@pytest.mark.parametrize("place", ["{}" + STEPS, STEPS + "{}", step(1) + "{}" + STEPS])
def test_a_warning_of_nvrx_has_the_score_and_the_node(
    affected: str, place: str, tmp_path: Path
) -> None:
    found = stragglers(tmp_path, place.format(NVRX.format(affected=affected)))
    assert found == {
        (RELATIVE, 76): Straggler(
            detector="NVRx",
            measure=RELATIVE,
            rank=76,
            host="h100-001-253-012",
            score=0.62,
            flagged=True,
        ),
        (INDIVIDUAL, 162): Straggler(
            detector="NVRx", measure=INDIVIDUAL, rank=162, host="h100-002-042-026", score=0.98
        ),
    }


def test_several_ranks_of_one_warning(tmp_path: Path) -> None:
    found = stragglers(tmp_path, NVRX.format(affected="[76, 13, 45]"))
    assert {rank: one.score for (measure, rank), one in found.items() if measure == RELATIVE} == {
        76: 0.62,
        13: 0.94,
        45: None,
    }


def test_the_lowest_score_of_all_reports_stays(tmp_path: Path) -> None:
    report = NVRX.format(affected="[76]")
    found = stragglers(tmp_path, STEPS + report + report.replace("0.62", "0.71"))
    assert found[RELATIVE, 76].score == 0.62


def test_a_sniff_test_names_the_slow_ranks(tmp_path: Path) -> None:
    """A rank above the median is an outlier there, but slows none."""
    found = stragglers(tmp_path, step(1) + SNIFF_TEST + STEPS)
    gemm = "GEMM throughput (8192x8192x8192, bf16) [TFLOP/s/GPU]"
    reduce = "All-reduce busbw (global PG, size=64, 268 MB) [GB/s]"
    assert sorted(found) == [(reduce, 9), (gemm, 17)]
    assert found[gemm, 17].score == pytest.approx(0.886)
    assert found[reduce, 9].score == pytest.approx(0.857)
    assert in_words(found[gemm, 17]) == (
        f"rank 17 on gpu-003: {gemm} 0.89 (sniff test warned of it)"
    )


def test_the_straggler_detector_names_the_slowest_rank(tmp_path: Path) -> None:
    (found,) = stragglers(tmp_path, DETECTOR).values()
    assert (found.detector, found.rank, found.host, found.flagged) == (
        "StragglerDetector",
        0,
        None,
        False,
    )
    assert found.score == pytest.approx(296.02 / 297.32)


@pytest.mark.parametrize("program", MEMORY)
@pytest.mark.parametrize("before", ["", step(1)])
def test_the_peak_memory_of_megatron(program: str, before: str, tmp_path: Path) -> None:
    line, peak = MEMORY[program]
    log = tmp_path / "log-x.out"
    log.write_text(before + line + STEPS, encoding="utf-8")
    assert facts.facts_of(read_log(log)).peak_memory_bytes == pytest.approx(peak)


def test_energy_and_power_are_metrics(tmp_path: Path) -> None:
    log = tmp_path / "log-x.out"
    log.write_text(STEPS, encoding="utf-8")
    result = log_result.result_of_log(log, LogReader())
    assert result.metrics.mean("watts_per_gpu") == 500
    assert result.metrics.mean("joules_per_step") == 2000
    assert not result.metrics.measured["watts_per_gpu"].judged


def test_a_run_has_tokens_per_joule(install: Any, run: Any) -> None:
    """64 samples of 4096 tokens, for which each of 16 GPUs takes 2000 J."""
    install.run("a1", install.job("nemotron4_15b", "bf16", 16), STEPS)
    (row,) = json.loads(run("results", "--format", "json").stdout)["results"]
    metric = row["metrics"]["tokens_per_joule"]
    assert (metric["mean"], metric["unit"]) == (pytest.approx(8.192), "tokens/J")
    shown = " ".join(run("explain", "a1").stdout.split())
    assert "watts_per_gpu: 500.0 W/GPU" in shown
    assert "not at the wall" in shown
    assert "cost_per_million_tokens" not in row["metrics"]


def test_a_price_gives_the_cost_of_tokens(install: Any, run: Any) -> None:
    """In 4 s, each of 16 GPUs trains 16,384 of the tokens of 64 samples of 4096."""
    install.run("a1", install.job("nemotron4_15b", "bf16", 16), STEPS)
    named = json.loads(run("results", "--price", "2.5", "--format", "json").stdout)
    config = install.folder / "cluster_config.yaml"
    config.write_text(f"{config.read_text()}price_per_gpu_hour: 5\n")
    configured = json.loads(run("results", "--format", "json").stdout)
    costs = [
        data["results"][0]["metrics"]["cost_per_million_tokens"] for data in (named, configured)
    ]
    assert costs[0]["mean"] == pytest.approx(2.5 * 4 / 3600 / 0.016384)
    assert costs[1]["mean"] == pytest.approx(2 * costs[0]["mean"])
    assert not costs[0]["judged"]
    for words in (("explain", "a1"), ("report", "--format", "md")):
        shown = " ".join(run(*words).stdout.split())
        assert "not at the wall" in shown
        assert "0.3391" in shown


@pytest.mark.parametrize("price", ["0", "-1", "nan"])
def test_a_price_is_above_0(install: Any, run: Any, price: str) -> None:
    config = install.folder / "cluster_config.yaml"
    config.write_text(f"{config.read_text()}price_per_gpu_hour: {price}\n")
    assert run("results").returncode == 2


def test_a_log_without_energy_has_no_such_metric(tmp_path: Path) -> None:
    log = tmp_path / "log-x.out"
    log.write_text(STEPS.replace("energy per GPU (J/iter/GPU)", "other"), encoding="utf-8")
    result = log_result.result_of_log(log, LogReader())
    assert result.status == "Success"
    assert not {"watts_per_gpu", "joules_per_step"} & result.metrics.measured.keys()


def test_json_has_each_slow_rank_and_csv_none(tmp_path: Path) -> None:
    log = tmp_path / "log-x.out"
    log.write_text(STEPS + SNIFF_TEST, encoding="utf-8")
    result = log_result.result_of_log(log, LogReader())
    (row,) = report([result])["results"]
    assert [(one["rank"], one["host"]) for one in row["log"]["stragglers"]] == [
        (17, "gpu-003"),
        (9, "gpu-001"),
    ]
    keys = [column.key for column in csv_columns([result]) if "straggler" in column.key]
    assert keys == ["stragglers"]  # the switch of the configuration


def test_a_warning_is_a_cause_of_a_slow_run(tmp_path: Path) -> None:
    log = tmp_path / "log-x.out"
    log.write_text(STEPS + NVRX.format(affected="[76]"), encoding="utf-8")
    result = log_result.result_of_log(log, LogReader())
    slow = replace(result, verdict=Verdict(word="FAIL", reason="0.9 (n=1) is below 0.95"))
    (judged,) = with_causes([slow])
    (cause,) = judged.verdict.causes
    assert (cause.condition, cause.value, cause.nodes) == (
        "straggler",
        "0.62",
        ("h100-001-253-012",),
    )
    assert judged.verdict.reason == (
        "rank 76 on h100-001-253-012: GPU relative performance 0.62 (NVRx warned of it); 0.9 (n=1)"
        " is below 0.95"
    )
    invalid = replace(result, verdict=Verdict(word="INVALID", reason="ran with a detector"))
    assert with_causes([invalid])[0].verdict.causes == judged.verdict.causes
    passed = replace(result, verdict=Verdict(word="PASS", reason="1.0"))
    assert with_causes([passed])[0].verdict.causes == ()


def test_a_run_with_a_straggler_detector_is_no_measurement_and_names_the_slow_node(
    install: Any, run: Any
) -> None:
    log = STEPS + NVRX.format(affected="[76]")
    install.switched("a1", log, stragglers=True)
    install.switched("b2", log)
    detected, plain = json.loads(run("results", "--format", "json").stdout)["results"]
    assert (detected["configuration"]["stragglers"], plain["configuration"]["stragglers"]) == (
        True,
        None,
    )
    assert detected["verdict"] == "INVALID"
    assert facts.DETECTED in detected["verdict_reason"]
    assert [cause["nodes"] for cause in detected["causes"]] == [["h100-001-253-012"]]
    assert plain["invalid"] == []
    assert (detected["repeats"], plain["repeats"]) == (None, 1)


def test_explain_shows_the_slow_ranks(install: Any, run: Any) -> None:
    install.run("a1", install.job("nemotron4_15b", "bf16", 16), STEPS + SNIFF_TEST)
    shown = " ".join(run("explain", "a1").stdout.split())
    assert "slow ranks rank 17 on gpu-003: GEMM throughput" in shown
