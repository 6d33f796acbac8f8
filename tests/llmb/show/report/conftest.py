# SPDX-License-Identifier: Apache-2.0
"""Fixtures: an invented night of runs on a Slurm cluster of H100s, and a real browser."""

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.cli.choice import Choice, gather
from llmb.cli.context import CliContext
from llmb.cli.report import make_report, with_samples
from llmb.contract.spec import Workload
from llmb.contract.state import FAILED, RUNNING
from llmb.core import files
from llmb.plan.config_layers import load_config
from llmb.plugins.loader import load_plugins
from llmb.show.report.page import charted
from llmb.show.report.value import Report
from llmb_installer.cluster_types import all_types
from llmb_testing.browser import Browser, find_browser
from llmb_testing.invented_runs import InventedRuns as Night, opening, steps

MORNING = datetime(2025, 11, 21, 7, 30, tzinfo=UTC)
CACHE = Path(os.environ.get("LLMB_TEST_CACHE") or Path(__file__).parents[4] / ".cache" / "tests")
OOM = (
    "7: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 7 has a total"
    " capacity of 79 GiB\n"
)
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=3021, GPU has fallen off the bus.\n"


def fill(night: Night) -> None:
    """About 40 runs: good and slow ones, several scales with repeats, and many kinds of
    failures.
    """
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
    context = CliContext(load_plugins(builtin_plugins()))
    context.install_option = night.folder
    context.__dict__["cluster"] = None  # nobody is asked: states are as they were seen last
    found = gather(context, context.runs(names), Choice())
    report = make_report(context, found, None, MORNING)
    return with_samples(context, report, [record for record, *_ in found], charted(report))


@pytest.fixture
def empty_night(cluster: Callable[..., Path], workloads: dict[str, Workload]) -> Night:
    """The cluster before any run."""
    folder = cluster(
        "slurm", "h100", cluster_name="aurora", slurm={"account": "bench", "gpu": {"gres": 8}}
    )
    config, _ = load_config(folder, {}, cluster_types=all_types)
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


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for all tests of a worker. Tests are skipped if there is none."""
    program = find_browser()
    if program is None:
        pytest.skip("no chromium here: apt-get install --no-install-recommends chromium")
    found = Browser(program, tmp_path_factory.mktemp("profile"))
    try:
        found.start()
        yield found
    finally:
        found.close()


AXE = "axe-core@4.10.2"


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, which finds faults of accessibility: from npm once, then from the
    cache of the tests.
    """
    path = CACHE / f"{AXE}.js"
    if not path.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("no npm here, so no axe-core: apt-get install --no-install-recommends npm")
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [npm, "pack", AXE], cwd=folder, capture_output=True, text=True, check=False
            )
            if done.returncode:
                pytest.skip(f"npm cannot fetch {AXE}: {done.stderr[-300:]}")
            with tarfile.open(next(Path(folder).glob("*.tgz"))) as package:
                script = package.extractfile("package/axe.min.js")
                assert script is not None
                CACHE.mkdir(parents=True, exist_ok=True)
                files.write_text(path, script.read().decode())
    return path.read_text("utf-8")
