# SPDX-License-Identifier: Apache-2.0
"""Removes secrets from texts, and on request names of users, hosts, folders, and addresses."""

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import PurePath

from llmb.core.node_lists import expand, fold
from llmb.core.secret_patterns import SECRET, hide
from llmb.core.values import dataclass

# a network of 131,072 addresses for benchmarks (RFC 2544)
_FIRST_4 = int(ipaddress.IPv4Address("198.18.0.0"))
_FIRST_6 = int(ipaddress.IPv6Address("2001:db8::"))  # a network for documentation (RFC 3849)
# Letters may surround an address: `\n10.0.0.1` in JSON, node_10.0.0.1.log.
_IPV4 = re.compile(r"(?<!\d)(?<!\d\.)(?:\d{1,3}\.){3}\d{1,3}(?!\.?\d)", re.ASCII)
# The addresses of machines begin with four digits: 2000::/3, fc00::/7, fe80::/10; `x[::2]` and
# `c10::` do not.
_IPV6 = re.compile(
    r"(?<![\w.])(?<!\b[0-9A-Fa-f]{2}:)[23fF][0-9A-Fa-f]{3}:"
    r"(?:[0-9A-Fa-f]{0,4}:){1,6}[0-9A-Fa-f]{0,4}(?![\w:])"
)
# What every one contains; both begin with a character that is found fast.
_HINT_4 = re.compile(r"\.\d{1,3}\.\d", re.ASCII)
_HINT_6 = re.compile(r":(?::|[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4}:)")
# What precedes four numbers that are clearly a version: `cudnn==9.1.0.70`, "version": "12.4.5.8",
# nvidia/cudnn/9.1.0.70, v9.1.0.70. Other versions are replaced: a kept address would be worse.
_VERSION = re.compile(
    r"version[\s\"'\\:=]{1,7}$|\w[=~<>!]=$|\bv$"
    r"|(?:cudnn|cublas|cufft|curand|cusolver|cusparse|nvjitlink)"
    r"(?:[-_]cu\d\d)?(?:\.so\.|[\s\"'\\:=/_-]{1,7})$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Replaces IP addresses with invented ones."""

    #: The replacement of each address, in the order in which they came.
    known: dict[str, str] = field(default_factory=dict)

    def replace(self, text: str) -> str:
        """Return the text with invented addresses. This machine's own and 0.0.0.0 stay."""
        text = _in_lines(text, _HINT_4, lambda line: _IPV4.sub(self._ipv4, line))
        return _in_lines(text, _HINT_6, lambda line: _IPV6.sub(self._ipv6, line))

    def _ipv4(self, match: re.Match[str]) -> str:
        if _VERSION.search(match.string, max(0, match.start() - 40), match.start()):
            return match[0]
        return self._invented(match[0])

    def _ipv6(self, match: re.Match[str]) -> str:
        return self._invented(match[0])

    def _invented(self, text: str) -> str:
        """Return the replacement of an address. Other texts, and addresses of no machine, stay."""
        if text not in self.known:
            try:
                address = ipaddress.ip_address(text)
            except ValueError:
                return text
            if address.is_loopback or address.is_unspecified or text.startswith("255."):
                return text
            first = (
                ipaddress.IPv4Address(_FIRST_4)
                if address.version == 4
                else ipaddress.IPv6Address(_FIRST_6)
            )
            exploded = address.exploded
            if exploded not in self.known:
                self.known[exploded] = str(first + len(self.known) + 1)
            self.known[text] = self.known[exploded]
        return self.known[text]


def _in_lines(text: str, hint: re.Pattern[str], change: Callable[[str], str]) -> str:
    """The text with each line changed that contains ``hint``."""
    parts: list[str] = []
    end = 0
    while match := hint.search(text, end):
        start, stop = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
        stop = len(text) if stop < 0 else stop
        parts += (text[end:start], change(text[start:stop]))
        end = stop
    return "".join([*parts, text[end:]])


_Tree = dict[str, "_Tree"]
# A name may follow the escape sequence of a colour, which ends with a letter; the mark separates
# them meanwhile.
_COLOUR, _MARK = re.compile(r"\x1b\[[\d;]*m(?=\w)"), "\ue000"
_LEAST = 6  # characters of a value: a shorter one would be found in unrelated text


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """The secrets and names to remove from texts."""

    #: Secrets of this machine.
    values: tuple[str, ...] = ()
    #: Replacements by name.
    names: Mapping[str, str]
    #: The replacements by the name in lower case.
    folded: Mapping[str, str]
    #: Matches all names, so that thousands take one pass.
    pattern: re.Pattern[str] | None = None
    #: Matches the lists that Slurm writes of some names, ``node[01-04]``.
    families: re.Pattern[str] | None = None
    #: Names that are replaced only as a whole part of a path.
    homes: re.Pattern[str] | None = None
    #: Replaces addresses. None keeps them.
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
        """Return the replacement of Slurm's list ``node[01-04]``, a list too."""
        return fold(self.folded.get(name.casefold(), "host") for name in expand(match[0]))

    def _replacement(self, match: re.Match[str]) -> str:
        return self.folded.get(match[0].casefold(), "name")

    def in_path(self, path: str) -> str:
        """The path of a file in the archive without names."""
        return self.apply(path)[0]


def redaction(
    secrets: Iterable[str],
    names: Mapping[str, str] | None = None,
    homes: Mapping[str, str] | None = None,
) -> Redaction:
    """Return the redaction of these values and names. Too short values are no secrets.

    With ``names``, addresses are replaced too, and in paths the ``homes``. A name is replaced, in
    upper or lower case, unless it is part of a longer word: letters, digits and _. Of names that
    begin at the same place, the longest is replaced. A replacement is not replaced again.
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
        homes=re.compile(rf"(?<=/)(?:{_either(homes)})(?![\w.-])", re.IGNORECASE)
        if homes
        else None,
        addresses=Addresses() if is_anonymous else None,
    )


def _either(words: Iterable[str]) -> str:
    """Return a pattern of any of the ``words``, as a tree of characters: fast for thousands."""
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
    users: Iterable[str],
    hosts: Iterable[str],
    folders: Mapping[PurePath, str],
    sites: Mapping[str, str],
) -> dict[str, str]:
    """Return replacements: ``user1``, ``host1``, and the given text for each folder and site.

    The domains of hosts become ``domain1``, ... in names of other hosts. A host's name without its
    domain is the same host. Words of llmb's own files are kept: nothing could be read otherwise.
    """
    names = {str(folder): text for folder, text in folders.items() if len(folder.parts) > 1}
    names |= {
        user: f"user{number}" for number, user in enumerate(sorted(set(users)), 1) if _is_name(user)
    }
    names |= {name: text for name, text in sites.items() if _is_name(name)}
    short = sorted({host.partition(".")[0] for host in hosts})
    numbers = {host: f"host{number}" for number, host in enumerate(short, 1)}
    host_texts = {host: numbers[host.partition(".")[0]] for host in {*hosts, *short}}
    domains = sorted({host.partition(".")[2] for host in hosts if host.count(".") > 1})
    names |= {domain: f"domain{number}" for number, domain in enumerate(domains, 1)}
    return names | {host: text for host, text in host_texts.items() if _is_name(host)}


_OWN_WORDS = frozenset(
    {"local", "slurm", "runai", "localhost", "root", "user", "host", "llmb", "gpu", "cpu", "node"}
)


def _is_name(word: str) -> bool:
    return len(word) > 1 and word.lower() not in _OWN_WORDS and not word.isdecimal()
