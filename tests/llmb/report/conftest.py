# SPDX-License-Identifier: Apache-2.0
"""Fixtures: an invented night of runs on a Slurm cluster of H100s, and a real browser."""

import base64
import contextlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin import builtin_plugins
from llmb.cli.context import Context
from llmb.cli.report import make_report, with_samples
from llmb.cli.results import Choice, gather
from llmb.config import ClusterConfig, load_config
from llmb.config.images import image_path
from llmb.planning.plan import JobOverrides, make_plan
from llmb.plugins.loader import load_plugins
from llmb.report.page import charted
from llmb.report.value import Report
from llmb.runs import record, store
from llmb.runs.job import Job, JobRequest
from llmb.runs.launch import Launch, Program
from llmb.runs.record import RunRecord
from llmb.runs.state import COMPLETED, FAILED, RUNNING, JobState
from llmb.system.process import ProcessId
from llmb.workload.spec import Workload

EVENING = 1763668800  # 2025-11-20 20:00 UTC
MORNING = datetime(2025, 11, 21, 7, 30, tzinfo=UTC)
OOM = (
    "7: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 7 has a total capacity of 79 GiB\n"
)
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=3021, GPU has fallen off the bus.\n"


def opening(nodes: int, network: str = "IB", clock: int = 1980) -> str:
    """What NCCL and llmb print at the start, for every node."""
    gpus = {"driver": "570.86.15", "gpu": "NVIDIA H100 80GB HBM3", "gpus": 8, "max_sm_clock_mhz": clock}
    facts = json.dumps({**gpus, "power_limit_w": 700.0})
    lines = [
        f"node{n:04}:812:812 [0] NCCL INFO Using network {network}\nllmb node node{n:04}: {facts}\n"
        for n in range(1, nodes + 1)
    ]
    return "NCCL version 2.26.3+cuda12.9\n" + "".join(lines)


def steps(
    seconds: float,
    seed: int,
    *,
    count: int = 50,
    slow: Mapping[int, float] | None = None,
    noise: float = 0.002,
    drift: float = 0.0,
) -> str:
    """NeMo 2's step lines: a slow first step, noise, and the ``slow`` steps, longer by these factors."""
    chance = random.Random(seed)
    lines = []
    for i in range(count):
        factor = 9.0 if i == 0 else 1.2 if i < 4 else (slow or {}).get(i, 1.0)
        time = seconds * factor * (1 + chance.gauss(0, noise) + drift * (i - 27) / 34)
        loss = 12.8 * math.exp(-i / 90)
        lines.append(
            f"0: Training epoch 0, iteration {i}/49 | lr: {7.5e-6 * i:.3e} | global_step: {i} | "
            f"peak_memory_usage: 70833405952 | reduced_train_loss: {loss:.4g} | train_step_timing in s: {time:.4g}"
            + (f" | consumed_samples: {128 * (i + 1)}" if i else "")
            + "\n"
        )
    ended = "`Trainer.fit` stopped: `max_steps=50` reached.\n" if count == 50 else ""
    return "".join(lines) + ended


