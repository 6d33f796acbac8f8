# SPDX-License-Identifier: Apache-2.0
"""Chooses and installs packages with uv, in the way that pip's configuration would have pip do it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmb.errors import LlmbError
from llmb.system import files
from llmb.system.shell import StoppedError
from llmb_installer.execution.subprocesses import Commands
from llmb_installer.venv import pipconf
from llmb_installer.venv.lock import Lock
from llmb_installer.venv.torch_source import index_for, is_spare, torch_line

if TYPE_CHECKING:
    from llmb_installer.venv.venv_step import VenvStep

_PROJECT = """\
[project]
name = "llmb-wanted"
version = "0"
dependencies = [{torch}]
[tool.uv.sources]
torch = {{ index = "torch" }}
[[tool.uv.index]]
name = "torch"
url = {index}
explicit = true
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uv:
    """The program ``uv`` for the environment ``folder``; ``commands`` runs it."""

    uv: str
    folder: Path
    commands: Commands

    def resolve(self, step: VenvStep, made_for: str) -> Lock:
        """Have uv choose the packages for ``step``. Raises LlmbError."""
        torch, source = torch_line(step.need.requirements), step.torch
        index = source.index if torch is not None else None
        own: Lock | None = None
        if index is None:
            lines = self._compile("uv's choice of packages", step, step.need.requirements)
            own = _lock(made_for, lines)
            index = index_for(source, _report(lines)) if torch is not None else None
            if index is None:
                return own
        project = self.folder / "wanted" / "pyproject.toml"
        files.write_text(project, _PROJECT.format(torch=json.dumps(torch), index=json.dumps(index)))
        others = [line for line in step.need.requirements if line != torch]
        try:
            lines = self._compile(f"uv's choice with torch from {index}", step, others, str(project))
        except LlmbError as error:
            if own is None or isinstance(error, StoppedError) or not is_spare(source):
                raise
            return replace(own, done_without=index)
        torch_lines = tuple(line for line in lines if _name(line) == "torch")
        rest = _lock(made_for, [line for line in lines if _name(line) != "torch"])
        return Lock(made_for=made_for, hashed=rest.hashed, plain=rest.plain, torch_index=index, torch=torch_lines)

    def install(self, step: VenvStep, lock: Lock) -> None:
        """Install what the lock says, and nothing else. Raises LlmbError."""
        options = [*self._pip("install"), *self._sources(step), "--no-deps", "--compile-bytecode"]
        if lock.torch:
            index = ["--default-index", lock.torch_index] if lock.torch_index is not None else []
            named = ["--require-hashes", "--requirement", self._write("lock-torch.txt", lock.torch)]
            self.commands.run(f"uv pip install of torch from {lock.torch_index}", [*options, *index, *named])
        if lock.hashed:
            named = ["--require-hashes", "--requirement", self._write("lock.txt", lock.hashed)]
            self.commands.run("uv pip install", [*options, *named])
        if lock.plain:
            named = ["--requirement", self._write("lock-plain.txt", lock.plain)]
            self.commands.run("uv pip install from repositories", [*options, *named])

    def build(self, step: VenvStep) -> None:
        """Build what comes from source against the packages that are there now. Raises LlmbError."""
        named = ["--no-deps", "--no-build-isolation", "--requirement", self._write("source.txt", step.need.from_source)]
        self.commands.run("uv pip install from source", [*self._pip("install"), *self._sources(step), *named])

    def _compile(self, what: str, step: VenvStep, wanted: Sequence[str], *more: str) -> list[str]:
        answer = self.folder / "compiled.txt"
        answer.unlink(missing_ok=True)
        limits = (
            ["--constraint", self._write("constraints.txt", step.need.constraints)] if step.need.constraints else []
        )
        options = ["--generate-hashes", "--no-header", "--no-annotate", "--quiet", "--output-file", str(answer)]
        given = [*more, self._write("requirements.txt", wanted)]
        self.commands.run(what, [*self._pip("compile"), *self._sources(step), *options, *limits, *given])
        text = re.sub(r" *\\\n *", " ", answer.read_text(encoding="utf-8"))
        return [line for line in text.splitlines() if line.strip() and not line.startswith(("#", "-"))]

    def _pip(self, command: str) -> list[str]:
        return [self.uv, "pip", command, "--python", str(self.folder / "bin" / "python")]

    def _sources(self, step: VenvStep) -> list[str]:
        if step.wheelhouse is not None:
            return ["--no-index", "--find-links", str(step.wheelhouse)]
        return ["--no-index"] if pipconf.no_index(self.commands.environ) else []

    def _write(self, name: str, lines: Sequence[str]) -> str:
        files.write_text(self.folder / name, "".join(f"{line}\n" for line in lines))
        return str(self.folder / name)


def _name(line: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\s@=<>!~;\[]", line.strip(), maxsplit=1)[0]).lower()


def _report(lines: Sequence[str]) -> dict[str, Any]:
    """The lines in the shape of pip's report, as far as ``index_for`` reads it."""
    return {"install": [{"metadata": {"name": _name(line)}} for line in lines]}


def _lock(made_for: str, lines: Sequence[str]) -> Lock:
    hashed = tuple(line for line in lines if " --hash=" in line)
    return Lock(made_for=made_for, hashed=hashed, plain=tuple(line for line in lines if " --hash=" not in line))
