# SPDX-License-Identifier: Apache-2.0
"""Completions that only this machine knows: runs of the install directory, nodes and partitions of Slurm."""

import contextlib
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from llmb.config import ClusterConfig
from llmb.errors import LlmbError
from llmb.runs import record, store
from llmb.system import files, shell

_MOST_RUNS = 50
_HEAD = 400  # bytes of a record, with its id
_ID = re.compile(rb'"id": "([^"]+)"')
_STATE = re.compile(rb'"state": "([A-Z_]+)')
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)(?=[,(]|$)")
_KEPT_SECONDS = 60.0  # how long an answer of sinfo is used
_ASK_SECONDS = 2.0  # a shell waits for it


def runs(config: ClusterConfig, start: str) -> Iterator[tuple[str, str]]:
    """Ids of runs that begin with ``start``, the newest first, and their names and last states.

    Only the beginnings of records are read: thousands of them are slow to read whole.
    """
    found = _newest_first(store.runs_root(config))
    return itertools.islice(((own, text) for own, text in found if own.startswith(start)), _MOST_RUNS)


def _newest_first(root: Path) -> Iterator[tuple[str, str]]:
    folders = [path for path in root.glob("*/experiments/*/*") if path.name.rpartition("_")[2].isdecimal()]
    for folder in sorted(folders, key=lambda path: int(path.name.rpartition("_")[2]), reverse=True):
        with contextlib.suppress(OSError), (folder / record.RECORD).open("rb") as stream:
            if own := _ID.search(stream.read(_HEAD)):
                yield own[1].decode(), f"{folder.parent.name.removeprefix('pretrain_')}{_state(folder)}"


def _state(folder: Path) -> str:
    """The last state of a run's first attempt, with a blank before it; empty where it was not polled."""
    with contextlib.suppress(OSError):
        if found := _STATE.search((folder / store.STATE).read_bytes()):
            return f" {found[1].decode()}"
    return ""


def nodes() -> list[str]:
    """The names of Slurm's nodes; none where there is no Slurm, or it does not answer at once."""
    return list(dict.fromkeys(one[0] for one in _sinfo()))


def partitions() -> list[str]:
    """The names of Slurm's partitions, as ``nodes``."""
    return list(dict.fromkeys(one[1].rstrip("*") for one in _sinfo()))


def most_gpus(partition: str | None) -> int | None:
    """The GPUs of all nodes of a partition, or of several with commas between; None: the default one.

    None where it is unknown, and where no node has a GPU that Slurm counts.
    """
    names = set(partition.split(",")) if partition else set()
    counts = [
        sum(int(count) for count in _GPUS.findall(gres))
        for _, name, gres in dict.fromkeys(map(tuple, _sinfo()))
        if (name.rstrip("*") in names if names else name.endswith("*"))
    ]
    return sum(counts) or None


def _sinfo() -> list[tuple[str, str, str]]:
    """Each node with each of its partitions (* after the default's name) and its generic resources.

    From an answer of the last minute if there is one.
    """
    if shutil.which("sinfo") is None:
        return []
    kept = files.expand(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "llmb" / "sinfo.json"
    key = os.environ.get("SLURM_CONF", "")
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        data = json.loads(kept.read_text(encoding="utf-8"))
        if data["cluster"] == key and 0 <= time.time() - data["asked"] < _KEPT_SECONDS:
            return [(str(node), str(partition), str(gres)) for node, partition, gres in data["nodes"]]
    try:
        done = shell.run(["sinfo", "--noheader", "--all", "--Node", "--format=%N|%P|%G"], timeout=_ASK_SECONDS)
    except LlmbError:
        return []
    lines = [line.split("|", 2) for line in done.out.splitlines() if line.count("|") > 1] if done.code == 0 else []
    with contextlib.suppress(OSError, LlmbError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(kept, json.dumps({"cluster": key, "asked": time.time(), "nodes": lines}), durable=False)
    return [(node, partition, gres) for node, partition, gres in lines]
