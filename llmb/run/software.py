# SPDX-License-Identifier: Apache-2.0
"""Find the software of jobs at their submission: versions and digests, each file read once."""

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from llmb.contract.job import Job
from llmb.contract.launch import Launch, Program
from llmb.contract.schema import ClusterConfig
from llmb.contract.software import Software
from llmb.core import files
from llmb.errors import LlmbError
from llmb.kit import programs
from llmb.plan.images import commit_of, recorded_contents, recorded_digest
from llmb.plugins.loaded import Plugins
from llmb.plugins.sources import FILE, PACKAGE

_CODE = (".py", ".sh", ".pl", ".lua")  # of staged files: others follow from the settings
_PART = 1 << 20  # bytes that are read at once
_DIGITS = 16  # of the digest of a plugin's file


@dataclass(slots=True)
class Finder:
    """Finds the software of many jobs."""

    plugins: Plugins
    config: ClusterConfig
    _known: dict[object, str | None] = field(default_factory=dict)

    def software_of(self, job: Job, launch: Launch) -> Software:
        """Return the software of a job. Parts that cannot be read are None."""
        source = self.plugins.offers[job.workload].source
        contents = {} if job.image is None else recorded_contents(job.image, self.config)
        framework = self.plugins.frameworks.get(job.framework)
        library = "" if framework is None or job.training is None else framework.library
        return Software(
            plugin=source,
            plugin_version=self._once(("plugin", source), lambda: self._version_of(source)),
            program_sha256=self._program(launch),
            image_digest=(
                None
                if (image := job.image) is None
                else self._once(("image", image), lambda: recorded_digest(image, self.config))
            ),
            environment_lock=(
                None
                if (venv := launch.venv) is None
                else self._once(("lock", venv), lambda: self._lock(venv))
            ),
            framework=job.framework if job.training is not None else None,
            release=job.release,
            framework_version=contents.get(library),
            framework_commit=contents.get(commit_of(library)),
        )

    def _once(self, key: object, find: Callable[[], str | None]) -> str | None:
        if key not in self._known:
            self._known[key] = None
            with contextlib.suppress(LlmbError):
                self._known[key] = find()
        return self._known[key]

    def _version_of(self, source: str) -> str | None:
        """Return the version of the distribution of a plugin, or the digest of its files."""
        if source.partition(":")[0] != FILE:
            return self.plugins.version(source) or None
        origin = self.plugins.calls.sources.get(source)
        path = None if origin is None else origin.find_file()
        digest = None if path is None else _sha256_of_plugin(path)
        return None if digest is None else f"sha256:{digest[:_DIGITS]}"

    def _lock(self, venv: str) -> str | None:
        name = Path(venv).name
        return _sha256_of(self.config.llmb_install / ".llmb" / "locks" / f"{name}.txt")

    def _program(self, launch: Launch) -> str:
        total = hashlib.sha256()
        for program in launch.programs:
            for text in (program.module, program.script, program.shell, *program.argv):
                total.update(f"{text}\0".encode())
            total.update(f"{self._content(program)}\0".encode())
        for staged in launch.files:
            if staged.executable or staged.name.endswith(_CODE):
                total.update(f"{staged.name}\0{len(staged.text)}\0{staged.text}\0".encode())
        return total.hexdigest()

    def _content(self, program: Program) -> str | None:
        """Return the digest of the files that are run, None if they are not llmb's to read."""
        script = program.script
        if script is not None:
            return self._once(("script", script), lambda: _sha256_of(Path(script)))
        if program.module is not None and program.module.startswith(programs.PACKAGE):
            return self._once("programs", programs.digest)
        return None


def _sha256_of_plugin(path: Path) -> str | None:
    """Return the digest of a plugin's file, or of all files of a package, whose file it is."""
    if path.name != PACKAGE:
        return _sha256_of(path)
    total = hashlib.sha256()
    for part in sorted(path.parent.rglob("*")):
        if part.is_file() and part.suffix != ".pyc":
            total.update(f"{part.relative_to(path.parent)}\0{_sha256_of(part)}\0".encode())
    return total.hexdigest()


def _sha256_of(path: Path) -> str | None:
    try:
        with files.open_regular(path) as file:
            total = hashlib.sha256()
            while part := file.read(_PART):
                total.update(part)
    except OSError:
        return None
    return total.hexdigest()
