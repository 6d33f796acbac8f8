# SPDX-License-Identifier: Apache-2.0
"""Builds a Python environment beside the one in use, and puts it in place when it is whole.

``venvs/<name>`` is a link to a folder of this build alone. So one that was killed is never taken for whole, a pip that
outlives its installer writes where nobody looks, and a build that fails leaves the environment in use as it was.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import uuid
from pathlib import Path
from typing import Any

from llmb import files, shell
from llmb.errors import LlmbError
from llmb_installer.steps import VenvStep
from llmb_installer.torch_source import index_for, torch_line

TAIL, WIDTH = 8, 300  # lines of the log that an error shows, and characters of each

# What pip prints for a known cause, and its cure.
_CURES = (
    ("Retrying (", "check the network, pip's index and proxy (pip config list), torch_index and torch_cpu_index"),
    ("No matching distribution", "check 'versions' in the answers, and where pip looks: pip config list"),
    ("ResolutionImpossible", "the versions in the answers do not go together: change one"),
    ("No space left", "free space there and in TMPDIR, where pip unpacks"),
    ("ensurepip", "install the venv module (Debian: apt-get install python3-venv), or set 'python' in the answers"),
    ("SSL", "tell pip of your site's certificates: pip config set global.cert FILE"),
    ("401", "pip takes a user and password from ~/.netrc or its own configuration"),
)


def build(step: VenvStep, log: Path) -> dict[str, Any]:
    """Make the environment of ``step`` and switch to it; its facts for the record.

    What the programs print goes to ``log``. Raises LlmbError with their last lines; then nothing has changed.
    """
    venvs, name = step.path.parent, step.need.name
    _sweep(venvs, name)
    folder = venvs / f".{name}.{uuid.uuid4().hex[:8]}"
    files.write_text(log, f"{step.key}: {', '.join(step.need.requirements)}\n")
    try:
        _fill(step, folder, log)
        facts = _facts(folder)
        _switch(step.path, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _sweep(venvs, name)
    return facts


def _fill(step: VenvStep, folder: Path, log: Path) -> None:
    _run("python -m venv", [interpreter(step.python), "-I", "-m", "venv", str(folder)], log)
    wanted, limits = folder / "requirements.txt", folder / "constraints.txt"
    files.write_text(wanted, "\n".join(step.need.requirements) + "\n")
    files.write_text(limits, "\n".join(step.need.constraints) + "\n")
    pip = [str(folder / "bin" / "python"), "-I", "-m", "pip"]
    install = [*pip, "install", "--no-input", "--disable-pip-version-check", "--constraint", str(limits)]
    _run("pip's own update", [*install, "pip>=22.2"], log)  # the first that has --report; a newer one stays as it is
    torch = torch_line(step.need.requirements)
    if torch is not None and (index := _torch_index(step, [*install, torch], folder, log)) is not None:
        _run(f"pip install of torch from {index}", [*install, "--no-deps", "--index-url", index, torch], log)
    _run("pip install", [*install, "--requirement", str(wanted)], log)


def _torch_index(step: VenvStep, install: list[str], folder: Path, log: Path) -> str | None:
    """The index for torch alone; asks pip what it would take where that matters."""
    source, answer = step.torch, folder / "torch-report.json"
    if source.index is not None or source.cpu_index is None:
        return source.index
    _run("pip's dry run for torch", [*install, "--dry-run", "--quiet", "--report", str(answer)], log)
    return index_for(source, files.read_json(answer) or {"install": []})


def interpreter(python: str | None) -> str:
    """The program for ``python``: ``3.12`` is python3.12, None this one. Raises LlmbError when it is not here."""
    if python is None:
        return sys.executable
    name = f"python{python}" if re.fullmatch(r"\d+\.\d+", python) else str(Path(python).expanduser())
    found = shutil.which(name)
    if found is None:
        raise LlmbError(f"there is no Python '{name}' here", hint="set 'python' in the answers to one that is")
    return found


def _facts(folder: Path) -> dict[str, Any]:
    """Its folder, Python version and packages, and the list that pip would make the same one of."""
    pip = [str(folder / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check"]
    packages = json.loads(_read([*pip, "list", "--format", "json"]))
    versions = re.findall(r"^version(?:_info)? *= *(\S+)", (folder / "pyvenv.cfg").read_text(), re.MULTILINE)
    return {
        "folder": folder.name,
        "python": versions[0] if versions else "",
        "packages": {item["name"]: item["version"] for item in packages},
        "freeze": _read([*pip, "freeze", "--all"]).splitlines(),
    }


def _switch(path: Path, folder: Path) -> None:
    """Let ``path`` be a link to ``folder``, in one step."""
    link = path.with_name(f"{folder.name}.link")
    try:
        link.symlink_to(folder.name)
        link.replace(path)
    except OSError as error:
        link.unlink(missing_ok=True)
        raise LlmbError(f"{path} cannot be replaced: {error.strerror}", hint="move it away") from error


def _sweep(venvs: Path, name: str) -> None:
    """Remove the builds of ``name`` that ``venvs/<name>`` does not lead to."""
    link = venvs / name
    used = link.readlink().name if link.is_symlink() else None
    for path in venvs.glob(f".{name}.*"):
        if path.name == used or not re.fullmatch(rf"\.{re.escape(name)}\.[0-9a-f]{{8}}(\.link)?", path.name):
            continue
        path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)


def _run(what: str, argv: list[str], log: Path) -> None:
    """Run one program of the step. Raises LlmbError with ``what`` it was, the end of its output, and a cure."""
    code = shell.run_logged(argv, log)
    if code == 0:
        return
    told = _end_of(log.read_text("utf-8", "replace"))
    cure = next((cure for word, cure in _CURES if word in told), "mend the cause and give the same command again")
    raise LlmbError(f"{what} failed with exit code {code}:\n{told}", hint=f"{cure}; all of its output: {log}")


def _end_of(output: str) -> str:
    """The last lines of ``output``, of pip's repeated trials to connect only the last."""
    lines = [line for line in output.splitlines() if line.strip()]
    trials = [line for line in lines if line.startswith("WARNING: Retrying")]
    told = [line for line in lines if line not in trials[:-1]]
    return "\n".join(f"  {line[:WIDTH]}" for line in told[-TAIL:])


def _read(argv: list[str]) -> str:
    done = shell.run(argv)
    if done.code != 0:
        raise LlmbError(f"{' '.join(argv)} ended with exit code {done.code}:\n{done.err.strip()}")
    return done.out
