# SPDX-License-Identifier: Apache-2.0
"""What a part knows: its folder, the Python with torch, the machine. It records what it finds."""

import json
import shutil
import subprocess
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: In the folder of a part: what it records, and the files that are packed.
RESULTS, KEPT = "results.json", "kept"
SMALL = "CPU, small"
#: The folders of the distributions, and of this package for the programs of parts.
CHECKOUT = [
    ROOT,
    *(ROOT / name for name in ("installer", "sqshpull", "workloads", "testing")),
    *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml")),
]


class CannotRunError(Exception):
    """This machine lacks something that a part needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Values of one part. The folder is outside of the results: only what is kept goes there."""

    folder: Path
    #: The Python of the ranks, which has torch.
    torch_python: str
    #: By key: gpu (its name or null), torch, driver, cpus, kernel, python, date.
    machine: dict[str, Any]

    @property
    def is_gpu(self) -> bool:
        """Return True if torch has a GPU. Otherwise all sizes are small."""
        return self.machine.get("gpu") is not None

    @property
    def size(self) -> str:
        """The GPU's name, or "CPU, small"."""
        return str(self.machine["gpu"]) if self.is_gpu else SMALL

    @property
    def title(self) -> str:
        """The machine in a line."""
        machine = self.machine
        driver = f", driver {machine['driver']}" if machine.get("driver") else ""
        return f"{machine['date']}, {self.size}{driver}, torch {machine.get('torch')}"

    @property
    def kept(self) -> Path:
        """The folder of files to keep."""
        return self.folder / KEPT

    def of_part(self, name: str) -> "Context":
        """Return the context of one part, whose folder is below this one."""
        return replace(self, folder=self.folder / name)

    def to_text(self) -> str:
        """Return the context as an argument of a process."""
        return json.dumps(asdict(self) | {"folder": str(self.folder)})

    @classmethod
    def from_text(cls, text: str) -> "Context":
        """Return the context that an argument has."""
        data = json.loads(text)
        return cls(**data | {"folder": Path(data["folder"])})

    def record(self, name: str, value: Any, line: str | None = None) -> None:
        """Keep a figure now, as a killed part must have it, with a ``line`` for the summary."""
        path = self.folder / RESULTS
        data: dict[str, Any] = {"figures": {"size": self.size}, "lines": []}
        if path.exists():
            data = json.loads(path.read_text("utf-8"))
        data["figures"][name] = value
        if line is not None:
            data["lines"].append(line)
            print(line, flush=True)
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps(data), encoding="utf-8")
        partial.replace(path)

    def keep(self, path: Path, name: str) -> None:
        """Keep a copy of a file under ``name``."""
        target = self.kept / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)

    def start_torch(self, module: str, *words: object) -> "subprocess.Popen[str]":
        """Start a module of this package with the Python that has torch. Its lines can be read."""
        argv = [self.torch_python, "-u", "-m", module, *map(str, words)]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)

    def run_torch(self, module: str, *words: object) -> list[str]:
        """Run a module with the Python that has torch, and return its lines."""
        with self.start_torch(module, *words) as process:
            assert process.stdout is not None
            lines = process.stdout.read().splitlines()
        if process.returncode != 0:
            raise subprocess.CalledProcessError(process.returncode, [module, *map(str, words)])
        return lines


def search_path() -> str:
    """Return PYTHONPATH for processes of this package: the checkout, as nothing is installed."""
    return ":".join(map(str, [ROOT / "benchmarks", *CHECKOUT]))
