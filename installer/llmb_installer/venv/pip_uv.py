# SPDX-License-Identifier: Apache-2.0
"""Chooses an environment's packages with pip or uv, and installs the lock file's, with hashes."""

import abc
import json
import re
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, ClassVar

from llmb.core import files, shell
from llmb.core.values import dataclass
from llmb.errors import LlmbError
from llmb_installer.step import Commands
from llmb_installer.venv import contents, pipconf
from llmb_installer.venv.lock import (
    Lock,
    VenvSpec,
    index_for,
    is_optional,
    normalized,
    package_of,
    torch_line,
)
from llmb_installer.venv.tools import Downloads

_REPORTS = (22, 2)  # the first pip that has --report
_RAW_PROGRESS = (24, 1)  # the first pip that prints its progress for programs
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
class Packages(abc.ABC):
    """Installs into the environment ``folder``, or with its Python into the folder ``prefix``.

    ``commands`` runs the tool. Its input files are written to ``scratch``.
    """

    tool: ClassVar[str]
    folder: Path
    commands: Commands
    scratch: Path
    prefix: Path | None = None
    downloads: Downloads = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "downloads", Downloads(self.commands.context.progress))

    @abc.abstractmethod
    def resolve(self, step: VenvSpec, made_for: str) -> Lock:
        """Choose the packages for ``step``. Raises LlmbError."""

    @abc.abstractmethod
    def _install(self, step: VenvSpec) -> list[str]: ...

    @abc.abstractmethod
    def _only_from(self, index: str) -> list[str]: ...

    def install(self, step: VenvSpec, lock: Lock) -> None:
        """Install the packages of ``lock`` and nothing else. Raises LlmbError."""
        options = [*self._install(step), "--no-deps"]
        if lock.torch:
            index = self._only_from(lock.torch_index) if lock.torch_index is not None else []
            requirement_options = [
                "--require-hashes",
                "--requirement",
                self._write("lock-torch.txt", lock.torch),
            ]
            self._run(
                f"{self.tool} install of torch from {lock.torch_index}",
                [*options, *index, *requirement_options],
            )
        if lock.hashed:
            requirement_options = [
                "--require-hashes",
                "--requirement",
                self._write("lock.txt", lock.hashed),
            ]
            self._run(f"{self.tool} install", [*options, *requirement_options])
        if lock.plain:
            requirement_options = ["--requirement", self._write("lock-plain.txt", lock.plain)]
            self._run(f"{self.tool} install from repositories", [*options, *requirement_options])

    def build(self, step: VenvSpec, requirements: Sequence[str]) -> None:
        """Build ``requirements`` from source against the installed packages. Raises LlmbError."""
        requirement_options = [
            "--no-deps",
            "--no-build-isolation",
            "--requirement",
            self._write("source.txt", requirements),
        ]
        self.commands.run(
            f"{self.tool} install from source", [*self._install(step), *requirement_options]
        )

    def _run(self, title: str, argv: Sequence[str]) -> None:
        """Run the tool, and report its downloads. Raises LlmbError."""
        self.commands.run(title, argv, on_output=self.downloads)

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def _write(self, name: str, lines: Sequence[str]) -> str:
        files.write_text(self.scratch / name, "".join(f"{line}\n" for line in lines))
        return str(self.scratch / name)


