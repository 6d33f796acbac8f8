# SPDX-License-Identifier: Apache-2.0
"""The lock file of an environment: every package with its version and hashes, so that a later one is the very same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmb_installer.venv.venv_step import VenvStep


_HEAD = """\
# The packages of the environment {name}, as llmb-install chose them; a later installation takes the very same.
# Delete this file to have the versions chosen anew.
# for {wanted}
"""
_MADE_FOR, _TORCH, _HASHED, _PLAIN = "# made for ", "# torch, from ", "# packages with hashes", "# sources at a commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Lines of pip's requirements: ``hashed`` with hashes, ``plain`` without (a repository at a commit), and ``torch``
    where it comes from ``torch_index`` alone. ``made_for`` is the digest of what they were chosen for; ``done_without``
    an index that gave nothing, which is not written down."""

    made_for: str
    hashed: tuple[str, ...]
    plain: tuple[str, ...] = ()
    torch_index: str | None = None
    torch: tuple[str, ...] = ()
    done_without: str | None = None


def path_of(step: VenvStep, install: Path) -> Path:
    """Where the lock file of an environment lies."""
    return install / ".llmb" / "locks" / f"{step.name}.txt"


def made_for(step: VenvStep, version: str) -> str:
    """The digest of all that decides on the packages; ``version`` is that of Python, ``X.Y``."""
    need, torch = step.need, step.torch
    content = [need.requirements, need.constraints, torch.index, torch.cpu_index, version, step.architecture]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def to_text(lock: Lock, name: str, wanted: str) -> str:
    """The lock as a file that ``pip install --require-hashes -r`` reads as well."""
    text = _HEAD.format(name=name, wanted=wanted) + f"{_MADE_FOR}{lock.made_for}\n"
    if lock.torch_index is not None:
        text += f"{_TORCH}{lock.torch_index}\n" + _lines(lock.torch)
    text += f"{_HASHED}\n" + _lines(lock.hashed)
    return text + (f"{_PLAIN}\n" + _lines(lock.plain) if lock.plain else "")


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line.replace(' --hash=', _FOLD)}\n" for line in lines)


_FOLD = " \\\n    --hash="


def from_text(text: str) -> Lock | None:
    """The lock in a file's text, None when it is not one of ours."""
    made, index = "", None
    parts: dict[str, list[str]] = {"torch": [], "hashed": [], "plain": []}
    part = "hashed"
    for line in text.replace(_FOLD, " --hash=").splitlines():
        if line.startswith(_MADE_FOR):
            made = line.removeprefix(_MADE_FOR)
        elif line.startswith(_TORCH):
            part, index = "torch", line.removeprefix(_TORCH)
        elif line in (_HASHED, _PLAIN):
            part = "hashed" if line == _HASHED else "plain"
        elif line.strip() and not line.startswith("#"):
            parts[part].append(line)
    if not made:
        return None
    return Lock(
        made_for=made,
        hashed=tuple(parts["hashed"]),
        plain=tuple(parts["plain"]),
        torch=tuple(parts["torch"]),
        torch_index=index,
    )


def find(step: VenvStep, install: Path, version: str) -> Lock | None:
    """The lock that an earlier installation has left for this content; None when the packages are to be chosen."""
    try:
        lock = from_text(path_of(step, install).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return lock if lock is not None and lock.made_for == made_for(step, version) else None
