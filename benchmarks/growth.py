# SPDX-License-Identifier: Apache-2.0
"""How time and memory of planning, results, jobs and archive grow with the number of jobs or runs.

Prints a table in Markdown: CPU seconds (user) and the most memory of each command by size, and how
many times as long the largest size takes for each job or run as the smallest. 1 is linear. The runs
of 100,000 take 3 GB of disk and half an hour.

python benchmarks/growth.py                     1,000, 10,000 and 100,000
python benchmarks/growth.py --sizes 1000 10000
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml
from runs import CONFIG, make_runs

from measuring import LLMB_RUN, environment, parser

SIZES, SMALL = (1_000, 10_000, 100_000), (10, 20)

CLUSTER = "cluster_type: slurm\ngpu_type: h100\nslurm: {account: team, gpu: {partition: batch}}\n"
DTYPES, SCALES = ("bf16", "fp8"), (16, 32, 64, 128, 256)


class Cost(NamedTuple):
    """The cost of one command."""

    seconds: float  #: of CPU time (user)
    memory: float  #: MB, the most that was resident


def cost_of(words: Sequence[str], folder: Path) -> Cost:
    """Return the cost of one llmb-run. Raises SystemExit with its errors."""
    errors = folder / "errors.txt"
    with errors.open("wb") as stream, Path(os.devnull).open("wb") as nothing:
        process = os.posix_spawn(
            LLMB_RUN,
            [LLMB_RUN, *words],
            environment(),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nothing.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, stream.fileno(), 2),
            ],
        )
        _, status, usage = os.wait4(process, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 3):  # 3: a run failed
        sys.exit(f"error: llmb-run {' '.join(words)}\n{errors.read_text()[-2000:]}")
    return Cost(usage.ru_utime, usage.ru_maxrss / 1024)


def planning(folder: Path, size: int) -> dict[str, Cost]:
    """Return the cost of a dry run of ``size`` jobs: as repeats, and each on a line of its own."""
    (folder / "cluster_config.yaml").write_text(CLUSTER)
    configurations = [(dtype, scale) for dtype in DTYPES for scale in SCALES]
    lists = {
        "plan repeats": [
            f"('{dtype}', [{scale}], {size // len(configurations)})"
            for dtype, scale in configurations
        ],
        "plan lines": [
            "('{}', [{}], 1)".format(*configurations[number % len(configurations)])
            for number in range(size)
        ],
    }
    costs = {}
    for name, lines in lists.items():
        path = folder / f"{name.replace(' ', '-')}.txt"
        path.write_text("\n".join(["pretrain_nemotron4_15b:", *lines, ""]))
        costs[name] = cost_of(
            ["submit-all", str(path), "--dry-run", "--install", str(folder)], folder
        )
    return costs


def reading(folder: Path, size: int) -> dict[str, Cost]:
    """Return the costs of commands that read ``size`` runs that have ended."""
    (folder / "cluster_config.yaml").write_text(
        yaml.safe_dump({**CONFIG, "llmb_install": str(folder)})
    )
    make_runs(folder, size)
    commands = {
        "results, first time": ["results"],
        "results": ["results"],
        "jobs": ["jobs"],
        "archive": ["archive", "-o", str(folder / "runs.tar.zst")],
    }
    return {
        name: cost_of([*words, "--install", str(folder)], folder)
        for name, words in commands.items()
    }


def main() -> None:
    """Measure each size, then print the table."""
    options = parser(__doc__)
    options.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N")
    arguments = options.parse_args()
    sizes = SMALL if arguments.small else sorted(arguments.sizes)
    costs: dict[str, list[Cost]] = {}
    for size in sizes:
        for measure in (planning, reading):
            with tempfile.TemporaryDirectory() as name:
                for command, cost in measure(Path(name), size).items():
                    costs.setdefault(command, []).append(cost)
                    print(
                        f"{size:,} {command}: {cost.seconds:.2f} s, {cost.memory:.0f} MB",
                        file=sys.stderr,
                        flush=True,
                    )
    print(f"| | {' | '.join(f'{size:,}' for size in sizes)} | growth |")
    print("|---|" + "---|" * (len(sizes) + 1))
    for command, row in costs.items():
        cells = " | ".join(f"{cost.seconds:.2f} s, {cost.memory:.0f} MB" for cost in row)
        growth = (row[-1].seconds / row[0].seconds) / (sizes[-1] / sizes[0])
        print(f"| {command} | {cells} | {growth:.2f} |")


if __name__ == "__main__":
    main()