@dataclass(slots=True)
class Night:
    """An install directory of cluster type slurm whose runs are written by hand."""

    folder: Path
    config: ClusterConfig
    workloads: Mapping[str, Workload]
    made: list[RunRecord] = field(default_factory=list)

    def job(
        self,
        workload: str,
        dtype: str,
        scale: int,
        *,
        params: Mapping[str, int] | None = None,
        profile: bool = False,
        **env: str,
    ) -> Job:
        """The job that a submission plans."""
        request = JobRequest(workload=workload, dtypes=(dtype,), scales=(scale,), profile=profile, env=env)
        plan = make_plan(
            [request], self.workloads, self.config, overrides=JobOverrides(params=params or {}, force=True)
        )
        assert not plan.faults, plan.faults
        return plan.jobs[0]

    def run(self, job: Job, log: str | None, state: str = COMPLETED, *, run_id: str = "", **end: Any) -> RunRecord:
        """Write a run; the default ``run_id`` is the next free one."""
        number = len(self.made)
        launch = Launch(
            name=job.experiment_name,
            nodes=job.nodes,
            ranks_per_node=job.gpus_per_node,
            time_limit=job.time_limit,
            program=Program(module="m"),
            environment={"NCCL_DEBUG": "WARN", "HF_TOKEN": "never-shown", **job.env},
        )
        stamp = store.new_directory(self.config.experiments(job.workload), job.experiment_name, EVENING + 600 * number)
        run = RunRecord(
            id=run_id or f"{'kmnpqrstvwxz'[number // 12]}{'23456789acdf'[number % 12]}x{number:02}cde",
            created=float(stamp.timestamp),
            llmb_version="0.1.0",
            cluster_type="slurm",
            directory=stamp.path,
            job=job,
            launch=launch,
            script_name="launch",
            submitter=ProcessId.current(),
            scheduler_id=str(48100 + number),
        )
        record.save(run)
        run.work.mkdir(exist_ok=True)
        if log is not None:
            run.log.write_text(log)
        ended = None if state == RUNNING else run.created + 460
        store.save_state(run, JobState(state=state, started=run.created + 60, ended=ended, **end))
        self.made.append(run)
        return run

    def measured(
        self,
        seconds: float,
        workload: str,
        dtype: str,
        scale: int,
        *,
        repeats: int = 1,
        network: str = "IB",
        clock: int = 1980,
        jitter: float = 0.002,
        how: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Write successful repeats with steps of about ``seconds``."""
        job = self.job(workload, dtype, scale, **(how or {}))
        for _ in range(repeats):
            seed = len(self.made)
            own = seconds * (1 + random.Random(seed).gauss(0, jitter))
            self.run(job, opening(job.nodes, network, clock) + steps(own, seed, **more))

    def digest(self, reference: str, digest: str) -> None:
        """Write the file that the installer writes for an image."""
        path = image_path(reference, self.config)
        path.parent.mkdir(exist_ok=True)
        path.with_name(f"{path.name}.json").write_text(json.dumps({"digest": digest}))


def fill(night: Night) -> None:
    """About 40 runs: good and slow ones, several scales with repeats, and many kinds of failures."""
    for scale, seconds in ((16, 2.751), (32, 2.77), (64, 2.79), (128, 2.83), (256, 2.9)):
        night.measured(seconds, "nemotron4_15b", "bf16", scale, repeats=3)
    for scale, seconds in ((16, 1.99), (32, 2.03), (64, 2.05)):
        night.measured(seconds, "nemotron4_15b", "fp8", scale, repeats=2, jitter=0.004)
    slow = {17: 1.9, 24: 2.6, 25: 1.4, 38: 2.2}
    night.measured(2.78, "nemotron4_15b", "fp8", 128, repeats=1, slow=slow)
    night.measured(2.14, "nemotron4_15b", "fp8", 256, repeats=2, noise=0.01, jitter=0.03)
    night.measured(2.66, "nemotron4_15b", "bf16", 16, how={"NCCL_ALGO": "Ring"}, drift=0.03)
    night.measured(4.7, "nemotron4_340b", "bf16", 256, repeats=2)
    night.measured(4.95, "nemotron4_340b", "bf16", 512, clock=1395)
    night.measured(3.5, "nemotron4_340b", "fp8", 256, network="Socket")
    night.measured(1.7, "nemotron4_15b", "fp8", 16, how={"params": {"mbs": 1}})
    night.measured(2.9, "nemotron4_15b", "bf16", 64, how={"profile": True})
    night.measured(3.1, "nemotron4_15b", "bf16", 96)
    night.run(night.job("llama3.1_8b", "bf16", 8), OOM, FAILED, exit_code=1)
    night.run(night.job("llama3.1_8b", "fp8", 8), OOM, FAILED, exit_code=1)
    night.run(night.job("llama3.1_70b", "bf16", 64), steps(6.1, 3, count=19) + XID, "NODE_FAIL")
    night.run(night.job("llama3.1_405b", "bf16", 1024), None, "CANCELLED", reason="by 1000")
    night.run(night.job("nemotronh_56b", "fp8", 64), opening(8) + steps(3.3, 4, count=23), RUNNING)
    night.digest("nvcr.io/nvidia/nemo:25.04.01", "sha256:" + "4f1c0de2" * 8)


def gathered(night: Night, *names: str) -> Report:
    """The report on the night, as the command collects it for the HTML page."""
    context = Context(load_plugins(builtin_plugins()))
    context.install_option = night.folder
    context.__dict__["cluster"] = None  # nobody is asked: states are as they were seen last
    found = gather(context, names, Choice())
    report = make_report(context, found, None, MORNING)
    return with_samples(context, report, [record for record, _ in found], charted(report))


@pytest.fixture
def empty_night(cluster: Callable[..., Path], workloads: dict[str, Workload]) -> Night:
    """The cluster before any run."""
    folder = cluster("slurm", "h100", cluster_name="aurora", slurm={"account": "bench", "gpu": {"gres": 8}})
    config, _ = load_config(folder, {})
    return Night(folder=folder, config=config, workloads=workloads)


@pytest.fixture(scope="session")
def kept() -> dict[str, Any]:
    """The night and the report on it, created once. Tests only read them."""
    return {}


@pytest.fixture
def night(empty_night: Night, kept: dict[str, Any]) -> Night:
    """The night. Tests must not write to it, because they share it."""
    if "night" not in kept:
        fill(empty_night)
        kept["night"] = empty_night
    found: Night = kept["night"]
    return found


@pytest.fixture
def morning(night: Night, kept: dict[str, Any]) -> Report:
    """The report on the night."""
    if "morning" not in kept:
        kept["morning"] = gathered(night)
    found: Report = kept["morning"]
    return found


@pytest.fixture(name="gather")
def gather_fixture() -> Callable[..., Report]:
    """Collects the report on a night."""
    return gathered


# Chromium speaks over the descriptors 3 and 4.
START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(text), fcntl.F_DUPFD, 10) for text in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """Headless Chromium with one page, controlled by its DevTools protocol over a pipe."""

    def __init__(self, program: str, profile: Path) -> None:
        to_browser, from_browser = os.pipe(), os.pipe()
        ends = to_browser[0], from_browser[1]
        argv = [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, *map(str, ends), *argv],
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        self._out, self._in = os.fdopen(to_browser[1], "wb", 0), os.fdopen(from_browser[0], "rb")
        self._number, self.events = 0, list[dict[str, Any]]()
        self._session: str | None = None

    def start(self) -> None:
        """Open a page, because the first one may not exist yet, and receive its events."""
        page = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Page.setLifecycleEventsEnabled", enabled=True)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its answer. Events until then are appended to ``events``."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": params, **session}
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            found = self._read()
            if found.get("id") == self._number:
                assert "error" not in found, found
                answer: dict[str, Any] = found["result"]
                return answer

    def _read(self) -> dict[str, Any]:
        text = bytearray()
        while (char := self._in.read(1)) != b"\0":
            assert char, "the browser has gone"
            text += char
        found: dict[str, Any] = json.loads(text)
        if "method" in found:
            self.events.append(found)
        return found

    def open(self, path: Path) -> None:
        """Show the file and wait until it is loaded."""
        self.events.clear()
        loader = self.ask("Page.navigate", url=path.as_uri())["loaderId"]
        loaded = {"loaderId": loader, "name": "load"}  # of this page: an earlier one may tell of its end late
        while not any(loaded.items() <= _of_lifecycle(event).items() for event in self.events):
            self._read()

    def value(self, script: str) -> Any:
        """The value of ``script``."""
        return self.ask("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def width(self, pixels: int, *, scheme: str = "light") -> None:
        """Set the width and the preferred colour scheme of the page."""
        self.ask("Emulation.setDeviceMetricsOverride", width=pixels, height=900, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def pdf(self) -> bytes:
        """The page as it is printed on A4."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True, "preferCSSPageSize": True}
        return base64.b64decode(self.ask("Page.printToPDF", **paper)["data"])

    def close(self) -> None:
        """Close the browser; kill it if it does not end."""
        self._session = None
        with contextlib.suppress(AssertionError, OSError):
            self.ask("Browser.close")
        self._out.close()
        self._in.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _of_lifecycle(event: dict[str, Any]) -> dict[str, Any]:
    """The parameters of an event of a page's lifecycle; empty for other events."""
    answer: dict[str, Any] = event["params"] if event["method"] == "Page.lifecycleEvent" else {}
    return answer


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for all tests of a worker. Tests are skipped if there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium here: apt-get install --no-install-recommends chromium")
    found = Browser(program, tmp_path_factory.mktemp("profile"))
    try:
        found.start()
        yield found
    finally:
        found.close()
