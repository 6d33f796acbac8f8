# SPDX-License-Identifier: Apache-2.0
"""What packages weigh: of a wheelhouse exactly, else as far as sizes.yaml knows the heavy ones."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from llmb.text import yamlfile
from llmb_installer.step import Estimate

if TYPE_CHECKING:
    from llmb_installer.venv.venv_step import VenvStep


def estimate(step: VenvStep) -> Estimate:
    """Bytes to fetch and on the disk, on the low side; unknown where no package is a known one."""
    if step.wheelhouse is not None:
        return Estimate(fetch=0, disk=None)
    names = [_name(line) for line in step.need.requirements]
    table = _table()
    if "torch" in names and step.torch.cpu_index is not None:
        names[names.index("torch")] = "torch-cpu"
    known = [table[name] for name in names if name in table]
    if not known:
        return Estimate()
    fetch, disk = (sum(entry[key] for entry in known) * 1_000_000 for key in ("fetch_mb", "disk_mb"))
    return Estimate(fetch=fetch, disk=disk, rough=True)


def _name(line: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\s@=<>!~;\[]", line.strip(), maxsplit=1)[0]).lower()


@cache
def _table() -> dict[str, dict[str, int]]:
    text = resources.files("llmb_installer.venv").joinpath("sizes.yaml").read_text(encoding="utf-8")
    table: dict[str, dict[str, int]] = yamlfile.parse(text, name="sizes.yaml").data
    return table
