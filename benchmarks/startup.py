# SPDX-License-Identifier: Apache-2.0
"""How long llmb-run takes to start, against `python -c pass` of the same venv, interleaved in one run."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 25
TOOL = str(Path(sys.executable).with_name("llmb-run"))
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "click + pluggy + entry points": [
        sys.executable,
        "-c",
        "import click, pluggy; from importlib.metadata import entry_points; entry_points(group='llmb')",
    ],
    "llmb-run --help": [TOOL, "--help"],
    "llmb-run --version": [TOOL, "--version"],
    "llmb-run list": [TOOL, "list"],
}


def seconds(argv: list[str]) -> float:
    """Wall time of one run of a program, its output thrown away."""
    started = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    """Print median and minimum of each command, and their ratio to the first."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, argv in COMMANDS.items():
            times[name].append(seconds(argv))
    base_median, base_least = statistics.median(times["python -c pass"]), min(times["python -c pass"])
    print(f"{'command':32}{'median ms':>10}{'ratio':>7}{'least ms':>10}{'ratio':>7}")
    for name, values in times.items():
        median, least = statistics.median(values), min(values)
        ratios = median / base_median, least / base_least
        print(f"{name:32}{1000 * median:10.1f}{ratios[0]:7.1f}{1000 * least:10.1f}{ratios[1]:7.1f}")


if __name__ == "__main__":
    main()
