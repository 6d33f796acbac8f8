# SPDX-License-Identifier: Apache-2.0
"""Folders of CloudAI, superbench and ReFrame, with the file names that these projects write.

Sources: CloudAI, src/cloudai/_core/base_runner.py (get_job_output_path), systems/slurm/
slurm_command_gen_strategy.py and single_sbatch_runner.py of 2026-08-05. superbench 0.12,
executor/executor.py, runner/runner.py and benchmarks/result.py. ReFrame 4, core/pipeline.py,
core/runtime.py and core/schedulers/__init__.py of 2026-07-20.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from llmb.judge.judge import judge
from llmb.measure import find_logs, suites
from llmb.measure.log_result import result_of_log
from llmb.measure.reader import LogReader
from llmb.measure.result import Result

HEAD = """\
#  Rank  0 Group  0 Pid  12345 on    node001 device  0 [0x1b] NVIDIA H100 80GB HBM3
#
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
"""
ROW = "{:12d}  {:12d}  float   sum   -1  31.00  274.36  {:6.2f}  {:>5}  31310  274.35  {:6.2f}      0\n"
END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 159.200 \n#\n"
BANDWIDTHS = {8: 0.01, 1073741824: 478.1, 4294967296: 480.9, 8589934592: 480.1}


def table(wrong: int = 0) -> str:
    """A table of nccl-tests, with this many wrong values in its largest message."""
    rows = (
        ROW.format(size, size // 4, value, wrong if size == max(BANDWIDTHS) else 0, value - 0.01)
        for size, value in BANDWIDTHS.items()
    )
    return HEAD + "".join(rows) + END


TABLE = table()
STEPS = "".join(
    f" [2026-11-22 09:41:00] iteration {n:8}/      50 | consumed samples: {128 * n:12} |"
    f" elapsed time per iteration (ms): {1000 * n:.1f} | learning rate: 2.999000E-04 |"
    " global batch size:   128 | lm loss: 1.25E+01 | loss scale: 1.0 | grad norm: 0.123 |\n"
    for n in range(1, 51)
)
TORCHTITAN = "".join(
    f"[titan] 2026-11-20 12:00:00,000 - root - INFO - step: {n:2}  loss: 4.17  grad_norm: 1.0"
    "  memory: 10.00GiB(12.6%)  tps: 7,132  tflops: 412.99  mfu: 41.76%\n"
    for n in range(1, 21)
)


def write(path: Path, text: str | bytes = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(log: Path) -> Result:
    (result,) = judge([result_of_log(log, LogReader())], [])
    return result


def found(folder: Path) -> dict[str, Result]:
    """The result of each log below the folder, by the name of its run."""
    results = [read(log) for log in find_logs.logs_at(folder)]
    by_name = {result.identity.experiment: result for result in results}
    assert len(by_name) == len(results)
    return by_name


SCENARIO = "nightly_2026-11-20_01-02-03"


def test_a_scenario_of_cloudai(tmp_path: Path) -> None:
    scenario = tmp_path / "results" / SCENARIO
    for test, text in (("all_reduce", TABLE), ("llama", STEPS)):
        for iteration in ("0", "1"):
            folder = scenario / test / iteration
            write(folder / "stdout.txt", text)
            write(folder / "stderr.txt")
            write(folder / "mapping-stdout.txt", "rank 0\n")
            write(folder / "cloudai_sbatch_script.sh", "#!/bin/bash\n")
            write(folder / "test-run.toml", f'name = "{test}"\n')
    write(scenario / "debug.log", STEPS)
    got = found(tmp_path)
    assert sorted(got) == [
        f"{SCENARIO}/{test}/{n}" for test in ("all_reduce", "llama") for n in "01"
    ]
    assert got[f"{SCENARIO}/all_reduce/0"].metrics.mean("busbw") == 480.9
    assert got[f"{SCENARIO}/llama/1"].metrics.step_time == pytest.approx(sum(range(11, 45)) / 34)


def test_the_steps_of_a_parameter_search_have_a_number_more(tmp_path: Path) -> None:
    folder = tmp_path / SCENARIO / "search" / "0" / "17"
    write(folder / "stdout.txt", STEPS)
    write(folder / "test-run.toml")
    assert list(found(tmp_path)) == [f"{SCENARIO}/search/0/17"]


def test_tests_in_one_job_have_their_script_in_the_scenario(tmp_path: Path) -> None:
    scenario = tmp_path / SCENARIO
    write(scenario / "cloudai_sbatch_script.sh")
    write(scenario / "llama" / "0" / "stdout.txt", STEPS)
    assert list(found(tmp_path)) == [f"{SCENARIO}/llama/0"]


def test_any_other_stdout_is_no_log(tmp_path: Path) -> None:
    write(tmp_path / "a" / "stdout.txt", STEPS)
    write(tmp_path / "b" / "results.json", "[]")
    write(tmp_path / "rank0" / "results.json", "[]")
    assert find_logs.find_logs(tmp_path) == []
    # a file that is named is read, with the name that it had before
    assert read(tmp_path / "a" / "stdout.txt").identity.experiment == "stdout.txt"


def test_a_program_that_logs_its_steps_to_stderr(tmp_path: Path) -> None:
    folder = tmp_path / SCENARIO / "titan" / "0"
    log = write(folder / "stdout.txt", "NCCL version 2.26.3+cuda12.9\n")
    write(folder / "stderr.txt", TORCHTITAN)
    write(folder / "test-run.toml")
    got = read(log)
    assert (got.status, got.metrics.max_iteration) == ("Success", 19)
    assert got.metrics.mean("tflops_per_gpu") == pytest.approx(412.99)


@pytest.mark.parametrize("suite", ["cloudai", "reframe"])
def test_the_cause_of_a_failure_is_in_the_file_of_errors(suite: str, tmp_path: Path) -> None:
    names = ("stdout.txt", "stderr.txt") if suite == "cloudai" else ("rfm_job.out", "rfm_job.err")
    folder = tmp_path / "output" / "system" / "partition" / "environment" / "test"
    log = write(folder / names[0], STEPS[:3000])
    write(folder / "test-run.toml")
    write(folder / names[1], "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried\n")
    got = read(log)
    assert got.status == "Failed"
    assert got.cause is not None
    assert (got.cause.kind, got.cause.rank, got.cause.log) == ("GPU out of memory", 5, None)


def test_reframe_keeps_a_log_once(tmp_path: Path) -> None:
    place = Path("daint", "gpu", "nvidia", "NcclTest_8")
    for folder in ("stage", "output"):
        write(tmp_path / folder / place / "rfm_job.out", TABLE)
        write(tmp_path / folder / place / "rfm_job.err")
        write(tmp_path / folder / place / "rfm_build.out", STEPS)
    # a test that failed stays in stage alone
    write(tmp_path / "stage" / "daint" / "gpu" / "nvidia" / "Train" / "rfm_job.out", STEPS[:2000])
    got = found(tmp_path)
    assert list(got) == ["NcclTest_8@daint:gpu+nvidia", "Train@daint:gpu+nvidia"]
    first = got["NcclTest_8@daint:gpu+nvidia"]
    assert (Path(first.identity.path).parts[-6], first.metrics.mean("busbw")) == ("output", 480.9)
    assert got["Train@daint:gpu+nvidia"].status == "Failed"


def benchmark(name: str, code: int = 0, **values: Any) -> dict[str, Any]:
    """As to_string of superbench's BenchmarkResult writes it, and the executor names it."""
    raw = values.pop("raw", {})
    return {
        "name": name,
        "type": "micro",
        "run_count": 1,
        "return_code": code,
        "start_time": "2026-11-20 01:02:03",
        "end_time": "2026-11-20 01:04:03",
        "raw_data": raw,
        "result": {"return_code": [code], **values},
        "reduce_op": {"return_code": None, **dict.fromkeys(values)},
    }


