# SPDX-License-Identifier: Apache-2.0
"""What a workload needs installed, as values: needs with equal content are one need, shared by workloads."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A container image by reference, ``registry/name:tag`` or ``...@digest``."""

    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Venv:
    """A Python environment; ``requirements`` and ``constraints`` are lines for pip, ``python`` is ``X.Y`` or None.

    ``from_source``: packages with versions that are built last, without build isolation, against the installed
    packages; their build requirements are among the requirements.
    """

    name: str
    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    python: str | None = None
    from_source: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Repo:
    """A git repository at a commit."""

    url: str
    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAsset:
    """Files of a model hub's repository (a tokenizer) at ``revision``, a branch, tag or commit.

    ``optional``: files that are fetched if they exist; ``secret``: the name of the token for a gated repository.
    """

    repository: str
    files: tuple[str, ...]
    optional: tuple[str, ...] = ()
    secret: str | None = None
    revision: str = "main"

    def folder(self, install: Path) -> Path:
        """The folder of the files in an install directory: ``datasets/hub/<owner>--<name>/<revision>``."""
        return install / "datasets" / "hub" / self.repository.replace("/", "--") / self.revision.replace("/", "--")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A command to run once, as argv; the plan shows ``name``."""

    name: str
    argv: tuple[str, ...]


Need = Image | Venv | Repo | HubAsset | Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Everything that one workload needs at one site, in no particular order."""

    needs: tuple[Need, ...] = ()
