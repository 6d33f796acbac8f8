# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of planning 1,000 jobs and of reading 100 MB of log. Fails above a
committed number.

Valgrind's callgrind counts them, so the load of the machine does not matter. The instructions of
starting Python and of importing llmb are subtracted. Those of planning are divided by those of a
reference, which is plain Python: two builds of one Python version need different numbers of
instructions for the same work. Reading is mostly work of libc, whose instructions are the same for
both.

python benchmarks/instructions.py             compare with instructions.yaml; the exit code is
                                              1 if a figure is 10 % above, 77 if none was compared
python benchmarks/instructions.py --accept    write the figures of this version of Python into it
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

import logs
import planning
from measuring import parser, run, skip

_HERE = Path(__file__).resolve().parent
_NUMBERS, _LOCK = _HERE / "instructions.yaml", _HERE.parent / "uv.lock"
_HEADER = """\
# SPDX-License-Identifier: Apache-2.0
# Instructions of planning and of reading, divided by those of plain Python work, by version of
# Python.
# lock is the digest of uv.lock when they were counted. `make bench-check` compares,
# `make bench-check ARGS=--accept` writes this file.
"""
MARGIN = 0.1
JOBS, BYTES = 1_000, 100_000_000


def count(words: Sequence[str], prints: str) -> int:
    """Return the instructions of the second run of ``piece.py WORDS``, which prints ``prints``."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
    }
    argv = [sys.executable, str(_HERE / "piece.py"), *words]
    run(argv, env=environ)
    done = subprocess.run(
        [*valgrind, *argv],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    match = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or match is None or done.stdout.strip() != prints:
        sys.exit(
            f"error: piece.py {' '.join(words)} under callgrind printed"
            f" {done.stdout!r}\n{done.stderr[-2000:]}"
        )
    return int(match[1])


def measure(folder: Path) -> dict[str, float]:
    """Print the instructions, and return those of planning by the reference and those of reading in
    millions.
    """
    planning.write(folder, "slurm", JOBS // planning.CONFIGURATIONS)
    log = folder / "trace.out"
    logs.write_trace(log, next(iter(logs.HOSTS)), BYTES)
    pieces = {
        "nothing": (["nothing"], ""),
        "reference": (["reference"], "20000 200010000"),
        "plan": (["plan", str(folder)], str(JOBS)),
        "read": (["read", str(log)], "5"),
    }
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        counted = dict(
            zip(pieces, pool.map(lambda piece: count(*piece), pieces.values()), strict=True)
        )
    nothing = counted.pop("nothing")
    millions = {name: (number - nothing) / 1e6 for name, number in counted.items()}
    print(
        ", ".join(f"{name}: {number:,.0f}" for name, number in millions.items()),
        "million instructions",
    )
    return {
        f"plan {JOBS:,} jobs / reference": millions["plan"] / millions["reference"],
        f"read {BYTES // 10**6} MB of log, million": millions["read"],
    }


def check(figures: Mapping[str, float], rows: Mapping[str, Any], digest: str) -> int:
    """Print the figures beside those of instructions.yaml, and return the exit code."""
    code = 0
    for name, figure in figures.items():
        change = figure / rows[name] - 1
        print(f"{name:34}{figure:8.2f}, {rows[name]:.2f} in instructions.yaml ({change:+.1%})")
        if change > MARGIN:
            print(f"error: {name}: more than {MARGIN:.0%} above instructions.yaml", file=sys.stderr)
            code = 1
        elif change < -MARGIN:
            print(f"note: {name}: lower the number: make bench-check ARGS=--accept")
    if rows["lock"] != digest:
        print(
            "note: uv.lock is another than when instructions.yaml was written, so a package may be"
            " what has changed"
        )
    return code


def main() -> int:
    """Count, then compare or write. Returns the exit code."""
    options = parser(__doc__)
    options.add_argument(
        "--accept", action="store_true", help="write the figures into instructions.yaml"
    )
    arguments = options.parse_args()
    if shutil.which("valgrind") is None:
        skip(
            "NOT CHECKED: the instructions of planning and reading; apt-get install"
            " --no-install-recommends valgrind"
        )
    version = ".".join(platform.python_version_tuple()[:2])
    digest = hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:16]
    with tempfile.TemporaryDirectory() as name:
        figures = measure(Path(name))
    numbers = yaml.safe_load(_NUMBERS.read_text(encoding="utf-8"))
    if arguments.accept:
        numbers[version] = {
            "lock": digest,
            **{name: round(figure, 2) for name, figure in figures.items()},
        }
        _NUMBERS.write_text(_HEADER + yaml.safe_dump(numbers), encoding="utf-8")
        return 0
    if version not in numbers:
        skip(f"NOT CHECKED: instructions.yaml has no numbers of Python {version}")
    return check(figures, numbers[version], digest)


if __name__ == "__main__":
    sys.exit(main())
