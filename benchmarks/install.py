# SPDX-License-Identifier: Apache-2.0
"""How long llmb-install takes over an install directory where all is done: the same command again,
status, verify.

Two workloads, two environments of one package of 5,000 files each, from a wheelhouse; against
`python -c pass` of the same venv, interleaved in one run.
"""

import base64
import hashlib
import statistics
import sys
import tempfile
import zipfile
from pathlib import Path

from llmb.contract.needs import Needs, Venv
from llmb_testing.plugin_writer import write_plugin
from measuring import LLMB_INSTALL, cpu_seconds, environment, parser, report, run, run_seconds

ROUNDS, FILES = 9, 5000


def write_wheel(folder: Path, name: str, count: int) -> None:
    """A wheel of ``count`` small modules, with a RECORD that states every content."""
    info, texts = (
        f"{name}-1.dist-info",
        {f"{name}/m{number}.py": f"x = {number}\n" for number in range(count)},
    )
    texts[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
    texts[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as archive:
        lines = []
        for file, text in texts.items():
            archive.writestr(file, text)
            digest = (
                base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
                .decode()
                .rstrip("=")
            )
            lines.append(f"{file},sha256={digest},{len(text)}\n")
        archive.writestr(f"{info}/RECORD", "".join(lines) + f"{info}/RECORD,,\n")


def main() -> None:
    """Install once, then print median and least of each command."""
    rounds, count = (1, 5) if parser(__doc__).parse_args().small else (ROUNDS, FILES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "wheels").mkdir()
        packages = ("one",) if count < FILES else ("one", "two")
        for package in packages:
            write_wheel(folder / "wheels", package, count)
            need = Venv(name=package, requirements=(f"{package}==1",))
            write_plugin(folder / "plugins", f"pretrain_{package}", Needs(needs=(need,)))
        answers = folder / "answers.yaml"
        answers.write_text(
            f"cluster_type: local\ninstall: {folder}/install\ngpu_type: cpu\nwheelhouse:"
            f" {folder}/wheels\nworkloads:"
            f" [{', '.join(f'pretrain_{package}' for package in packages)}]\n"
        )
        env = {**environment(), "PYTHONPATH": str(folder / "plugins")}
        again = [LLMB_INSTALL, "--config", str(answers), "--yes"]
        where = ["--install", f"{folder}/install"]
        print(f"{'the first installation':32}{run_seconds(again, env):10.2f} s")
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "the same command again": again,
            "llmb-install status": [LLMB_INSTALL, "status", *where],
            "llmb-install verify": [LLMB_INSTALL, "verify", *where],
            "llmb-install verify --deep": [LLMB_INSTALL, "verify", "--deep", *where],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, argv in commands.items():
                times[name].append(run_seconds(argv, env))
        print(f"{'':32}{'median s':>10}{'least s':>10}")
        for name, values in times.items():
            print(f"{name:32}{statistics.median(values):10.2f}{min(values):10.2f}")
        least = min(cpu_seconds(lambda: run(again, env=env)) for _ in range(rounds))
        report({"install again, nothing to do, s": least})


if __name__ == "__main__":
    main()
