# SPDX-License-Identifier: Apache-2.0
"""What a workload needs installed, as values: equal content is one need, so that two workloads share it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A container image by reference, ``registry/name:tag`` or ``...@digest``."""

    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Venv:
    """A Python environment; ``requirements`` and ``constraints`` are pip's own lines, ``python`` ``X.Y`` or None."""

    name: str
    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    python: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repo:
    """A git repository at a commit."""

    url: str
    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAsset:
    """Files of a model hub's repository (a tokenizer); ``secret`` names the token that a gated one asks for."""

    repository: str
    files: tuple[str, ...]
    secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A command to run once, given as argv; ``name`` is what the plan shows."""

    name: str
    argv: tuple[str, ...]


Need = Image | Venv | Repo | HubAsset | Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Everything that one workload needs at one site, in no particular order."""

    needs: tuple[Need, ...] = ()
