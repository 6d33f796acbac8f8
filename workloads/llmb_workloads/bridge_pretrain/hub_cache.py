# SPDX-License-Identifier: Apache-2.0
"""A cache of the model hub with the installed config.json of gated models, so that no rank asks the hub."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from llmb_workloads.fields import RefusedError

CONFIG = "config.json"
REVISION = "0" * 40  # the hub names snapshots by commit


def fill_cache(folders: Mapping[str, str], parent: Path | None = None) -> Path:
    """The cache, on this node's own disk. Raises RefusedError where a config.json is missing.

    The ranks of a node fill the same folder; each file appears whole.
    """
    cache = (parent or Path(tempfile.gettempdir())) / f"llmb-hub-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    if cache.stat().st_uid != os.getuid():
        raise RefusedError(str(cache), "belongs to another user", "set TMPDIR to a folder of your own")
    for repository, folder in folders.items():
        source = Path(folder) / CONFIG
        if not source.is_file():
            raise RefusedError(str(source), "does not exist", "install it: llmb-install verify --repair --yes")
        model = cache / f"models--{repository.replace('/', '--')}"
        _appear(model / "snapshots" / REVISION / CONFIG, source.read_bytes())
        _appear(model / "refs" / "main", REVISION.encode())
    return cache


def _appear(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file() and path.read_bytes() == content:
        return
    handle, part = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    shutil.move(part, path)
