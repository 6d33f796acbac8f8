# SPDX-License-Identifier: Apache-2.0
"""How long llmb-install takes over an install directory where all is done: the same command again, status, verify.

Two workloads, two environments of one package of 5,000 files each, from a wheelhouse; against `python -c pass` of the
same venv, interleaved in one run.
"""

import base64
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from llmb.workload.needs import Needs, Venv
from llmb_testing.plugin_writer import write_plugin

ROUNDS, FILES = 9, 5000
TOOL = str(Path(sys.executable).with_name("llmb-install"))


def write_wheel(folder: Path, name: str) -> None:
    """A wheel of many small modules, with a RECORD that states every content."""
    info, texts = f"{name}-1.dist-info", {f"{name}/m{number}.py": f"x = {number}\n" for number in range(FILES)}
    texts[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
    texts[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as archive:
        lines = []
        for file, text in texts.items():
            archive.writestr(file, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
            lines.append(f"{file},sha256={digest},{len(text)}\n")
        archive.writestr(f"{info}/RECORD", "".join(lines) + f"{info}/RECORD,,\n")


def seconds(argv: list[str], env: dict[str, str]) -> float:
    """Wall time of one run of a program, its output thrown away."""
    started = time.perf_counter()
    subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    """Install once, then print median and least of each command."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "wheels").mkdir()
        for package in ("one", "two"):
            write_wheel(folder / "wheels", package)
            need = Venv(name=package, requirements=(f"{package}==1",))
            write_plugin(folder / "plugins", f"pretrain_{package}", Needs(needs=(need,)))
        answers = folder / "answers.yaml"
        answers.write_text(
            f"cluster_type: local\ninstall: {folder}/install\ngpu_type: cpu\nwheelhouse: {folder}/wheels\n"
            "workloads: [pretrain_one, pretrain_two]\n"
        )
        env = {**os.environ, "PYTHONPATH": str(folder / "plugins")}
        again = [TOOL, "--config", str(answers), "--yes"]
        where = ["--install", f"{folder}/install"]
        print(f"{'the first installation':32}{seconds(again, env):10.2f} s")
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "the same command again": again,
            "llmb-install status": [TOOL, "status", *where],
            "llmb-install verify": [TOOL, "verify", *where],
            "llmb-install verify --deep": [TOOL, "verify", "--deep", *where],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, argv in commands.items():
                times[name].append(seconds(argv, env))
        print(f"{'':32}{'median s':>10}{'least s':>10}")
        for name, values in times.items():
            print(f"{name:32}{statistics.median(values):10.2f}{min(values):10.2f}")


if __name__ == "__main__":
    main()
