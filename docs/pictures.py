# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of docs/images from an example with invented figures: `make pictures` (needs
Chromium).

Nobody measured what they show: the runs, times and nodes of this cluster are made up, and its name
says so.
"""

import base64
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.spec import Workload
from llmb.plan.config_layers import load_config
from llmb.plugins.loader import load_plugins
from llmb_installer.cluster_types import all_types
from llmb_testing.browser import Browser, find_browser
from llmb_testing.invented_runs import InventedRuns

IMAGES = Path(__file__).with_name("images")
NAME = "example-invented-figures"
TOOL = str(Path(sys.executable).with_name("llmb-run"))
CONFIG = {
    "schema_version": 2,
    "cluster_type": "slurm",
    "cluster_name": NAME,
    "gpu_type": "h100",
    "slurm": {"account": "bench", "container": "pyxis", "gpu": {"partition": "batch", "gres": 8}},
    "workloads": {"installed": ["pretrain_nemotron4", "pretrain_llama3.1", "pretrain_nemotronh"]},
}
OOM = (
    "7: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 7 has 79 GiB in"
    " total\n"
)
DAY = 86400
NIGHTS = 8
QUALITY = 82  # of WebP
SIZES = {"phone": (390, 844), "desktop": (1440, 900)}


def one_night(runs: InventedRuns, factor: float, *, clocks: bool, last: bool) -> None:
    """The same seven configurations; ``factor``: of all times; ``clocks``: whether some nodes have
    low ones.
    """
    runs.measured(2.757 * factor, "nemotron4_15b", "bf16", 16, repeats=3)
    runs.measured(2.79 * factor, "nemotron4_15b", "bf16", 64, repeats=3)
    runs.measured(1.99 * factor, "nemotron4_15b", "fp8", 16, repeats=2)
    clock = 1395 if clocks else 1980
    runs.measured((4.95 if clocks else 4.42) * factor, "nemotron4_340b", "bf16", 512, clock=clock)
    runs.measured((2.33 if clocks else 2.08) * factor, "nemotron4_15b", "fp8", 64, clock=clock)
    if last:
        runs.measured(3.5, "nemotron4_340b", "fp8", 256, network="Socket")
        runs.run(runs.job("llama3.1_8b", "bf16", 8), OOM, "FAILED", exit_code=1)


def make_example(folder: Path, workloads: Mapping[str, Workload]) -> tuple[InventedRuns, list[str]]:
    """The install directory of the example; the ids of its last night."""
    (folder / "cluster_config.yaml").write_text(
        yaml.safe_dump({**CONFIG, "llmb_install": str(folder)})
    )
    runs = InventedRuns(
        folder=folder,
        config=load_config(folder, {}, cluster_types=all_types)[0],
        workloads=workloads,
    )
    for night in range(NIGHTS):
        before = len(runs.made)
        driver, version = ("575.51.03", "0.2.0") if night >= 3 else ("570.86.15", "0.1.0")
        if night:
            runs.later(DAY * (3 if night == 5 else 1), driver=driver, version=version)
        one_night(
            runs, 0.985 if night >= 3 else 1.0, clocks=night == NIGHTS - 1, last=night == NIGHTS - 1
        )
    return runs, [run.id for run in runs.made[before:]]


def llmb(folder: Path, *words: str) -> str:
    """All that the command prints, in a terminal of 120 columns; it may end with 3, since verdicts
    are bad.
    """
    environment = {
        **os.environ,
        "COLUMNS": "120",
        "TZ": "UTC",
        "NO_COLOR": "1",
        "LLMB_INSTALL": str(folder),
    }
    done = subprocess.run(
        [TOOL, *words], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr)
    return f"{done.stdout}{done.stderr}"


def shoot(browser: Browser, page: Path, name: str) -> None:
    """The first screen of a page on a phone and on a desktop, light and dark, and how large the
    pictures are.
    """
    for size, (width, height) in SIZES.items():
        for scheme in ("light", "dark"):
            browser.width(width, scheme=scheme, height=height, scale=2 if size == "phone" else 1)
            browser.open(page)
            data = browser.ask("Page.captureScreenshot", format="webp", quality=QUALITY)["data"]
            path = IMAGES / f"{name}-{size}-{scheme}.webp"
            path.write_bytes(base64.b64decode(data))
            print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def main() -> int:
    """Write all pictures; 1 without a browser."""
    program = find_browser()
    if program is None:
        print("no chromium here: apt-get install --no-install-recommends chromium", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "llmb"
        folder.mkdir()
        _, last = make_example(folder, load_plugins(builtin_plugins()).workloads())
        table = llmb(folder, "results", *last)
        (IMAGES / "verdict.txt").write_text(
            f"Example with invented figures: nobody measured them.\n\n{table}"
        )
        pages = {"report": ("report", *last), "history": ("report", "--history")}
        for page, words in pages.items():
            llmb(folder, *words, "-o", f"{name}/{page}.html")
        browser = Browser(program, Path(name) / "profile")
        try:
            browser.start()
            browser.ask("Emulation.setScrollbarsHidden", hidden=True)
            for page in pages:
                shoot(browser, Path(name) / f"{page}.html", page)
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
