# SPDX-License-Identifier: Apache-2.0
"""How long commands take to start, against `python -c pass` of the same venv, interleaved in one
run.
"""

import statistics
import sys

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
LIMITED = ("llmb-run --help", "llmb-run list", "llmb-run parse --help", "llmb-install --help")


def main() -> None:
    """Print median and minimum of each command, and the median of its ratios to the first."""
    rounds = 1 if parser(__doc__).parse_args().small else ROUNDS
    environ = environment()
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, argv in COMMANDS.items():
            times[name].append(run_seconds(argv, environ))
    ratios = {
        name: statistics.median(
            value / bare for value, bare in zip(values, times[BARE], strict=True)
        )
        for name, values in times.items()
    }
    print(f"{'command':32}{'median ms':>10}{'least ms':>10}{'ratio':>7}")
    for name, values in times.items():
        print(
            f"{name:32}{1000 * statistics.median(values):10.1f}{1000 * min(values):10.1f}{ratios[name]:7.1f}"
        )
    report({f"{name} / bare python": ratios[name] for name in LIMITED})


if __name__ == "__main__":
    main()
