# SPDX-License-Identifier: Apache-2.0
"""Counts the modules that each command imports, beyond those of `python -c pass`."""

import subprocess
import sys
import tempfile

from measuring import LLMB_INSTALL, LLMB_RUN, environment, parser, report, run

COMMANDS = {
    "llmb-run --help": [LLMB_RUN, "--help"],
    "llmb-run --version": [LLMB_RUN, "--version"],
    "llmb-run list": [LLMB_RUN, "list"],
    "llmb-run submit-all --help": [LLMB_RUN, "submit-all", "--help"],
    "llmb-run jobs --help": [LLMB_RUN, "jobs", "--help"],
    "llmb-run results --help": [LLMB_RUN, "results", "--help"],
    "llmb-run parse --help": [LLMB_RUN, "parse", "--help"],
    "llmb-install --help": [LLMB_INSTALL, "--help"],
    "llmb-install status --help": [LLMB_INSTALL, "status", "--help"],
}


def modules(words: list[str], home: str) -> set[str]:
    """Return the modules that Python imports for a program that has run before."""
    environ = {**environment(), "HOME": home}
    run([sys.executable, *words], env=environ)
    argv = [sys.executable, "-X", "importtime", *words]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def main() -> None:
    """Print the numbers, and of how many packages the modules are."""
    parser(__doc__).parse_args()
    figures = {}
    with tempfile.TemporaryDirectory() as home:
        bare = modules(["-c", "pass"], home)
        print(f"{'command':32}{'modules':>8}{'of llmb':>9}{'of Python':>11}{'of others':>11}")
        for name, words in COMMANDS.items():
            imported = modules(words, home) - bare
            llmb = sum(module.startswith("llmb") for module in imported)
            python = sum(module.partition(".")[0] in sys.stdlib_module_names for module in imported)
            print(
                f"{name:32}{len(imported):8}{llmb:9}{python:11}{len(imported) - llmb - python:11}"
            )
            figures[name] = len(imported)
    report(figures)


if __name__ == "__main__":
    main()
