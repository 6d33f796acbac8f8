# SPDX-License-Identifier: Apache-2.0
"""How long llmb-run takes to submit 200 jobs to a real Slurm, against a bare loop of sbatch over the same scripts."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from llmb_testing.slurm import Shape, SlurmKit, missing_packages

JOBS, ROUNDS = 200, 7
TOOL = str(Path(sys.executable).with_name("llmb-run"))
# Held, so that no job runs while another is submitted.
WORDS = ["single", "-w", "nemotron4", "-s", "tiny", "--dtype", "fp32", "--scale", "1", "--slurm-arg", "hold"]


def make_install(folder: Path) -> Path:
    """An install directory for the test cluster, with a stand-in for its environment of Python."""
    python = folder / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    (folder / "venv" / "pyvenv.cfg").write_text("include-system-site-packages = true\n")  # nothing is lacking there
    workloads = {"config": {"pretrain_nemotron4": {"venv_path": str(folder / "venv")}}}
    config = {"schema_version": 2, "cluster_type": "slurm", "gpu_type": "h100", "workloads": workloads}
    config["slurm"] = {"container": "none", "gpu": {"gres": 8}}
    (folder / "cluster_config.yaml").write_text(yaml.safe_dump(config))
    return folder


def seconds(argvs: list[list[str]], environ: dict[str, str]) -> float:
    """Wall time of programs one after another."""
    started = time.perf_counter()
    for argv in argvs:
        subprocess.run(argv, env=environ, check=True, capture_output=True)
    return time.perf_counter() - started


def round_of(kit: SlurmKit, folder: Path) -> tuple[float, float]:
    """Seconds of llmb-run, and of the bare loop over the scripts that it has sent."""
    install, environ = make_install(folder), {**os.environ, **kit.environ}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled once, not at each start
    ours = seconds([[TOOL, *WORDS, "--repeats", str(JOBS), "--install", str(install)]], environ)
    scripts = sorted(install.glob("workloads/*/experiments/*/*/launch_*"))
    assert len(scripts) == JOBS, f"{len(scripts)} scripts"
    kit.run("scancel", "--state=PENDING")
    bare = seconds([["sbatch", "--parsable", str(script)] for script in scripts], environ)
    kit.run("scancel", "--state=PENDING")
    return ours, bare


def main() -> None:
    """Print the times of each round, and the median of their ratios."""
    if missing := missing_packages(accounting=False):
        sys.exit(f"no real Slurm here: apt-get install --no-install-recommends {' '.join(missing)}")
    print(f"{JOBS} jobs{'llmb-run':>16}{'sbatch loop':>16}{'ratio':>8}")
    ratios = []
    # Nothing is removed between rounds: ext4 makes files more slowly for a while after many were removed.
    with SlurmKit(Shape(accounting=False)) as kit, tempfile.TemporaryDirectory() as name:
        for number in range(ROUNDS):
            ours, bare = round_of(kit, Path(name) / str(number))
            ratios.append(ours / bare)
            print(f"{'':>8}{ours:14.2f} s{bare:14.2f} s{ours / bare:8.2f}", flush=True)
    print(f"{'median':>8}{statistics.median(ratios):40.2f}")


if __name__ == "__main__":
    main()
