# SPDX-License-Identifier: Apache-2.0
"""The names in runs and their configuration that identify a site: hosts, accounts, projects."""

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from llmb.config import ClusterConfig
from llmb.runs.record import RunRecord

_MOST = 100_000  # hosts of a list
_SITE = ("account", "qos", "reservation")
_HOSTS = ("nodelist", "exclude")


def hosts_of(record: RunRecord) -> set[str]:
    """The hosts of a run: those that its script wrote when it started, and those that its options name."""
    found = set[str]()
    for path in record.directory.rglob("scheduler_id"):
        with contextlib.suppress(OSError):
            for line in path.read_text("utf-8", "replace").splitlines():
                word, _, value = line.partition(" ")
                found |= set(expand(value)) if word in ("nodes", "host") else set()
    for name in _HOSTS:
        found |= set(expand(str(record.launch.slurm_args.get(name) or "")))
    return found


def expand(hosts: str) -> Iterator[str]:
    """The names of a list of Slurm: ``n[01-03,7],login`` is n01, n02, n03, n7 and login."""
    for part in re.findall(r"(?:[^,\[\s]|\[[^\]]*\])+", hosts):
        pieces = re.findall(r"\[.*?\]|[^\[]+", part)
        choices = [_numbers(piece[1:-1]) if piece.startswith("[") else [piece] for piece in pieces]
        yield from itertools.islice(("".join(each) for each in itertools.product(*choices)), _MOST)


def _numbers(text: str) -> list[str]:
    found = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if dash and first.isdecimal() and last.isdecimal() and int(last) - int(first) < _MOST:
            found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        else:
            found.append(part)
    return found


def sites_of(config: ClusterConfig, records: Iterable[RunRecord]) -> dict[str, str]:
    """What to write instead of the names of clusters, accounts, projects and the like."""
    found: dict[str, dict[str, None]] = {"cluster": {config.cluster_name: None}}
    options: list[Mapping[str, object]] = [record.launch.slurm_args for record in records]
    if config.slurm is not None:
        common = {name: getattr(config.slurm, name) for name in _SITE}
        options += [common, config.slurm.gpu.given, config.slurm.cpu.given, config.slurm.args]
    for own, name in itertools.product(options, _SITE):
        if value := own.get(name):
            found.setdefault(name, {})[str(value)] = None
    for record in records:
        if record.cluster:
            found["cluster"][record.cluster] = None
    if config.runai is not None:
        found["project"] = {config.runai.project: None}
        found["address"] = {re.sub(r"^\w+://|[/:].*", "", config.runai.base_url): None}
    return {name: f"{kind}{number}" for kind, names in found.items() for number, name in enumerate(names, 1)}


def keys_in(data: Any) -> set[str]:
    """Every key of a value's mappings, in lower case."""
    if isinstance(data, dict):
        return {str(key).lower() for key in data}.union(*map(keys_in, data.values()))
    return set().union(*map(keys_in, data)) if isinstance(data, (list, tuple)) else set()
