# SPDX-License-Identifier: Apache-2.0
"""An acceptance on disk: its plan and its nodes, written once before its first run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmb import api
from llmb_accept.plan import AcceptancePlan, read_plan

if TYPE_CHECKING:
    from collections.abc import Iterable

#: In the folder of the runs, where everybody who submits can write.
FOLDER = ".acceptances"
_FILE, _CERTIFICATE, _ARCHIVE = "acceptance.json", "certificate.json", "archive.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenArchive:
    """The archive of an acceptance as it was written."""

    path: str
    #: Bytes.
    size: int
    sha256: str

    @property
    def is_there(self) -> bool:
        """Return True if a file of this size is still at its path."""
        path = Path(self.path)
        return path.is_file() and path.stat().st_size == self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What was to be accepted. Everything else follows from its runs."""

    name: str
    #: The text of the plan, which a later change of its file does not alter.
    plan_text: str
    plan_file: str
    cluster: str
    gpu_type: str
    gpus_per_node: int
    nodes: tuple[str, ...]
    #: Jobs are sent to nodes by name. False on a single machine.
    names_nodes: bool
    by: str | None = None
    #: ISO 8601.
    created: str
    #: Options of ``llmb-run submit`` for all jobs.
    options: tuple[str, ...] = ()
    #: The accepted baseline that runs are compared with where nothing is published.
    baseline: str | None = None
    #: Why a phase or a row (``PHASE.ROW``) cannot run here.
    cannot_run: Mapping[str, str] = field(default_factory=dict)
    #: By phase: the nodes that the scheduler refused during it, each with the reason, oldest first.
    lost: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def plan(self) -> AcceptancePlan:
        """The plan. Raises UsageError."""
        return read_plan(self.plan_text, self.plan_file)

    @property
    def gpus(self) -> int:
        """The GPUs of all nodes."""
        return len(self.nodes) * self.gpus_per_node

    def session(self, *parts: str) -> str:
        """Return the name of the session of a phase, a row and a round."""
        return ".".join((self.name, *parts))

    def with_lost(self, phase: str, nodes: Mapping[str, str]) -> Acceptance:
        """Return the acceptance with further nodes that the scheduler refused in a phase."""
        return replace(self, lost={**self.lost, phase: {**self.lost.get(phase, {}), **nodes}})

    def nodelist(self, group: Iterable[str]) -> str:
        """Return ``--nodelist`` for a group of nodes, empty on a single machine."""
        return api.fold_nodes(group) if self.names_nodes else ""


def root_of(config: api.ClusterConfig) -> Path:
    """Return the folder of all acceptances of an install directory."""
    return config.runs_root / FOLDER


def save(root: Path, acceptance: Acceptance) -> None:
    """Write an acceptance. Raises LlmbError."""
    _write(root / acceptance.name / _FILE, asdict(acceptance))


def save_certificate(root: Path, name: str, certificate: Mapping[str, Any]) -> None:
    """Write the certificate of an acceptance, which is then complete. Raises LlmbError."""
    _write(root / name / _CERTIFICATE, certificate)


def save_archive(root: Path, name: str, archive: WrittenArchive) -> None:
    """Write where the archive of an acceptance is, with its checksum. Raises LlmbError."""
    path = str(Path(archive.path).absolute())
    _write(root / name / _ARCHIVE, {**asdict(archive), "path": path})


def load_archive(root: Path, name: str) -> WrittenArchive | None:
    """Return the archive of an acceptance, or None if it is no longer as it was written."""
    data = _read(root / name / _ARCHIVE)
    archive = None if data is None else WrittenArchive(**data)
    return archive if archive is not None and archive.is_there else None


def _write(path: Path, data: Mapping[str, Any]) -> None:
    api.write_file(path, json.dumps(data, indent=1) + "\n")


def forget(root: Path, name: str) -> None:
    """Remove an acceptance of which nothing has run, so that its name is free again."""
    shutil.rmtree(root / name, ignore_errors=True)


def load(root: Path, name: str) -> Acceptance | None:
    """Return the acceptance of this name, or None. Raises LlmbError if its file is damaged."""
    path = root / name / _FILE
    data = _read(path)
    if data is None:
        return None
    try:
        values = {**data, "nodes": tuple(data["nodes"]), "options": tuple(data["options"])}
        return Acceptance(**values)
    except (KeyError, TypeError) as error:
        raise _damaged(path, str(error)) from error


def load_certificate(root: Path, name: str) -> dict[str, Any] | None:
    """Return the certificate of an acceptance, or None if it is not complete."""
    return _read(root / name / _CERTIFICATE)


def names(root: Path) -> list[str]:
    """Return the names of all acceptances, oldest first."""
    files = sorted(root.glob(f"*/{_FILE}"), key=_created)
    return [path.parent.name for path in files]


def _created(path: Path) -> str:
    return str((_read(path) or {}).get("created", ""))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(data, dict):
        raise _damaged(path, "it is no object")
    return data


def _damaged(path: Path, cause: str) -> api.LlmbError:
    return api.LlmbError(
        f"{path} cannot be read: {cause}",
        hint="move its folder away, and begin again with --name",
        code="acceptance-damaged",
        value=str(path),
    )
