# SPDX-License-Identifier: Apache-2.0
"""Which packages an environment of Python lacks or has too old, by its files alone: no process is started."""

import re
from collections.abc import Sequence
from pathlib import Path

_SITE = "lib/python3*/site-packages"


def lacking(venv: Path, wanted: Sequence[str]) -> dict[str, str]:
    """For each package that ``venv`` lacks what it has instead: ``no nemo``, ``torch 2.3.0 (needed: 2.4 or newer)``.

    ``wanted``: an importable folder's name, or a distribution with its least version, ``torch>=2.4``. Nothing can be
    said, and nothing is lacking, where the environment also takes the packages of another Python.
    """
    try:
        settings = (venv / "pyvenv.cfg").read_text(encoding="utf-8").lower().replace(" ", "")
    except (OSError, UnicodeDecodeError):  # conda's have none
        settings = ""
    if "include-system-site-packages=true" in settings:
        return {}
    return {one: said for one in wanted if (said := _lacks(venv, one)) is not None}


def _lacks(venv: Path, wanted: str) -> str | None:
    name, _, least = wanted.partition(">=")
    if not least:
        return None if any(venv.glob(f"{_SITE}/{name}")) else f"no {name}"
    found = version_of(venv, name)
    if found is None:
        return f"no {name}"
    return None if _numbers(found) >= _numbers(least) else f"{name} {found} (needed: {least} or newer)"


def version_of(venv: Path, name: str) -> str | None:
    """The version of a distribution, by the name of its dist-info folder; None where there is none."""
    for path in venv.glob(f"{_SITE}/*.dist-info"):
        own, _, version = path.name.removesuffix(".dist-info").partition("-")
        if _plain(own) == _plain(name):
            return version
    return None


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _numbers(version: str) -> tuple[int, ...]:
    """Major and minor version."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
