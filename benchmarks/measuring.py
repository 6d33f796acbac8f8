# SPDX-License-Identifier: Apache-2.0
"""Options, times and figures of the benchmarks.

The last line that a benchmark prints is a JSON object of its figures, by their names in
limits.yaml. With exit code 77 it was skipped, and the last line is the reason. With --small it does
the same work on a small size, in seconds.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NoReturn

SKIPPED = 77
LLMB_RUN = str(Path(sys.executable).with_name("llmb-run"))
LLMB_INSTALL = str(Path(sys.executable).with_name("llmb-install"))
#: Seconds of ``_work`` on the machine on which the limits were set.
_REFERENCE = 0.036


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of command lines with the option that every benchmark has."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--small", action="store_true", help="a small size, only to see that it works"
    )
    return made


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def run(argv: Iterable[str], **options: object) -> None:
    """Run a program to its end, without its output. Raises CalledProcessError with what it printed
    on stderr.
    """
    done = subprocess.run(
        [*argv], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, **options
    )  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.stderr.buffer.write(done.stderr)
        done.check_returncode()


def run_seconds(argv: Iterable[str], environ: Mapping[str, str] | None = None) -> float:
    """Return the wall time of one run of a program."""
    return seconds(lambda: run(argv, env=environ))


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time (user) of the processes that ``work`` starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    work()
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def slowness() -> float:
    """Return how many times as long as on the machine of the limits Python takes here, now.

    It is measured in a new process, because a full heap is slower.
    """
    done = subprocess.run([sys.executable, __file__], check=True, capture_output=True, text=True)
    return float(done.stdout) / _REFERENCE


def _work() -> list[list[str]]:
    """Make and read texts, mappings and lists, as planning and reading do."""
    texts = {str(number): f"name{number} key={number % 97}" for number in range(40_000)}
    return sorted(text.split("=") for name, text in texts.items() if name in texts)


def environment() -> dict[str, str]:
    """Return the variables for a command that keeps its bytecode, as an installed one does, without
    a terminal.
    """
    dropped = {"PYTHONDONTWRITEBYTECODE", "COLUMNS", "LINES"}
    return {name: value for name, value in os.environ.items() if name not in dropped}


def report(figures: Mapping[str, float]) -> None:
    """Print the figures of a benchmark, at its end. Those in seconds have names that end with ",
    s".
    """
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}), flush=True)


def skip(reason: str) -> NoReturn:
    """End a benchmark that cannot run here."""
    print(reason, flush=True)
    raise SystemExit(SKIPPED)


if __name__ == "__main__":
    print(min(seconds(_work) for _ in range(5)))
