# SPDX-License-Identifier: Apache-2.0
"""An install directory on this machine in the flow that users have, and llmb's commands there."""

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import yaml

from gpu.context import CHECKOUT, CannotRunError, Context

PLUGINS = Path(__file__).with_name("plugins")
TRAINING, FAILURES, MICROBENCH = "pretrain_gpu", "gpu_failures", "microbench"
_ANSWERS = {
    "cluster_type": "local",
    "cluster_name": "gpu",
    "gpu_type": "auto",
    "workloads": [TRAINING, FAILURES],
}
_COMMANDS = {"llmb-install": "llmb_installer.entry", "llmb-run": "llmb.cli.entry"}


class Site:
    """One install directory. Every command's words, exit code and output are kept."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.folder = context.folder / "install"
        self._python = _make_environment(context.folder / "python", context.folder / "metadata")
        inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self._environment = {
            **inherited,
            "LLMB_PLUGINS": str(PLUGINS),
            "LLMB_INSTALL": str(self.folder),
            "LLMB_STATE_DIR": str(context.folder / "state"),
            "COLUMNS": "120",
        }
        self._transcript = context.kept / "commands.txt"
        self._install()

    def _install(self) -> None:
        """Run llmb-install, then name the Python with torch, as docs/install.md shows it."""
        prefix = _prefix(self.context.torch_python)
        answers = self.context.folder / "answers.yaml"
        answers.write_text(yaml.safe_dump(_ANSWERS | {"install": str(self.folder)}))
        self.call("llmb-install", "--config", answers, "--yes")
        path = self.folder / "cluster_config.yaml"
        config = yaml.safe_load(path.read_text("utf-8"))
        config["workloads"]["installed"].append(MICROBENCH)
        for name in config["workloads"]["installed"]:
            config["workloads"]["config"][name] = {"venv_path": prefix}
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        self.gpu_type = config["gpu_type"]
        self.context.record("gpu_type", self.gpu_type, f"llmb-install detected: {self.gpu_type}")

    def call(self, command: str, *words: object, codes: tuple[int, ...] = (0,)) -> str:
        """Run a command of llmb and return what it prints. Raises on other exit codes."""
        start = f"from {_COMMANDS[command]} import main; main()"
        argv = [self._python, "-c", start, *map(str, words)]
        done = subprocess.run(
            argv,
            cwd=self.context.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        shown = f"$ {command} {' '.join(map(str, words))}"
        with self._transcript.open("a", encoding="utf-8") as stream:
            stream.write(f"{shown}\n{done.stdout}{done.stderr}[exit code {done.returncode}]\n\n")
        if done.returncode not in codes:
            raise RuntimeError(f"{shown}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
        return done.stdout

    def run(self, *words: object, codes: tuple[int, ...] = (0,)) -> str:
        """Run llmb-run."""
        return self.call("llmb-run", *words, codes=codes)

    def submit(self, *words: object) -> list[dict[str, Any]]:
        """Submit, wait, and return the results. A failed run or verdict is a result too."""
        words = ("submit", *words, "--wait", "--format", "json")
        answer = json.loads(self.run(*words, codes=(0, 1, 3)))
        results: list[dict[str, Any]] = answer["results"] if isinstance(answer, dict) else []
        if not results:
            text = self._transcript.read_text("utf-8")
            raise RuntimeError(f"nothing was submitted:\n{text[-1500:]}")
        return results

    def keep_log(self, result: dict[str, Any], name: str) -> None:
        """Keep the log of a run as ``name.log``, and its telemetry beside it."""
        if result.get("path") is None:
            return
        log = Path(result["path"])
        self.context.keep(log, f"{name}.log")
        for path in log.parent.glob("telemetry-*.jsonl"):
            self.context.keep(path, f"{name}-telemetry.jsonl")


def _make_environment(folder: Path, metadata: Path) -> str:
    """Make a Python environment that has this Python's packages and the checkout, by their paths.

    PYTHONPATH would not do: the queue of the local cluster does not inherit it.
    """
    argv = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(argv, check=True, cwd=folder.parent)
    _write_metadata(metadata)
    standard = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    packages = [
        path
        for path in map(Path, sys.path)
        if path.is_dir() and str(path) not in standard and path.name != "lib-dynload"
    ]
    python = str(folder / "bin" / "python")
    where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()
    paths = dict.fromkeys(map(str, [metadata, *CHECKOUT, *packages]))
    # Each of these folders may have such files itself, as editable installs do.
    lines = (f"import site; site.addsitedir({path!r})\n" for path in paths)
    Path(own, "checkout.pth").write_text("".join(lines))
    return python


def _prefix(python: str) -> str:
    """Return the folder of a Python environment. Its `bin/python` is the ranks' Python."""
    argv = [python, "-c", "import sys; print(sys.prefix)"]
    prefix = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(prefix, "bin", "python").exists():
        raise CannotRunError(f"{prefix}/bin/python does not exist: use a Python environment")
    return prefix


def _write_metadata(folder: Path) -> None:
    """Write the metadata of each distribution, by which plugins are found without installation."""
    for project in (path / "pyproject.toml" for path in CHECKOUT):
        table = tomllib.loads(project.read_text("utf-8"))["project"]
        name, version = table["name"], table["version"]
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (info / "METADATA").write_text(text)
        groups = table.get("entry-points", {})
        lines = (
            line
            for group, entries in groups.items()
            for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()))
        )
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
