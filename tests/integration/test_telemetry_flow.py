# SPDX-License-Identifier: Apache-2.0
"""Telemetry from the GPUs to the cause of a verdict: real runs, with a fake driver."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb_testing import nvml
from llmb_testing.nvml import Change
from llmb_testing.plugin_writer import write_benchmark

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not nvml.has_compiler(), reason="needs a C compiler"),
]
STEPS = 10
# Ten steps of 0.8 s. Its speed is in a file, so that two runs have the same settings.
PROGRAM = f"""\
import time
from pathlib import Path

speed = float(Path({{speed!r}}).read_text())
for step in range({STEPS}):
    time.sleep(0.8)
    print(f"llmb step {{{{step}}}}/{STEPS - 1} busbw={{{{speed}}}} algbw=1 latency=1", flush=True)
"""
# A figure of the test: the verdict needs one.
PUBLISHED = {
    "release": "1",
    "source": "a test",
    "window": "2-8",
    "steps": STEPS,
    "size": "all_reduce",
    "dtype": "bf16",
    "gpu": "h100",
    "parameters": {"message_size": "16M", "algorithm": "auto"},
    "metric": "busbw",
    "values": {1: 480},
}
GOOD = [Change(key="gpus", value=1), Change(key="nvmlDeviceGetRemappedRows", value=0)]
HOT = [
    *GOOD,
    Change(key="clock", value=1395, second=1),
    Change(key="reasons", value=0x20 | 0x4, second=1),
    Change(key="temperature", value=88, second=1),
    Change(key="errors", value=3, second=3),
]


class Machine:
    """This machine with a GPU that the fake driver invents."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.install = folder, folder / "install"
        write_benchmark(folder / "plugins", "netbench")
        program = folder / "plugins" / "netbench" / "program.py"
        program.write_text(PROGRAM.format(speed=str(folder / "speed")))
        table = program.with_name("workload.yaml")
        table.write_text(f"published: published.yaml\n{table.read_text()}")
        program.with_name("published.yaml").write_text(yaml.safe_dump({"tables": [PUBLISHED]}))
        commands = folder / "bin"
        commands.mkdir()
        (commands / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H100 80GB HBM3'\n")
        (commands / "nvidia-smi").chmod(0o755)
        self.install.mkdir()
        self.library = nvml.build(folder / "lib")
        self.configure()

    def configure(self, **keys: Any) -> None:
        config = {"schema_version": 2, "cluster_type": "local", "gpu_type": "h100"}
        workloads = {"installed": ["netbench"]}
        text = yaml.safe_dump({**config, "workloads": workloads, **keys})
        (self.install / "cluster_config.yaml").write_text(text)

    def llmb(self, *words: str) -> str:
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder / "plugins"),
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "LLMB_INSTALL": str(self.install),
            "LLMB_STATE_DIR": str(self.folder / "state"),
        }
        done = subprocess.run(
            [str(Path(sys.executable).with_name("llmb-run")), *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 3), done.stderr
        return done.stdout

    def train(self, speed: float, changes: list[Change], *options: str) -> dict[str, Any]:
        """Submit a run, wait for it, and return its result."""
        (self.folder / "speed").write_text(str(speed))
        variables = nvml.environment(self.library, self.folder / "script", changes)
        env = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
        words = ["single", "-w", "netbench", "--scale", "1", "--max-steps", str(STEPS), *env]
        out = self.llmb(*words, "--wait", "--format", "json", *options)
        (result,) = json.loads(out)["results"]
        found: dict[str, Any] = result
        assert found["status"] == "Success", found
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_clock_under_load_is_the_cause_of_a_slow_run(machine: Machine) -> None:
    first = machine.train(480.0, GOOD)
    slow = machine.train(400.0, HOT)

    (node,) = slow["nodes"]
    telemetry = node["telemetry"]
    assert (node["gpus"], telemetry["in_window"]) == (1, True)
    assert telemetry["sm_clock_mhz"]["median"] == 1395
    assert telemetry["temperature_c"] == {"max": 88}
    assert telemetry["throttle"] == {"sw_power_cap": 1.0, "sw_thermal": 1.0}
    assert telemetry["remapped_rows"] is None  # the driver does not have it
    assert telemetry["ecc_uncorrected"] == 1  # a new one, after those from before the run
    # only the samples of steps 2 to 8, of those from before the first to after the last one
    sampled = Path(slow["path"]).with_name(f"telemetry-{node['name']}.jsonl").read_text()
    times = [json.loads(line)["time"] for line in sampled.splitlines() if '"time"' in line]
    assert 0 < telemetry["seconds"] < times[-1] - times[0]
    assert first["nodes"][0]["telemetry"]["ecc_uncorrected"] == 0
    assert 640 < first["metrics"]["watts_per_gpu"]["mean"] < 660

    log = Path(slow["path"])
    last = log.read_text().splitlines()[-1]
    assert last.startswith(f"llmb telemetry {node['name']}: {{")
    assert [path.name for path in log.parent.glob("telemetry-*")] == [
        f"telemetry-{node['name']}.jsonl"
    ]
    assert (first["verdict"], slow["verdict"]) == ("PASS", "FAIL")
    assert [(cause["condition"], cause["value"]) for cause in slow["causes"]] == [
        ("SM clock", "1395 MHz"),
        ("slowed by", "heat (driver)"),
        ("uncorrected ECC errors", "1"),
    ]
    text = machine.llmb("explain", slow["run"])
    assert "SM clock 1395 MHz under load (passing runs have 1980 MHz)" in text
    assert "slowed by heat (driver) (passing runs are slowed by nothing)" in text


@pytest.mark.parametrize("how", ["option", "configuration", "overridden"])
def test_it_can_be_switched_off(machine: Machine, how: str) -> None:
    if how != "option":
        machine.configure(telemetry=False)
    options = {"option": ["--no-telemetry"], "overridden": ["--telemetry"]}.get(how, [])
    words = ("single", "-w", "netbench", "--scale", "1", "--dry-run", "--format", "json")
    (job,) = json.loads(machine.llmb(*words, *options))["jobs"]
    assert ("llmb_workloads.telemetry" in job["script"]) == (how == "overridden")
