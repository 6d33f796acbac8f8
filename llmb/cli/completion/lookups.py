# SPDX-License-Identifier: Apache-2.0
"""Completions from this machine: runs of the install directory, Slurm's nodes and partitions."""

import contextlib
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from llmb.contract import record
from llmb.contract.schema import ClusterConfig
from llmb.core import files, shell
from llmb.errors import LlmbError
from llmb.run import store
from llmb.run.sessions import FOLDER as SESSIONS

_MOST_RUNS = 50
_DAY = 10  # characters of an id's day
_HEAD = 400  # bytes of a record, with its id
_MOST = 1 << 20  # bytes of a state
_ID = re.compile(rb'"id": "([^"]+)"')
_STATE = re.compile(rb'"state": "([A-Z_]+)')
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)(?=[,(]|$)")
_KEPT_SECONDS = 60.0  # how long an answer of sinfo is used
_ASK_SECONDS = 2.0  # a shell waits for it


def runs(config: ClusterConfig, start: str) -> Iterator[tuple[str, str]]:
    """Ids of runs that begin with ``start``, the newest first, and their names and last states.

    Only the beginnings of records are read: thousands of them are slow to read whole.
    """
    newest = _newest_first(config.runs_root)
    return itertools.islice(
        ((run_id, text) for run_id, text in newest if run_id.startswith(start)), _MOST_RUNS
    )


def _newest_first(root: Path) -> Iterator[tuple[str, str]]:
    folders = [
        path for path in root.glob("*/experiments/*/*") if path.name.rpartition("_")[2].isdecimal()
    ]
    for folder in sorted(folders, key=lambda path: int(path.name.rpartition("_")[2]), reverse=True):
        with contextlib.suppress(OSError):
            if run_id := _ID.search(files.read_start(folder / record.RECORD, _HEAD)):
                yield (
                    run_id[1].decode(),
                    f"{folder.parent.name.removeprefix('pretrain_')}{_state(folder)}",
                )


def _state(folder: Path) -> str:
    """The last state of a run's first attempt, after a blank, or empty before the first poll."""
    with contextlib.suppress(OSError):
        if match := _STATE.search(files.read_start(folder / store.STATE, _MOST)):
            return f" {match[1].decode()}"
    return ""


def sessions(config: ClusterConfig) -> Iterator[tuple[str, str]]:
    """Names of sessions, or ids of those without one, the newest first, and their commands."""
    records = list((config.runs_root / SESSIONS).glob("*.json"))
    for path in sorted(records, key=lambda path: (path.stem[:_DAY], len(path.stem), path.stem))[
        ::-1
    ]:
        session = files.read_json_if_sound(path)
        if isinstance(session, dict):
            yield str(session.get("name") or path.stem), str(session.get("command") or "")


def nodes(cluster: str | None = None) -> list[str]:
    """The names of Slurm's nodes, or none if there is no Slurm, or it does not answer at once.

    ``cluster`` is ``slurm.clusters``.
    """
    return list(dict.fromkeys(row[0] for row in _sinfo(cluster)))


def partitions(cluster: str | None = None) -> list[str]:
    """The names of Slurm's partitions, as ``nodes``."""
    return list(dict.fromkeys(row[1].rstrip("*") for row in _sinfo(cluster)))


def most_gpus(partition: str | None, cluster: str | None = None) -> int | None:
    """The GPUs of all nodes of a ``partition`` (several with commas, or None: the default).

    None if it is unknown, or if no node has a GPU that Slurm counts. ``cluster`` as in ``nodes``.
    """
    names = set(partition.split(",")) if partition else set()
    counts = [
        sum(int(count) for count in _GPUS.findall(gres))
        for _, name, gres in dict.fromkeys(map(tuple, _sinfo(cluster)))
        if (name.rstrip("*") in names if names else name.endswith("*"))
    ]
    return sum(counts) or None


def _sinfo(cluster: str | None) -> list[tuple[str, str, str]]:
    """Each node with each of its partitions (* after the default's name) and its generic resources.

    From an answer of the last minute if there is one.
    """
    if shutil.which("sinfo") is None:
        return []
    cache = files.expand(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "llmb" / "sinfo.json"
    key = f"{os.environ.get('SLURM_CONF', '')} {cluster or ''}".strip()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        data = json.loads(cache.read_text(encoding="utf-8"))
        if data["cluster"] == key and 0 <= time.time() - data["asked"] < _KEPT_SECONDS:
            return [
                (str(node), str(partition), str(gres)) for node, partition, gres in data["nodes"]
            ]
    try:
        of_cluster = ["-M", cluster] if cluster is not None else []
        answer = shell.run(
            ["sinfo", *of_cluster, "--noheader", "--all", "--Node", "--format=%N|%P|%G"],
            timeout=_ASK_SECONDS,
        )
    except LlmbError:
        return []
    lines = (
        [line.split("|", 2) for line in answer.out.splitlines() if line.count("|") > 1]
        if answer.code == 0
        else []
    )
    with contextlib.suppress(OSError, LlmbError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(
            cache, json.dumps({"cluster": key, "asked": time.time(), "nodes": lines}), durable=False
        )
    return [(node, partition, gres) for node, partition, gres in lines]
