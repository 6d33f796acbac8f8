# SPDX-License-Identifier: Apache-2.0
"""Benchmarks in YAML alone: the examples are short, read what their programs print, and run here."""

import csv
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.check.log_trial import result_of_trial
from llmb.contract.spec import read_workload
from llmb.errors import InputFaults
from llmb.judge.judge import judge
from llmb.measure.result import Result
from llmb.plugins.loader import add_file, load_plugins
from llmb_testing.machine import Machine

Command = Callable[..., subprocess.CompletedProcess[str]]
FOLDER = Path(__file__).parents[2] / "examples/benchmarks"
LINES = {"nccl-tests.yaml": 25, "hpl/benchmark.yaml": 15, "stream.yaml": 15, "fio.yaml": 15}

# As all_reduce_perf of nccl-tests, xhpl of HPL and stream.c print them.
NCCL = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    {small}    0.00    0.00      0    28.21    0.00    0.00      0
          16             4     float     sum      -1    28.90    0.00    0.00      0    28.11    0.00    0.00      0
     1048576        262144     float     sum      -1    45.10   23.25   40.69      0    44.90   23.35   40.87      0
  8589934592    2147483648     float     sum      -1    31308  274.36  480.13      0    31310  274.35  480.11      0
# Out of bounds values : {wrong}
# Avg bus bandwidth    : 159.2
#
"""
HPL = """\
================================================================================
T/V                N    NB     P     Q               Time                 Gflops
--------------------------------------------------------------------------------
WR03L2R2      264192  1024     4     2              31.30             {gflops}
--------------------------------------------------------------------------------
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   2.84112250e-03 ...... {check}
================================================================================

Finished      1 tests with the following results:
              1 tests completed and passed residual checks,