def superbench(folder: Path, results: dict[str, list[Any]], node: str = "node-0") -> Path:
    """Write the results by ``<benchmark>/rank<N>`` and return the output's folder."""
    output = folder / "outputs" / "2026-11-20_01-02-03"
    for place, content in results.items():
        path = output / "nodes" / node / "benchmarks" / place / "results.json"
        write(path, json.dumps(content, indent=2))
    write(output / "nodes" / node / "sb-bench.log", TABLE)
    write(output / "nodes" / node / "sb-exec.log", "[node-0] Executor succeeded in nccl-bw.\n")
    return output


NCCL: dict[str, Any] = {
    "allreduce_8_busbw": [0.01],
    "allreduce_8_algbw": [0.01],
    "allreduce_8_time": [31.0],
    "allreduce_8589934592_busbw": [480.1],
    "allreduce_8589934592_algbw": [274.34],
    "allreduce_8589934592_time": [31311.0],
}


def test_the_output_in_superbench_s_results_is_read_as_a_log(tmp_path: Path) -> None:
    raw = {"raw_output_allreduce": [TABLE]}
    superbench(tmp_path, {"nccl-bw:nvlink/rank0": [benchmark("nccl-bw:nvlink", raw=raw, **NCCL)]})
    got = found(tmp_path)["node-0/nccl-bw:nvlink"]
    assert (got.status, got.metrics.headline, got.metrics.mean("busbw")) == (
        "Success",
        "busbw",
        480.9,  # the larger one of both places
    )
    assert got.log is not None
    assert got.log.fabric is not None
    assert (got.log.fabric.gpu_type, got.log.hosts) == ("h100", ("node001",))


