# SPDX-License-Identifier: Apache-2.0
"""Removes secrets from texts, and on request the names of users, hosts and folders."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from llmb.system.secrets import is_secret_name

SECRET = "<secret>"
_LEAST = 6  # characters of a value: a shorter one would be found in unrelated text
# Tokens that services mark by a prefix; a URL's user and password; an HTTP header.
_MARKED = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|nvapi-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|sk-[\w-]{20,}|AKIA[0-9A-Z]{16})\b"
    r"|(?<=://)[^\s/@:'\"]*:[^\s/@'\"]+(?=@)"
    r"|(?<=[Bb]earer )[\w.~+/=-]{8,}"
)
# NAME=value, NAME: value, "NAME": "value"; the name decides.
_NAMED = re.compile(r"""(?<![\w$])([A-Za-z_]\w*)(["']?\s?[=:]\s?["']?)([^\s"',;\\]{6,})""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """``values``: secrets of this machine; ``names``: what to write instead of each name that is to be removed.

    ``families``: beginnings of host names, of which Slurm writes lists, ``node[01-04]``.
    """

    values: tuple[str, ...] = ()
    names: Mapping[str, str]
    families: tuple[str, ...] = ()

    def apply(self, text: str) -> tuple[str, int]:
        """The text without secrets and names, and how many secrets it had."""
        count = 0
        for value in self.values:
            count += text.count(value)
            text = text.replace(value, SECRET)
        text, marked = _MARKED.subn(SECRET, text)

        def without(match: re.Match[str]) -> str:
            nonlocal count
            if not is_secret_name(match[1]) or match[3].startswith((SECRET, "<", "$")) or match[3].isdecimal():
                return match[0]
            count += 1
            return f"{match[1]}{match[2]}{SECRET}"

        text = _NAMED.sub(without, text)
        for family in self.families:
            text = re.sub(rf"(?<!\w){re.escape(family)}\[[\d,-]+\]", "hosts", text)
        for name in sorted(self.names, key=len, reverse=True):
            text = _whole(name).sub(self.names[name], text)
        return text, count + marked

    def in_path(self, path: str) -> str:
        """The path of a file in the archive without names."""
        return self.apply(path)[0]


def _whole(name: str) -> re.Pattern[str]:
    """A pattern of the name where it is not part of another word."""
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)


def redaction(secrets: Iterable[str], names: Mapping[str, str] | None = None) -> Redaction:
    """The redaction of these values and names; values that are too short to be secrets are ignored."""
    values = sorted({value for value in secrets if len(value) >= _LEAST}, key=len, reverse=True)
    stems = {match[1] for name in names or {} if (match := re.fullmatch(r"(\D.*?)\d+", name))}
    return Redaction(values=tuple(values), names=names or {}, families=tuple(sorted(stems, key=len, reverse=True)))


def anonymous(
    users: Iterable[str], hosts: Iterable[str], folders: Mapping[PurePath, str], sites: Mapping[str, str]
) -> dict[str, str]:
    """What to write instead of these names: ``user1``, ``host1``, and the given text for each folder and of ``sites``.

    A host's name without its domain is the same host. Names that are words of llmb's own files are kept, since nothing
    could be read otherwise.
    """
    names = {str(folder): text for folder, text in folders.items() if len(folder.parts) > 1}
    names |= {user: f"user{number}" for number, user in enumerate(sorted(set(users)), 1) if _is_name(user)}
    names |= {name: text for name, text in sites.items() if _is_name(name)}
    short = sorted({host.partition(".")[0] for host in hosts})
    numbers = {host: f"host{number}" for number, host in enumerate(short, 1)}
    every = {host: numbers[host.partition(".")[0]] for host in {*hosts, *short}}
    return names | {host: text for host, text in every.items() if _is_name(host)}


_OWN_WORDS = frozenset({"local", "slurm", "runai", "localhost", "root", "user", "host", "llmb", "gpu", "cpu", "node"})


def _is_name(word: str) -> bool:
    return len(word) > 1 and word.lower() not in _OWN_WORDS and not word.isdecimal()