"""
STREAM = """\
Function    Best Rate MB/s  Avg time     Min time     Max time
Copy:          412345.6     0.012345     0.012300     0.012400
Scale:         402345.6     0.012345     0.012300     0.012400
Add:           432345.6     0.012345     0.012300     0.012400
Triad:         {triad}     0.012345     0.012300     0.012400
-------------------------------------------------------------
{check}
"""
VALID = "Solution Validates: avg error less than 1.000000e-13 on all three arrays"
LOGS = [
    ("nccl-tests", NCCL.format(small="28.40", wrong="0 OK"), "PASS", "Success"),
    # small messages that are three times slower, and nothing else
    ("nccl-tests", NCCL.format(small="85.20", wrong="0 OK"), "FAIL", "Success"),
    ("nccl-tests", NCCL.format(small="28.40", wrong="3 FAILED"), None, "Failed"),
    ("hpl/benchmark", HPL.format(gflops="3.9260e+05", check="PASSED"), "PASS", "Success"),
    ("hpl/benchmark", HPL.format(gflops="1.9260e+05", check="PASSED"), "FAIL", "Success"),
    ("hpl/benchmark", HPL.format(gflops="3.9260e+05", check="FAILED"), None, "Failed"),
    ("stream", STREAM.format(triad="431234.5", check=VALID), "PASS", "Success"),
    ("stream", STREAM.format(triad="    31.5", check=VALID), "FAIL", "Success"),
    ("stream", STREAM.format(triad="431234.5", check="Failed Validation"), None, "Failed"),
]


def result_of(file: Path, log: Path) -> Result:
    plugins = load_plugins(builtin_plugins(), entries=())
    add_file(plugins, file)
    (workload,) = plugins.workloads().values()
    return judge([result_of_trial(workload, None, log, plugins)], [])[0]


@pytest.mark.parametrize(("name", "most"), LINES.items())
def test_they_are_short_and_have_no_faults(name: str, most: int, llmb_here: Command) -> None:
    lines = (FOLDER / name).read_text("utf-8").splitlines()
    assert len(lines) <= most
    done = llmb_here("plugins", "check", FOLDER / name)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("name", "text", "verdict", "status"), LOGS)
def test_what_their_programs_print_is_judged(
    name: str, text: str, verdict: str | None, status: str, tmp_path: Path
) -> None:
    (tmp_path / "log.txt").write_text(text)
    result = result_of(FOLDER / f"{name}.yaml", tmp_path / "log.txt")
    assert result.status == status
    if verdict is not None:
        assert result.verdict.word == verdict


def test_each_value_is_that_of_its_row(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(NCCL.format(small="28.40", wrong="0 OK"))
    metrics = result_of(FOLDER / "nccl-tests.yaml", tmp_path / "log.txt").metrics
    assert {name: metric.mean for name, metric in metrics.measured.items()} == {
        "busbw": 480.13,
        "busbw_1M": 40.69,
        "latency": 28.40,
    }


@pytest.fixture
def run_example(
    llmb_machine: Machine, llmb_here: Command
) -> Callable[..., tuple[list[dict[str, Any]], Path]]:
    """Runs an example on this machine: the results, and the install directory."""

    def run(name: str, *words: str) -> tuple[list[dict[str, Any]], Path]:
        benchmarks = llmb_machine.folder / "benchmarks"
        benchmarks.mkdir()
        shutil.copy(FOLDER / f"{name}.yaml", benchmarks)
        done = llmb_here("single", "-w", name, "--scale", 1, *words, "--wait")
        assert done.returncode == 0, done.stderr
        results = llmb_here("results", "--format", "json")
        return json.loads(results.stdout)["results"], llmb_machine.folder

    return run


# The loops of STREAM, and lines as it prints them.
LOOPS = r"""
#include <stdio.h>
#include <time.h>
#define N 1000000
static double a[N], b[N], c[N];
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
static void show(const char *name, int arrays, double seconds) {
    printf("%-12s%11.1f  %11.6f  %11.6f  %11.6f\n", name, 8e-6 * arrays * N / seconds, seconds,
           seconds, seconds);
}
int main(void) {
    for (int i = 0; i < N; i++) a[i] = 1, b[i] = 2, c[i] = 0;
    double start = now();
    for (int i = 0; i < N; i++) c[i] = a[i];
    double copy = now() - start;
    start = now();
    for (int i = 0; i < N; i++) a[i] = b[i] + 3 * c[i];
    double triad = now() - start;
    printf("Function    Best Rate MB/s  Avg time     Min time     Max time\n");
    show("Copy:", 2, copy);
    show("Triad:", 3, triad);
    for (int i = 0; i < N; i++)
        if (a[i] != 5) return printf("Failed Validation\n"), 1;
    printf("Solution Validates: avg error less than 1.000000e-13 on all three arrays\n");
    return 0;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="without a compiler")
def test_stream_runs_here(
    run_example: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "stream.c").write_text(LOOPS)
    program = tmp_path / "bin/stream_c"
    subprocess.run(["gcc", "-O1", tmp_path / "stream.c", "-o", program], check=True)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    (result,), folder = run_example("stream")
    (log,) = folder.glob("workloads/stream/experiments/*/*/*/log-*.out")
    triad = re.search(r"^Triad: +(\S+)", log.read_text(), re.MULTILINE)
    assert triad is not None
    assert result["metrics"]["triad"]["mean"] == float(triad[1])
    assert (result["status"], result["verdict"]) == ("Success", "PASS")


@pytest.mark.skipif(shutil.which("fio") is None, reason="without fio")
def test_fio_runs_here(run_example: Callable[..., Any]) -> None:
    (result,), folder = run_example("fio", "--set", "mode=randrw")
    (log,) = folder.glob("workloads/fio/experiments/*/*/*/log-*.out")
    output = log.read_text()
    (job,) = json.loads(output[output.index("{") : output.rindex("}") + 1])["jobs"]
    for name in ("read", "write"):
        assert result["metrics"][name]["mean"] == pytest.approx(job[name]["bw_bytes"] / 1e6)
    assert (result["status"], result["verdict"]) == ("Success", "PASS")
    record = json.loads(
        next(folder.glob("workloads/fio/experiments/*/*/llmb-run.json")).read_text()
    )
    assert record["software"]["plugin"] == "file:fio.yaml"
    assert record["software"]["plugin_version"].startswith("sha256:")


