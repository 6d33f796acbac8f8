# SPDX-License-Identifier: Apache-2.0
"""How long llmb-run takes to submit 200 jobs to a real Slurm, against a bare loop of sbatch over
the same scripts.
"""

import statistics
import tempfile
from pathlib import Path

import yaml

from llmb_testing.slurm import Shape, SlurmKit, missing_packages
from measuring import LLMB_RUN, environment, parser, report, run, seconds, skip

JOBS, ROUNDS = 200, 7
# Held, so that no job runs while another is submitted.
WORDS = [
    "single",
    "-w",
    "nemotron4",
    "-s",
    "tiny",
    "--dtype",
    "fp32",
    "--scale",
    "1",
    "--slurm-arg",
    "hold",
]


def make_install(folder: Path) -> Path:
    """An install directory for the test cluster, with a stand-in for its environment of Python."""
    python = folder / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    # nothing is lacking there
    (folder / "venv" / "pyvenv.cfg").write_text("include-system-site-packages = true\n")
    workloads = {"config": {"pretrain_nemotron4": {"venv_path": str(folder / "venv")}}}
    config = {
        "schema_version": 2,
        "cluster_type": "slurm",
        "gpu_type": "h100",
        "workloads": workloads,
    }
    config["slurm"] = {"container": "none", "gpu": {"gres": 8}}
    (folder / "cluster_config.yaml").write_text(yaml.safe_dump(config))
    return folder


def round_of(kit: SlurmKit, folder: Path, jobs: int) -> tuple[float, float]:
    """Seconds of llmb-run, and of the bare loop over the scripts that it has sent."""
    install, environ = make_install(folder), {**environment(), **kit.environ}

    def submit_bare() -> None:
        for script in scripts:
            run(["sbatch", "--parsable", str(script)], env=environ)

    ours = seconds(
        lambda: run(
            [LLMB_RUN, *WORDS, "--repeats", str(jobs), "--install", str(install)], env=environ
        )
    )
    scripts = sorted(install.glob("workloads/*/experiments/*/*/launch_*"))
    assert len(scripts) == jobs, f"{len(scripts)} scripts"
    kit.run("scancel", "--state=PENDING")
    bare = seconds(submit_bare)
    kit.run("scancel", "--state=PENDING")
    return ours, bare


def main() -> None:
    """Print the times of each round, and the median of their ratios."""
    jobs, rounds = (3, 1) if parser(__doc__).parse_args().small else (JOBS, ROUNDS)
    if missing := missing_packages(accounting=False):
        skip(f"no real Slurm here: apt-get install --no-install-recommends {' '.join(missing)}")
    print(f"{jobs} jobs{'llmb-run':>16}{'sbatch loop':>16}{'ratio':>8}")
    ratios = []
    # Nothing is removed between rounds: ext4 makes files more slowly for a while after many were
    # removed.
    with SlurmKit(Shape(accounting=False)) as kit, tempfile.TemporaryDirectory() as name:
        for number in range(rounds):
            ours, bare = round_of(kit, Path(name) / str(number), jobs)
            ratios.append(ours / bare)
            print(f"{'':>8}{ours:14.2f} s{bare:14.2f} s{ours / bare:8.2f}", flush=True)
    print(f"{'median':>8}{statistics.median(ratios):40.2f}")
    report({"200 submissions / loop of sbatch": statistics.median(ratios)})


if __name__ == "__main__":
    main()
