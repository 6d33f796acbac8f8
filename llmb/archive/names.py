# SPDX-License-Identifier: Apache-2.0
"""The names in runs and their configuration that identify a site: hosts, accounts, projects."""

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from llmb.config import ClusterConfig
from llmb.runs import store
from llmb.runs.nodes import SCHEDULER_ID, nodes_of, written_nodes, written_words
from llmb.runs.record import RunRecord
from llmb.text.node_lists import expand

_SITE = ("account", "qos", "reservation")
_HOSTS = ("nodelist", "exclude")


def hosts_of(record: RunRecord) -> set[str]:
    """The hosts of a run: those of its scheduler, in each attempt, and those that its options name."""
    found = set(nodes_of(record, store.seen_state(record)))
    found |= {name for attempt in record.history for name in expand(attempt.state.nodes)}
    for path in record.directory.rglob(SCHEDULER_ID):
        found |= {name for words in written_nodes(path).values() for name in expand(words)}
    for name in _HOSTS:
        found |= set(expand(str(record.launch.slurm_args.get(name) or "")))
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
        for path in record.directory.rglob(SCHEDULER_ID):
            if cluster := written_words(path).get("cluster"):
                found["cluster"][cluster] = None
    if config.runai is not None:
        found["project"] = {config.runai.project: None}
        found["address"] = {re.sub(r"^\w+://|[/:].*", "", config.runai.base_url): None}
    return {name: f"{kind}{number}" for kind, names in found.items() for number, name in enumerate(names, 1)}


def keys_in(data: Any) -> set[str]:
    """Every key of a value's mappings, in lower case."""
    if isinstance(data, dict):
        return {str(key).lower() for key in data}.union(*map(keys_in, data.values()))
    return set().union(*map(keys_in, data)) if isinstance(data, (list, tuple)) else set()
