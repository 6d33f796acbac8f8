# SPDX-License-Identifier: Apache-2.0
"""Removes secrets from texts, and on request the names of users, hosts and folders."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from llmb.system.secrets import is_secret_name
from llmb.text.node_lists import expand, fold

_Tree = dict[str, "_Tree"]
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

    ``folded``: the same by names without case; ``pattern``: of all names; ``families``: of the lists that Slurm writes
    of some of them, ``node[01-04]``. One pattern, so that thousands of names take one pass.
    """

    values: tuple[str, ...] = ()
    names: Mapping[str, str]
    folded: Mapping[str, str]
    pattern: re.Pattern[str] | None = None
    families: re.Pattern[str] | None = None

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
        if self.families is not None:
            text = self.families.sub(self._list, text)
        if self.pattern is not None:
            text = self.pattern.sub(self._replacement, text)
        return text, count + marked

    def _list(self, match: re.Match[str]) -> str:
        """What replaces a list of Slurm's, ``node[01-04]``: the list of the names that replace its own."""
        return fold(self.folded.get(name.casefold(), "host") for name in expand(match[0]))

    def _replacement(self, match: re.Match[str]) -> str:
        return self.folded.get(match[0].casefold(), "name")

    def in_path(self, path: str) -> str:
        """The path of a file in the archive without names."""
        return self.apply(path)[0]


def redaction(secrets: Iterable[str], names: Mapping[str, str] | None = None) -> Redaction:
    """The redaction of these values and names; values that are too short to be secrets are ignored.

    A name is replaced, in upper or lower case, where it is not part of a longer word: letters, digits and _. Of names
    that begin at the same place, the longest is replaced; what replaces a name is not replaced again.
    """
    values = sorted({value for value in secrets if len(value) >= _LEAST}, key=len, reverse=True)
    names = names or {}
    stems = {match[1] for name in names if (match := re.fullmatch(r"(\D.*?)\d+", name))}
    lists = rf"(?<!\w)(?:{_either(stems)})\[[\d,-]+\]"
    return Redaction(
        values=tuple(values),
        names=names,
        folded={name.casefold(): text for name, text in names.items()},
        families=re.compile(lists, re.IGNORECASE) if stems else None,
        pattern=re.compile(rf"(?<!\w)(?:{_either(names)})(?!\w)", re.IGNORECASE) if names else None,
    )


def _either(words: Iterable[str]) -> str:
    """A pattern of any of the ``words``, the longest first: a tree of their characters, which is fast for thousands."""
    tree: _Tree = {}
    for word in words:
        node = tree
        for char in word:
            node = node.setdefault(char, {})
        node[""] = {}
    return _pattern(tree)


def _pattern(tree: _Tree) -> str:
    """The pattern of a tree. Where a word may end or continue, it continues if it can."""
    chain = ""
    while len(tree) == 1 and "" not in tree:
        ((char, tree),) = tree.items()
        chain += re.escape(char)
    parts = [re.escape(char) + _pattern(below) for char, below in tree.items() if char]
    if parts:
        chain += f"(?:{'|'.join(parts)})" + ("?" if "" in tree else "")
    return chain


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
