# SPDX-License-Identifier: Apache-2.0
"""Read the links of a run in the lines that NCCL logs when it starts.

Each rank logs ``NET/IB: [0] mlx5_0:uverbs0:1/IB provider=Mlx5 speed=400000 ...`` for each of its
NICs, then ``NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>``, ``Using
network IB``, ``NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 24)`` and ``comm
0x55f0 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0``.
"""

import re
from dataclasses import fields, replace

from llmb.contract.samples import Links
from llmb.core.scan import REACH, Hit, strip_escapes

NOTHING = Links()
_DEVICE = re.compile(rb"[\w.-]{1,80}:\d{1,4}/(IB|RoCE)\b")
_SPEED = re.compile(rb"NET/IB: \[\d{1,4}\] [^\r\n]{1,200}? speed=(\d{1,9})\b")
_COMMUNICATOR = re.compile(
    rb"nRanks (\d{1,9}) nNodes (\d{1,9}) localRanks (\d{1,9}) localRank \d{1,9} MNNVL ([01])"
)
_NVLS = re.compile(rb"NVLS multicast support is (not )?available")
_ALGORITHM = re.compile(rb"NCCL_ALGO set by environment to (\w{1,40})")


def nics_of(text: bytes) -> Links:
    """Return the NICs of one node in the line that begins ``NET/IB : Using``."""
    links = _DEVICE.findall(text.split(b";", 1)[0])
    if not links:
        return NOTHING
    kinds = {kind.decode() for kind in links}
    return Links(nics=len(links), link=kinds.pop() if len(kinds) == 1 else "")


def links_at(hit: Hit) -> Links:
    """Return what the lines around ``Using network`` show, which one rank or several printed.

    Needles of their own would cost all other logs a search.
    """
    before = bytes(hit.block.data[max(0, hit.at - REACH) : hit.at])
    behind = strip_escapes(hit.block.behind(hit.at))
    speeds = {int(speed) // 1000 for speed in _SPEED.findall(before)}
    nvls, algorithm = _NVLS.search(behind), _ALGORITHM.search(behind)
    links = Links(
        nvls=None if nvls is None else nvls[1] is None,
        nic_gbit=speeds.pop() if len(speeds) == 1 else None,
        algorithm="" if algorithm is None else algorithm[1].decode().lower(),
    )
    communicators = [tuple(map(int, match)) for match in _COMMUNICATOR.findall(behind)]
    if not communicators:
        return links
    _, nodes, gpus, mnnvl = max(communicators)
    return replace(links, nodes=nodes or None, gpus_per_node=gpus or None, mnnvl=mnnvl == 1)


def merged(earlier: Links, later: Links) -> Links:
    """Return the ``later`` links with the facts of the ``earlier`` ones that they lack."""
    if NOTHING in (earlier, later):
        return earlier if later == NOTHING else later
    known = {
        fact.name: getattr(later, fact.name)
        for fact in fields(Links)
        if getattr(later, fact.name) not in (None, "")
    }
    return replace(earlier, **known)
