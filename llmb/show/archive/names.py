# SPDX-License-Identifier: Apache-2.0
"""The names that identify a site: in records, and in texts by forms of NCCL, Slurm and paths."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmb.contract.record import RunRecord
from llmb.contract.sbatch import NODE_OPTIONS
from llmb.contract.schema import ClusterConfig
from llmb.core.node_lists import expand
from llmb.core.secret_patterns import lines_with
from llmb.kit.bashscript import SCHEDULER_ID
from llmb.plan.read_config import raised_by
from llmb.run import store
from llmb.run.store import nodes_of, written_nodes, written_words

_SITE = ("account", "qos", "reservation")


def hosts_of(record: RunRecord) -> set[str]:
    """Return the hosts of a run: its scheduler's, in each attempt, and its options'."""
    hosts = set(nodes_of(record, store.seen_state(record)))
    hosts |= {name for attempt in record.history for name in expand(attempt.state.nodes)}
    for path in record.directory.rglob(SCHEDULER_ID):
        hosts |= {name for words in written_nodes(path).values() for name in expand(words)}
    for name in NODE_OPTIONS:
        hosts |= set(expand(str(record.launch.slurm_args.get(name) or "")))
    return hosts


def sites_of(config: ClusterConfig, records: Iterable[RunRecord]) -> dict[str, str]:
    """Return replacements for the names of clusters, accounts, projects, boots and the like."""
    names_by_kind: dict[str, dict[str, None]] = {"cluster": {config.cluster_name: None}}
    options: list[Mapping[str, object]] = [record.launch.slurm_args for record in records]
    if config.slurm is not None:
        common = {name: getattr(config.slurm, name) for name in _SITE}
        options += [common, config.slurm.gpu.given, config.slurm.cpu.given, config.slurm.args]
    for arguments, name in itertools.product(options, _SITE):
        if value := arguments.get(name):
            names_by_kind.setdefault(name, {})[str(value)] = None
    for record in records:
        names_by_kind.setdefault("boot", {})[record.submitter.boot] = None
        if record.cluster:
            names_by_kind["cluster"][record.cluster] = None
        for path in record.directory.rglob(SCHEDULER_ID):
            if cluster := written_words(path).get("cluster"):
                names_by_kind["cluster"][cluster] = None
    for kind, names in _names_in_section(config).items():
        names_by_kind.setdefault(kind, {}).update(dict.fromkeys(names))
    return {
        name: f"{kind}{number}"
        for kind, names in names_by_kind.items()
        for number, name in enumerate(names, 1)
    }


def _names_in_section(config: ClusterConfig) -> Mapping[str, Sequence[str]]:
    """Return the names of the site that the cluster type knows in its section, by their kind.

    Raises LlmbError if the type's own function fails: an archive without it would show the names.
    """
    if config.section is None:
        return {}
    try:
        return {kind: [*names] for kind, names in config.of_type.site_names(config.section).items()}
    except Exception as error:
        raise raised_by(config.of_type, "site_names", error) from error


def keys_in(data: Any) -> set[str]:
    """Every key of a value's mappings, in lower case."""
    if isinstance(data, dict):
        return {str(key).lower() for key in data}.union(*map(keys_in, data.values()))
    return set().union(*map(keys_in, data)) if isinstance(data, (list, tuple)) else set()


