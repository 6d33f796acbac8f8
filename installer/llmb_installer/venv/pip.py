# SPDX-License-Identifier: Apache-2.0
"""Chooses and installs packages with pip: its dry run says what it would install, its hash mode installs just that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmb.errors import LlmbError
from llmb.system import files
from llmb.system.shell import StoppedError
from llmb_installer.execution.subprocesses import Commands
from llmb_installer.venv import location
from llmb_installer.venv.lock import Lock
from llmb_installer.venv.torch_source import index_for, is_spare, torch_line

if TYPE_CHECKING:
    from llmb_installer.venv.venv_step import VenvStep

_REPORTS = (22, 2)  # the first pip that has --report


@dataclass(frozen=True, slots=True, kw_only=True)
class Pip:
    """pip of the environment ``folder``; ``commands`` runs it."""

    folder: Path
    commands: Commands

    def resolve(self, step: VenvStep, made_for: str) -> Lock:
        """Ask pip what it would install for ``step``. Raises LlmbError."""
        self._update()
        limits = self._write("constraints.txt", step.need.constraints)
        wanted = ["--constraint", limits, "--requirement", self._write("requirements.txt", step.need.requirements)]
        torch, source = torch_line(step.need.requirements), step.torch
        index = source.index if torch is not None else None
        report: dict[str, Any] | None = None
        if index is None:
            report = self._report("pip's choice of packages", step, wanted)
            index = index_for(source, report) if torch is not None else None
        if index is None or torch is None:
            hashed, plain = requirements_of((report or {"install": []})["install"])
            return Lock(made_for=made_for, hashed=hashed, plain=plain)
        alone = ["--constraint", limits, "--no-deps", "--index-url", index, torch]
        try:
            (chosen,) = self._report(f"pip install of torch from {index}", step, alone)["install"]
        except LlmbError as error:
            if report is None or isinstance(error, StoppedError) or not is_spare(source):
                raise
            hashed, plain = requirements_of(report["install"])
            return Lock(made_for=made_for, hashed=hashed, plain=plain, done_without=index)
        others = [line for line in step.need.requirements if line != torch]
        given = self._write("requirements.txt", [*others, f"torch @ {chosen['download_info']['url']}"])
        items = self._report("pip's choice of packages", step, ["--constraint", limits, "--requirement", given])
        hashed, plain = requirements_of([item for item in items["install"] if _name(item) != "torch"])
        return Lock(
            made_for=made_for, hashed=hashed, plain=plain, torch_index=index, torch=requirements_of([chosen])[0]
        )

    def install(self, step: VenvStep, lock: Lock) -> None:
        """Install what the lock says, and nothing else. Raises LlmbError."""
        options = [*self._install(step), "--no-deps"]
        if lock.torch:
            named = ["--require-hashes", "--requirement", self._write("lock-torch.txt", lock.torch)]
            if lock.torch_index is not None:
                named += ["--index-url", lock.torch_index]
            self.commands.run(f"pip install of torch from {lock.torch_index}", [*options, *named])
        if lock.hashed:
            named = ["--require-hashes", "--requirement", self._write("lock.txt", lock.hashed)]
            self.commands.run("pip install", [*options, *named])
        if lock.plain:
            named = ["--requirement", self._write("lock-plain.txt", lock.plain)]
            self.commands.run("pip install from repositories", [*options, *named])

    def build(self, step: VenvStep) -> None:
        """Build what comes from source against the packages that are there now. Raises LlmbError."""
        named = ["--no-deps", "--no-build-isolation", "--requirement", self._write("source.txt", step.need.from_source)]
        self.commands.run("pip install from source", [*self._install(step), *named])

    def _install(self, step: VenvStep) -> list[str]:
        sources = [] if step.wheelhouse is None else ["--no-index", "--find-links", str(step.wheelhouse)]
        python = str(self.folder / "bin" / "python")
        return [python, "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *sources]

    def _update(self) -> None:
        """Have a pip that has --report; a newer one stays as it is."""
        versions = [path.name for base in location.site_packages(self.folder) for path in base.glob("pip-*.dist-info")]
        found = re.match(r"pip-(\d+)\.(\d+)", versions[0]) if versions else None
        if found is None or (int(found[1]), int(found[2])) < _REPORTS:
            argv = [str(self.folder / "bin" / "python"), "-I", "-m", "pip", "install", "--no-input", "pip>=22.2"]
            self.commands.run("pip's own update", argv)

    def _report(self, what: str, step: VenvStep, wanted: Sequence[str]) -> dict[str, Any]:
        answer = self.folder / "report.json"
        options = ["--dry-run", "--ignore-installed", "--quiet", "--report", str(answer)]
        self.commands.run(what, [*self._install(step), *options, *wanted])
        report: dict[str, Any] | None = files.read_json(answer)
        if report is None:
            raise LlmbError(f"{what}: pip wrote no report", hint=f"see {self.commands.context.log}")
        return report

    def _write(self, name: str, lines: Sequence[str]) -> str:
        files.write_text(self.folder / name, "".join(f"{line}\n" for line in lines))
        return str(self.folder / name)


def _name(item: dict[str, Any]) -> str:
    return re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()


def requirements_of(items: Sequence[dict[str, Any]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """pip's report as requirements: those with hashes, and those of a repository at its commit."""
    hashed, plain = [], []
    for item in sorted(items, key=_name):
        info, name, version = item["download_info"], _name(item), item["metadata"]["version"]
        hashes = _hashes(info.get("archive_info", {}))
        if "vcs_info" in info:
            vcs = info["vcs_info"]
            plain.append(f"{name} @ {vcs['vcs']}+{info['url']}@{vcs['commit_id']}")
        elif not hashes:
            plain.append(f"{name} @ {info['url']}")
        else:
            digests = " ".join(f"--hash={kind}:{value}" for kind, value in sorted(hashes.items()))
            known = f"{name} @ {info['url'].partition('#')[0]}" if item["is_direct"] else f"{name}=={version}"
            hashed.append(f"{known} {digests}")
    return tuple(hashed), tuple(plain)


def _hashes(archive: dict[str, Any]) -> dict[str, str]:
    """The hashes of a file by their kinds; pip before 23.1 says one of them, as ``sha256=...``."""
    kind, equals, value = str(archive.get("hash", "")).partition("=")
    hashes: dict[str, str] = archive.get("hashes") or ({kind: value} if equals else {})
    return hashes