GOOD = """\
key: loop
title: A loop
launch: {program: "loop --count={count}", server: {program: serve}, start: once}
parameters: {count: {default: "3"}}
metrics: [{name: rate, unit: MB/s}]
parse:
  patterns: {rate: 'rate (?P<value>\\S+)'}
  must_have: done
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "key"),
    [
        ("{count}", "{cuont}", 3, "launch.program.argv.1"),
        ("start: once", "start: onse", 3, "launch.start"),
        ("program: serve", "program: 'serve \"'", 3, "launch.server.program"),
        ("start: once", "files: [none.txt]", 3, "launch.files.0"),
        ("start: once", "image: x", 3, "launch.image"),
        ("{rate: '", "{rat: '", 7, "parse.patterns.rat"),
        ("(?P<value>\\S+)", "(\\S+)", 7, "parse.patterns.rate"),
        ("must_have: done", "must_have: '('", 8, "parse.must_have.0"),
        ("must_have: done", "must_have: 'x*'", 8, "parse.must_have.0"),
        ("must_have: done", "source: me", 8, "parse.source"),
        ("must_have: done", "units: {rate: GB}", 8, "parse.units.rate"),
    ],
)
def test_a_fault_names_line_and_key(
    old: str, new: str, line: int, key: str, tmp_path: Path
) -> None:
    assert old in GOOD
    path = tmp_path / "loop.yaml"
    path.write_text(GOOD)
    read_workload(path)
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(InputFaults) as caught:
        read_workload(path)
    assert [(fault.place, fault.key) for fault in caught.value.faults] == [(f"{path}:{line}", key)]


def test_a_faulty_one_costs_only_itself(
    llmb_machine: Machine, llmb_here: Command, wording: Callable[..., None]
) -> None:
    folder = llmb_machine.folder / "benchmarks"
    folder.mkdir()
    (folder / "loop.yaml").write_text(GOOD)
    (folder / "bad.yaml").write_text(GOOD.replace("key: loop", "key: bad").replace("once", "one"))
    (folder / "figures.yaml").write_text("tables: []\n")
    (folder / "_notes.yaml").write_text("remember: this\n")
    (folder / "loop.py").write_text("print()\n")  # a file of the benchmark of this name
    done = llmb_here("plugins", "--format", "json")
    rows = {row["plugin"]: row for row in json.loads(done.stdout)}
    assert (rows["file:loop.yaml"]["status"], rows["file:loop.yaml"]["workload"]) == ("ok", "loop")
    assert rows["file:bad.yaml"]["status"] == "skipped"
    assert not {"file:figures.yaml", "file:_notes.yaml"} & {*rows}
    wording("plugins check", llmb_here("plugins", "check", folder / "bad.yaml").stderr)


def test_a_package_with_yaml_and_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llmb_here: Command
) -> None:
    package = tmp_path / "site/acme_benchmarks"
    package.mkdir(parents=True)
    for name in ("one", "two"):
        (package / f"{name}.yaml").write_text(GOOD.replace("key: loop", f"key: {name}"))
    (package / "bad.yaml").write_text("key: bad\n")
    info = tmp_path / "site/acme-2.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 2.1\n")
    (info / "entry_points.txt").write_text("[llmb]\nacme = acme_benchmarks\n")
    monkeypatch.syspath_prepend(str(info.parent))
    rows = {
        row["plugin"]: row for row in json.loads(llmb_here("plugins", "--format", "json").stdout)
    }
    assert rows["acme:acme"]["workload"] == "one, two"
    assert rows["acme:acme"]["status"] == "in part"
    assert "bad.yaml:1" in rows["acme:acme"]["reason"]


def test_a_folder_of_llmb_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llmb_here: Command
) -> None:
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop/benchmark.yaml").write_text(GOOD)
    monkeypatch.setenv("LLMB_PLUGINS", str(tmp_path))
    rows = {
        row["plugin"]: row for row in json.loads(llmb_here("plugins", "--format", "json").stdout)
    }
    assert rows["file:loop/benchmark.yaml"]["workload"] == "loop"


STEPS = """\
key: loop
title: A loop
launch: {program: loop, start: once}
max_steps: 20
metrics: [{name: rate, unit: MB/s}]
parse:
  needle: "it "
  iteration: 'it (?P<i>\\d+)/(?P<last>\\d+)'
  patterns: {rate: 'rate (?P<value>\\S+)'}
  must_not_have: out of memory