def test_wrong_values_in_the_output_make_superbench_s_result_invalid(tmp_path: Path) -> None:
    raw = {"raw_output_allreduce": [table(wrong=3)]}
    superbench(tmp_path, {"nccl-bw/rank0": [benchmark("nccl-bw", raw=raw, **NCCL)]})
    assert found(tmp_path)["node-0/nccl-bw"].verdict.word == "INVALID"


def test_bandwidths_without_the_output(tmp_path: Path) -> None:
    superbench(tmp_path, {"nccl-bw/rank0": [benchmark("nccl-bw", **NCCL)]})
    got = found(tmp_path)["node-0/nccl-bw"]
    assert (got.status, got.metrics.headline) == ("Success", "busbw")
    assert got.metrics.mean("busbw_8G") == 480.1
    assert sorted(got.metrics.measured) == ["busbw", "busbw_8", "busbw_8G"]
    assert got.log is not None
    assert got.log.fabric is not None
    assert got.log.fabric.operation == "all_reduce"


def test_bandwidths_of_several_runs_have_their_mean(tmp_path: Path) -> None:
    twice: dict[str, Any] = {
        name: [*value, *(0.5 * number for number in value)] for name, value in NCCL.items()
    }
    superbench(tmp_path, {"nccl-bw/rank0": [benchmark("nccl-bw", **twice)]})
    got = found(tmp_path)["node-0/nccl-bw"]
    assert got.metrics.mean("busbw_8G") == pytest.approx(0.75 * 480.1)
    assert got.metrics.mean("busbw") == pytest.approx(0.75 * 480.1)


def test_ranks_are_one_result(tmp_path: Path) -> None:
    values = [50.0, 52.0, 54.0, 40.0]
    results = {
        f"mem-bw/rank{rank}": [benchmark("mem-bw", h2d_bw=[value], d2h_bw=[20.0])]
        for rank, value in enumerate(values)
    }
    superbench(tmp_path, results)
    (got,) = found(tmp_path).values()
    assert (got.status, got.identity.experiment) == ("Success", "node-0/mem-bw")
    measured = got.metrics.measured["h2d_bw"]
    assert (measured.mean, measured.n, measured.unit) == (49.0, 4, "GB/s")
    assert measured.std == pytest.approx(29**0.5)  # of 1, 3, 5 and -9
    assert got.metrics.headline == "h2d_bw"


def test_only_the_results_of_a_rank_have_the_name_of_their_benchmark(tmp_path: Path) -> None:
    rank = tmp_path / "nodes/node-0/benchmarks/nccl-bw/rank0"
    assert suites.name_of(rank / "results.json") == "node-0/nccl-bw"
    assert suites.name_of(rank / "log-x.out") is None
    assert suites.name_of(tmp_path / "results.json") is None


def test_the_steps_of_a_model(tmp_path: Path) -> None:
    times = [1000.0 * (n + 1) for n in range(50)]
    model = benchmark(
        "gpt_models/pytorch-gpt2-large",
        raw={"fp16_train_step_time": [times], "fp16_train_throughput": [[32.0] * 50]},
        fp16_train_step_time=[25500.0],
        fp16_train_throughput=[32.0],
    )
    superbench(tmp_path, {"gpt_models/rank0": [model]})
    (got,) = found(tmp_path).values()
    assert got.status == "Success"
    assert got.metrics.window == (11, 44)
    assert got.metrics.step_time == pytest.approx(28.5)
    assert got.metrics.measured["fp16_train_throughput"].unit == "samples/s"
    assert got.metrics.mean("fp16_train_step_time") == 25500.0


def test_several_models_of_one_file_are_kept_apart(tmp_path: Path) -> None:
    models = [
        benchmark(f"models/pytorch-{name}", fp16_train_throughput=[value])
        for name, value in (("gpt2", 10.0), ("bert", 20.0))
    ]
    superbench(tmp_path, {"models/rank0": models})
    (got,) = found(tmp_path).values()
    assert got.metrics.mean("pytorch_gpt2_fp16_train_throughput") == 10.0
    assert got.metrics.mean("pytorch_bert_fp16_train_throughput") == 20.0


@pytest.mark.parametrize(
    ("results", "words"),
    [
        (
            [benchmark("gemm-flops", code=32, fp64_flops=[1.0])],
            "gemm-flops ended with return code 32",
        ),
        ([None], "no result"),
    ],
)
def test_a_benchmark_that_failed(results: list[Any], words: str, tmp_path: Path) -> None:
    superbench(tmp_path, {"gemm-flops/rank0": results})
    got = found(tmp_path)["node-0/gemm-flops"]
    assert got.status == "Failed"
    assert words in (got.reason or "")


