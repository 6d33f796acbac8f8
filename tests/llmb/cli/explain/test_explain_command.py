# SPDX-License-Identifier: Apache-2.0
"""Tests of llmb-run explain: every term, what differs from the published run, where it ran, why it
failed.
"""

import html
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.torch import torch_pretrain

Wording = Callable[..., None]

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def test_explain_tells_what_the_switches_changed(
    install: Any, run: Command, wording: Wording
) -> None:
    job = install.job("nemotron4_15b", "fp8", 16)
    own = replace(job, switches=replace(job.switches, fp8="current", tokenizer="hub"))
    install.measured("a1", 2.0, dtype="fp8")
    log = (install.folder / "workloads").rglob("log-*.out")
    install.run("s1", own, next(log).read_text())
    found = run("explain", "s1").stdout
    wording("explain", str(found))
    assert "fp8 scaling" in found
    assert "fp8 scaling" not in run("explain", "a1").stdout


def test_explain_tells_every_term(install: Any, run: Command, wording: Wording) -> None:
    install.measured("a1", 2.75)
    install.measured("a2", 2.80)
    done = run("explain", "a1")
    assert done.returncode == 0
    wording("explain", done.stdout)


def test_a_run_is_explained_against_a_baseline(
    install: Any, run: Command, wording: Wording
) -> None:
    """By hand: 2.7 s / 3 s; the accepted run is no repeat of the later one."""
    install.measured("a1", 2.7)
    assert run("baseline", "accept", "april").returncode == 0
    install.measured("later", 3.0, NCCL_ALGO="Ring")
    shown = run("explain", "later", "--baseline", "april").stdout
    assert "2.7 s / 3 s = 0.9000" in shown
    wording("explain", shown)
    assert "published" not in shown
    assert "= 1.0000" in run("explain", "a1", "--baseline", "april").stdout
    assert run("explain", "later", "--baseline", "april", "--reference", "25.05").returncode == 2


def test_explain_names_what_differs(install: Any, run: Command, wording: Wording) -> None:
    install.measured("c1", 4.5, "nemotron4_340b", scale=512, NCCL_ALGO="Ring")
    shown = run("explain", "c1").stdout
    wording("explain", str(shown))
    older = run("explain", "c1", "--reference", "24.11").stdout
    wording("explain", str(older))
    assert "of 100" in older


def test_explain_says_where_it_ran_and_what_nobody_knows(
    install: Any, run: Command, wording: Wording
) -> None:
    log = install.measured("c1", 4.5).log
    shown = run("explain", "c1").stdout
    wording("explain", str(shown))
    assert "\ndiffers" not in shown
    node = (
        'llmb node gpu-{}: {{"driver": "570.86.15", "gpu": "NVIDIA H100 80GB HBM3", "gpus": 8, '
        '"max_sm_clock_mhz": {}, "power_limit_w": 700.0}}\n'
    )
    measured = (
        'llmb telemetry gpu-{}: {{"gpus": 8, "sm_clock_mhz": {{"median": {}, "p5": 1200}},'
        ' "throttle": {{"sw_power_cap": 0.2, "sw_thermal": {}}}}}\n'
    )
    nccl = (
        "gpu-1:1:2 [0] NCCL INFO NCCL version 2.26.3+cuda12.9\ngpu-1:1:2 [0] NCCL INFO Using"
        " network IB\n"
    )
    begin = node.format(1, 1980) + node.format(2, 1980) + nccl
    end = measured.format(1, 1980, 0.0) + measured.format(2, 1395, 0.7)
    log.write_text(begin + log.read_text() + end)
    shown = run("explain", "c1").stdout
    wording("explain", shown[shown.index("ran on") : shown.index("\nlog ")])


def test_the_torch_program_is_named_although_its_step_lines_are_nemos(
    install: Any, run: Command, tmp_path: Path
) -> None:
    record = install.measured("a1", 0.1, "llama3.1_tiny", "fp32", 2).directory / "llmb-run.json"
    for module, printed_by in (("m", "NeMo 2"), (torch_pretrain.PROGRAM, "llmb's torch program")):
        record.write_text(record.read_text().replace('"module": "m"', f'"module": "{module}"'))
        shown = run("explain", "a1").stdout
        assert f"\nread as    step lines of {printed_by}\n" in shown
        page = tmp_path / "night.html"
        run("report", "-o", page)
        words = re.sub(r"<[^>]+>|\s+", " ", html.unescape(page.read_text()))
        assert re.search(rf"step lines of +{printed_by} ", words)


def test_one_gpu_has_its_tokens_once(install: Any, run: Command) -> None:
    install.measured("a1", 15.5, "llama3.1_tiny", "fp32", 1)
    (line,) = [line for line in run("explain", "a1").stdout.splitlines() if "tokens/s" in line]
    assert line.endswith(" = 16.52")


def test_explain_names_the_image_as_it_was_installed(
    install: Any, run: Command, wording: Wording
) -> None:
    job = replace(install.job("nemotron4_15b", "bf16", 16), image="nvcr.io/nvidia/nemo:25.04.01")
    install.run("i1", job, install.measured("s1", 2.75).log.read_text())
    wording("explain", run("explain", "i1").stdout)
    facts = install.folder / "images" / "nvidia+nemo+25.04.01.sqsh.json"
    facts.parent.mkdir()
    facts.write_text('{"digest": "sha256:0123"}')
    assert "image nvcr.io/nvidia/nemo:25.04.01 (sha256:0123)" in run("explain", "i1").stdout
    facts.write_text("{")