"""


@pytest.mark.parametrize(
    ("end", "verdict", "reason"),
    [
        ("", "INVALID", ""),
        ("out of memory, skipped\n", None, "its log has 'out of memory, skipped'"),
    ],
)
def test_a_forbidden_line_is_the_reason_although_the_window_is_not_complete(
    end: str, verdict: str | None, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "loop.yaml").write_text(STEPS)
    lines = (f"it {number}/19 rate 10\n" for number in range(20) if number != 9)
    (tmp_path / "log.txt").write_text("".join(lines) + end)
    result = result_of(tmp_path / "loop.yaml", tmp_path / "log.txt")
    assert (result.status, result.verdict.word) == ("Failed", verdict)
    assert reason in (result.reason or "")


def test_a_single_value_has_no_deviation(llmb_machine: Machine, llmb_here: Command) -> None:
    benchmarks = llmb_machine.folder / "benchmarks"
    benchmarks.mkdir()
    one = GOOD.replace(
        '"loop --count={count}", server: {program: serve}', '"echo rate 1{count} done"'
    )
    (benchmarks / "loop.yaml").write_text(one)
    assert llmb_here("single", "-w", "loop", "--scale", 1, "--wait").returncode == 0
    (result,) = json.loads(llmb_here("results", "--format", "json").stdout)["results"]
    rate, statistics = result["metrics"]["rate"], result["statistics"]
    assert (rate["mean"], rate["std"], rate["n"]) == (13, None, 1)
    assert (statistics["deviation"], statistics["interval"]) == (None, None)
    page = llmb_machine.folder / "report.html"
    texts = [
        llmb_here("results").stdout,
        llmb_here("report").stdout,
        llmb_here("explain", result["run"]).stdout,
    ]
    assert llmb_here("report", "-o", page).returncode == 0
    assert not [text for text in [*texts, page.read_text("utf-8")] if re.search(r"± *\d", text)]
    assert "standard deviation" not in texts[2]
    row = llmb_here("results", "--format", "csv").stdout
    values = dict(zip(*csv.reader(row.splitlines()), strict=True))
    assert (values["rate_mean"], values["rate_std"], values["statistics_low"]) == ("13.0", "", "")


@pytest.mark.parametrize(
    ("log", "mean", "status"),
    [
        ("rate 10\nrate 20\ndone\n", 15, "Success"),
        ("rate 10\nrate 20\n", 15, "Failed"),
        ("rate 10\ndone rate 2", 10, "Success"),  # which may be half of a number
        ("done\n", None, "Unknown"),
        ("\x1b[32mrate 1e3\x1b[0m\r\ndone\r\n", 1000, "Success"),
    ],
)
def test_all_results_of_a_log_are_one_value(
    log: str, mean: float | None, status: str, tmp_path: Path
) -> None:
    (tmp_path / "loop.yaml").write_text(GOOD)
    (tmp_path / "log.txt").write_bytes(log.encode())
    result = result_of(tmp_path / "loop.yaml", tmp_path / "log.txt")
    assert (result.metrics.mean("rate"), result.status) == (mean, status)