_NCCL = "] NCCL "
_NCCL_PREFIX = re.compile(r"(?<![\w.-])([A-Za-z0-9][\w.-]{0,252}):\d{1,9}:\d{1,9} \[\d{1,5}$")
_ESCAPE = re.compile(r"\x1b\[[\d;]*m")
_LIST = r"[A-Za-z](?:[\w.-]|\[[\d,-]{1,2000}\]|,(?=\w))*"
# Variables and options whose value is a host, or a list of them; words that logs write before one.
_BEFORE = re.compile(
    r"(?<![A-Za-z])(?i:(?:PET_)?(?:MASTER|RDZV|HEAD)_(?:ADDR|NODE|HOST|ENDPOINT)"
    r"|SLURMD?_\w*(?:NODELIST|NODENAME|HOST)"
    r"|(?:Req|Exc|Alloc)?NodeList|Node(?:Host)?Name|NODE_NAME|BatchHost|HOSTNAME)"
    rf"(?:\\?[\"']?\s?=\s?|\\?[\"']:\s?)\\?[\"']?({_LIST})"
    rf"|--(?:master|rdzv|node)[-_]?(?:addr|endpoint|list)[\"']?[=,\s]\s?[\"']?({_LIST})"
    rf"|\b(?:srun|slurmstepd): (?:error: )?({_LIST}): tasks? \d|\bslurmstepd-({_LIST}):"
    rf"|\*\*\* (?:JOB|STEP) [\d.]+ ON ({_LIST}) |\bhost {{2,12}}: ({_LIST})|\bconnect to"
    rf" (?:\[?({_LIST})\]?:\d|\(({_LIST}), \d)|\btcp://({_LIST}):\d"
    rf"|\[({_LIST}):\d{{2,9}}\] \*\*\* |\bon node ({_LIST}) exited "  # Open MPI
    rf"|\bllmb (?:node|telemetry) ({_LIST}): |\"telemetry\":1,\"host\":\"({_LIST})\""
)
# fmt: off
_BEFORE_WORDS = (
    "_addr", "_node", "_host", "endpoint", "nodelist", "nodename", "batchhost", "hostname",
    "master-addr", "rdzv", "srun: ", "slurmstepd", " on ", "host  ", "connect to", "llmb node ",
    "telemetry", "tcp://", "] *** ",
)
# fmt: on
_NO_HOST = frozenset(
    {
        "none",
        "null",
        "unknown",
        "true",
        "false",
        "localhost",
        "str",
        "any",
        "optional",
        "self",
        "hostname",
        "host",
        "node",
        "nodes",
        "name",
    }
)
_HOME = re.compile(
    r"/(?:home|homes|users?|people|staff)/([A-Za-z_][\w.-]{1,63})(?![\w.-])", re.IGNORECASE
)
_USER = re.compile(
    r"(?<![A-Za-z_])(?:USER|LOGNAME|SLURM_JOB_USER|SUDO_USER|USERNAME)"
    r"(?:=|\\?[\"']:\s?)\\?[\"']?([A-Za-z_][\w.-]{1,63})"
    r"|\bUserId=([A-Za-z_][\w.-]{1,63})\("
)
_USER_WORDS = ("USER", "LOGNAME", "UserId=")
# Folders beside the homes of users, and accounts that every machine or image has.
# fmt: off
_NO_USER = frozenset({
    "shared", "share", "common", "public", "projects", "project", "scratch", "data", "datasets",
    "models", "tmp", "admin", "root", "user", "users", "home", "ubuntu", "ec2-user", "nobody",
    "slurm", "docker", "runner", "none", "true", "false", "name", "username", "llmb",
})
# fmt: on


@dataclass(slots=True)
class FoundNames:
    """The names in texts: ``hosts``, ``users`` by variables, ``homes`` by paths of home folders."""

    hosts: set[str] = field(default_factory=set)
    users: set[str] = field(default_factory=set)
    homes: set[str] = field(default_factory=set)

    def add(self, text: str) -> None:
        self.hosts |= hosts_in(text)
        self.users |= users_in(text)
        self.homes |= homes_in(text)


def hosts_in(text: str) -> set[str]:
    """Return the hosts in NCCL's lines, variables, options and Slurm's messages, no addresses."""
    hosts: set[str] = set()
    place = text.find(_NCCL)
    while place >= 0:
        prefix = _ESCAPE.sub(" ", text[max(text.rfind("\n", 0, place), place - 300, 0) : place])
        if match := _NCCL_PREFIX.search(prefix):
            hosts.add(match[1])
        place = text.find(_NCCL, place + 1)
    for line in _lines_with(text, _BEFORE_WORDS):
        for match in _BEFORE.finditer(line):
            hosts.update(expand(match[match.lastindex or 0].rstrip(".,-")))
    return {name for name in hosts if _is_host(name)}


def _is_host(name: str) -> bool:
    """Return True if a word can be a host.

    It has a digit or a point, or is a longer lower-case word but a placeholder.
    """
    if any(char.isdigit() or char == "." for char in name):
        return not name.replace(".", "").isdecimal()
    return len(name) > 3 and name.islower() and name not in _NO_HOST


def users_in(text: str) -> set[str]:
    users = {
        match[match.lastindex or 0]
        for line in _lines_with(text, _USER_WORDS)
        for match in _USER.finditer(line)
    }
    return {name for name in users if name.lower() not in _NO_USER}


def homes_in(text: str) -> set[str]:
    """The users whose home folders paths name, as /home/ana or /lustre/users/ana."""
    return {match[1] for match in _HOME.finditer(text) if match[1].lower() not in _NO_USER}


def _lines_with(text: str, words: tuple[str, ...]) -> Iterator[str]:
    """Each line that has one of these words, which are lower-case or exact."""
    exact = any(word != word.lower() for word in words)
    lower = text if exact else text.lower()
    if len(lower) != len(text):
        lower = text  # a letter whose lower case is longer
    for start in lines_with(lower, words):
        end = text.find("\n", start)
        yield text[start : end if end >= 0 else len(text)]