def test_explain_names_another_parallelism_than_the_tables(
    install: Any, run: Command, wording: Wording
) -> None:
    install.measured("t1", 2.75, params={"tp": 4, "mbs": 1})
    shown = run("explain", "t1").stdout
    wording("explain", str(shown))


def test_explain_names_what_is_particular_about_the_steps(
    install: Any, run: Command, wording: Wording
) -> None:
    lines = install.measured("s1", 2.7).log.read_text().splitlines(keepends=True)
    for at in (20, 30):
        lines[at] = lines[at].replace("in s: 2.7", "in s: 4.7")
    install.run("o1", install.job("nemotron4_15b", "bf16", 16), "".join(lines))
    shown = run("explain", "o1").stdout
    wording("explain", str(shown))
    slower = "".join(
        line.replace("in s: 2.7", f"in s: {2.7 + 0.01 * at:.4g}") for at, line in enumerate(lines)
    )
    install.run("d1", install.job("nemotron4_15b", "fp8", 16), slower)
    wording("explain", run("explain", "d1").stdout)


def test_explain_a_hybrid(install: Any, run: Command, wording: Wording) -> None:
    install.measured("h1", 15.5, "nemotronh_56b", "fp8", 32)
    shown = run("explain", "h1").stdout
    wording("explain", str(shown))
    assert "WARN" in shown


def test_explain_a_failure_with_its_fix(install: Any, run: Command, wording: Wording) -> None:
    install.run(
        "f1",
        install.job("llama3.1_8b", "bf16", 8),
        "torch.OutOfMemoryError: CUDA out of memory.\n",
        "FAILED",
    )
    install.run("l1", install.job("llama3.1_8b", "fp8", 8), None, "NODE_FAIL")
    install.run("u1", install.job("llama3.1_8b", "fp8", 16), None, "LOST")
    shown = run("explain", "f1").stdout
    wording("explain", str(shown))
    assert "node failure" in run("explain", "l1").stdout
    wording("explain", run("explain", "u1").stdout)


def test_explain_a_run_without_a_reference(
    make_install: Any, llmb_here: Command, wording: Wording
) -> None:
    install = make_install(gpu_type="cpu")
    install.measured("a1", 0.1, "llama3.1_tiny", "fp32", 2)
    shown = llmb_here("explain", "a1", "--install", install.folder).stdout
    wording("explain", str(shown))
    assert "rules:" not in shown


def test_the_mfu_is_also_reported_as_the_reference_computes_it(
    install: Any, run: Command, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Release 24.11 prints this example: 32 · 1.01e16 / 4.77 s / 128 GPUs / 989 TFLOPS = 53.52
    %.
    """
    install.measured("c1", 4.77, "nemotron4_340b", scale=128)
    install.measured("a1", 2.75)
    rows = {
        row["run"]: row for row in json.loads(run("results", "--format", "json").stdout)["results"]
    }
    own = rows["c1"]
    assert (own["flops_convention"], own["reference_flops_convention"]) == ("gqa", "mha-4h")
    assert round(own["mfu_reference_convention"], 4) == 0.5352
    assert own["mfu"] == pytest.approx(32 * 8.62e15 / 4.77 / 128 / 989e12, rel=1e-3)
    assert (rows["a1"]["mfu_reference_convention"], rows["a1"]["reference_flops_convention"]) == (
        None,
        None,
    )
    shown = run("explain", "c1").stdout
    wording("explain", str(shown))
    assert "computes it" not in run("explain", "a1").stdout
    assert "53.52" in run("report").stdout
    page = install.folder / "report.html"
    assert run("report", "-o", page).returncode == 0
    line, formula = [line for line in page.read_text().splitlines() if "55.38" in line]
    assert formula.startswith("<dt>")
    wording("explain", line)
    monkeypatch.setenv("COLUMNS", "250")
    head, _, *lines = run("results").stdout.splitlines()
    wording("explain", str(head))
    assert "45.69" in "".join(lines)
    assert "53.52" in "".join(lines)
    monkeypatch.setenv("COLUMNS", "80")
    assert "53.52" not in run("results").stdout


def test_a_peak_of_the_release_is_taken_for_its_mfu(
    install: Any, run: Command, wording: Wording
) -> None:
    """Release 25.04 prints 62.47 % for Llama 3.1 8b at 12.27 s, with 989.5 TFLOPS for bf16."""
    install.measured("l1", 12.27, "llama3.1_8b", scale=8)
    (row,) = json.loads(run("results", "--format", "json").stdout)["results"]
    assert abs(100 * row["mfu_reference_convention"] - 62.47) < 0.01
    wording("explain", run("explain", "l1").stdout)


def test_an_explanation_is_wrapped_under_its_labels(
    install: Any, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    install.measured("l1", 12.27, "llama3.1_8b", scale=8)
    whole = run("explain", "l1").stdout
    monkeypatch.setenv("COLUMNS", "60")
    wrapped = run("explain", "l1").stdout
    assert wrapped.split() == whole.split()
    assert max(map(len, whole.splitlines())) > 90
    # Names and paths are never broken.
    too_long = [line for line in wrapped.splitlines() if len(line) > 60]
    assert [line for line in too_long if max(map(len, line.split())) < 49] == []
    assert any(line.startswith(" " * 11) for line in wrapped.splitlines())
