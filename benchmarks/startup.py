# SPDX-License-Identifier: Apache-2.0
"""How long commands take to start, against `python -c pass` of the same venv, interleaved in one
run. Also with 50 further plugins, each with a hook and no workload.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from measuring import LLMB_INSTALL, LLMB_RUN, environment, parser, report, run_seconds

ROUNDS = 25
BARE = "python -c pass"
COMMANDS = {
    BARE: [sys.executable, "-c", "pass"],
    "click + pluggy + entry points": [
        sys.executable,
        "-c",
        (
            "import click, pluggy; from importlib.metadata import entry_points;"
            " entry_points(group='llmb')"
        ),
    ],
    "llmb-run --help": [LLMB_RUN, "--help"],
    "llmb-run --version": [LLMB_RUN, "--version"],
    "llmb-run list": [LLMB_RUN, "list"],
    "llmb-run parse --help": [LLMB_RUN, "parse", "--help"],
    "llmb-install --help": [LLMB_INSTALL, "--help"],
}
MANY = "llmb-run list, 50 plugins"
LIMITED = ("llmb-run --help", "llmb-run list", "llmb-run parse --help", "llmb-install --help", MANY)
_PLUGIN = """\
from llmb.api import hookimpl

@hookimpl
def llmb_hint(word):
    return None
"""


def write_plugins(folder: Path, count: int = 50) -> None:
    """Write ``count`` distributions with a plugin each, as an installer would."""
    for number in range(count):
        (folder / f"dummy_{number}.py").write_text(_PLUGIN)
        info = folder / f"dummy_{number}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: dummy-{number}\nVersion: 1.0\n"
        )
        (info / "entry_points.txt").write_text(f"[llmb]\nentry = dummy_{number}\n")


def main() -> None:
    """Print median and minimum of each command, and the median of its ratios to the first."""
    rounds = 1 if parser(__doc__).parse_args().small else ROUNDS
    environ = environment()
    commands = {**COMMANDS, MANY: COMMANDS["llmb-run list"]}
    times: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        write_plugins(Path(folder))
        crowded = {**environ, "PYTHONPATH": folder}
        for _ in range(rounds):
            for name, argv in commands.items():
                times[name].append(run_seconds(argv, crowded if name == MANY else environ))
    ratios = {
        name: statistics.median(
            value / bare for value, bare in zip(values, times[BARE], strict=True)
        )
        for name, values in times.items()
    }
    print(f"{'command':32}{'median ms':>10}{'least ms':>10}{'ratio':>7}")
    for name, values in times.items():
        print(
            f"{name:32}{1000 * statistics.median(values):10.1f}{1000 * min(values):10.1f}"
            f"{ratios[name]:7.1f}"
        )
    report({f"{name} / bare python": ratios[name] for name in LIMITED})


if __name__ == "__main__":
    main()