_CONSTRAINTS = "UV_CONSTRAINT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pip(Packages):
    """pip, whose dry run reports what it would install. Python runs it with ``program``."""

    tool: ClassVar[str] = "pip"
    program: tuple[str, ...] = ("-m", "pip")

    def resolve(self, step: VenvSpec, made_for: str) -> Lock:
        """Choose the packages for ``step`` by pip's report. Raises LlmbError."""
        self._update()
        constraints_file = self._write("constraints.txt", step.need.constraints)
        choice_options = [
            "--constraint",
            constraints_file,
            "--requirement",
            self._write("requirements.txt", step.need.requirements),
        ]
        torch, source = torch_line(step.need.requirements), step.torch
        index = source.index if torch is not None else None
        report: dict[str, Any] | None = None
        if index is None:
            report = self._report("pip's choice of packages", step, choice_options)
            index = index_for(source, report) if torch is not None else None
        if index is None or torch is None:
            hashed, plain = requirements_of((report or {"install": []})["install"])
            return Lock(made_for=made_for, hashed=hashed, plain=plain)
        torch_options = ["--constraint", constraints_file, "--no-deps", "--index-url", index, torch]
        try:
            title = f"pip install of torch from {index}"
            (torch_item,) = self._report(title, step, torch_options)["install"]
        except LlmbError as error:
            if report is None or isinstance(error, shell.StoppedError) or not is_optional(source):
                raise
            hashed, plain = requirements_of(report["install"])
            return Lock(made_for=made_for, hashed=hashed, plain=plain, failed_index=index)
        other_lines = [line for line in step.need.requirements if line != torch]
        requirements_file = self._write(
            "requirements.txt", [*other_lines, f"torch @ {torch_item['download_info']['url']}"]
        )
        items = self._report(
            "pip's choice of packages",
            step,
            ["--constraint", constraints_file, "--requirement", requirements_file],
        )
        hashed, plain = requirements_of(
            [item for item in items["install"] if _item_name(item) != "torch"]
        )
        torch_lines = requirements_of([torch_item])[0]
        return Lock(
            made_for=made_for, hashed=hashed, plain=plain, torch_index=index, torch=torch_lines
        )

    def _install(self, step: VenvSpec) -> list[str]:
        sources = (
            [] if step.wheelhouse is None else ["--no-index", "--find-links", str(step.wheelhouse)]
        )
        target = (
            []
            if self.prefix is None
            else ["--prefix", str(self.prefix), "--ignore-installed", "--no-compile"]
        )
        raw = ["--progress-bar", "raw"] if self._version >= _RAW_PROGRESS else []
        options = ["--no-input", "--disable-pip-version-check", *raw, *sources, *target]
        return [self.python, "-I", *self.program, "install", *options]

    def _only_from(self, index: str) -> list[str]:
        return ["--index-url", index]

    @property
    def _version(self) -> tuple[int, int]:
        """The release of the environment's pip, (0, 0) without one."""
        pip_package = contents.packages(self.folder).get("pip")
        version_match = (
            re.match(r"(\d+)\.(\d+)", pip_package.version) if pip_package is not None else None
        )
        return (
            (int(version_match[1]), int(version_match[2])) if version_match is not None else (0, 0)
        )

    def _update(self) -> None:
        """Update a pip that has no --report."""
        if self._version < _REPORTS:
            self.commands.run(
                "pip's own update",
                [self.python, "-I", "-m", "pip", "install", "--no-input", "pip>=22.2"],
            )

    def _report(self, title: str, step: VenvSpec, choice_options: Sequence[str]) -> dict[str, Any]:
        report_file = self.scratch / "report.json"
        options = ["--dry-run", "--ignore-installed", "--report", str(report_file)]
        self._run(title, [*self._install(step), *options, *choice_options])
        report: dict[str, Any] | None = files.read_json(report_file)
        if report is None:
            raise LlmbError(
                f"{title}: pip wrote no report", hint=f"see {self.commands.context.log}"
            )
        return report


