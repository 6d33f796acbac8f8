# SPDX-License-Identifier: Apache-2.0
"""The answers that an installation is made from: read from a file, or over it from the command line."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from llmb import typed, yamlfile
from llmb.errors import Fault, InputFaults, UsageError
from llmb.gpus import known_types
from llmb.names import find_workload, suggest
from llmb.secrets import SECRETS_FILE, is_secret_name

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Version:
    """A released version of a package, as pip compares it: ``2.13.0``."""

    text: str

    @classmethod
    def parse(cls, value: Any) -> Version:
        """Read a plain version. Raises ValueError, also for a YAML number, which has lost the 0 of 2.10."""
        if isinstance(value, float):
            raise ValueError(f"{value} is a number to YAML and may have lost a 0; write the version in quotes")
        if not re.fullmatch(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[A-Za-z0-9.]+)?", str(value)):
            raise ValueError(f"'{value}' is not a version; write one like 2.13.0")
        return cls(str(value))

    def unparse(self) -> str:
        """The text that ``parse`` reads."""
        return self.text


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that environments are made with: ``3.12`` for the program python3.12, or a program's name or path."""

    text: str

    @classmethod
    def parse(cls, value: Any) -> Interpreter:
        """Read a version in quotes or a program. Raises ValueError."""
        if not isinstance(value, str) or not value:
            raise ValueError(f'write a version in quotes ("3.12") or the path of a Python, not {value!r}')
        return cls(value)

    def unparse(self) -> str:
        """The text that ``parse`` reads."""
        return self.text


@dataclass(frozen=True, slots=True)
class IndexUrl:
    """A package index for pip, without a password: that belongs into pip's own configuration or ``~/.netrc``."""

    text: str

    @classmethod
    def parse(cls, value: Any) -> IndexUrl:
        """Read a URL. Raises ValueError."""
        if not isinstance(value, str) or not re.match(r"(https?|file)://", value):
            raise ValueError(f"must be the URL of a package index (https://...), not {value!r}")
        if re.match(r"\w+://[^/]*@", value):
            raise ValueError("must not hold a user or password; keep them in ~/.netrc or pip's configuration")
        return cls(value)

    def unparse(self) -> str:
        """The text that ``parse`` reads."""
        return self.text


# Where the PyTorch project keeps the builds of torch without CUDA.
CPU_WHEELS = IndexUrl("https://download.pytorch.org/whl/cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The packages whose version is a setting."""

    torch: Version = Version("2.13.0")
    transformers: Version = Version("5.23.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What is to be installed. Field names are the keys of an answers file.

    ``workloads`` None takes every one that a plugin offers; ``torch_index`` is an index for torch alone;
    ``torch_cpu_index`` is that for a machine without a GPU, None leaves torch to pip there too.
    """

    cluster_type: Literal["local", "slurm", "runai"]
    install: Path
    cluster_name: str = "local"
    gpu_type: str = AUTO
    workloads: tuple[str, ...] | None = None
    versions: Versions = Versions()
    torch_index: IndexUrl | None = None
    torch_cpu_index: IndexUrl | None = CPU_WHEELS
    venv_type: Literal["venv", "uv", "conda"] = "venv"
    python: Interpreter | None = None
    environment: dict[str, str] = field(default_factory=dict)


def read_answers(document: yamlfile.Document, *, install: Path | None, known: Collection[str]) -> Answers:
    """The answers in ``document`` with ``--install`` over them; the folder absolute, workloads by their keys.

    Raises InputFaults with every fault's file, line and cure, UsageError when no folder is named.
    """
    answers = typed.read(Answers, _with_install(document, install))
    if faults := [*_not_built(answers, document), *_unknown(answers, document, known)]:
        raise InputFaults(faults)
    keys = answers.workloads and tuple(dict.fromkeys(find_workload(name, known) for name in answers.workloads))
    return replace(answers, install=answers.install.expanduser().resolve(), workloads=keys)


def _with_install(document: yamlfile.Document, install: Path | None) -> yamlfile.Document:
    """The document with the command line's layer over it."""
    if not isinstance(document.data, dict):
        return document
    if install is not None:
        return replace(document, data={**document.data, "install": str(install)})
    if document.data.get("install") is None:
        message = f"{document.name} does not say where to install"
        raise UsageError(message, hint="add 'install: DIR', or give --install DIR")
    return document


_OTHERS = "it installs 'local'; docs/slurm.md shows how to describe a Slurm cluster by hand"


def _not_built(answers: Answers, document: yamlfile.Document) -> list[Fault]:
    """What the answers may say one day, but this version cannot do."""
    faults = []
    if answers.cluster_type != "local":
        message = f"cluster type {answers.cluster_type} cannot be installed by this version"
        faults.append(Fault(place=document.place(("cluster_type",)), message=message, hint=_OTHERS))
    if answers.venv_type != "venv":
        message = f"environments of {answers.venv_type} cannot be made by this version"
        faults.append(Fault(place=document.place(("venv_type",)), message=message, hint="it makes 'venv'"))
    return faults


def _unknown(answers: Answers, document: yamlfile.Document, known: Collection[str]) -> list[Fault]:
    faults = []
    gpus = [AUTO, *known_types()]
    if answers.gpu_type not in gpus:
        message = f"gpu_type '{answers.gpu_type}' is not known"
        faults.append(Fault(place=document.place(("gpu_type",)), message=message, hint=suggest(answers.gpu_type, gpus)))
    if "$" in str(answers.install):
        message = f"install: variables are not replaced in {answers.install}"
        faults.append(Fault(place=document.place(("install",)), message=message, hint="write the folder out"))
    if answers.workloads == ():
        place = document.place(("workloads",))
        faults.append(Fault(place=place, message="workloads is empty", hint="name one, or leave the key out for all"))
    for index, name in enumerate(answers.workloads or ()):
        try:
            find_workload(name, known)
        except UsageError as error:
            faults.append(Fault(place=document.place(("workloads", index)), message=error.message, hint=error.hint))
    for name in filter(is_secret_name, answers.environment):
        message = f"environment.{name} looks like a secret"
        faults.append(Fault(place=document.place(("environment", name)), message=message, hint=f"use {SECRETS_FILE}"))
    return faults


def to_yaml(answers: Answers) -> str:
    """The answers as the text of an answers file."""
    text: str = yaml.safe_dump(typed.to_data(answers), sort_keys=False, allow_unicode=True)
    return "# SPDX-License-Identifier: Apache-2.0\n# Answers for llmb-install --config.\n" + text
