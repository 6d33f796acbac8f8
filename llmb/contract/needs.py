# SPDX-License-Identifier: Apache-2.0
"""The needs of a workload as values. Needs with equal content are one, shared by workloads."""

import re
from pathlib import Path, PurePosixPath

from llmb.contract.switches import parse_image
from llmb.core.checked import check_types
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError


def _check_below(text: str, key: str) -> None:
    """Raise KeyFaultError for a path that is not below the folder that it is relative to."""
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise KeyFaultError(
            f"'{text}' is not a path below its folder",
            key,
            hint="write it without / at the beginning and without ..",
            code="path-outside",
            value=text,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A container image by reference, ``registry/name:tag`` or ``...@digest``."""

    reference: str

    def __post_init__(self) -> None:
        check_types(self)
        is_bare = re.fullmatch(r"[\w.-]+", self.reference) is not None  # ubuntu: its latest tag
        try:
            parse_image(f"{self.reference}:latest" if is_bare else self.reference)
        except ValueError as error:
            raise KeyFaultError(
                str(error).replace(f"'{self.reference}:latest'", f"'{self.reference}'"),
                "reference",
                hint="write one such as nvcr.io/nvidia/nemo:25.04.01",
                code="reference-invalid",
                value=self.reference,
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Venv:
    """A Python environment."""

    name: str
    #: Lines for pip.
    requirements: tuple[str, ...]
    #: Lines for pip.
    constraints: tuple[str, ...] = ()
    #: ``X.Y``, or None for any.
    python: str | None = None
    #: Packages with versions that are built last, without build isolation, against the installed
    #: packages. Their build requirements are among the requirements.
    from_source: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_types(self)
        if "/" in self.name or self.name.startswith(".") or not self.name:
            message, hint = f"'{self.name}' is not a folder's name", "as in 'torch'"
            raise KeyFaultError(message, "name", hint=hint, code="name-invalid", value=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repo:
    """A git repository at a commit. A launch finds the checkout as ``Site.repos[url]``."""

    url: str
    commit: str

    def __post_init__(self) -> None:
        check_types(self)
        _check_below(self.commit, "commit")

    @property
    def name(self) -> str:
        """The last part of the URL, and the beginning of the commit."""
        word = (
            re.sub(r"[^\w.-]", "-", self.url.rstrip("/").removesuffix(".git").rpartition("/")[2])
            or "repo"
        )
        return f"{word}-{self.commit[:12]}"

    def folder(self, install: Path) -> Path:
        """Return the checkout's folder in an install directory, ``repos/<name>``, for tasks too."""
        return install / "repos" / self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAsset:
    """Files of a model hub's repository, such as a tokenizer."""

    repository: str
    files: tuple[str, ...]
    #: Files that are fetched if they exist.
    optional: tuple[str, ...] = ()
    #: The name of the token for a gated repository.
    secret: str | None = None
    #: A branch, tag or commit.
    revision: str = "main"

    def __post_init__(self) -> None:
        check_types(self)
        _check_below(self.revision, "revision")
        for name in (*self.files, *self.optional):
            _check_below(name, "files")

    def folder(self, install: Path) -> Path:
        """Return the files' folder, ``datasets/hub/<owner>--<name>/<revision>``."""
        return (
            install
            / "datasets"
            / "hub"
            / self.repository.replace("/", "--")
            / self.revision.replace("/", "--")
        )


_SHARED = frozenset({"cluster_config.yaml", "images", "datasets", "venvs", "repos", "workloads"})


def _is_shared(path: PurePosixPath) -> bool:
    """Return True if a path of the install directory holds more than the work of one task."""
    first, *below = path.parts
    of_runs = first == "workloads" and (len(below) < 2 or below[1] == "experiments")
    return first == ".llmb" or of_runs or (first in _SHARED and not below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A command to run once in the install directory."""

    #: The plan shows it.
    name: str
    argv: tuple[str, ...]
    #: The files and folders that it makes, relative to that directory. It runs again if one is
    #: missing, and removing it deletes them.
    creates: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_types(self)
        for name in self.creates:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.parts:
                message = (
                    f"Task.creates has '{name}', which is not a path below the install directory"
                )
                raise KeyFaultError(
                    message, "creates", hint="as in data/corpus", code="path-outside", value=name
                )
            if _is_shared(path):
                message = f"Task.creates has '{name}', which other workloads or llmb use too"
                raise KeyFaultError(
                    message, "creates", hint="as in data/corpus", code="path-shared", value=name
                )


Need = Image | Venv | Repo | HubAsset | Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Everything that one workload needs at one site, in no particular order."""

    needs: tuple[Need, ...] = ()

    def __post_init__(self) -> None:
        check_types(self)