@dataclass(frozen=True, slots=True, kw_only=True)
class Uv(Packages):
    """The program ``uv``, with pip's configuration passed to it in variables."""

    tool: ClassVar[str] = "uv pip"
    uv: str

    def install(self, step: VenvSpec, lock: Lock) -> None:
        """Install the packages of ``lock`` and nothing else. Raises LlmbError."""
        # uv takes no constraints beside hashes. The packages were chosen with them.
        environ = {
            name: value for name, value in self.commands.environ.items() if name != _CONSTRAINTS
        }
        commands = replace(self.commands, environ=environ)
        Packages.install(replace(self, commands=commands), step, lock)

    def resolve(self, step: VenvSpec, made_for: str) -> Lock:
        """Choose the packages for ``step`` by ``uv pip compile``. Raises LlmbError."""
        torch, source = torch_line(step.need.requirements), step.torch
        index = source.index if torch is not None else None
        default_lock: Lock | None = None
        if index is None:
            lines = self._compile("uv's choice of packages", step, step.need.requirements)
            default_lock = _lock(made_for, lines)
            report = {"install": [{"metadata": {"name": package_of(line)}} for line in lines]}
            index = index_for(source, report) if torch is not None else None
            if index is None:
                return default_lock
        project = self.scratch / "wanted" / "pyproject.toml"
        files.write_text(project, _PROJECT.format(torch=json.dumps(torch), index=json.dumps(index)))
        other_lines = [line for line in step.need.requirements if line != torch]
        try:
            lines = self._compile(
                f"uv's choice with torch from {index}", step, other_lines, str(project)
            )
        except LlmbError as error:
            if (
                default_lock is None
                or isinstance(error, shell.StoppedError)
                or not is_optional(source)
            ):
                raise
            return replace(default_lock, failed_index=index)
        torch_lines = tuple(line for line in lines if package_of(line) == "torch")
        other_packages = _lock(made_for, [line for line in lines if line not in torch_lines])
        return replace(other_packages, torch_index=index, torch=torch_lines)

    def _compile(
        self, title: str, step: VenvSpec, requirements: Sequence[str], *project_files: str
    ) -> list[str]:
        lock_file = self.scratch / "compiled.txt"
        lock_file.unlink(missing_ok=True)
        constraint_options = (
            ["--constraint", self._write("constraints.txt", step.need.constraints)]
            if step.need.constraints
            else []
        )
        options = [
            "--generate-hashes",
            "--no-header",
            "--no-annotate",
            "--quiet",
            "--output-file",
            str(lock_file),
        ]
        source_files = [*project_files, self._write("requirements.txt", requirements)]
        self.commands.run(
            title,
            [
                *self._pip("compile"),
                *self._sources(step),
                *options,
                *constraint_options,
                *source_files,
            ],
        )
        text = re.sub(r" *\\\n *", " ", lock_file.read_text(encoding="utf-8"))
        return [
            line for line in text.splitlines() if line.strip() and not line.startswith(("#", "-"))
        ]

    def _install(self, step: VenvSpec) -> list[str]:
        target = ["--compile-bytecode"] if self.prefix is None else ["--prefix", str(self.prefix)]
        return [*self._pip("install"), *self._sources(step), *target]

    def _only_from(self, index: str) -> list[str]:
        return ["--default-index", index]

    def _pip(self, command: str) -> list[str]:
        return [self.uv, "pip", command, "--python", self.python]

    def _sources(self, step: VenvSpec) -> list[str]:
        if step.wheelhouse is not None:
            return ["--no-index", "--find-links", str(step.wheelhouse)]
        return ["--no-index"] if pipconf.no_index(self.commands.environ) else []


def _lock(made_for: str, lines: Sequence[str]) -> Lock:
    hashed = tuple(line for line in lines if " --hash=" in line)
    return Lock(
        made_for=made_for,
        hashed=hashed,
        plain=tuple(line for line in lines if " --hash=" not in line),
    )


def _item_name(item: dict[str, Any]) -> str:
    return normalized(item["metadata"]["name"])


def requirements_of(items: Sequence[dict[str, Any]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the requirement lines of pip's report: with hashes, and of repositories."""
    hashed, plain = [], []
    for item in sorted(items, key=_item_name):
        info, name, version = item["download_info"], _item_name(item), item["metadata"]["version"]
        hashes = _hashes(info.get("archive_info", {}))
        if "vcs_info" in info:
            vcs = info["vcs_info"]
            plain.append(f"{name} @ {vcs['vcs']}+{info['url']}@{vcs['commit_id']}")
        elif not hashes:
            plain.append(f"{name} @ {info['url']}")
        else:
            digests = " ".join(f"--hash={kind}:{value}" for kind, value in sorted(hashes.items()))
            requirement = (
                f"{name} @ {info['url'].partition('#')[0]}"
                if item["is_direct"]
                else f"{name}=={version}"
            )
            hashed.append(f"{requirement} {digests}")
    return tuple(hashed), tuple(plain)


def _hashes(archive: dict[str, Any]) -> dict[str, str]:
    """Return the hashes of a file by kind. pip before 23.1 reports one, as ``sha256=...``."""
    kind, equals, value = str(archive.get("hash", "")).partition("=")
    hashes: dict[str, str] = archive.get("hashes") or ({kind: value} if equals else {})
    return hashes
