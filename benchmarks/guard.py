# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks, then compares their figures with limits.yaml. The exit code is 1 if one is
above its limit.

python benchmarks/guard.py [NAME...]    all benchmarks, or these: startup, logs, ...
python benchmarks/guard.py --small      only see that each runs and measures what limits.yaml names
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from measuring import SKIPPED, parser, slowness

_HERE = Path(__file__).resolve().parent
#: Rows of limits.yaml, by benchmark and by the name of a figure.
Limits = Mapping[str, Mapping[str, Any]]


@dataclass(kw_only=True)
class Outcome:
    """Measured figures by benchmark, and the benchmarks without any."""

    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    #: Why benchmarks were skipped, by their names.
    skipped: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


def run(script: Path, outcome: Outcome, *, is_small: bool) -> None:
    """Run one benchmark, print its lines except the last one, and add the figures of that line.

    Seconds are divided by how much slower this machine is before and after it than that of the
    limits.
    """
    name, last = script.stem, ""
    print(f"== {name}", flush=True)
    before = 1.0 if is_small else slowness()
    argv = [sys.executable, "-u", str(script), *(["--small"] if is_small else [])]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(last, end="", flush=True)
            last = line
    if process.returncode == 0:
        outcome.figures[name] = json.loads(last)
        if not is_small:
            slow = (before + slowness()) / 2
            outcome.figures[name] |= {
                figure: value / slow
                for figure, value in outcome.figures[name].items()
                if figure.endswith(", s")
            }
        return
    print(last, end="", flush=True)
    if process.returncode == SKIPPED:
        outcome.skipped[name] = last.strip()
    else:
        outcome.failed.append(name)


def print_table(limits: Limits, outcome: Outcome) -> None:
    """Print each figure beside its limit."""
    width = max(len(name) for rows in limits.values() for name in rows)
    print(f"\n{'':{width}}{'was':>8}{'is':>8}{'limit':>8}{'goal':>8}")
    for benchmark, rows in limits.items():
        for name, row in rows.items():
            value = outcome.figures.get(benchmark, {}).get(name)
            texts = [
                _text(number) for number in (row.get("was"), value, row["limit"], row.get("goal"))
            ]
            note = (
                "  NOT MEASURED"
                if value is None
                else "  ABOVE THE LIMIT"
                if value > row["limit"]
                else ""
            )
            print(f"{name:{width}}{''.join(f'{text:>8}' for text in texts)}{note}")
        if benchmark in outcome.skipped:
            print(f"  {benchmark} was skipped: {outcome.skipped[benchmark]}")


def faults(limits: Limits, outcome: Outcome, *, is_small: bool) -> list[str]:
    """Return what is wrong. Figures of a small size are not compared with limits."""
    texts = [f"{benchmark}.py failed" for benchmark in outcome.failed]
    for benchmark, figures in outcome.figures.items():
        rows = limits[benchmark]
        texts += [
            f"{benchmark}.py has not measured: {name}" for name in rows if name not in figures
        ]
        texts += [f"limits.yaml has no limit for: {name}" for name in figures if name not in rows]
        if not is_small:
            above = [name for name, row in rows.items() if figures.get(name, 0) > row["limit"]]
            texts += [
                f"above the limit {rows[name]['limit']}: {name} is {_text(figures[name])}"
                for name in above
            ]
    return texts


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def main() -> int:
    """Run the benchmarks and return the exit code."""
    options = parser(__doc__)
    options.add_argument("names", nargs="*", metavar="NAME")
    options.add_argument(
        "--folder", type=Path, default=_HERE, help="of other benchmarks and their limits.yaml"
    )
    arguments = options.parse_args()
    limits = yaml.safe_load((arguments.folder / "limits.yaml").read_text(encoding="utf-8"))
    if unknown := set(arguments.names) - set(limits):
        options.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(limits)}")
    limits = {
        name: rows
        for name, rows in limits.items()
        if name in arguments.names or not arguments.names
    }
    outcome = Outcome()
    for name in limits:
        run(arguments.folder / f"{name}.py", outcome, is_small=arguments.small)
    if not arguments.small:
        print_table(limits, outcome)
    texts = faults(limits, outcome, is_small=arguments.small)
    for text in texts:
        print(f"error: {text}", file=sys.stderr)
    return 1 if texts else 0


if __name__ == "__main__":
    sys.exit(main())