def test_why_a_benchmark_failed_is_in_its_node_s_log(tmp_path: Path) -> None:
    output = superbench(tmp_path, {"gemm-flops/rank0": [None]})
    log = output / "nodes" / "node-0" / "sb-bench.log"
    log.write_text("CUDA error: no kernel image is available for execution on the device\n")
    got = found(tmp_path)["node-0/gemm-flops"]
    assert got.cause is not None
    assert got.cause.kind == "GPU architecture"


def test_a_summary_is_read_where_the_nodes_folders_are_not(tmp_path: Path) -> None:
    output = superbench(tmp_path, {"mem-bw/rank0": [benchmark("mem-bw", h2d_bw=[50.0])]})
    lines = [
        {"mem-bw/h2d_bw:0": 50.0, "mem-bw/h2d_bw:1": 54.0, "mem-bw/return_code": 0, "node": "a"},
        {"mem-bw/h2d_bw:0": 46.0, "mem-bw/h2d_bw:1": 50.0, "mem-bw/return_code": 0, "node": "b"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    write(output / "results-summary.jsonl", text)
    assert list(found(tmp_path)) == ["node-0/mem-bw"]
    alone = write(tmp_path / "kept" / "2026-11-21_01-02-03" / "results-summary.jsonl", text)
    got = found(tmp_path / "kept")["2026-11-21_01-02-03"]
    assert (got.status, got.metrics.mean("mem_bw_h2d_bw")) == ("Success", 50.0)
    assert got.log is not None
    assert got.log.hosts == ("a", "b")
    alone.write_text(text.replace('"mem-bw/return_code": 0', '"mem-bw/return_code": 3', 1))
    assert read(alone).status == "Failed"


def test_the_log_of_a_node_is_read_if_it_has_no_results(tmp_path: Path) -> None:
    output = superbench(tmp_path, {})
    write(output / "nodes" / "node-1" / "sb-bench.log", TABLE)
    got = found(tmp_path)
    assert sorted(got) == ["node-0", "node-1"]
    assert got["node-1"].metrics.mean("busbw") == 480.9


def test_a_folder_with_runs_of_all(tmp_path: Path) -> None:
    superbench(tmp_path / "sb", {"nccl-bw/rank0": [benchmark("nccl-bw", **NCCL)]})
    write(tmp_path / "cloudai" / "s" / "t" / "0" / "stdout.txt", STEPS)
    write(tmp_path / "cloudai" / "s" / "t" / "0" / "test-run.toml")
    write(
        tmp_path / "rfm" / "output" / "a" / "b" / "c" / "d" / "rfm_job.out.gz",
        gzip.compress(TABLE.encode()),
    )
    write(tmp_path / "own" / "log-pretrain_x.out", STEPS)
    assert sorted(found(tmp_path)) == ["d@a:b+c", "node-0/nccl-bw", "pretrain_x", "s/t/0"]


WHOLE = json.dumps([benchmark("nccl-bw", raw={"raw_output_allreduce": [TABLE]}, **NCCL)], indent=2)


@pytest.mark.parametrize(
    "content",
    [
        WHOLE[: len(WHOLE) // 2],  # killed while it was written
        "",
        "[]",
        "[1, 2]",
        '[{"name": 1, "result": 2}]',
        '[{"name": "x", "result": {"a": [1e999, "b", null, true]}}]',
        '[{"name": "x", "result": {"' + "9" * 400 + '": [' + "9" * 400 + "]}}]",
        "[" * 100_000,
        "\0" * 4096,
    ],
)
def test_damaged_results_are_no_crash_and_no_figure(content: str, tmp_path: Path) -> None:
    superbench(tmp_path, {})
    node = tmp_path / "outputs" / "2026-11-20_01-02-03" / "nodes" / "node-0"
    write(node / "benchmarks" / "nccl-bw" / "rank0" / "results.json", content)
    got = found(tmp_path)["node-0/nccl-bw"]
    assert (got.metrics.mean("busbw"), got.metrics.measured) == (None, {})
    assert got.status in ("Failed", "Unknown")


def test_a_value_that_is_no_number_is_none(tmp_path: Path) -> None:
    superbench(tmp_path, {"mem-bw/rank0": [benchmark("mem-bw", h2d_bw=[float("nan"), 50.0])]})
    assert found(tmp_path)["node-0/mem-bw"].metrics.measured["h2d_bw"].n == 1


@pytest.mark.parametrize("newline", ["\r\n", "\0\n", "\n\0\0\0", "\r\r\n"])
def test_line_ends_of_other_machines(newline: str, tmp_path: Path) -> None:
    folder = tmp_path / SCENARIO / "all_reduce" / "0"
    log = write(folder / "stdout.txt", TABLE.replace("\n", newline))
    write(folder / "test-run.toml")
    assert read(log).metrics.mean("busbw") == 480.9
