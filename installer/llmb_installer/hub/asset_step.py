# SPDX-License-Identifier: Apache-2.0
"""A step that has files of a model hub's repository on the disk, so that a thousand ranks need not ask for them."""

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from llmb.errors import Fault
from llmb.workload import needs
from llmb_installer.step import Context, Estimate, Facts, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetStep(Step):
    """Fetch the files of ``need`` into a folder of their own in ``install``."""

    kind: ClassVar[str] = "asset"
    need: needs.HubAsset
    install: Path

    @property
    def name(self) -> str:
        """The hub's name for it, and the revision."""
        return f"{self.need.repository}@{self.need.revision}"

    @property
    def title(self) -> str:
        """Its files."""
        return f"{', '.join(self.need.files)} of {self.need.repository} from the model hub"

    @property
    def path(self) -> Path:
        """Their folder."""
        return self.need.folder(self.install)

    def check(self, context: Context) -> Estimate:
        """Whether the hub gives them to us, and how large they are. Raises LlmbError."""
        from llmb_installer.hub.client import Hub

        with Hub(self.need, context) as hub:
            total = sum(file.size for file in hub.look_all().values())
        return Estimate(fetch=total, disk=total)

    def build(self, context: Context) -> Facts:
        """Fetch them all, each at the same commit, going on where an earlier attempt was cut."""
        from llmb_installer.hub.client import Hub

        part = self.path.with_name(f".{self.path.name}.part")
        part.mkdir(parents=True, exist_ok=True)
        with Hub(self.need, context) as hub:
            found = hub.look_all()
            context.progress.total(sum(file.size for file in found.values()))
            for name, file in found.items():
                hub.fetch(file, part / name)
        shutil.rmtree(self.path, ignore_errors=True)
        part.rename(self.path)
        return {
            "folder": str(self.path),
            "commit": next((file.commit for file in found.values()), ""),
            "files": {name: _sha256(self.path / name) for name in found},
        }


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _files(facts: Facts) -> dict[Path, Any]:
    folder = Path(str(facts.get("folder")))
    return {folder / name: digest for name, digest in facts.get("files", {}).items()}


def is_there(name: str, facts: Facts, install: Path) -> bool:
    """Whether every file is there."""
    return all(path.is_file() for path in _files(facts))


def verify(name: str, facts: Facts, install: Path, *, deep: bool) -> list[Fault]:
    """Which files are missing or have other contents; they are small, so all are read in any case."""
    found = _files(facts)
    missing = [path for path in found if not path.is_file()]
    changed = [path for path in found if path not in missing and _sha256(path) != found[path]]
    return [
        *(Fault(message=f"{path} is missing", code="file-missing", value=str(path)) for path in missing),
        *(Fault(message=f"{path} was changed", code="file-changed", value=str(path)) for path in changed),
    ]


def remove(name: str, facts: Facts, install: Path) -> None:
    """Take the files away."""
    folder = Path(str(facts.get("folder")))
    if folder.exists():
        shutil.rmtree(folder)


def describe(name: str, facts: Facts) -> str:
    """How many files there are, at which commit."""
    return f"{len(facts.get('files', {}))} files at {str(facts.get('commit'))[:12]}"
