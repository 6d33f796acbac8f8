# SPDX-License-Identifier: Apache-2.0
"""Tests of parse on so many logs that several processes read them, some with a plugin's formula of
FLOPs.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.core import shell
from llmb.measure.find_logs import profiled_beside

Command = Callable[..., "subprocess.CompletedProcess[str]"]

FORMULA = """
from pathlib import Path
from llmb.api import Flops, hookimpl, read_workload

@hookimpl
def llmb_workload():
    return read_workload(Path(__file__).with_name("acme.yaml"))

@hookimpl
def llmb_flops(workload, shape):
    return Flops(convention="acme-2", terms={"layers": 1e12 * shape.layers})
"""
WORKLOAD = """
key: pretrain_acme
title: A workload of a test
default_size: small
default_dtype: bf16
sizes:
  small:
    model: {architecture: llama, layers: 2, hidden: 8, ffn: 8, heads: 2, kv_groups: 2, vocab: 8, seq_length: 8}
    rows: [{gpu: any, dtype: bf16, scales: [8], mbs: 1, gbs: 8}]
"""
STEPS = "".join(
    f"Training epoch 0, iteration {i}/3 | train_step_timing in s: 2.5\n" for i in range(4)
)


def test_logs_that_several_processes_read(
    tmp_path: Path, llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "WORTH_PROCESSES", 4)
    plugins, logs = tmp_path / "plugins", tmp_path / "logs"
    plugins.mkdir()
    (plugins / "acme.py").write_text(FORMULA)
    (plugins / "acme.yaml").write_text(WORKLOAD)
    monkeypatch.setenv("LLMB_PLUGINS", str(plugins))
    logs.mkdir()
    for number in range(4):
        (logs / f"log-pretrain_nemotron4_15b_bf16_gpus16_{number}.out").write_text(STEPS)
    for layers in (2, 4):
        (logs / f"log-pretrain_acme_small_bf16_gpus8_layers{layers}_1.out").write_text(STEPS)
    done = llmb_here("parse", logs, "--window", "0-3", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    results = json.loads(done.stdout)["results"]
    assert [result["status"] for result in results] == ["Success"] * 6
    formulas = [(result["flops_convention"], result["model_flops"]) for result in results]
    assert formulas[:2] == [("acme-2", 2e12), ("acme-2", 4e12)]
    assert [convention for convention, _ in formulas[2:]] == ["gqa"] * 4


FRAMEWORK = """
from llmb.api import Framework, hookimpl

@hookimpl
def llmb_frameworks():
    nothing = lambda *arguments: None
    return [Framework(name="titan", title="Titan", needs=nothing, launch=nothing)]
"""


def test_many_logs_beside_a_plugins_framework(
    tmp_path: Path, llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The functions of a plugin cannot be sent to other processes."""
    monkeypatch.setattr(shell, "WORTH_PROCESSES", 4)
    plugins, logs = tmp_path / "plugins", tmp_path / "logs"
    plugins.mkdir()
    (plugins / "titan.py").write_text(FRAMEWORK)
    monkeypatch.setenv("LLMB_PLUGINS", str(plugins))
    logs.mkdir()
    for number in range(4):
        (logs / f"log-pretrain_nemotron4_15b_bf16_gpus16_{number}.out").write_text(STEPS)
    done = llmb_here("parse", logs, "--window", "0-3", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    results = json.loads(done.stdout)["results"]
    assert [result["metrics"]["step_time"]["mean"] for result in results] == [2.5] * 4


LISTINGS = """
import sys
from llmb.cli import app

folder, listings = sys.argv[1], []

def note(event, arguments):
    if event in ("os.listdir", "os.scandir") and str(arguments[0]) == folder:
        listings.append(event)

sys.addaudithook(note)
app.run(["parse", folder, "--format", "csv"])
print(len(listings), file=sys.stderr)
"""


def test_a_folder_is_listed_once_for_all_its_logs(tmp_path: Path) -> None:
    listings = []
    for count in (2, 20):
        logs = tmp_path / str(count)
        logs.mkdir()
        for number in range(count):
            (logs / f"log-pretrain_nemotron4_15b_bf16_gpus16_{number}.out").write_text(STEPS)
        os.utime(logs, (1e9, 1e9))
        done = subprocess.run(
            [sys.executable, "-c", LISTINGS, logs], capture_output=True, text=True, check=True
        )
        assert len(done.stdout.splitlines()) == count + 1
        listings.append(int(done.stderr.splitlines()[-1]))
    assert listings[0] == listings[1] > 0


def test_a_file_that_appears_beside_a_log_is_seen(tmp_path: Path) -> None:
    log = tmp_path / "log-pretrain_nemotron4_15b_bf16_gpus16_123.out"
    log.write_text(STEPS)
    assert profiled_beside(log) == ""
    (tmp_path / "report_123.nsys-rep").touch()
    assert "report_123.nsys-rep" in profiled_beside(log)
    os.utime(tmp_path, (1e9, 1e9))
    assert "report_123.nsys-rep" in profiled_beside(log)
    (tmp_path / "report_123.nsys-rep").unlink()
    assert profiled_beside(log) == ""
