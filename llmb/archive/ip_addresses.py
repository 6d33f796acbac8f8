# SPDX-License-Identifier: Apache-2.0
"""Replaces addresses of IPv4 and IPv6 in texts: the same address becomes the same invented one."""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, field

_FIRST_4 = int(ipaddress.IPv4Address("198.18.0.0"))  # a network of 131,072 addresses for benchmarks (RFC 2544)
_FIRST_6 = int(ipaddress.IPv6Address("2001:db8::"))  # a network for documentation (RFC 3849)
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\.?\w|[-+]\w)", re.ASCII)
# The addresses of machines begin with four digits: 2000::/3, fc00::/7, fe80::/10; `x[::2]` and `c10::` do not.
_IPV6 = re.compile(
    r"(?<![\w.])(?<!\b[0-9A-Fa-f]{2}:)[23fF][0-9A-Fa-f]{3}:(?:[0-9A-Fa-f]{0,4}:){1,6}[0-9A-Fa-f]{0,4}(?![\w:])"
)
# What every one contains; both begin with a character that is found fast.
_HINT_4 = re.compile(r"\.\d{1,3}\.\d", re.ASCII)
_HINT_6 = re.compile(r":(?::|[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4}:)")
# What precedes four numbers that are a version: `cudnn==9.1.0.70`, "version": "12.4.5.8", nvidia/cudnn/9.1.0.70.
_VERSION = re.compile(
    r"(?:version|release|driver)\w*\W{0,5}$|[=~<>!]=\s?$|[\w.][-_+/@]$|\bv$"
    r"|(?:nvidia|cuda|cudnn|cublas|cufft|curand|cusolver|cusparse|nccl|nvjitlink|lib|cu\d\d)[\w.-]*\W{1,5}$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """``known``: what replaces each address that was seen, in the order in which they came."""

    known: dict[str, str] = field(default_factory=dict)

    def replace(self, text: str) -> str:
        """The text with invented addresses; those of this machine itself and 0.0.0.0 stay."""
        text = _in_lines(text, _HINT_4, lambda line: _IPV4.sub(self._ipv4, line))
        return _in_lines(text, _HINT_6, lambda line: _IPV6.sub(self._ipv6, line))

    def _ipv4(self, match: re.Match[str]) -> str:
        if _VERSION.search(match.string, max(0, match.start() - 40), match.start()):
            return match[0]
        return self._invented(match[0])

    def _ipv6(self, match: re.Match[str]) -> str:
        return self._invented(match[0])

    def _invented(self, text: str) -> str:
        """What replaces an address; a text that is none, and what names no machine, stays."""
        if text not in self.known:
            try:
                address = ipaddress.ip_address(text)
            except ValueError:
                return text
            if address.is_loopback or address.is_unspecified or text.startswith("255."):
                return text
            first = ipaddress.IPv4Address(_FIRST_4) if address.version == 4 else ipaddress.IPv6Address(_FIRST_6)
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
