# SPDX-License-Identifier: Apache-2.0
"""Removes secrets from texts, and on request the names of users, hosts and folders."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from llmb.archive.ip_addresses import Addresses
from llmb.system.secret_texts import SECRET, hide
from llmb.text.node_lists import expand, fold

_Tree = dict[str, "_Tree"]
# A name may follow the escape sequence of a colour, which ends with a letter; the mark separates them meanwhile.
_COLOUR, _MARK = re.compile(r"\x1b\[[\d;]*m(?=\w)"), "\ue000"
_LEAST = 6  # characters of a value: a shorter one would be found in unrelated text


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """``values``: secrets of this machine; ``names``: what to write instead of each name that is to be removed.

    ``folded``: the same by names without case; ``pattern``: of all names; ``families``: of the lists that Slurm writes
    of some of them, ``node[01-04]``. One pattern, so that thousands of names take one pass. ``homes``: names that are
    replaced only where they are a whole part of a path; ``addresses``: replaces those of hosts, None to keep them.
    """

    values: tuple[str, ...] = ()
    names: Mapping[str, str]
    folded: Mapping[str, str]
    pattern: re.Pattern[str] | None = None
    families: re.Pattern[str] | None = None
    homes: re.Pattern[str] | None = None
    addresses: Addresses | None = None

    def apply(self, text: str) -> tuple[str, int]:
        """The text without secrets and names, and how many secrets it had."""
        count = 0
        for value in self.values:
            count += text.count(value)
            text = text.replace(value, SECRET)
        text, hidden = hide(text)
        return self._without_names(text), count + hidden

    def _without_names(self, text: str) -> str:
        is_coloured = bool(self.names) and "\x1b[" in text
        if is_coloured:
            text = _COLOUR.sub(rf"\g<0>{_MARK}", text)
        if self.families is not None:
            text = self.families.sub(self._list, text)
        if self.pattern is not None:
            text = self.pattern.sub(self._replacement, text)
        if self.homes is not None:
            text = self.homes.sub(self._replacement, text)
        if self.addresses is not None:
            text = self.addresses.replace(text)
        return text.replace(_MARK, "") if is_coloured else text

    def _list(self, match: re.Match[str]) -> str:
        """What replaces a list of Slurm's, ``node[01-04]``: the list of the names that replace its own."""
        return fold(self.folded.get(name.casefold(), "host") for name in expand(match[0]))

    def _replacement(self, match: re.Match[str]) -> str:
        return self.folded.get(match[0].casefold(), "name")

    def in_path(self, path: str) -> str:
        """The path of a file in the archive without names."""
        return self.apply(path)[0]


def redaction(
    secrets: Iterable[str], names: Mapping[str, str] | None = None, homes: Mapping[str, str] | None = None
) -> Redaction:
    """The redaction of these values and names; values that are too short to be secrets are ignored.

    With ``names``, addresses are replaced too, and in paths the ``homes``.

    A name is replaced, in upper or lower case, where it is not part of a longer word: letters, digits and _. Of names
    that begin at the same place, the longest is replaced; what replaces a name is not replaced again.
    """
    values = sorted({value for value in secrets if len(value) >= _LEAST}, key=len, reverse=True)
    is_anonymous, names, homes = names is not None, names or {}, homes or {}
    stems = {match[1] for name in names if (match := re.fullmatch(r"(\D.*?)\d+", name))}
    lists = rf"(?<!\w)(?:{_either(stems)})\[[\d,-]+\]"
    return Redaction(
        values=tuple(values),
        names=names,
        folded={name.casefold(): text for name, text in {**homes, **names}.items()},
        families=re.compile(lists, re.IGNORECASE) if stems else None,
        pattern=re.compile(rf"(?<!\w)(?:{_either(names)})(?!\w)", re.IGNORECASE) if names else None,
        homes=re.compile(rf"(?<=/)(?:{_either(homes)})(?![\w.-])", re.IGNORECASE) if homes else None,
        addresses=Addresses() if is_anonymous else None,
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

    The domains of hosts become ``domain1``, ... in names of other hosts.

    A host's name without its domain is the same host. Names that are words of llmb's own files are kept, since nothing
    could be read otherwise.
    """
    names = {str(folder): text for folder, text in folders.items() if len(folder.parts) > 1}
    names |= {user: f"user{number}" for number, user in enumerate(sorted(set(users)), 1) if _is_name(user)}
    names |= {name: text for name, text in sites.items() if _is_name(name)}
    short = sorted({host.partition(".")[0] for host in hosts})
    numbers = {host: f"host{number}" for number, host in enumerate(short, 1)}
    every = {host: numbers[host.partition(".")[0]] for host in {*hosts, *short}}
    domains = sorted({host.partition(".")[2] for host in hosts if host.count(".") > 1})
    names |= {domain: f"domain{number}" for number, domain in enumerate(domains, 1)}
    return names | {host: text for host, text in every.items() if _is_name(host)}


_OWN_WORDS = frozenset({"local", "slurm", "runai", "localhost", "root", "user", "host", "llmb", "gpu", "cpu", "node"})


def _is_name(word: str) -> bool:
    return len(word) > 1 and word.lower() not in _OWN_WORDS and not word.isdecimal()
